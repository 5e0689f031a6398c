"""Which data of a task is committed, although its transactions' markers come later; where the stable part ends.

A transaction ends with the next marker of its producer. So data before a split does not matter. Later data is read only
up to the markers of the transactions that extend beyond the split: none in a log without transactions.

The stable part ends at the high watermark, or at the first open transaction below it (S-04). The newest trusted
producer snapshot has the open transactions at its offset, so only later batches are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.segments.same_file import changed
from cleanerd.spark.listed import list_complete
from cleanerd.verify.finding import Findings
from cleanerd.verify.producers import Snapshot, read_snapshots
from cleanerd.verify.transactions import Transactions
from cleanerd.verify.walk import Damage, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from cleanerd.spark.logs import Log
    from cleanerd.verify.listing import SegmentFile


def stable_end(log: Log, *, skip_damage: bool) -> int:
    """The last stable offset of ``log``, whose high watermark is known.

    Raises:
        CorruptionError: damaged bytes below the high watermark, unless ``skip_damage``.
    """
    high_watermark = log.high_watermark
    assert high_watermark is not None  # noqa: S101 - the caller's promise
    offsets = tuple(at for at in log.snapshots if log.segments[0].base <= at <= high_watermark)
    for snapshot in reversed(read_snapshots(log.segments[0].path.parent, offsets, Findings())):
        stable, end = _replay(log, high_watermark, snapshot, skip_damage=skip_damage)
        if snapshot.offset <= end:
            return stable
        # The log was truncated after this snapshot, which describes data that no longer exists.
    return _replay(log, high_watermark, None, skip_damage=skip_damage)[0]


def _replay(log: Log, high_watermark: int, snapshot: Snapshot | None, *, skip_damage: bool) -> tuple[int, int]:
    """The last stable offset, and the end of the log that was read."""
    transactions = Transactions(high_watermark)
    since = 0
    if snapshot is not None:
        since = snapshot.offset
        entries = [entry for entry in snapshot.entries if entry["current_txn_first_offset"] >= 0]
        transactions.begin({int(each["producer_id"]): int(each["current_txn_first_offset"]) for each in entries})
    end = log.segments[-1].base
    for segment in log.segments:
        if segment.end <= since or segment.base >= high_watermark:
            continue
        for _, batches in walk(
            segment.path, segment.size_bytes, _kernel.scan_headers, damage_handler(segment, skip=skip_damage)
        ):
            end = max(end, int(batches.last_offset[-1]) + 1)
            transactions.add(batches, since=since)
    return transactions.last_stable_offset(), end


def damage_handler(segment: SegmentFile, *, skip: bool) -> Callable[[Damage], None]:
    """The handler of damage in ``segment``: ignored at the end of an active one, else an error, or ``skip`` it."""

    def damaged(damage: Damage) -> None:
        if skip or (not segment.sealed and (damage.cut or damage.zeros)):
            return
        raise CorruptionError(damage.reason, where=str(segment.path), position=damage.position)

    return damaged


_AHEAD_BYTES: Final = 256 * 1024


def control_batches(batches: _kernel.Batches) -> NDArray[np.bool_]:
    """[b]: markers of transactions, including emptied ones."""
    control: NDArray[np.bool_] = (batches.magic == 2) & ((batches.attributes & CONTROL) != 0)
    return control


class Markers:
    """The markers of one log, in the order of offsets; chunks have to be checked in that order.

    ``end``: the search ends at this offset, since later data is not acknowledged: a transaction without a marker below
    is open. ``skip_damage``: data whose marker was in unreadable bytes is treated as not committed; otherwise such
    bytes are an error.
    """

    def __init__(self, end: int, *, skip_damage: bool) -> None:
        self._end = end
        self._skip_damage = skip_damage
        self._known_to = -1
        self._offsets: dict[int, list[int]] = {}
        self._aborts: dict[int, list[bool]] = {}
        self._ahead: Iterator[_kernel.Batches] | None = None
        self._ahead_to = -1
        self._is_over = False

    def hidden(self, batches: _kernel.Batches, segment: SegmentFile, stop: int) -> NDArray[np.bool_] | None:
        """[b]: data batches of aborted or open transactions; None if there are none at all.

        ``stop`` is the position in ``segment`` behind ``batches``.

        Raises:
            CorruptionError: the markers come after unreadable bytes, unless ``skip_damage``. SegmentChangedError:
                ``segment`` does not exist any more.
            CleanerdError: a file cannot be read.
        """
        if not len(batches):
            return None
        transactional = (batches.magic == 2) & ((batches.attributes & TRANSACTIONAL) != 0) & (batches.producer_id >= 0)
        if not transactional.any():
            self._known_to = max(self._known_to, int(batches.last_offset[-1]) + 1)
            return None
        if self._ahead_to <= int(batches.last_offset[-1]):
            self._ahead = None
        self._add(batches)
        rows = np.flatnonzero(transactional & ~control_batches(batches))
        hidden = np.zeros(len(batches), np.bool_)
        producers = batches.producer_id[rows]
        for producer in np.unique(producers).tolist():
            mine = rows[producers == producer]
            hidden[mine] = self._aborted(producer, batches.base_offset[mine], segment, stop)
        return hidden

    def _aborted(self, producer: int, offsets: NDArray[np.int64], segment: SegmentFile, stop: int) -> NDArray[np.bool_]:
        """[n], for data of ``producer`` at ascending ``offsets``: its next marker aborts it, or there is none."""
        last = int(offsets[-1])
        while not self._is_over and (self._offsets.get(producer) or [-1])[-1] < last:
            if self._ahead is None:
                self._ahead = self._read_on(segment, stop)
            found = next(self._ahead, None)
            if found is None:
                self._is_over = True
            else:
                self._add(found)
                self._ahead_to = int(found.last_offset[-1]) + 1
        at = np.searchsorted(np.array(self._offsets.get(producer, ()), np.int64), offsets, side="right")
        return np.array([*self._aborts.get(producer, ()), True])[at]

    def _add(self, batches: _kernel.Batches) -> None:
        markers = control_batches(batches) & (batches.producer_id >= 0) & (batches.base_offset >= self._known_to)
        for row in np.flatnonzero(markers).tolist():
            producer = int(batches.producer_id[row])
            self._offsets.setdefault(producer, []).append(int(batches.base_offset[row]))
            self._aborts.setdefault(producer, []).append(bool(batches.control_type[row] == ControlType.ABORT))
        last = int(batches.last_offset[-1])
        self._known_to = max(self._known_to, last + 1)
        self._is_over = self._is_over or last + 1 >= self._end

    def _read_on(self, segment: SegmentFile, stop: int) -> Iterator[_kernel.Batches]:
        """The headers after ``stop``, to the end of the log."""
        segments = list_complete(segment.path.parent).segments
        if segment.base not in {each.base for each in segments}:
            # Its markers may be in a segment that begins before it now.
            raise changed("the segment is no longer there", str(segment.path))
        for each in segments:
            if each.base < segment.base:
                continue
            start = stop if each.base == segment.base else 0
            size = min(each.size_bytes, segment.size_bytes) if segment.sealed and start else each.size_bytes
            for _, batches in walk(
                each.path, size, _kernel.scan_headers, self._damage_handler(each), chunk_bytes=_AHEAD_BYTES, start=start
            ):
                yield batches

    def _damage_handler(self, segment: SegmentFile) -> Callable[[Damage], None]:
        """Damage here is a separate error: the task may not need the records so far."""
        return damage_handler(segment, skip=self._skip_damage)
