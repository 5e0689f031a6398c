"""Checks records by key: in the clean section at most one per key, and compared with an old copy, the right one.

The checked rule is the contract with consumers, independent of the cleaner. Of all committed records of a key below the
checkpoint, exactly the last one remains (C-45, C-50); with a non-default strategy the one with the highest version
(R280-4 to R280-6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CorruptionError
from cleanerd.host.memory import batch_bytes
from cleanerd.segments.batch_file import read_batches
from cleanerd.verify.key_table import KeyTable, first_of_key
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.records import NO_HORIZON, NO_TIMESTAMP, DataRecords, horizons, read_rows, records_in
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from cleanerd.verify.segment import SegmentFacts, is_reported
from cleanerd.verify.walk import READ_LIMITS, Damage, ReadLimits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.verify.finding import Findings
    from cleanerd.verify.listing import SegmentFile
    from cleanerd.verify.transactions import InvisibleRanges

# facts of a row: its batch's position (32 bits), segment number (24 bits), and these flags
_OLD: Final = np.uint64(1 << 56)
_TOMBSTONE: Final = np.uint64(1 << 57)
_MAY_BE_GONE: Final = np.uint64(1 << 58)
_HAS_HORIZON: Final = np.uint64(1 << 59)
_UNORDERED: Final = np.uint64(1 << 60)
"""The record's batch does not have ascending offsets."""
_POSITION_BITS: Final = np.uint64(32)
_SEGMENT_MASK: Final = np.uint64((1 << 24) - 1)
_POSITION_MASK: Final = np.uint64((1 << 32) - 1)
_PLACE_MASK: Final = np.uint64((1 << 56) - 1)


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets ``start .. end`` (exclusive) in which keys are compared; ``clean``: the range has been cleaned.

    ``many_cleanings``: several cleanings were between old and new, so a tombstone may have got a horizon and passed it.
    An existing horizon does not change (C-49). ``unproven_below``: below this offset cleanerd did not clean the log
    itself (``--first-dirty``, or Kafka's checkpoint). Keys without a record at or above it are unchanged.
    """

    start: int
    end: int
    clean: bool
    now_ms: int
    many_cleanings: bool = False
    unproven_below: int = 0


class KeyedRecords:
    """Adds the records that consumers see to a key table. ``files``: the files that findings name."""

    def __init__(
        self,
        table: KeyTable,
        where: Range,
        findings: Findings,
        hash_key: bytes,
        rules: KeyRules = KAFKAS_RULES,
        read_limits: ReadLimits = READ_LIMITS,
    ) -> None:
        self._chunk_bytes = read_limits.chunk_bytes
        self.files: list[Path] = []
        self._table = table
        self._where = where
        self._findings = findings
        self._hash_key = hash_key
        self._rules = rules

    def add_segment(
        self,
        facts: SegmentFacts,
        invisible: InvisibleRanges,
        advance: Callable[[int], None],
        *,
        is_old: bool = False,
        old_end: int | None = None,
    ) -> None:
        """Decode a segment and add its records; ``is_old``: it belongs to the log from before the cleaning.

        Records of the new log from ``old_end`` on were written since and count for both.

        Raises:
            CleanerdError: the file cannot be read.
        """
        number = len(self.files)
        self.files.append(facts.file.path)

        def damaged(damage: Damage) -> None:
            if not is_old and not is_reported(facts.file.path, damage):
                self._findings.error(
                    FindingKind.RECORD_DAMAGED,
                    str(facts.file.path),
                    damage.reason,
                    position=damage.position,
                    offset=damage.offset,
                )

        for data, rows in read_rows(
            facts.file.path,
            facts.file.size_bytes,
            self._hash_key,
            damaged,
            chunk_bytes=self._chunk_bytes,
            rules=self._rules,
        ):
            advance(len(data))
            if not is_old:
                self._report_times(facts.file, rows)
            if facts.file.base >= self._where.end:
                continue  # decoded anyway: the structure of every record is checked
            seen = (rows.offset >= self._where.start) & (rows.offset < self._where.end)
            seen &= ~invisible.batches(rows.batches)[rows.batch]
            if not is_old and self._where.clean:
                self._report_keyless(facts.file, rows, seen & ~rows.has_key)
            seen &= rows.has_key
            if not seen.any():
                continue
            row_facts = self._tombstone_bits(rows, number)[seen]
            hashes, offsets = rows.key_hash[seen], rows.offset[seen]
            version, has_version = rows.version[seen], rows.has_version[seen]
            self._table.add(hashes, offsets, row_facts | _OLD if is_old else row_facts, (version, has_version))
            if old_end is not None and (offsets >= old_end).any():
                later = offsets >= old_end
                versions = version[later], has_version[later]
                self._table.add(hashes[later], offsets[later], row_facts[later] | _OLD, versions)

    def _tombstone_bits(self, rows: DataRecords, number: int) -> NDArray[np.uint64]:
        horizon = horizons(rows.batches)
        gone = (rows.batches.magic < 2) | ((horizon != NO_HORIZON) & (horizon <= self._where.now_ms))
        row_facts = rows.batches.position.astype(np.uint64) | np.uint64(number << 32)
        row_facts |= np.where(gone, _MAY_BE_GONE, np.uint64(0)) | np.where(
            horizon != NO_HORIZON, _HAS_HORIZON, np.uint64(0)
        )
        row_facts[rows.batches.unordered] |= _UNORDERED
        tombstones: NDArray[np.uint64] = np.where(rows.is_tombstone, _TOMBSTONE, np.uint64(0))
        return row_facts[rows.batch] | tombstones

    def _report_times(self, file: SegmentFile, rows: DataRecords) -> None:
        """F-2: check that a batch has the largest time of its records, which retention and lookups by time use."""
        batches, at = rows.batches, rows.filled
        stated_ms = batches.max_timestamp[at]
        # A batch that took over the time of superseded records has a later one than its records (U-65).
        wrong = stated_ms < rows.highest_ms if self._rules.keeps_write_time else stated_ms != rows.highest_ms
        wrong &= (stated_ms != NO_TIMESTAMP) | (
            rows.highest_ms > NO_TIMESTAMP
        )  # rebuilt batches have no time below -1 (U-52)
        for row in np.flatnonzero((batches.magic[at] == 2) & wrong):
            what = f"says the largest timestamp is {stated_ms[row]}, but its records' largest is {rows.highest_ms[row]}"
            self._report_batch(self._findings.error, FindingKind.MAX_TIMESTAMP_WRONG, file, rows, at[row], what)
        for row in np.flatnonzero(rows.lowest_ms < NO_TIMESTAMP):
            what = f"has a record of time {rows.lowest_ms[row]}: Kafka's cleaner stops at a batch that it would rebuild"
            self._report_batch(self._findings.warning, FindingKind.TIMESTAMP_NEGATIVE, file, rows, at[row], what)

    @staticmethod
    def _report_batch(
        report: Callable[..., None], kind: FindingKind, file: SegmentFile, rows: DataRecords, row: int, what: str
    ) -> None:
        offset, position = int(rows.batches.base_offset[row]), int(rows.batches.position[row])
        report(kind, str(file.path), f"the batch at offset {offset} {what}", position=position, offset=offset)

    def _report_keyless(self, file: SegmentFile, rows: DataRecords, keyless: NDArray[np.bool_]) -> None:
        """C-45.2: check that there are no records without a key below the checkpoint."""
        for row in np.flatnonzero(keyless):
            offset = int(rows.offset[row])
            what = f"the record at offset {offset} has no key, and the log is clean up to {self._where.end}"
            position = int(rows.batches.position[rows.batch[row]])
            report = self._findings.error
            if offset < self._where.unproven_below:
                report, what = self._findings.warning, what + self._not_by_us
            report(FindingKind.RECORD_WITHOUT_KEY, str(file.path), what, position=position, offset=offset)

    @property
    def _not_by_us(self) -> str:
        return f"; cleanerd has not cleaned below offset {self._where.unproven_below}: this may be Kafka's own cleaning"

    def check(self, part: NDArray[np.void], *, against: bool) -> None:
        """Check one part of the table: all rows of its keys."""
        if self._where.clean:
            new = part[(part["facts"] & _OLD) == 0]
            starts = first_of_key(new)
            sizes = np.diff(np.append(starts, len(new)))
            newest = np.repeat(new["offset"][starts + sizes - 1], sizes)  # sorted by offset within a key
            for row in np.flatnonzero(_superseded(new)):
                last = int(new["offset"][row + np.argmax(new["offset"][row:] > new["offset"][row])])
                what = f"occurs again at offset {last}, below the first dirty offset"
                if newest[row] < self._where.unproven_below:
                    self._warn(FindingKind.KEY_TWICE, new[row], what + self._not_by_us)
                else:
                    self._report(FindingKind.KEY_TWICE, new[row], what)
        if against:
            self._compare(part)

    def _compare(self, part: NDArray[np.void]) -> None:
        starts = first_of_key(part)
        if not len(starts):
            return
        sizes = np.diff(np.append(starts, len(part)))
        old = (part["facts"] & _OLD) != 0
        of_key = np.repeat(_winners(part, old, starts, sizes), sizes)
        is_winner = part["offset"] == of_key
        there = np.repeat(np.logical_or.reduceat(~old & is_winner, starts), sizes)
        before = np.repeat(np.add.reduceat(old, starts, dtype=np.int64), sizes)
        for row in np.flatnonzero(old & is_winner & ~there):
            kind, problem = self._loss_reason(int(part["facts"][row]), others=int(before[row]) - 1)
            if problem is not None:
                self._report(kind, part[row], problem)
        # Sorted by offset within a key: the same record of the other side is a neighbour.
        same_before = _same(part[1:], part[:-1]) & (old[1:] != old[:-1])
        has_twin = np.zeros(len(part), np.bool_)
        has_twin[1:] |= same_before
        has_twin[:-1] |= same_before
        for row in np.flatnonzero(~old & (of_key >= 0) & (part["offset"] != of_key) & ~there & has_twin):
            what = f"is back: the record at offset {of_key[row]} had won its key before the cleaning"
            self._report(FindingKind.OLD_RECORD_BACK, part[row], what)
        for row in np.flatnonzero(~old & ~has_twin):
            what = "is visible now and was not before: aborted, or not in the log at all"
            self._report(FindingKind.OLD_RECORD_BACK, part[row], what)

    def _loss_reason(self, facts: int, others: int) -> tuple[FindingKind, str | None]:
        """The kind and text of the loss of a key's last record; None if it is right: an expired tombstone.

        ``others``: how many more records the key had before the cleaning.
        """
        problem: str | None = None
        kind = FindingKind.LAST_RECORD_OF_KEY_MISSING
        if not facts & int(_TOMBSTONE):
            problem = "is lost: it was the last one of its key before the cleaning"
        elif self._rules.keeps_tombstones_forever:
            kind = FindingKind.TOMBSTONE_TOO_EARLY
            problem = "is a tombstone that went although none may (tombstone.guard=forever)"
        elif self._rules.by_version and others and not self._where.many_cleanings:
            kind = FindingKind.TOMBSTONE_TOO_EARLY
            problem = f"is a tombstone that went while there were {others} more records of its key"
        elif not facts & int(_MAY_BE_GONE) and facts & int(_HAS_HORIZON):
            problem = "is a tombstone that went before its delete horizon"
        elif not facts & int(_MAY_BE_GONE) and not self._where.many_cleanings:
            problem = "is a tombstone that went without a delete horizon, in one cleaning"
        return kind, problem

    def _report(self, kind: FindingKind, row: np.void, what: str) -> None:
        if not self._findings.has_room_for(kind):
            self._findings.count_error(kind)
            return
        path, position, offset = self._place(row)
        text = f"the record at offset {offset}{_key_text(path, position, offset)} {what}"
        self._findings.error(kind, str(path), text, position=position, offset=offset)

    def _warn(self, kind: FindingKind, row: np.void, what: str) -> None:
        path, position, offset = self._place(row)
        text = f"the record at offset {offset} {what}"
        self._findings.warning(kind, str(path), text, position=position, offset=offset)

    def _place(self, row: np.void) -> tuple[Path, int, int]:
        facts = row["facts"]
        path = self.files[int((facts >> _POSITION_BITS) & _SEGMENT_MASK)]
        return path, int(facts & _POSITION_MASK), int(row["offset"])


def _superseded(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """[n] bool: the last record of the key in the log has a higher offset. ``rows`` are sorted by key and offset.

    With ascending offsets that is each record except the last of a key (U-45). If the offsets of a last batch are not
    ascending, its record with the lowest offset counts.
    """
    starts = first_of_key(rows)
    if len(starts) == len(rows):
        return np.zeros(len(rows), np.bool_)
    sizes = np.diff(np.append(starts, len(rows)))
    place = rows["facts"] & _PLACE_MASK
    is_last = place == np.repeat(np.maximum.reduceat(place, starts), sizes)
    unordered = is_last & ((rows["facts"] & _UNORDERED) != 0)
    lowest = np.minimum.reduceat(np.where(unordered, rows["offset"], np.iinfo(np.int64).max), starts)
    highest = np.maximum.reduceat(np.where(is_last, rows["offset"], -1), starts)
    result: NDArray[np.bool_] = rows["offset"] < np.repeat(np.minimum(lowest, highest), sizes)
    return result


def _winners(
    part: NDArray[np.void], old: NDArray[np.bool_], starts: NDArray[np.intp], sizes: NDArray[np.intp]
) -> NDArray[np.int64]:
    """The offset of each key's old record with the highest (has a version, version, offset); -1 without one."""
    key = np.repeat(np.arange(len(starts)), sizes)
    order = np.lexsort((part["offset"], part["version"], part["has_version"], old, key))
    # Sorted within each key, old ones last: a key's last row is its winner, if it is old.
    last = order[starts + sizes - 1]
    return np.where(old[last], part["offset"][last], -1)


def _same(left: NDArray[np.void], right: NDArray[np.void]) -> NDArray[np.bool_]:
    equal = (left["low"] == right["low"]) & (left["high"] == right["high"])
    result: NDArray[np.bool_] = equal & (left["offset"] == right["offset"])
    return result


def _key_text(path: Path, position: int, offset: int) -> str:
    """`` (key 'abc')`` of one record, for messages."""
    try:
        batch = next(read_batches(path, start=position, cut_tail_ends=True, limit_bytes=batch_bytes()))
        key = next(record.key for record in records_in(batch.data, position) if record.offset == offset)
    except (StopIteration, CorruptionError, OSError):
        return ""
    if key is None:
        return ""
    return f" (key {key[:60].decode('utf-8', 'backslashreplace')!r})"
