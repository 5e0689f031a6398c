"""Parquet files of a table: their columns; written from batches, read again without some of their rows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cleanerd.spark.state_rows import STATE
from cleanerd.spark.tables.place import FilesPlace, translated_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray


ROWS: Final = pa.schema([*STATE, pa.field("version", pa.int64()), pa.field("is_tombstone", pa.bool_())])
"""``version``: by the topic's strategy, null for a record without one. The names are those of the data source."""


def other_columns(schema: pa.Schema, ours: pa.Schema) -> list[str]:
    """Names of columns that differ between a table of ``schema`` and ours, whatever the format's names of types are."""
    theirs, own = ({field.name: _plain(field.type) for field in each} for each in (schema, ours))
    differ = [name for name in {**own, **theirs} if own.get(name) != theirs.get(name)]
    return differ or ([] if schema.names == ours.names else ["their order"])


def _plain(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{_plain(kind.value_type)}>"
    if pa.types.is_struct(kind):
        fields = (f"{kind.field(at).name} {_plain(kind.field(at).type)}" for at in range(kind.num_fields))
        return f"struct<{', '.join(fields)}>"
    if pa.types.is_map(kind):
        return f"map<{_plain(kind.key_type)}, {_plain(kind.item_type)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")


_GROUP_BYTES: Final = 64 << 20
_GROUP_ROWS: Final = 1 << 20
_FILE_BYTES: Final = 512 << 20
"""Limit of columns in memory: changing one row rewrites its whole file."""
_READ_ROWS: Final = 1 << 16
_BOUNDED: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file. ``least`` and ``most``: of topic, partition and offset. ``tombstones``: the number of such rows."""

    path: str
    size_bytes: int
    rows: int
    tombstones: int
    least: Mapping[str, Any]
    most: Mapping[str, Any]


class _Writer:
    """One file after the other, each with row groups of a useful size."""

    def __init__(self, place: FilesPlace, columns: pa.Schema) -> None:
        self._place = place
        self._columns = columns
        self._open = contextlib.ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = self._bytes = self._rows = self._tombstones = 0
        self._path = ""
        self._file: Any = None
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}
        self.files: list[WrittenFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self._waiting_rows += len(batch)
        if self._waiting_bytes >= _GROUP_BYTES or self._waiting_rows >= _GROUP_ROWS:
            self._flush()
            if self._bytes >= _FILE_BYTES:
                self._end()

    def close(self) -> None:
        self._flush()
        self._end()

    def abandon(self) -> None:
        with contextlib.suppress(Exception):
            self._open.close()
        for path in {self._path, *(each.path for each in self.files)} - {""}:
            self._place.remove(path)

    def _flush(self) -> None:
        if not self._waiting_rows:
            return
        if self._writer is None:
            self._path = self._place.new_path()
            self._file = self._open.enter_context(self._place.writing(self._path))
            self._writer = self._open.enter_context(pq.ParquetWriter(self._file, self._columns, compression="snappy"))
        table = pa.Table.from_batches(self._waiting, self._columns)
        self._writer.write_table(table)
        self._rows += len(table)
        self._bytes += self._waiting_bytes
        if "is_tombstone" in table.column_names:
            self._tombstones += pc.sum(table.column("is_tombstone")).as_py() or 0
        for name in _BOUNDED:
            found = pc.min_max(table.column(name)).as_py()
            self._least[name] = min(self._least.get(name, found["min"]), found["min"])
            self._most[name] = max(self._most.get(name, found["max"]), found["max"])
        self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0

    def _end(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        size_bytes = self._file.tell()
        self._open.close()
        self.files.append(WrittenFile(self._path, size_bytes, self._rows, self._tombstones, self._least, self._most))
        self._writer, self._path, self._least, self._most = None, "", {}, {}
        self._bytes = self._rows = self._tombstones = 0


def write_rows(place: FilesPlace, batches: Iterable[pa.RecordBatch], columns: pa.Schema = ROWS) -> list[WrittenFile]:
    """Write ``batches`` of ``columns`` as new files of ``place``; none without rows.

    After an exception it removes them.

    Raises:
        CleanerdError: they cannot be written; and what ``batches`` raises.
    """
    writer = _Writer(place, columns)
    try:
        for batch in batches:
            writer.write(batch)
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return writer.files


def read_columns(place: FilesPlace, path: str, names: list[str]) -> pa.Table:
    """Columns of a file, in the types of :data:`ROWS`, except keys, which may exceed two gigabytes.

    Raises:
        CleanerdError: it cannot be read, or has other columns.
    """
    wanted = pa.schema([ROWS.field(name) if name != "key" else pa.field("key", pa.large_binary()) for name in names])
    with place.reading(path) as file, translated_errors("cannot be read as a file of this table", path):
        return pq.read_table(file, columns=names).select(names).cast(wanted)


def without(
    place: FilesPlace, path: str, drop: NDArray[np.bool_], columns: pa.Schema = ROWS
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, which has ``columns``, except those to ``drop`` [n].

    Raises:
        CleanerdError: it cannot be read, or has other columns.
    """
    at = 0
    with place.reading(path) as file, translated_errors("cannot be read as a file of this table", path):
        for batch in pq.ParquetFile(file).iter_batches(_READ_ROWS, columns=columns.names):
            keep = ~drop[at : at + len(batch)]
            at += len(batch)
            if keep.any():
                table = pa.Table.from_batches([batch]).select(columns.names).cast(columns)
                yield from table.filter(pa.array(keep)).combine_chunks().to_batches()
