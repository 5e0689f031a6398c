"""A split, read by a task: the records that the view wants, in the order of their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.segments.same_file import changed
from cleanerd.spark.source.latest import winners_of
from cleanerd.spark.source.options import LATEST
from cleanerd.spark.source.reading import ReadOptions, SourceReading
from cleanerd.spark.source.rows import SourceRows, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from cleanerd.spark.source.plan import TaskSplit


def read_split(
    split: TaskSplit, how: ReadOptions, schema: pa.Schema, look: Callable[[SourceRows], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of ``split`` as batches of ``schema``. ``look`` receives each chunk once, whatever is requested.

    Raises:
        CorruptionError: damaged bytes that are not to be skipped.
        SegmentChangedError: a file is no longer the one that was listed.
        CleanerdError: it cannot be read.
    """
    reading = SourceReading(split, how, schema)
    if how.view == LATEST:
        winners = winners_of(reading, split.reaches[0], how)
        for rows in reading.rows():
            if look is not None:
                look(rows)
            wins = next(winners, None)
            if wins is None or len(wins) != len(rows.keep):
                raise changed("it has other records than a moment ago", str(rows.segment.path))
            if wins.any():
                yield to_arrow(SourceRows(rows.decoded, wins, rows.hidden, rows.reach, rows.segment), schema)
        return
    for rows in reading.rows():
        if look is not None:
            look(rows)
        if rows.keep.any():
            yield to_arrow(rows, schema)
        yield from reading.damages()
    yield from reading.damages()
