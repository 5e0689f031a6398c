"""The rows that Spark shuffles: few and large, so that Spark's cost per row does not matter.

A row's ``payload`` is packed columns or JSON; ``target`` is its partition; ``kind``, ``segment``, ``split`` and
``block`` identify and sort it.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from cleanerd import errors
from cleanerd.errors import CleanerdError, CorruptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

SCHEMA: Final = "target int, kind int, segment int, split int, block int, payload binary"

# Kinds, in the order in which a shard processes them.
ERROR: Final = 0
"""A cleanerd error as JSON, reported to the driver without another try."""
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
    return Row(0, ERROR, payload=json.dumps(item).encode())


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
