"""Which neighbouring segments become one (U-17 over C-63; D-02, D-03).

The limits come first, in the order of U-17: relative offsets, output bytes and index entries, the number of sources
(U-36). Then an output without records is avoided when a neighbour can take it. An unchanged segment is rewritten only
if it is small and joins a group that is written anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

MAX_RELATIVE_OFFSET = 2**31 - 1
MAX_SEGMENT_BYTES = 2**31 - 1
MAX_SOURCES = 200
"""U-36: a swap renames the files of every source while the broker holds the log's lock."""
MOST_RECORDLESS = 8
"""D-02: at most this many outputs without a record in a row, and one more where a group ends.

Consumers of librdkafka get an error after ten.
"""
OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12


@dataclass(frozen=True, slots=True)
class DecidedSegment:
    """What grouping needs to know of a source segment, after its records were decided.

    ``output_bytes`` is an estimate where batches are rebuilt. ``last_offset`` and the timestamps are -1 if no batch is
    retained. ``changed``: the segment would be rewritten even if it stayed alone. ``file_time_ms``: the file's time, if
    records are retained and no retained batch has a timestamp. ``batch_time_ms``: the largest timestamp of the retained
    batches, with records or without. ``closing_bytes`` is the size of the batch that is added if the segment ends its
    group (U-13).
    """

    base: int
    last_offset: int
    output_bytes: int
    output_batches: int
    has_records: bool
    changed: bool
    min_timestamp_ms: int
    max_timestamp_ms: int
    file_time_ms: int = -1
    batch_time_ms: int = -1
    closing_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits of one output segment. ``max_span_ms`` keeps retention by time effective (U-17); None: no limit.

    ``most_bytes``: the limit of every segment, whatever the topic says.
    """

    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    max_span_ms: int | None
    most_bytes: int = MAX_SEGMENT_BYTES


Group = range
"""The rows of neighbouring source segments, ascending."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Neighbouring segments with their sums."""

    rows: Group
    base: int
    last_offset: int
    output_bytes: int
    output_batches: int
    closing_bytes: int
    has_records: bool
    changed: bool
    joinable: bool
    min_timestamp_ms: int
    max_timestamp_ms: int
    file_time_ms: int
    batch_time_ms: int

    @classmethod
    def of(cls, row: int, outcome: DecidedSegment, limits: GroupLimits) -> _Span:
        return cls(
            rows=range(row, row + 1),
            base=outcome.base,
            last_offset=outcome.last_offset,
            output_bytes=outcome.output_bytes,
            output_batches=outcome.output_batches,
            closing_bytes=outcome.closing_bytes,
            has_records=outcome.has_records,
            changed=outcome.changed,
            joinable=outcome.changed or outcome.output_bytes < limits.segment_bytes // 4,
            min_timestamp_ms=outcome.min_timestamp_ms,
            max_timestamp_ms=outcome.max_timestamp_ms,
            file_time_ms=outcome.file_time_ms,
            batch_time_ms=outcome.batch_time_ms,
        )

    def plus(self, right: _Span) -> _Span:
        lows = [low for low in (self.min_timestamp_ms, right.min_timestamp_ms) if low >= 0]
        # Only the last non-empty source of a group keeps its last batch, so do not count a header for each.
        continues = right.last_offset >= 0
        gone_bytes = self.closing_bytes if continues else 0
        return _Span(
            rows=range(self.rows.start, right.rows.stop),
            base=self.base,
            last_offset=max(self.last_offset, right.last_offset),
            output_bytes=self.output_bytes - gone_bytes + right.output_bytes,
            output_batches=self.output_batches - (gone_bytes > 0) + right.output_batches,
            closing_bytes=right.closing_bytes if continues else self.closing_bytes,
            has_records=self.has_records or right.has_records,
            changed=self.changed or right.changed,
            joinable=self.joinable and right.joinable,
            min_timestamp_ms=min(lows, default=-1),
            max_timestamp_ms=max(self.max_timestamp_ms, right.max_timestamp_ms),
            file_time_ms=max(self.file_time_ms, right.file_time_ms),
            batch_time_ms=max(self.batch_time_ms, right.batch_time_ms),
        )

    @property
    def is_written(self) -> bool:
        return len(self.rows) > 1 or self.changed

    def fits(self, limits: GroupLimits) -> bool:
        """Whether one segment can hold them (U-36, the first two limits of U-17, and the time span)."""
        if len(self.rows) > MAX_SOURCES:
            return False
        if self.last_offset - self.base > MAX_RELATIVE_OFFSET:
            return False
        if self.output_bytes > min(limits.segment_bytes, MAX_SEGMENT_BYTES):
            return False
        entries = min(self.output_batches, self.output_bytes // max(limits.index_interval_bytes, 1))
        if entries * OFFSET_ENTRY_BYTES > limits.index_bytes or (entries + 1) * TIME_ENTRY_BYTES > limits.index_bytes:
            return False
        return limits.max_span_ms is None or self.min_timestamp_ms < 0 or self._spans(limits.max_span_ms)

    def _spans(self, most_ms: int) -> bool:
        """Whether the records are from about the same time, and no record seems much older than it is.

        A broker uses the file's time for records without a timestamp, unless a batch retained for its producer has one.
        """
        outdated = 0 <= self.batch_time_ms < self.file_time_ms - most_ms
        return not outdated and self.max_timestamp_ms - self.min_timestamp_ms <= most_ms


def group(outcomes: Sequence[DecidedSegment], limits: GroupLimits) -> list[Group]:
    """All groups of two or more sources, and single sources that change; ascending. Other rows stay as they are."""
    spans: list[_Span] = []
    for row, outcome in enumerate(outcomes):
        span = _Span.of(row, outcome, limits)
        joined = spans[-1].plus(span) if spans else span
        if spans and joined.joinable and joined.fits(limits):
            spans[-1] = joined
        else:
            spans.append(span)
    spans = _release_idle(spans, outcomes, limits)
    while True:
        merged = _merge_recordless(spans, limits)
        if len(merged) == len(spans):
            return [span.rows for span in spans if span.is_written and span.last_offset >= 0]
        # A neighbour before two merged spans may now join them too.
        spans = merged


class RecordlessRun:
    """Counts the outputs without a record that follow each other while groups are cut and written, ascending (D-02).

    ``has_records`` [s]: whether a record of each source is retained.
    """

    def __init__(self, has_records: Sequence[bool]) -> None:
        self._with_records = [row for row, has in enumerate(has_records) if has]
        self._sources = len(has_records)
        self._written_to = 0
        self._outputs = 0

    def sources_at_once(self, rows: Group, most: int) -> int:
        """How many sources the next output may have; normally ``most`` (U-36).

        A run of sources without retained records gives larger outputs, so that few empty ones follow each other.
        """
        recordless = self._next_with_records(rows) - rows.start
        if recordless < most:
            return most
        return max(most, -(-recordless // max(1, MOST_RECORDLESS - self._outputs_before(rows))))

    def add(self, rows: Group) -> None:
        recordless = self._next_with_records(rows) >= rows.stop
        self._outputs = self._outputs_before(rows) + 1 if recordless else 0
        self._written_to = rows.stop

    def _next_with_records(self, rows: Group) -> int:
        following = bisect_left(self._with_records, rows.start)
        return self._with_records[following] if following < len(self._with_records) else self._sources

    def _outputs_before(self, rows: Group) -> int:
        return self._outputs if rows.start == self._written_to else 0


def split(rows: Group, before: int) -> tuple[Group, Group]:
    """Cut a group whose output grew past the limits at a source's start: ``before`` begins the second part (U-17)."""
    return range(rows.start, before), range(before, rows.stop)


def _release_idle(spans: list[_Span], outcomes: Sequence[DecidedSegment], limits: GroupLimits) -> list[_Span]:
    """Split merged spans without changes again: merging alone does not justify writing."""
    released: list[_Span] = []
    for span in spans:
        if span.changed:
            released.append(span)
        else:
            released.extend(_Span.of(row, outcomes[row], limits) for row in span.rows)
    return released


def _merge_recordless(spans: list[_Span], limits: GroupLimits) -> list[_Span]:
    """Merge spans whose output would hold no record with a neighbour that can take them (D-02).

    Only where something is written anyway, or where two such spans meet: after several of them, librdkafka reports
    messages that are too large to fetch. A large unchanged neighbour is not rewritten for it (U-17), because a single
    segment without records does no harm.
    """
    merged: list[_Span] = []
    for span in spans:
        if merged and _absorbs(merged[-1], span, limits):
            merged[-1] = merged[-1].plus(span)
        else:
            merged.append(span)
    return merged


def _absorbs(left: _Span, right: _Span, limits: GroupLimits) -> bool:
    if left.has_records and right.has_records:
        return False
    both_empty = not left.has_records and not right.has_records
    joined = left.plus(right)
    return (both_empty or left.is_written or right.is_written) and joined.joinable and joined.fits(limits)
