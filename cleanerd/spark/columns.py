"""Packs numbers and columns into bytes, for shuffled rows and work files.

A header in JSON, then the columns, each at a multiple of eight bytes as the kernel needs its arrays; CRC-32C at the
end. Packed tightly (``dense``) it is one zstd frame after the magic.
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd._kernel import CorruptLogError, compress, crc32c, decompress
from cleanerd.errors import CorruptionError
from cleanerd.fsio.state_files import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import ReadableBuffer as Buffer
    from numpy.typing import NDArray

_PLAIN: Final = b"CCOL"
_DENSE: Final = b"CCOZ"
_HEAD: Final = struct.Struct("<4sIQ")
_CRC: Final = struct.Struct("<I")
_ZSTD: Final = 4
_KIND: Final = re.compile(r"[<>|][a-zA-Z][0-9]{1,4}")
"""A column's type in NumPy's notation, restricted to short names."""


def pack(numbers: Mapping[str, Any], columns: Mapping[str, NDArray[Any]], *, dense: bool = False) -> bytes:
    """``numbers`` (JSON values) and one-dimensional ``columns``, in machine order, as bytes."""
    described = [(name, column.dtype.str, len(column)) for name, column in columns.items()]
    header = json.dumps({"numbers": numbers, "columns": described}, separators=(",", ":")).encode()
    parts: list[Buffer] = [header, b" " * (-len(header) % 8)]
    for column in columns.values():
        parts += [np.ascontiguousarray(column).view(np.uint8).data, b"\0" * _gap(column)]
    body = b"".join(parts)
    head = _HEAD.pack(_DENSE if dense else _PLAIN, len(header), len(body))
    data = head + (compress(_ZSTD, body) if dense else body)
    return data + _CRC.pack(crc32c(np.frombuffer(data, np.uint8)))


def unpack(data: bytes, where: str = "shuffle") -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The reverse of :func:`pack`; the columns are views of ``data`` and read-only.

    Raises:
        CorruptionError: the data is damaged, or has another format.
    """
    if len(data) < _HEAD.size + _CRC.size or data[:4] not in (_PLAIN, _DENSE):
        raise CorruptionError("no packed columns", where=where)
    (crc,) = _CRC.unpack(data[-_CRC.size :])
    if crc32c(np.frombuffer(data, np.uint8)[: -_CRC.size]) != crc:
        raise CorruptionError("damaged columns: wrong CRC-32C", where=where)
    magic, header_bytes, body_bytes = _HEAD.unpack(data[: _HEAD.size])
    body, start = data, _HEAD.size
    if magic == _DENSE:
        try:
            body, start = decompress(_ZSTD, data[_HEAD.size : -_CRC.size], body_bytes), 0
        except CorruptLogError as error:
            raise CorruptionError(f"damaged columns: {error.reason}", where=where) from error
        except OverflowError as error:
            raise CorruptionError(f"columns of {body_bytes} bytes", where=where) from error
    try:
        header = json.loads(body[start : start + header_bytes])
        numbers = dict(header["numbers"])
        return numbers, _columns(body, start + header_bytes + -header_bytes % 8, header["columns"])
    except DAMAGE as error:
        raise CorruptionError(f"damaged columns: {str(error)[:200]}", where=where) from error


def _columns(body: bytes, position: int, described: Any) -> dict[str, NDArray[Any]]:
    """The columns from ``position`` on; raises one of ``DAMAGE``."""
    columns = {}
    for name, kind, count in described:
        if _KIND.fullmatch(kind) is None or count < 0:
            raise ValueError(f"a column of {count} times {kind}")
        columns[str(name)] = np.frombuffer(body, np.dtype(kind), count=count, offset=position)
        position += columns[name].nbytes + _gap(columns[name])
    return columns


def _gap(column: NDArray[Any]) -> int:
    return -int(column.nbytes) % 8
