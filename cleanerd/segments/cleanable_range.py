"""The offsets between which a partition may be cleaned, from the broker's files (S-01, S-02, C-02..C-11)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.index import read_offset_index, read_time_index
from cleanerd.format.names import INDEX_SUFFIX, SEGMENT_SUFFIX, TIMEINDEX_SUFFIX, file_name
from cleanerd.policy.cleanable import (
    Dirtiness,
    FirstUncleanableOffset,
    LimitedBy,
    dirtiness,
    due_at_ms,
    first_uncleanable_offset,
    segment_range,
    too_young,
)
from cleanerd.segments.producers import read_producers
from cleanerd.segments.same_file import read_companion
from cleanerd.segments.torn_tail import decided_below
from cleanerd.segments.wrong_time import WrongTime, wrong_time_in, wrong_unit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cleanerd import _kernel
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.producers import ProducerState
    from cleanerd.segments.reading import SegmentReader
    from cleanerd.segments.segment import Segment


LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """The range that may be cleaned, and its size.

    ``young_since_ms``: the largest timestamp of the segment that ``min.compaction.lag.ms`` excludes, None if there is
    none. ``overdue_at_ms``: when ``max.compaction.lag.ms`` makes the log overdue, None if never. ``wrong_time``: a
    dirty batch whose time makes both unknown, if one was read. ``producers``: the state that the limits needed.
    """

    first_dirty_offset: int
    bound: FirstUncleanableOffset
    dirtiness: Dirtiness
    overdue_ms: int
    young_since_ms: int | None
    overdue_at_ms: int | None
    wrong_time: WrongTime | None = None
    producers: ProducerState | None = None


def read_bounds(
    log: PartitionLog,
    reader: SegmentReader,
    *,
    first_dirty_offset: int,
    now_ms: int,
    min_lag_ms: int,
    max_lag_ms: int,
    may_be_torn: bool = False,
    reads_batches: bool = False,
    facts_bytes: int | None = None,
) -> CleanableRange:
    """Combine the limits of S-01.

    A segment is too young for ``min.compaction.lag.ms`` when its time index says so, as with Kafka, or when one of its
    batches does (U-51). ``reads_batches``: read the headers of segments that are old by their index, once for each
    process; otherwise only headers that were read before are used.

    A running broker reports the last stable offset; without one it comes from the producer state at the high watermark
    (S-04): a transaction is open unless its marker is below that. ``may_be_torn``: no clean shutdown, or a broker is
    writing; then data from the recovery point on is not trusted (U-32). ``facts_bytes``: see :func:`read_producers`.

    Raises:
        CorruptionError: a time index or a first batch that has to be read is damaged.
        CleanerdError: a file cannot be read.
    """
    bases = [segment.base for segment in log.segments]
    sealed = log.segments[:-1]
    limits = {
        LimitedBy.ACTIVE_SEGMENT: log.active.base,
        LimitedBy.HIGH_WATERMARK: log.high_watermark,
        LimitedBy.RECOVERY_POINT: log.recovery_point,
    }
    open_offset, producers = _first_open_offset(log, reader, may_be_torn=may_be_torn, facts_bytes=facts_bytes)
    if open_offset is not None:
        limits[LimitedBy.OPEN_TRANSACTION] = open_offset
    rows = segment_range(bases[:-1], first_dirty_offset, log.active.base)
    dirty = [sealed[row] for row in rows]
    young = None
    if min_lag_ms > 0:
        # Data above another limit is not cleaned, and may be torn.
        readable_end = min(limits.values()) if reads_batches else -1
        young = _first_too_young(log, reader, rows, readable_end, now_ms=now_ms, min_lag_ms=min_lag_ms)
        if young is not None:
            limits[LimitedBy.MIN_COMPACTION_LAG] = young[0]
    firsts = [] if max_lag_ms == LONG_MAX else [_first_timestamp_ms(reader, segment) for segment in dirty]
    due_ms = due_at_ms(firsts, max_lag_ms)
    limit = first_uncleanable_offset(limits, bases, first_dirty_offset)
    return CleanableRange(
        first_dirty_offset=first_dirty_offset,
        bound=limit,
        dirtiness=dirtiness(bases[:-1], [segment.size_bytes for segment in sealed], first_dirty_offset, limit.offset),
        overdue_ms=0 if due_ms is None else max(0, now_ms - due_ms),
        young_since_ms=None if young is None else young[1],
        overdue_at_ms=due_ms,
        wrong_time=_first_wrong_time(log, reader, dirty, firsts, young, now_ms),
        producers=producers,
    )


def _first_open_offset(
    log: PartitionLog, reader: SegmentReader, *, may_be_torn: bool, facts_bytes: int | None
) -> tuple[int | None, ProducerState | None]:
    """Where the first open transaction begins, None: none is open; and the producer state, if that was needed."""
    if log.last_stable_offset is not None:
        # The broker reports the high watermark if no transaction below it is open.
        return (None if log.last_stable_offset == log.high_watermark else log.last_stable_offset), None
    torn_from = log.recovery_point if may_be_torn else None
    below = decided_below(log, may_be_torn=may_be_torn)
    producers = read_producers(log, reader, below=below, torn_from=torn_from, memory_bytes=facts_bytes)
    return producers.first_open_offset(), producers


def _first_too_young(
    log: PartitionLog, reader: SegmentReader, rows: range, readable_end: int, *, now_ms: int, min_lag_ms: int
) -> tuple[int, int] | None:
    """Base and largest timestamp of the first segment in ``rows`` that ``min.compaction.lag.ms`` excludes.

    Segments that end above ``readable_end`` are judged without their batches.
    """
    segments, old_ms = log.segments, now_ms - min_lag_ms
    ages = (
        (
            segments[row].base,
            _largest_timestamp_ms(
                log, segments[row], reader if segments[row + 1].base <= readable_end else None, old_ms=old_ms
            ),
        )
        for row in rows
    )
    return too_young(ages, now_ms, min_lag_ms)


def _first_wrong_time(
    log: PartitionLog,
    reader: SegmentReader,
    dirty: list[Segment],
    firsts: list[int],
    young: tuple[int, int] | None,
    now_ms: int,
) -> WrongTime | None:
    """The first dirty batch with a time in another unit, among those whose time sets a limit."""
    times = list(zip(dirty, firsts, strict=False))
    if young is not None:
        times += [(each, young[1]) for each in dirty if each.base == young[0]]
    return next((_wrong_time(log, reader, each, now_ms) for each, ms in times if wrong_unit(ms, now_ms)), None)


def _wrong_time(log: PartitionLog, reader: SegmentReader, segment: Segment, now_ms: int) -> WrongTime | None:
    """The first batch of a segment with a time in another unit; of a long segment only the beginning is read."""
    with suppress(CleanerdError):  # other checks report a torn segment
        for batches in islice(reader.headers(segment), 1):
            return wrong_time_in(f"{log.path}/{file_name(segment.base, SEGMENT_SUFFIX)}", batches, now_ms)
    return None


def log_end_offset(log: PartitionLog, reader: SegmentReader, *, may_be_torn: bool = False) -> int:
    """One past the last offset of the log: reported by a running broker, else from the active segment's batches (C-86).

    ``may_be_torn``: no clean shutdown, or a broker is writing. Damage in the active segment then is its end.

    Raises:
        CorruptionError: the active segment is damaged, and not only before its last index entry.
    """
    if log.reported_end_offset is not None:
        return log.reported_end_offset
    read = reader.headers_until_damage if may_be_torn else reader.headers
    start = _last_indexed_position(log, log.active)
    if start:
        # Where no batch begins, the index is wrong, and the log decides.
        with suppress(CorruptionError):
            found = _end_of(read(log.active, start=start))
            if found is not None:
                return max(found, log.active.base)
    found = _end_of(read(log.active))
    return log.active.base if found is None else max(found, log.active.base)


def _end_of(chunks: Iterable[_kernel.Batches]) -> int | None:
    """One past the last offset; None: there is no batch."""
    return max((int(batches.last_offset[-1]) + 1 for batches in chunks if len(batches)), default=None)


def _last_indexed_position(log: PartitionLog, segment: Segment) -> int:
    """Where the last indexed batch begins; 0 for a damaged index: the log's end is known without it."""
    data = _read(log, segment, INDEX_SUFFIX)
    if not data:
        return 0
    try:
        entries = read_offset_index(data, "")
    except CorruptionError:
        return 0
    position = int(entries["position"][-1]) if len(entries) else 0
    return position if 0 <= position < segment.size_bytes else 0


