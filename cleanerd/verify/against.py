"""Compares a log with its copy from before the cleaning: the remaining batches and records must be the old ones.

The records of a v2 batch are parsed only as far as a comparison needs: offset, time, and the rest as bytes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CONTROL, HEADER_BYTES, TIMESTAMP_TYPE, TRANSACTIONAL, BatchHeader, parse_header
from cleanerd.format.record import Record, unpack
from cleanerd.host.memory import batch_bytes
from cleanerd.segments.batch_file import StoredBatch, read_batches
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import NO_END, SegmentFile
from cleanerd.verify.records import NO_HORIZON, NO_TIMESTAMP, records_in
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from cleanerd.verify.finding import Findings
    from cleanerd.verify.partition_log import LogSummary
    from cleanerd.verify.producers import ProducerExpiry
    from cleanerd.verify.transactions import InvisibleRanges

Tails = dict[int, tuple[int, bytes]]
"""Offset -> timestamp, and the bytes from the key's length to the end of the last header."""


def tails_of(content: bytes, header: BatchHeader) -> Tails | None:
    """The records of the v2 batch ``content``; None if only decoding can describe its damage."""
    data = content[HEADER_BYTES:]
    try:
        if header.codec and header.record_count:
            data = unpack(header.codec, data, batch_bytes(), where=None, position=0)
        return _tails(data, header)
    except (CorruptionError, IndexError):
        return None


def _tails(data: bytes, header: BatchHeader) -> Tails:
    """A loop without calls for short numbers, which nearly all are, because it runs for every record.

    Raises:
        IndexError: a number goes past the end.
    """
    tails: Tails = {}
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    at = 0
    for _ in range(header.record_count):
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = _longer(data, at, raw)
        end = at + (raw >> 1)  # a length is never negative; the attributes before it may differ (U-14)
        raw = data[at + 1]  # behind the attributes, which may differ (U-14)
        at += 2
        if raw > 0x7F:
            raw, at = _longer(data, at, raw)
        timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = _longer(data, at, raw)
        timestamp = timestamp if append_time is None else append_time
        tails[base_offset + ((raw >> 1) ^ -(raw & 1))] = (timestamp, data[at:end])
        at = end
    return tails


def _longer(data: bytes, at: int, raw: int) -> tuple[int, int]:
    """The rest of a number whose first byte is ``raw``, and its end; still zigzag-encoded."""
    raw &= 0x7F
    for shift in range(7, 70, 7):
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return raw, at


_ONLY_BATCH_TIMESTAMP: Final = 0
"""The timestamp of an emptied batch that is alone in its segment (C-39.2); others have -1, or their old time."""
_KEPT_BITS: Final = TIMESTAMP_TYPE | TRANSACTIONAL | CONTROL


def old_view(new: Sequence[SegmentFile], old: Sequence[SegmentFile]) -> tuple[SegmentFile, ...]:
    """The log before the cleaning: the copy's segments, and the log's segments that the copy does not cover.

    The copy may be of the whole partition, or of the replaced segments only.
    """
    bases = {file.base for file in old}
    files = sorted([*old, *(file for file in new if file.base not in bases)], key=lambda file: file.base)
    ends = [*(file.base for file in files), NO_END][1:]
    return tuple(
        type(file)(file.path, file.base, end, file.size_bytes, sealed=end != NO_END)
        for file, end in zip(files, ends, strict=True)
    )


@dataclass(frozen=True, slots=True)
class _ComparedBatch:
    """A batch of one side. ``header``: None for magic 0 and 1; ``segment``: base offset of its segment."""

    stored: StoredBatch
    header: BatchHeader | None
    base: int
    last: int
    segment: int

    @classmethod
    def of(cls, stored: StoredBatch, segment: int) -> _ComparedBatch:
        if stored.frame.magic < 2:
            last = stored.frame.offset
            try:
                first = min((record.offset for record in records_in(stored.data, stored.position)), default=last)
            except CorruptionError:
                first = last
            return cls(stored, None, first, last, segment)
        header = parse_header(stored.data, where=stored.where, origin=stored.position)
        return cls(stored, header, header.base_offset, header.last_offset, segment)

    def records(self) -> list[Record]:
        return records_in(self.stored.data, self.stored.position)


