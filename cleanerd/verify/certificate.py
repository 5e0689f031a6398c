"""Signed statements of one broker about a key: which files were searched, and what was found (U-86).

::

    {"kind": "cleanerd erasure certificate", "format": 1,
     "statement": {...},                                     docs/erase-key.md has its fields
     "signature": {"algorithm": "ed25519", "public_key": "ed25519:...", "value": "..."}}

The signature covers the statement as canonical JSON: ASCII, names sorted, no spaces. A statement has a salted hash of
the key, never the key. ``cryptography`` comes with the extra ``cleanerd[erase]``; no other module needs it.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import json
import os
import stat
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from cleanerd.errors import ConfigError, CorruptionError, system_error
from cleanerd.fsio import safe_open
from cleanerd.fsio.json_text import line_bytes
from cleanerd.fsio.state_files import DAMAGE, describe_damage
from cleanerd.state.document import Document
from cleanerd.state.erasure_requests import KeyHash, require_hash

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM: Final = "ed25519"
PREFIX: Final = f"{ALGORITHM}:"
_PUBLIC_KEY_BYTES: Final = 32
MAX_BYTES: Final = 256 * 1024 * 1024
_MAX_KEY_BYTES: Final = 16 * 1024
_KEY_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class FileStatement:
    """A file that was searched. ``name``: below the directory. ``state``: ``live``, or why the file exists."""

    name: str
    state: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ReplicaStatement:
    """A replica of a partition whose offsets from ``from_offset`` up to ``to_offset`` (exclusive) were searched."""

    partition: int
    topic_id: str | None
    directory_id: str | None
    from_offset: int
    to_offset: int
    files: tuple[FileStatement, ...]


@dataclass(frozen=True, slots=True)
class OtherPlace:
    """Another directory of the host that has, or may have, records of the topic."""

    path: str
    partition: int | None
    state: str
    files: tuple[FileStatement, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """The copies of a key on one broker's host.

    ``found``: records with the key. ``unsearched``: places and bytes that could not be searched. The certificate proves
    the key's absence if both are empty. ``request``: the id of the erasure request; None without one.
    """

    cleanerd: str
    host: str
    cluster_id: str | None
    broker: int | None
    topic: str
    key: KeyHash
    request: str | None
    began_ms: int
    ended_ms: int
    expires_ms: int
    broker_running: bool
    found: int
    unsearched: tuple[str, ...]
    replicas: tuple[ReplicaStatement, ...]
    other_places: tuple[OtherPlace, ...]


@dataclass(frozen=True, slots=True)
class _Signature:
    algorithm: Literal["ed25519"]
    public_key: str
    value: str


@dataclass(frozen=True, slots=True)
class _CertificateFile:
    kind: Literal["cleanerd erasure certificate"]
    statement: Statement
    signature: _Signature


_FILE: Final = Document("certificate", _CertificateFile, check=lambda found: require_hash(found.statement.key))


@dataclass(frozen=True, slots=True)
class Certificate:
    """A statement with a valid signature. ``public_key``: the signer's, as :func:`parse_public_key` reads it."""

    path: Path
    statement: Statement
    public_key: str


def signed(statement: Statement, key: SigningKey) -> bytes:
    """The bytes of the certificate's file."""
    value = base64.b64encode(key.sign(_canonical(asdict(statement)))).decode()
    signature = _Signature(ALGORITHM, key.public_key, value)
    return _FILE.to_bytes(_CertificateFile("cleanerd erasure certificate", statement, signature)) + b"\n"


def read_certificate(path: Path) -> Certificate:
    """A certificate whose signature is valid. The caller has to check whether its key is trusted.

    Raises:
        CorruptionError: it is not a certificate, was changed after it was signed, or is of a newer release.
        CleanerdError: it cannot be read.
        ConfigError: ``cleanerd[erase]`` is not installed.
    """
    require_cryptography()
    try:
        data = _read(path, MAX_BYTES)
        # Parse once for both uses: of two fields with the same name, the signed one must be the one that is used.
        document = json.loads(data)
        found = _FILE.parse(line_bytes(document))
        value = base64.b64decode(found.signature.value, validate=True)
        # The signature covers the text of the file, including fields of a newer release.
        is_right = verify_signature(found.signature.public_key, value, _canonical(document["statement"]))
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error
    except DAMAGE as error:
        raise CorruptionError(f"is not a certificate of cleanerd: {describe_damage(error)}", where=str(path)) from None
    if not is_right:
        raise CorruptionError("its signature is wrong: it was changed after it was signed", where=str(path))
    return Certificate(path, found.statement, parse_public_key(found.signature.public_key))


