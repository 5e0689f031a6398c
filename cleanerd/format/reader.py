"""Reads Kafka's primitive types from bytes, front to back; a read past the end is a CorruptionError with the place."""

from __future__ import annotations

import struct
import uuid
from typing import Final, NoReturn

from cleanerd.errors import CorruptionError

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


class ByteReader:
    """A position in ``data[at:end]``.

    ``origin`` is the file position of ``data[0]``. With ``unpacked`` the data was decompressed: errors have ``origin``
    (the batch) as position, and name the decompressed byte in the message.
    """

    __slots__ = ("_data", "_origin", "_unpacked", "_where", "at", "end")

    def __init__(
        self,
        data: bytes,
        *,
        at: int = 0,
        end: int | None = None,
        where: str | None = None,
        origin: int = 0,
        unpacked: bool = False,
    ) -> None:
        self._data = data
        self.at = at
        self.end = len(data) if end is None else end
        self._where = where
        self._origin = origin
        self._unpacked = unpacked

    @property
    def left(self) -> int:
        """Bytes that have not been read."""
        return self.end - self.at

    def fail(self, message: str, *, at: int | None = None) -> NoReturn:
        """Raise CorruptionError for the byte at ``at``, by default the next one."""
        place = self.at if at is None else at
        if self._unpacked:
            raise CorruptionError(
                f"{message} (byte {place} of the unpacked records)", where=self._where, position=self._origin
            )
        raise CorruptionError(message, where=self._where, position=self._origin + place)

    def slice(self, size: int) -> ByteReader:
        """A reader of the next ``size`` bytes; this reader continues after them."""
        if not 0 <= size <= self.left:
            self.fail(f"{size} bytes announced, {self.left} left")
        part = ByteReader(
            self._data,
            at=self.at,
            end=self.at + size,
            where=self._where,
            origin=self._origin,
            unpacked=self._unpacked,
        )
        self.at += size
        return part

    def raw(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if not 0 <= size <= self.left:
            self.fail(f"{size} bytes announced, {self.left} left")
        self.at += size
        return self._data[self.at - size : self.at]

    def int8(self) -> int:
        """Take a signed byte."""
        return self._number(_INT8)

    def int16(self) -> int:
        """Take two bytes, signed, big-endian."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Take four bytes, signed, big-endian."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Take eight bytes, signed, big-endian."""
        return self._number(_INT64)

    def uuid(self) -> uuid.UUID:
        """Take the sixteen bytes of a UUID."""
        return uuid.UUID(bytes=self.raw(16))

    def unsigned_varint(self) -> int:
        """Base 128, low group first, at most 32 bits."""
        return self._base128(32)

    def varint(self) -> int:
        """Take a zigzag varint of at most 32 bits."""
        value = self._base128(32)
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """Take a zigzag varint of at most 64 bits."""
        value = self._base128(64)
        return (value >> 1) ^ -(value & 1)

    def _number(self, layout: struct.Struct) -> int:
        if self.left < layout.size:
            self.fail(f"{layout.size} bytes needed, {self.left} left")
        value: int = layout.unpack_from(self._data, self.at)[0]
        self.at += layout.size
        return value

    def _base128(self, bits: int) -> int:
        start = self.at
        if start < self.end and (byte := self._data[start]) < 0x80:  # most varints have one byte
            self.at += 1
            return byte
        value = 0
        for shift in range(0, bits, 7):
            if self.at >= self.end:
                self.fail("a variable-length number is cut off", at=start)
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        if byte >= 0x80 or value >> bits:
            self.fail(f"a variable-length number has more than {bits} bits", at=start)
        return value
