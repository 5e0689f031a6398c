"""Converts trust stores and key stores of Kafka's clients to PEM: from PEM itself, PKCS12, JKS.

The first bytes show the kind of a file, as in Java. The ``openssl`` command unpacks PKCS12: passwords and keys pass
through pipes, never through arguments or files. Errors contain no passwords or key bytes.
"""

from __future__ import annotations

import base64
import os
import re
import ssl
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cleanerd.errors import ConfigError
from cleanerd.format.jks import JKS_MAGIC, JksError, JksStore, read_jks

MAX_STORE_BYTES: Final = 16 * 1024 * 1024
_OPENSSL_SECONDS: Final = 60

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_TO_PEM: Final = "or convert the store to PEM, and set the type to PEM"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A client's certificates, its own first, and their private key. ``key_password``: None if it is not encrypted."""

    chain: str
    key: str = field(repr=False)
    key_password: str | None = field(default=None, repr=False)


def trusted_certificates(path: Path, password: str | None) -> str:
    """All certificates of a trust store, as PEM.

    Raises:
        ConfigError: it cannot be read, is damaged, has another password, or contains no certificate.
    """
    data = _read(path)
    if data[:4] == JKS_MAGIC:
        store = _jks(path, data, password, None)
        # A key store can be both: for each key Java trusts the key's own certificate, not its issuers.
        own = (key.chain[0] for key in store.keys if key.chain)
        pem = "".join(map(_certificate_pem, (*store.trusted, *own)))
    elif data[:1] == b"\x30":
        pem = _openssl(path, password, "-nokeys")
    else:
        pem = data.decode("latin-1")
    return certificates_in(pem, str(path))


def key_pair(path: Path, password: str | None, key_password: str | None) -> KeyPair:
    """The private key of a key store with its certificates. As in Java, ``key_password`` defaults to ``password``.

    Raises:
        ConfigError: as above; or there is not exactly one private key.
    """
    data = _read(path)
    if data[:4] == JKS_MAGIC:
        keys = _jks(path, data, password, key_password or password).keys
        _require_one(len(keys), str(path))
        if not keys[0].key:
            raise ConfigError("it contains a private key, but no password is set", where=str(path))
        return KeyPair("".join(map(_certificate_pem, keys[0].chain)), _pem("PRIVATE KEY", keys[0].key))
    if data[:1] == b"\x30":
        if key_password is not None and key_password != password:
            raise ConfigError("key and store have different passwords, which PKCS12 does not have", where=str(path))
        own = _openssl(path, password, "-nodes", "-clcerts")
        others = _openssl(path, password, "-nokeys", "-cacerts")
        return pem_pair(own + others, own, None, str(path))
    pem = data.decode("latin-1")
    return pem_pair(pem, pem, key_password, str(path))


def pem_pair(chain: str, key: str, key_password: str | None, where: str) -> KeyPair:
    """The certificates and the single private key in PEM texts.

    Raises:
        ConfigError: one of them is missing, or there are several keys; or a password is missing.
    """
    keys = [block[0] for block in _BLOCK.finditer(key) if block[1].endswith("PRIVATE KEY")]
    _require_one(len(keys), where)
    if "ENCRYPTED" in keys[0] and key_password is None:
        raise ConfigError("the private key has a password, and none is given", where=where, hint="set ssl.key.password")
    return KeyPair(certificates_in(chain, where), keys[0] + "\n", key_password)


def certificates_in(pem: str, where: str) -> str:
    """The certificates in a PEM text, without other text.

    Raises:
        ConfigError: there is none.
    """
    found = [block[0] + "\n" for block in _BLOCK.finditer(pem) if block[1] in {"CERTIFICATE", "TRUSTED CERTIFICATE"}]
    if not found:
        raise ConfigError("it contains no certificate", where=where, hint="is it PEM, PKCS12 or JKS?")
    return "".join(found)


def valid_until(chain: str) -> float | None:
    """When the first certificate of a PEM text expires, in seconds; None without ``openssl``."""
    try:
        done = subprocess.run(
            ["openssl", "x509", "-noout", "-enddate"],
            input=chain.encode("latin-1"), capture_output=True, check=True, timeout=_OPENSSL_SECONDS,
        )  # fmt: skip
        return float(ssl.cert_time_to_seconds(done.stdout.decode("ascii").strip().partition("=")[2]))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def trusted_until(trusted: str) -> float | None:
    """When the last of these authorities expires, in seconds; None if there is none.

    Raises:
        ssl.SSLError: they are not certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted)
    ends = (str(each["notAfter"]) for each in context.get_ca_certs())
    return max(map(float, map(ssl.cert_time_to_seconds, ends)), default=None)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not data or len(data) > MAX_STORE_BYTES:
        raise ConfigError("it is empty, or too large for a key store", where=str(path))
    return data


def _jks(path: Path, data: bytes, password: str | None, key_password: str | None) -> JksStore:
    try:
        return read_jks(data, password, key_password)
    except JksError as error:
        raise ConfigError(str(error), where=str(path)) from None


def _openssl(path: Path, password: str | None, *options: str) -> str:
    """The output of ``openssl pkcs12`` for a store; if that fails, with old ciphers enabled."""
    if password is None:
        raise ConfigError("PKCS12 needs the store's password", where=str(path))
    output = ""
    for legacy in ((), ("-legacy",)):
        reading, writing = os.pipe()
        try:
            os.write(writing, password.encode()[:4000] + b"\n")
            os.close(writing)
            done = subprocess.run(
                ["openssl", "pkcs12", "-in", str(path), "-passin", f"fd:{reading}", *options, *legacy],
                stdin=subprocess.DEVNULL, capture_output=True, check=False, pass_fds=(reading,),
                timeout=_OPENSSL_SECONDS,
            )  # fmt: skip
        except FileNotFoundError:
            hint = f"install openssl, {_TO_PEM}"
            raise ConfigError(
                "PKCS12 needs the openssl command, which is missing", where=str(path), hint=hint
            ) from None
        except subprocess.TimeoutExpired:
            raise ConfigError("openssl does not end", where=str(path), hint=_TO_PEM) from None
        finally:
            os.close(reading)
        if done.returncode == 0:
            return done.stdout.decode("latin-1")
        output = output or done.stderr.decode("latin-1")
    wrong = "mac verify" in output.lower()
    what = "the password is wrong" if wrong else "openssl cannot read it as PKCS12"
    raise ConfigError(what, where=str(path), hint=None if wrong else f"is it damaged? {_TO_PEM}")


def _require_one(keys: int, where: str) -> None:
    if keys != 1:
        what = "it contains no private key" if keys == 0 else f"it holds {keys} private keys"
        raise ConfigError(what, where=where, hint="give a store with one private key")


def _certificate_pem(der: bytes) -> str:
    return _pem("CERTIFICATE", der)


def _pem(kind: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"
