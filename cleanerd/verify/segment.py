"""The batches of one segment: checksums, order, range (F-1, F-2, F-5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.format.legacy import parse_message, records_of_message
from cleanerd.host.memory import batch_bytes, batch_bytes_of_objects
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import SegmentFile, size_of
from cleanerd.verify.walk import CHUNK_BYTES, READ_LIMITS, Damage, ReadLimits, read_batch, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.verify.finding import Findings

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
BATCH_BYTES: Final = 64
"""Memory per batch of a segment while its indexes are compared: the columns, and their sums."""


@dataclass(frozen=True, slots=True)
class BatchColumns:
    """The readable batches of a segment, in file order. ``base`` of a v0 or v1 wrapper is its last offset."""

    position: NDArray[np.int64]
    base: NDArray[np.int64]
    last: NDArray[np.int64]
    max_timestamp: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.position)

    @property
    def end_offset(self) -> int:
        """One past the largest offset, 0 without a batch."""
        return int(self.last.max()) + 1 if len(self) else 0


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """The facts from a pass over a segment's headers.

    ``whole``: every byte belongs to a valid batch, in order. ``end_offset``: one past its largest offset, 0 without a
    batch.
    """

    file: SegmentFile
    batches: int
    records: int
    end_offset: int
    whole: bool


def check_segment(
    file: SegmentFile,
    findings: Findings,
    take: Callable[[_kernel.Batches], None],
    advance: Callable[[int], None],
    *,
    tail_may_be_cut: bool,
    cut_from: int | None = None,
    broker_runs: bool = False,
    read_limits: ReadLimits = READ_LIMITS,
) -> tuple[SegmentFacts, BatchColumns | None]:
    """Walk the headers; ``take`` receives every chunk of them in order.

    They are None when the segment has more batches than there is memory for (U-35), which is a finding.

    ``tail_may_be_cut``: a broker that was not stopped cleanly had this segment open, so its end may be half a batch.
    ``cut_from``: from this offset on it cuts the log at the first damage (U-32); None when it was stopped cleanly.
    ``broker_runs``: the broker may be appending to the active segment, so its end may be half a batch while it grows.

    Raises:
        CleanerdError: the file cannot be read.
    """
    checks = _Checks(
        file, findings, read_limits, tail_may_be_cut=tail_may_be_cut, cut_from=cut_from, broker_runs=broker_runs
    )
    chunk_bytes = read_limits.chunk_bytes
    for data, batches in walk(file.path, file.size_bytes, _headers, checks.damaged, chunk_bytes=chunk_bytes):
        checks.add_chunk(data, batches)
        take(batches)
        advance(len(data))
    if file.size_bytes > MAX_RELATIVE_OFFSET:
        findings.error(
            FindingKind.SEGMENT_TOO_LARGE, str(file.path), f"{file.size_bytes} bytes: a segment has at most 2^31-1"
        )
    return checks.facts(), checks.columns()


def is_reported(path: Path, damage: Damage) -> bool:
    """Whether :func:`check_segment` reports ``damage`` that the pass over the records found, too.

    It reads the bytes again, because storing every damaged batch would take memory in proportion to the damage (U-35).

    Raises:
        CleanerdError: the file cannot be read.
    """
    if not 0 < damage.size_bytes <= max(batch_bytes(), CHUNK_BYTES):
        return True
    data = read_batch(path, damage.position, damage.size_bytes)
    try:
        batches = _headers(data, damage.position)
        if len(batches) and batches.magic[0] < 2:
            _check_message(data, str(path), damage.position)
    except (_kernel.CorruptLogError, CorruptionError):
        return True
    return not len(batches)


def _check_message(data: NDArray[np.uint8], name: str, position: int) -> int:
    """Check CRC-32 and content of a v0 or v1 message, whose frame alone a header pass reads. Returns its time.

    Raises:
        CorruptionError: it is damaged.
    """
    message = parse_message(data.tobytes(), where=name, position=position)
    records_of_message(message, limit_bytes=batch_bytes_of_objects(), where=name, position=position)
    return message.timestamp


def _headers(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
    return _kernel.scan_headers(data, position, verify_crc=True)


class _Checks:
    """The state of one walk."""

    def __init__(
        self,
        file: SegmentFile,
        findings: Findings,
        read_limits: ReadLimits,
        *,
        tail_may_be_cut: bool,
        cut_from: int | None,
        broker_runs: bool,
    ) -> None:
        self._file = file
        self._kept_bytes = read_limits.kept_bytes
        self._name = str(file.path)
        self._findings = findings
        self._tail_may_be_cut = tail_may_be_cut
        self._cut_from = cut_from
        self._broker_runs = broker_runs
        self._whole = True
        self._records = 0
        self._last = -1
        self._batches = 0
        self._end = 0
        self._columns: list[tuple[NDArray[np.int64], ...]] | None = []

    def damaged(self, damage: Damage) -> None:
        self._whole = False
        report = self._findings.error
        reason = damage.reason
        if damage.zeros and not self._file.sealed:
            report, reason = self._findings.warning, "zeros to the end of the file: a preallocated segment that is open"
        elif damage.cut and self._tail_may_be_cut and not self._file.sealed:
            report = self._findings.warning
            reason += "; the broker was not stopped cleanly and cuts it off when it starts"
        elif damage.cut and self._broker_runs and not self._file.sealed and self._has_grown():
            report = self._findings.warning
            reason += "; the broker is writing it: the file has grown since it was listed"
        elif self._cut_from is not None and max(self._last + 1, self._file.base) >= self._cut_from:
            report = self._findings.warning
            reason += "; the broker was not stopped cleanly and cuts the log off here when it starts"
        elif not damage.size_bytes:
            reason += "; nothing after it was read"
        kind = FindingKind.BATCH_DAMAGED if damage.size_bytes else FindingKind.BATCH_UNREADABLE
        report(kind, self._name, reason, position=damage.position, offset=damage.offset)

    def _has_grown(self) -> bool:
        return size_of(self._file.path) > self._file.size_bytes

    def add_chunk(self, data: NDArray[np.uint8], batches: _kernel.Batches) -> None:
        columns = tuple(
            column.astype(np.int64)
            for column in (batches.position, batches.base_offset, batches.last_offset, batches.max_timestamp)
        )
        self._store(columns)
        self._records += int(batches.first_record[-1])
        position, base, last, _ = columns
        before = np.concatenate([[self._last], last[:-1]])
        what = "does not follow the batch before it, which ends at"
        # Brokers store such batches, and the cleaner accepts them (U-45).
        report = self._findings.warning
        self._report(base <= before, position, base, before, FindingKind.OFFSET_OUT_OF_ORDER, what, report=report)
        outside = FindingKind.OFFSET_OUTSIDE_SEGMENT
        self._report(base < self._file.base, position, base, None, outside, "is below the segment's base offset")
        what = "is in the range of the segment that follows"
        self._report(last >= self._file.end, position, last, None, outside, what, report=report)
        too_far = last - self._file.base > MAX_RELATIVE_OFFSET
        what = "is more than 2^31-1 above the segment's base offset"
        self._report(too_far, position, last, None, FindingKind.OFFSET_TOO_FAR, what)
        self._whole &= bool((base > before).all())
        self._last = int(last[-1])
        for row in np.flatnonzero(batches.magic < 2):
            at = int(position[row])
            columns[3][row] = self._check_legacy(data[at - int(position[0]) :][: int(batches.size[row])], at)

    def _report(
        self,
        bad: NDArray[np.bool_],
        position: NDArray[np.int64],
        offset: NDArray[np.int64],
        other: NDArray[np.int64] | None,
        kind: FindingKind,
        what: str,
        *,
        report: Callable[..., None] | None = None,
    ) -> None:
        for row in np.flatnonzero(bad):
            after = "" if other is None else f" {other[row]}"
            (report or self._findings.error)(
                kind,
                self._name,
                f"the batch at offset {offset[row]} {what}{after}",
                position=int(position[row]),
                offset=int(offset[row]),
            )

    def _check_legacy(self, data: NDArray[np.uint8], position: int) -> int:
        try:
            return _check_message(data, self._name, position)
        except CorruptionError as error:
            self._whole = False
            self._findings.error(FindingKind.MESSAGE_DAMAGED, self._name, error.message, position=position)
            return -1

    def _store(self, columns: tuple[NDArray[np.int64], ...]) -> None:
        """Store a chunk's columns while there is memory for them."""
        self._batches += len(columns[0])
        self._end = max(self._end, int(columns[2].max()) + 1)
        if self._columns is None:
            return
        self._columns.append(columns)
        if self._batches * BATCH_BYTES > self._kept_bytes:
            self._columns = None
            what = (
                f"its indexes were not compared with it: it has more than {self._batches} batches up to here, and "
                f"{self._kept_bytes} bytes of memory may be used for that (more memory is needed)"
            )
            self._findings.error(FindingKind.NOT_VERIFIED, self._name, what, position=int(columns[0][0]))

    def columns(self) -> BatchColumns | None:
        if self._columns is None:
            return None
        if not self._columns:
            empty = np.zeros(0, np.int64)
            return BatchColumns(empty, empty, empty, empty)
        return BatchColumns(*(np.concatenate(parts) for parts in zip(*self._columns, strict=True)))

    def facts(self) -> SegmentFacts:
        return SegmentFacts(self._file, self._batches, self._records, self._end, self._whole)