def _batches(files: Iterable[SegmentFile], advance: Callable[[int], None]) -> Iterator[_ComparedBatch]:
    for file in files:
        try:
            for stored in read_batches(file.path, cut_tail_ends=True, limit_bytes=batch_bytes()):
                if stored.end > file.size_bytes:
                    break
                advance(stored.frame.size_bytes)
                yield _ComparedBatch.of(stored, file.base)
        except CorruptionError:
            continue  # the pass over the headers reports it


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a marker may be removed.

    ``many_cleanings``: it may also have got a delete horizon since the copy, and passed it. An existing delete horizon
    does not change (C-49).
    """

    now_ms: int
    many_cleanings: bool

    def allows(self, horizon_ms: int | None) -> bool:
        """Whether a marker with the delete horizon ``horizon_ms`` may be removed; None: it had none."""
        return self.many_cleanings if horizon_ms is None else horizon_ms <= self.now_ms


class CleaningComparison:
    """Compares batches (S-08).

    From ``clean_below`` on no record may be missing; everything is new from ``old_end`` on. A cleaning that ends inside
    a segment rewrites the whole segment. Above ``clean_below`` it removes, as Kafka's cleaner does, ``aborted`` data,
    expired markers and batches without records. With ``rules`` that keep the write time a largest timestamp may
    increase, but not decrease (U-65).
    """

    def __init__(
        self,
        findings: Findings,
        *,
        log_start: int,
        clean_below: int,
        old_end: int,
        aborted: InvisibleRanges,
        expiry: Expiry,
        rules: KeyRules = KAFKAS_RULES,
    ) -> None:
        self._findings = findings
        self._log_start = log_start
        self._clean_below = clean_below
        self._old_end = old_end
        self._aborted = aborted
        self._expiry = expiry
        self._keeps_write_time = rules.keeps_write_time
        self._flags_tombstones = rules.tombstone_mode == "flag"
        self._rules = rules

    def run(self, new: Sequence[SegmentFile], old: Sequence[SegmentFile], advance: Callable[[int], None]) -> None:
        """Compare the segments ``new`` with ``old``, which cover at least their offsets.

        Raises:
            OSError: a file cannot be read.
        """
        before = _batches(old, advance)
        ahead: deque[_ComparedBatch] = deque()
        for batch in _batches(new, advance):
            while (not ahead or ahead[-1].last < batch.last) and (following := next(before, None)) is not None:
                ahead.append(following)
            while ahead and ahead[0].last < batch.base:
                self._check_removed(ahead.popleft())
            matching = [each for each in ahead if each.base <= batch.last]
            while ahead and ahead[0].last <= batch.last:
                ahead.popleft()
            if not matching:
                if batch.base < self._old_end:
                    self._report(batch, FindingKind.NOT_IN_COPY, f"the batch at offset {batch.base} is not in the copy")
            elif len(matching) > 1 or matching[0].stored.data != batch.stored.data:
                self._compare(batch, matching)
        for batch in (*ahead, *before):
            self._check_removed(batch)

    def _check_removed(self, old: _ComparedBatch) -> None:
        if old.last >= self._clean_below and old.last >= self._log_start and not self._may_be_removed(old):
            offsets = f"{old.base} to {old.last}"
            where = old.stored
            self._findings.error(
                FindingKind.DIRTY_RECORD_MISSING,
                where.where,
                f"the batch of offsets {offsets} is missing, but the log is clean only up to {self._clean_below}",
                position=where.position,
                offset=max(old.base, self._clean_below),
            )

    def _compare(self, batch: _ComparedBatch, matching: list[_ComparedBatch]) -> None:
        if self._flags_tombstones:  # the tails do not include it
            self._compare_records(batch, matching)
            return
        if batch.header is not None and len(matching) == 1 and matching[0].header is not None:
            tails = tails_of(batch.stored.data, batch.header)
            before = tails_of(matching[0].stored.data, matching[0].header)
            if tails is not None and before is not None and tails.items() <= before.items():
                self._compare_headers(batch, batch.header, [matching[0].header], has_records=bool(tails))
                if not self._may_be_removed(matching[0]):
                    self._report_removed(batch, before.keys() - tails.keys())
                return
        self._compare_records(batch, matching)

    def _compare_records(self, batch: _ComparedBatch, matching: list[_ComparedBatch]) -> None:
        """Compare decoded records, to name the difference and to ignore header names that differ in bytes only."""
        try:
            records = batch.records()
            of_batches = [(each, {record.offset: record for record in each.records()}) for each in matching]
        except CorruptionError:
            return
        before = {offset: (record, each) for each, of_batch in of_batches for offset, record in of_batch.items()}
        v2 = [each.header for each in matching if each.header is not None]
        if batch.header is not None and v2:
            self._compare_headers(batch, batch.header, v2, has_records=bool(records))
        for record in records:
            if record.offset not in before:
                what = f"the record at offset {record.offset} is not in the copy"
                self._report(batch, FindingKind.NOT_IN_COPY, what, record.offset)
                continue
            old, stored_in = before[record.offset]
            changed = _changed(record, old)
            if self._flags_tombstones and self._is_tombstone(record, batch) != self._is_tombstone(old, stored_in):
                changed.append("tombstone flag")
            if changed:
                what = f"the record at offset {record.offset} has another {' and '.join(changed)} than in the copy"
                self._report(batch, FindingKind.RECORD_CHANGED, what, record.offset)
        there = {record.offset for record in records}
        for each, of_batch in of_batches:
            if not self._may_be_removed(each):
                self._report_removed(batch, of_batch.keys() - there)

    def _is_tombstone(self, record: Record, batch: _ComparedBatch) -> bool:
        return self._rules.is_tombstone(record, 1 if batch.header is None else 2)

    def _may_be_removed(self, old: _ComparedBatch) -> bool:
        """Whether a cleaning up to ``clean_below`` may remove the batch ``old``, even above that offset."""
        header = old.header
        if header is None or old.segment >= self._clean_below:
            return False
        if not header.record_count:
            return True
        if header.attributes & CONTROL:
            return self._expiry.allows(header.delete_horizon_ms)
        return bool(header.attributes & TRANSACTIONAL) and self._aborted.is_aborted(header.producer_id, old.base)

    def _report_removed(self, batch: _ComparedBatch, left: AbstractSet[int]) -> None:
        """Report removed records above the clean section."""
        for offset in sorted(offset for offset in left if offset >= max(self._clean_below, self._log_start)):
            what = f"the record at offset {offset} is missing, but the log is clean only up to {self._clean_below}"
            self._report(batch, FindingKind.DIRTY_RECORD_MISSING, what, offset)

    def _compare_headers(
        self, batch: _ComparedBatch, header: BatchHeader, before: list[BatchHeader], *, has_records: bool
    ) -> None:
        if len(before) > 1:
            bases = ", ".join(str(each.base_offset) for each in before)
            what = f"the batch at offset {batch.base} replaces several of the copy: {bases}"
            self._report(batch, FindingKind.BATCHES_MERGED, what)
            return
        (old,) = before
        rises = self._keeps_write_time and has_records and header.max_timestamp > old.max_timestamp
        # Records keep their times. With append time the header's time counts for all, so a later one needs create time.
        kept_bits = _KEPT_BITS & ~TIMESTAMP_TYPE if rises else _KEPT_BITS
        pairs = {
            "base offset": (header.base_offset, old.base_offset),
            "last offset": (header.last_offset, old.last_offset),
            "leader epoch": (header.partition_leader_epoch, old.partition_leader_epoch),
            "producer id": (header.producer_id, old.producer_id),
            "producer epoch": (header.producer_epoch, old.producer_epoch),
            "base sequence": (header.base_sequence, old.base_sequence),
            "attribute bits": (header.attributes & kept_bits, old.attributes & kept_bits),
        }  # fmt: skip
        placed = not has_records and header.max_timestamp not in {NO_TIMESTAMP, _ONLY_BATCH_TIMESTAMP}
        if placed or (self._keeps_write_time and has_records and not rises):
            pairs["max timestamp"] = (header.max_timestamp, old.max_timestamp)
        if has_records and old.delete_horizon_ms is not None:
            pairs["delete horizon"] = (header.delete_horizon_ms or 0, old.delete_horizon_ms)
        for what, (now, then) in pairs.items():
            if now != then:
                kind = (
                    FindingKind.DELETE_HORIZON_CHANGED if what == "delete horizon" else FindingKind.BATCH_HEADER_CHANGED
                )
                self._report(batch, kind, f"the batch at offset {batch.base} has {what} {now}, {then} in the copy")

    def _report(self, batch: _ComparedBatch, kind: FindingKind, what: str, offset: int | None = None) -> None:
        stored = batch.stored
        place = batch.base if offset is None else offset
        self._findings.error(kind, stored.where, what, position=stored.position, offset=place)


def _changed(record: Record, old: Record) -> list[str]:
    """The changed parts of the record. Other attributes than a flag may change, because Kafka zeroes them (U-14)."""
    changed = [
        name
        for name, now, then in (
            ("key", record.key, old.key),
            ("value", record.value, old.value),
            ("timestamp", record.timestamp, old.timestamp),
        )
        if now != then
    ]
    return changed + ["headers"] * (record.headers != old.headers and _headers(record) != _headers(old))


def _headers(record: Record) -> list[tuple[str, bytes | None]]:
    """Header names as Kafka rewrites them: invalid UTF-8 becomes U+FFFD (F-2.3)."""
    return [(name.decode("utf-8", "replace"), value) for name, value in record.headers]


def check_ends(new: LogSummary, old: LogSummary, log_start: int, findings: Findings) -> None:
    """Check that the end of the log and the last batch of each segment are unchanged (R280-9, U-13)."""
    if new.end_offset < old.end_offset:
        what = f"the log ends at offset {new.end_offset - 1}, the copy at {old.end_offset - 1}"
        findings.error(FindingKind.LOG_END_MISSING, str(new.segments[-1].file.path), what, offset=new.end_offset)
    ends = [(facts.file.base, facts.end_offset) for facts in old.segments if facts.batches]
    for facts in new.segments:
        there = [end for base, end in ends if facts.file.base <= base < facts.file.end]
        if facts.file.sealed and there and log_start < max(there) != facts.end_offset < max(there):
            what = f"the last batch before the cleaning, which ends at offset {max(there) - 1}, is missing; "
            what += "Kafka's own cleaner leaves that too, but after a crash a replaced segment could come back"
            findings.warning(FindingKind.LAST_BATCH_MISSING, str(facts.file.path), what, offset=max(there) - 1)


def check_producers(
    new: LogSummary, old: LogSummary, log_start: int, clock: ProducerExpiry, expiry: Expiry, findings: Findings
) -> None:
    """R192-1: check that active producers keep the batches that their next append is validated with.

    A marker is removed after its delete horizon, as in Kafka, whose cleaner keeps at most an empty batch of it.
    """
    name = str(new.segments[-1].file.path.parent)
    for key, before in old.producers.items():
        if not clock.is_active(before.timestamp_ms) and before.open_from < 0:
            continue
        now = new.producers.get(key)
        known_by_marker = before.epoch != before.data_epoch
        horizon_ms = None if before.marker_horizon_ms == NO_HORIZON else before.marker_horizon_ms
        if known_by_marker and (now is None or now.epoch < before.epoch) and not expiry.allows(horizon_ms):
            what = f"the marker with epoch {before.epoch} of producer {key} is missing"
            findings.error(FindingKind.PRODUCER_BATCH_MISSING, name, what)
        if known_by_marker or before.last_offset < log_start:
            continue
        if now is None or now.last_offset < before.last_offset:
            what = f"the last batch of producer {key}, which ended at offset {before.last_offset}, is missing: "
            what += "its next append will be refused"
            findings.error(FindingKind.PRODUCER_BATCH_MISSING, name, what, offset=before.last_offset)