def _canonical(statement: Mapping[str, Any]) -> bytes:
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def require_cryptography() -> None:
    """Check that ``cleanerd[erase]`` is installed.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("cryptography") is None:
        raise ConfigError("not installed: cryptography", hint="pip install '/path/to/cleanerd-VERSION.whl[erase]'")


class SigningKey:
    """An Ed25519 key that signs certificates."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key = PREFIX + base64.b64encode(private.public_key().public_bytes_raw()).decode()

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


def create_key(path: Path) -> SigningKey:
    """Create a key in a new file that only its owner may read, and the public key in ``<path>.pub``.

    Raises:
        ConfigError: the file exists; ``cleanerd[erase]`` is not installed.
        CleanerdError: it cannot be written.
    """
    require_cryptography()
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an optional package
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415

    private = Ed25519PrivateKey.generate()
    data = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key = SigningKey(private)
    try:
        _write_new(path, data, _KEY_MODE)
        _write_new(path.with_name(path.name + ".pub"), f"{key.public_key}\n".encode(), 0o644)
    except FileExistsError as error:
        raise ConfigError("exists already", where=str(error.filename), hint="a key is never replaced") from None
    except OSError as error:
        raise system_error("cannot be written", str(error.filename or path), error) from error
    return key


def _write_new(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        os.fchmod(descriptor, mode)  # whatever the umask
        safe_open.write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_key(path: Path) -> SigningKey:
    """The key in a file that only its owner may read.

    Raises:
        ConfigError: it does not exist, other users may read it, or it is not an Ed25519 key.
        CleanerdError: it cannot be read.
    """
    require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - an optional package
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

    way_out = "cleanerd erase keygen makes one"
    try:
        data = _read(path, _MAX_KEY_BYTES, private=True)
    except FileNotFoundError:
        raise ConfigError("does not exist", where=str(path), hint=way_out) from None
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error
    try:
        private = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError("is not a private key without a password (PEM)", where=str(path), hint=way_out) from None
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigError("is a private key of another algorithm, not Ed25519", where=str(path), hint=way_out)
    return SigningKey(private)


def _read(path: Path, max_bytes: int, *, private: bool = False) -> bytes:
    """The content of a plain file. Raises OSError; ConfigError if it is ``private`` and other users may read it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError("is not a plain file", where=str(path))
        if private and status.st_mode & 0o077:
            raise ConfigError("other users may read or change it", where=str(path), hint=f"chmod 600 {path}")
        if status.st_size > max_bytes:
            raise ConfigError(f"has more than {max_bytes:,} bytes", where=str(path))
        return safe_open.read_at(descriptor, status.st_size, 0)
    finally:
        os.close(descriptor)


def parse_public_key(text: str) -> str:
    """A public key in canonical form.

    Raises:
        ValueError: it is not a key.
    """
    try:
        data = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        data = b""
    if not text.startswith(PREFIX) or len(data) != _PUBLIC_KEY_BYTES:
        raise ValueError(
            f"{text[:60]!r} is not a public key: {PREFIX} and 44 characters, as cleanerd erase keygen prints"
        )
    return PREFIX + base64.b64encode(data).decode()


def verify_signature(public_key: str, signature: bytes, data: bytes) -> bool:
    """Whether ``signature`` is valid for ``data``. Raises ValueError if ``public_key`` is not a key."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an optional package
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    raw = base64.b64decode(parse_public_key(public_key).removeprefix(PREFIX))
    try:
        Ed25519PublicKey.from_public_bytes(raw).verify(signature, data)
    except InvalidSignature:
        return False
    return True
