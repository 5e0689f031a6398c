"""The latest state of logs that are small, written by this process as Spark's tasks would have written it.

Winners are found by the offset map of the data source (``source/latest.py``), a partition after the other.
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from cleanerd.errors import ConfigError, system_error
from cleanerd.spark.source.options import LATEST, LOG_END, MAP_BYTES, Options
from cleanerd.spark.source.plan import reach_of, splits_of
from cleanerd.spark.source.read import read_split
from cleanerd.spark.source.reading import How
from cleanerd.spark.values.decoding import Decoder, require_within
from cleanerd.spark.values.side import SIDE, undecoded_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.header_walk import Walked
    from cleanerd.spark.logs import Log
    from cleanerd.spark.values.decoding import Decoding

UNDECODED: Final = "_undecoded"
"""The sub-directory of what could not be decoded, which is no part of the state."""

_DONE: Final = "_SUCCESS"
"""An empty file of Spark's: what writes is over."""


def write_here(
    logs: Sequence[Log],
    walks: Sequence[Walked],
    target: Path,
    schema: pa.Schema,
    *,
    tombstones: bool,
    decoding: Decoding | None,
    advance: Callable[[int], None],
) -> dict[TopicPartition, tuple[int, int]]:
    """Write a file a partition below the new directory ``target``.

    Returns how many records each has, and how many keys and values of them could not be decoded. ``schema`` begins with
    the topic, which is the name of a sub-directory instead. What was written goes again when anything is raised.

    Raises:
        ConfigError: ``target`` is there.
        CorruptionError: a log has bytes that cannot be read; or more cannot be decoded than may be.
        CleanerdError: a file cannot be read, ``target`` not be written.
    """
    try:
        target.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError("exists already", where=str(target), hint="name a new directory") from None
    except OSError as error:
        raise system_error("cannot be made", str(target), error) from error
    try:
        counts = {}
        sides: list[pa.RecordBatch] = []
        for number, (log, walked) in enumerate(zip(logs, walks, strict=True)):
            place = target / f"topic={log.name.topic}" / f"part-{number:05}-{uuid.uuid4()}.snappy.parquet"
            counts[log.name], more = _write_log(log, walked, place, schema, tombstones=tombstones, decoding=decoding)
            sides += more
            if decoding is not None:
                require_within(decoding.limit, sum(failed for _, failed in counts.values()))
            advance(sum(file.size_bytes for file in log.segments))
        if decoding is not None:
            (target / UNDECODED).mkdir()
            pq.write_table(
                pa.Table.from_batches(sides, SIDE), target / UNDECODED / f"part-{uuid.uuid4()}.snappy.parquet"
            )
        (target / _DONE).touch()
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if isinstance(error, OSError):
            raise system_error("cannot be written", str(target), error) from error
        raise
    return counts


def _write_log(
    log: Log, walked: Walked, place: Path, schema: pa.Schema, *, tombstones: bool, decoding: Decoding | None
) -> tuple[tuple[int, int], list[pa.RecordBatch]]:
    """No file where there are no records, as with Spark."""
    # How far is what the headers tell; only from where, and by which rules, is asked for here.
    reach = replace(reach_of(log, Options((), (), view=LATEST, bound=LOG_END)), end=walked.stable_end)
    written = pa.schema(list(schema)[1:])
    how = How(LATEST, skip_damage=False, tombstones=tombstones, map_bytes=MAP_BYTES)
    count = 0
    sides: list[pa.RecordBatch] = []
    decoder = Decoder(decoding)
    writer: pq.ParquetWriter | None = None
    try:
        for split in splits_of([log], [reach], Options((), (), view=LATEST)):
            batches = map(without_null_headers, read_split(split, how, written))
            for batch in decoder.batches(batches):
                if writer is None:
                    place.parent.mkdir(exist_ok=True)
                    writer = pq.ParquetWriter(place, batch.schema, compression="snappy")
                writer.write_batch(batch)
                sides += undecoded_rows(batch, log.name.topic)
                count += len(batch)
    finally:
        if writer is not None:
            writer.close()
    return (count, decoder.failed), sides


def without_null_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A record without headers has an empty list of them."""
    at = batch.schema.get_field_index("headers")
    headers = batch.column(at)
    return batch.set_column(at, batch.schema.field(at), pa.ListArray.from_arrays(headers.offsets, headers.values))


def write_offsets_here(rows: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Say in ``target`` of each partition from and up to which offset the snapshot speaks; last, and whole or not.

    Raises:
        CleanerdError: it cannot be written.
    """
    place, made = target / "_cleanerd", target / "_cleanerd.new"
    try:
        made.mkdir()
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        (made / f"part-00000-{uuid.uuid4()}.json").write_text(lines)
        (made / _DONE).touch()
        made.rename(place)
    except OSError as error:
        raise system_error("cannot be written", str(place), error) from error
