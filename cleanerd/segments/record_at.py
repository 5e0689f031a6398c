"""Finds one record of a log by its offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import parse_header
from cleanerd.format.index import read_offset_index
from cleanerd.format.names import INDEX_SUFFIX, SEGMENT_SUFFIX, file_name
from cleanerd.format.record import Record, records_of
from cleanerd.host.memory import batch_bytes
from cleanerd.segments.batch_file import read_batches
from cleanerd.segments.same_file import read_companion

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.segment import Segment


def record_at(log: PartitionLog, offset: int) -> Record | None:
    """The record with that offset, from batches of v2; None: the log has none.

    Raises:
        CorruptionError: a batch before it is damaged, or has an older format.
        CleanerdError, OSError: a file cannot be read.
    """
    segment = next((each for each in reversed(log.segments) if each.base <= offset), None)
    if segment is None:
        return None
    path = log.path / file_name(segment.base, SEGMENT_SUFFIX)
    start = _position_below(log, segment, offset)
    return record_in(path, offset, start=start, may_be_torn=segment is log.active)


def record_in(path: Path, offset: int, *, start: int = 0, may_be_torn: bool = False) -> Record | None:
    """The same, in the file of one segment from the batch at ``start``.

    Raises:
        CorruptionError: a batch before it is damaged, or has an older format.
        CleanerdError, OSError: it cannot be read.
    """
    for stored in read_batches(path, start=start, cut_tail_ends=may_be_torn, limit_bytes=batch_bytes()):
        header = parse_header(stored.data, where=str(path), origin=stored.position)
        if header.base_offset > offset:
            break
        if header.last_offset >= offset:
            records = records_of(stored.data, limit_bytes=batch_bytes(), where=str(path), position=stored.position)
            return next((each for each in records if each.offset == offset), None)
    return None


def _position_below(log: PartitionLog, segment: Segment, offset: int) -> int:
    """Where to begin. The index is a hint; without one the segment is read from its start."""
    data = read_companion(log.path, segment, INDEX_SUFFIX)
    try:
        entries = read_offset_index(data or b"", str(log.path))
    except CorruptionError:
        return 0
    below = entries[entries["relative_offset"].astype("i8") + segment.base <= offset]
    position = int(below["position"][-1]) if len(below) else 0
    return position if 0 <= position < segment.size_bytes else 0