def _largest_timestamp_ms(log: PartitionLog, segment: Segment, reader: SegmentReader | None, *, old_ms: int) -> int:
    """The largest timestamp of the time index and the batches, else the file's modification time (C-05, U-51).

    ``old_ms``: segments that are younger according to their index are not read. ``reader``: None: read no segment.
    """
    found_ms = -1
    data = _read(log, segment, TIMEINDEX_SUFFIX)
    if data is not None:
        file = file_name(segment.base, TIMEINDEX_SUFFIX)
        try:
            entries = read_time_index(data, f"{log.path}/{file}")
        except CorruptionError as error:
            # A broker that stopped cleanly does not check it, and makes it again only without the offset index.
            index = file_name(segment.base, INDEX_SUFFIX)
            error.hint = f"stop the broker and delete {file} and {index}: it makes both again when it starts"
            raise
        found_ms = int(entries["timestamp"][-1]) if len(entries) else -1
    if found_ms <= old_ms:
        found_ms = max(found_ms, _largest_of_batches_ms(segment, reader))
    return found_ms if found_ms >= 0 else segment.mtime_ns // 1_000_000


_BATCH_TIMES: dict[tuple[int, ...], int] = {}
"""The largest timestamp of a sealed file's batches, -1 for none, by the file's identity."""
_MOST_BATCH_TIMES: Final = 100_000


def _largest_of_batches_ms(segment: Segment, reader: SegmentReader | None) -> int:
    """-1 if no batch has a timestamp, or the batches were not read."""
    file = (segment.dev, segment.inode, segment.size_bytes, segment.mtime_ns, segment.ctime_ns)
    known = _BATCH_TIMES.get(file)
    if known is not None or reader is None:
        return -1 if known is None else known
    largest = max((int(batches.max_timestamp.max(initial=-1)) for batches in reader.headers(segment)), default=-1)
    if len(_BATCH_TIMES) >= _MOST_BATCH_TIMES:
        _BATCH_TIMES.clear()
    _BATCH_TIMES[file] = largest
    return largest


def _first_timestamp_ms(reader: SegmentReader, segment: Segment) -> int:
    """The largest timestamp of the segment's first batch (C-10); -1 if it is empty."""
    for batches in reader.headers(segment):
        return int(batches.max_timestamp[0]) if len(batches) else -1
    return -1


def _read(log: PartitionLog, segment: Segment, suffix: str) -> bytes | None:
    return read_companion(log.path, segment, suffix)
