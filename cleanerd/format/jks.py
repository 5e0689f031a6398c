"""Java's own key store format (JKS, magic FEEDFEED): certificates and private keys. Pure: bytes in, DER out.

SHA-1 over the password and all bytes protects the file's integrity. A key stream of SHA-1 over the password and a salt
encrypts a private key. Java's readers do the same; newer stores are PKCS12.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import Final

JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"

_SEAL: Final = b"Mighty Aphrodite"
_DIGEST_BYTES: Final = 20
# 1.3.6.1.4.1.42.2.17.1.1, the encryption described above
_KEY_PROTECTOR: Final = bytes.fromhex("060a2b060104012a02110101")
_KEY, _CERTIFICATE = 1, 2


class JksError(ValueError):
    """The bytes are not a JKS store, are damaged, or the password is wrong."""


@dataclass(frozen=True, slots=True)
class JksKey:
    """A private key (PKCS #8, DER, decrypted; empty if not requested) and its certificates (DER), its own first."""

    alias: str
    key: bytes = field(repr=False)
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class JksStore:
    """A store's content; ``trusted`` are certificates in DER."""

    trusted: tuple[bytes, ...]
    keys: tuple[JksKey, ...]


def read_jks(data: bytes, password: str | None, key_password: str | None) -> JksStore:
    """The entries of a store.

    Without ``password`` the integrity is not checked, as in Java. Without ``key_password`` no private key is decrypted.

    Raises:
        JksError: the store is invalid; the message has no password in it.
    """
    if data[:4] != JKS_MAGIC or len(data) < 12 + _DIGEST_BYTES:
        raise JksError("it is not a JKS store")
    body, seal = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None and hashlib.sha1(_utf16(password) + _SEAL + body, usedforsecurity=False).digest() != seal:
        raise JksError("the password is wrong, or the store is damaged")
    reader = _Reader(body, 4)
    version, count = reader.number(), reader.number()
    if version not in (1, 2):
        raise JksError(f"version {version} of the format is not known")
    trusted: list[bytes] = []
    keys: list[JksKey] = []
    for _ in range(count):
        tag, alias = reader.number(), reader.text()
        reader.take(8)  # the time of the entry's creation
        if tag == _CERTIFICATE:
            trusted.append(reader.certificate(version))
        elif tag == _KEY:
            hidden = reader.take(reader.number())
            chain = tuple(reader.certificate(version) for _ in range(reader.number()))
            keys.append(JksKey(alias, b"" if key_password is None else _revealed(hidden, key_password), chain))
        else:
            raise JksError(f"an entry of kind {tag} is not known")
    return JksStore(tuple(trusted), tuple(keys))


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise JksError("it ends too early")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self) -> int:
        found: int = struct.unpack(">I", self.take(4))[0]
        return found

    def text(self) -> str:
        return self.take(struct.unpack(">H", self.take(2))[0]).decode("utf-8", "replace")

    def certificate(self, version: int) -> bytes:
        if version == 2:
            self.text()  # X.509
        return self.take(self.number())


def _revealed(hidden: bytes, password: str) -> bytes:
    """Decrypt an EncryptedPrivateKeyInfo of Java's protector: salt, key xor stream, check."""
    outer = _der(_Der(hidden), 0x30)
    algorithm = _der(outer, 0x30)
    if not algorithm.data.startswith(_KEY_PROTECTOR):
        raise JksError("a private key is hidden in a way that is not known")
    sealed = _der(outer, 0x04).data
    if len(sealed) < 2 * _DIGEST_BYTES:
        raise JksError("a private key is damaged")
    salt, body, check = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
    secret = _utf16(password)
    stream = b""
    block = salt
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    key = bytes(one ^ other for one, other in zip(body, stream, strict=False))
    if hashlib.sha1(secret + key, usedforsecurity=False).digest() != check:
        raise JksError("the password of the private key is wrong, or the key is damaged")
    return key


@dataclass(slots=True)
class _Der:
    data: bytes
    at: int = 0


def _der(place: _Der, tag: int) -> _Der:
    """The contents of the next value, which must have ``tag``."""
    head = place.data[place.at : place.at + 2]
    if len(head) < 2 or head[0] != tag:
        raise JksError("a private key is damaged")
    start, size = place.at + 2, head[1]
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(place.data[place.at + 2 : start])
    if size > len(place.data) - start:
        raise JksError("a private key is damaged")
    place.at = start + size
    return _Der(place.data[start : place.at])


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")
