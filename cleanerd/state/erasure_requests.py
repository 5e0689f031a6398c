"""Open erasure requests: ``erasures.json`` in the state directory, and one request as a file for other hosts (U-88).

A request has a salted hash of the key, never the key. The daemon gives it priority until ``cleanerd erase certify``
finds no copy of the key on this host. A file that cannot be used counts as absent, with a warning.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from cleanerd.errors import CleanerdError, ConfigError, system_error
from cleanerd.fsio.state_files import DAMAGE, NewerFormatError, describe_damage, set_aside
from cleanerd.state.document import Document

FILE_NAME: Final = "erasures.json"
SALT_BYTES: Final = 32
KEPT_MS: Final = 90 * 86_400_000
"""How long a request is stored after it was certified on this host."""
_MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KeyHash:
    """SHA-256 of a salt and a key. It identifies the key to a reader who has or guesses it."""

    salt: str
    sha256: str

    @classmethod
    def of(cls, key: bytes, salt: bytes) -> KeyHash:
        return cls(salt.hex(), hashlib.sha256(salt + key).hexdigest())

    def is_of(self, key: bytes) -> bool:
        return hmac.compare_digest(self.sha256, KeyHash.of(key, bytes.fromhex(self.salt)).sha256)


def new_salt() -> bytes:
    return os.urandom(SALT_BYTES)


def new_id() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """The request to remove a key of a topic by ``deadline_ms``.

    ``topic_id`` as Kafka writes it; None: unknown. ``tombstones``: the offset of the tombstone by partition.
    ``certified_ms``: when no copy was left on this host; None: not yet.
    """

    id: str
    cluster_id: str
    topic: str
    topic_id: str | None
    key: KeyHash
    requested_ms: int
    deadline_ms: int
    tombstones: Mapping[int, int] = field(default_factory=dict)
    certified_ms: int | None = None

    def with_tombstones(self, tombstones: Mapping[int, int]) -> ErasureRequest:
        return replace(self, tombstones=tombstones)

    @property
    def is_open(self) -> bool:
        return self.certified_ms is None

    def is_about(self, topic: str, key: bytes) -> bool:
        return self.topic == topic and self.key.is_of(key)

    def is_overdue(self, now_ms: int) -> bool:
        return self.is_open and now_ms > self.deadline_ms


@dataclass(frozen=True, slots=True)
class _Requests:
    requests: tuple[ErasureRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class _RequestFile:
    """The file of a request for other hosts."""

    kind: Literal["cleanerd erasure request"]
    request: ErasureRequest


def require_hash(found: KeyHash) -> None:
    """Raises ValueError if it is not a salt and a hash."""
    if len(bytes.fromhex(found.salt)) != SALT_BYTES or len(bytes.fromhex(found.sha256)) != SALT_BYTES:
        raise ValueError("salt and hash have 32 bytes each")


def _check_all(found: _Requests) -> None:
    for each in found.requests:
        require_hash(each.key)


_DOCUMENT: Final = Document(FILE_NAME, _Requests, check=_check_all)
_FILE: Final = Document("request", _RequestFile, check=lambda found: require_hash(found.request.key))


class ErasureRequests:
    """The requests of one state directory; ``warnings``: why files could not be used."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE_NAME
        self.warnings: list[str] = []

    def load(self) -> list[ErasureRequest]:
        """All requests, the oldest first. Does not raise: see ``warnings``."""
        found = _DOCUMENT.load(self.path.parent, self.warnings)
        return [] if found is None else list(found.requests)

    def save(self, request: ErasureRequest) -> None:
        """Store a request, replacing one with the same id.

        Raises:
            CleanerdError: the state directory cannot be written.
            ConfigError: a newer release wrote the file.
        """
        self._change(lambda known: [*(each for each in known if each.id != request.id), request])

    def certified(self, request_id: str, now_ms: int) -> None:
        """Note that no copy of a request's key is left on this host. Raises as :meth:`save`."""

        def change(known: list[ErasureRequest]) -> list[ErasureRequest]:
            done = [replace(each, certified_ms=now_ms) if each.id == request_id else each for each in known]
            return [each for each in done if each.certified_ms is None or each.certified_ms > now_ms - KEPT_MS]

        self._change(change)

    def forget(self, request_id: str) -> bool:
        """Remove a request; False: there is none with this id. Raises as :meth:`save`."""
        if request_id not in [each.id for each in self.load()]:
            return False
        self._change(lambda known: [each for each in known if each.id != request_id])
        return True

    def _change(self, change: Callable[[list[ErasureRequest]], list[ErasureRequest]]) -> None:
        try:
            with _DOCUMENT.locked(self.path.parent):
                _DOCUMENT.write(self.path.parent, _Requests(tuple(change(self._load_for_change()))))
        except OSError as error:
            raise CleanerdError(
                f"cannot be written: {error.strerror}",
                where=str(error.filename or self.path),
                hint="see cleanerd.state.dir",
            ) from error

    def _load_for_change(self) -> list[ErasureRequest]:
        try:
            found = _DOCUMENT.get(self.path.parent)
        except NewerFormatError as error:
            raise ConfigError(str(error), where=str(self.path), hint="use the newer release") from error
        except DAMAGE as error:
            aside = set_aside(self.path)
            self.warnings.append(f"{self.path}: damaged ({error}); set aside as {aside.name} and ignored")
            return []
        return [] if found is None else list(found.requests)


def request_bytes(request: ErasureRequest) -> bytes:
    """A request as a file that other hosts read."""
    return _FILE.to_bytes(_RequestFile("cleanerd erasure request", request)) + b"\n"


def read_request(path: Path) -> ErasureRequest:
    """The request in a file.

    Raises:
        ConfigError: it is not a request.
        CleanerdError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return _FILE.parse(file.read(_MAX_BYTES)).request
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error
    except DAMAGE as error:
        raise ConfigError(f"is not an erasure request: {describe_damage(error)}", where=str(path)) from None
