"""The rows that Spark shuffles: few and large, so that Spark's cost per row does not matter.

A row's ``payload`` is packed columns or a pickled value; ``target`` is its partition; ``kind``, ``segment``, ``split``
and ``block`` identify and sort it.

Packed columns: a header in JSON, then the columns, each at a multiple of eight bytes as the kernel needs its arrays;
CRC-32C at the end. Packed tightly (``dense``) it is one zstd frame after the magic.
"""

from __future__ import annotations

import functools
import json
import pickle
import re
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from cleanerd import errors
from cleanerd._kernel import CorruptLogError, compress, crc32c, decompress
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.fsio.state_files import DAMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
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


SCHEMA: Final = "target int, kind int, segment int, split int, block int, payload binary"

# Kinds, in the order in which a shard processes them.
ERROR: Final = 0
"""A cleanerd error, reported to the driver without another try."""
FACTS: Final = 1
"""A split's evidence, for its segment."""
DIRTY: Final = 2
"""Keys of the dirty section, with the best record of each key in a split; in a proof the candidate tombstones."""
CLEAN: Final = 3
"""Keys of the clean section; in a proof those of all other records."""
WINNERS: Final = 4
SUPERSEDED: Final = 5
"""Records of the clean section whose key occurs in the dirty one."""
WON: Final = 6
"""The ones among them that are retained."""
RESULT: Final = 7
"""A result for the driver."""

MOST_BYTES: Final = 4 << 20
MOST_ROWS: Final = 64


class Row(NamedTuple):
    """One row; all numbers fit 32 bits."""

    target: int
    kind: int
    segment: int = 0
    split: int = 0
    block: int = 0
    payload: bytes = b""


RowFunction: TypeAlias = "Callable[[Iterator[Row]], Iterator[Row]]"


def over_arrow(function: RowFunction, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Call ``function`` as ``mapInArrow`` would."""
    waiting: list[Row] = []
    waiting_bytes = 0
    for row in function(_rows(batches)):
        waiting.append(row)
        waiting_bytes += len(row.payload)
        if waiting_bytes >= MOST_BYTES or len(waiting) >= MOST_ROWS:
            yield _batch(waiting)
            waiting, waiting_bytes = [], 0
    if waiting:
        yield _batch(waiting)


def for_spark(function: RowFunction) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function in the form that ``mapInArrow`` takes."""
    return functools.partial(over_arrow, function)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        numbers = [column.to_pylist() for column in batch.columns[:-1]]
        for place, values in enumerate(zip(*numbers, strict=True)):
            yield Row._make((*values, batch.column(len(numbers))[place].as_py()))


def _batch(rows: list[Row]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - executors have it; who tests functions of rows needs none

    kinds = [*[pa.int32()] * 5, pa.binary()]
    names = list(Row._fields)
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def result_row(number: int, value: Any) -> Row:
    """A task's result for the driver, by the number of a segment or group."""
    return Row(0, RESULT, number, payload=pickle.dumps(value))


def value_in(row: Row) -> Any:
    """The value of :func:`result_row` or :func:`error_row`."""
    return pickle.loads(row.payload)  # noqa: S301 - a task of this run made it


def error_row(error: CleanerdError, **more: Any) -> Row:
    """A row that carries ``error`` from a task to the driver."""
    item = {
        "type": type(error).__name__,
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
        "position": getattr(error, "position", -1),
        **more,
    }
    return Row(0, ERROR, payload=pickle.dumps(item))


def error_of(item: dict[str, Any]) -> CleanerdError:
    """The exception for an error row: of the same class, with the data of its place."""
    kind = getattr(errors, item["type"], CleanerdError)
    if not issubclass(kind, CleanerdError) or kind in {errors.AgentRefusalError, errors.ReportedError}:
        kind = CleanerdError
    error: CleanerdError = kind.__new__(kind)
    CleanerdError.__init__(error, item["message"], where=item["where"], hint=item["hint"])
    if isinstance(error, CorruptionError | errors.BatchTooLargeError):
        error.position = item["position"]
    return error
