"""The end of a log's stable part: the high watermark, or the first open transaction below it (S-04).

The newest trusted producer snapshot has the open transactions at its offset, so only later batches are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd import _kernel
from cleanerd.errors import CorruptionError
from cleanerd.verify.finding import Findings
from cleanerd.verify.producers import Snapshot, read_snapshots
from cleanerd.verify.transactions import Transactions
from cleanerd.verify.walk import Damage, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.spark.logs import Log
    from cleanerd.verify.listing import SegmentFile


def stable_end(log: Log, *, skip_damage: bool) -> int:
    """The last stable offset of ``log``, whose high watermark is known.

    Raises:
        CorruptionError: damaged bytes below the high watermark, unless ``skip_damage``.
        CleanerdError: a file cannot be read.
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
