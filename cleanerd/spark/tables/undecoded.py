"""The side table of a table: rows whose key or value could not be decoded, with the reason.

It is made from the table after each commit, and has the same offsets. If a run is killed between the two, the side
table is older, and the next run makes it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from cleanerd.errors import CleanerdError, ConfigError, MachineError, RefusedError
from cleanerd.spark.tables.files import write_rows
from cleanerd.spark.tables.place import FilesPlace, translated_errors
from cleanerd.spark.values.decode_options import SOURCES, error_name
from cleanerd.spark.values.decoding import SIDE, undecoded_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.spark.tables.opened import OpenTable, TableFile
    from cleanerd.spark.tables.remembered import TableState
    from cleanerd.spark.tables.target import Delta, Iceberg

_WHERE = ["topic", "partition", "offset"]


def write_undecoded(target: Delta | Iceberg, columns: pa.Schema) -> None:
    """Update the side table of the table ``target``, which has ``columns``.

    Raises:
        RefusedError: another writer writes the side table.
        CleanerdError: a file cannot be read or written; the table itself is complete.
    """
    table, side = target.open(columns), target.undecoded().open(SIDE)
    now = table.stored_state()
    if now is None or (side.exists and _is_of(side, now)):
        return
    if side.exists:
        side.require_ours()
    try:
        files = write_rows(side.place, _rows(table), SIDE)
    except CleanerdError as error:
        raise MachineError(
            f"the table is written, its side table is not: {error}", where=side.where, hint="run again, --incremental"
        ) from error
    try:
        side.commit(files, side.files() if side.exists else [], now)
    except CleanerdError:
        for file in files:
            side.place.remove(file.path)
        raise


def _is_of(side: OpenTable, now: TableState) -> bool:
    """Whether it was made from that commit, and is unchanged since."""
    try:
        return side.stored_state() == now
    except (ConfigError, RefusedError):
        return False


def _rows(table: OpenTable) -> Iterator[pa.RecordBatch]:
    sources = [source for source in SOURCES if error_name(source) in table.columns.names]
    for file in table.files():
        yield from _of_file(table.place, file, sources)


def _of_file(place: FilesPlace, file: TableFile, sources: list[str]) -> Iterator[pa.RecordBatch]:
    """Rows with a reason; of row groups without any, only the statistics are read."""
    names = [*_WHERE, *sources, *(error_name(source) for source in sources)]
    with place.reading(file.path) as opened, translated_errors("cannot be read as a file of this table", file.path):
        parquet = pq.ParquetFile(opened)
        reasons = {error_name(source) for source in sources}
        for number in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(number)
            chunks = [group.column(at) for at in range(group.num_columns)]
            if all(
                chunk.statistics is not None and chunk.statistics.null_count == group.num_rows
                for chunk in chunks
                if chunk.path_in_schema in reasons
            ):
                continue
            for batch in parquet.read_row_group(number, columns=names).to_batches():
                yield from undecoded_rows(batch)
