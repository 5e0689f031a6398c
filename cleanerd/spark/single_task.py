"""A partition whose keys fit one map: one task does everything with the local engine, up to staged files.

Nothing is shuffled, so it costs as much as ``cleanerd stage``, and partitions are cleaned in parallel. An attempt
stages in its own directory; the driver moves the files of the successful one.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cleanerd.cleaner.cleaner import Cleaning, NoProgress
from cleanerd.cleaner.index import ChunkDecoding
from cleanerd.cleaner.rewrite import LargeBatches
from cleanerd.cleaner.tombstone_guard import removed_tombstone_keys
from cleanerd.errors import DisorderedLogError, LogTooLargeError
from cleanerd.spark.cleaning import SparkCleaning, results_of
from cleanerd.spark.decisions import StoredDecision
from cleanerd.spark.plan import SPLIT_BYTES, first_sizes, plan_of, readers_of
from cleanerd.spark.rewrite import StagedByTask
from cleanerd.spark.rows import Row, error_row, result_row
from cleanerd.spark.scan import DEFINITE
from cleanerd.spark.work import AttemptStaging, new_attempt, read_file, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cleanerd.cleaner.decide import Decision, SegmentDecision
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.policy.grouping import Group
    from cleanerd.segments.pool import ReaderPool


def fits_one_map(plan: CleaningPlan) -> bool:
    """Whether one map is expected to fit all keys."""
    return first_sizes(plan, shards=None, cores=1, split_bytes=SPLIT_BYTES).shards == 1


class SingleTaskCleaning(SparkCleaning):
    """Carries out one plan up to staged files, with one task or a shuffle.

    A context manager: it owns the work directory.

    A log whose batches and records exceed one task's memory is shuffled after all (U-35); one with descending offsets
    is one task's (U-45).
    """

    def __init__(self, *arguments: Any, is_whole: bool, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_whole = is_whole

    def _decide(self) -> Decision:
        if not self._is_whole:
            try:
                return super()._decide()
            except DisorderedLogError:
                self._is_whole = True
        function = functools.partial(clean_in_one_task, self._packed_plan, self._reserve_bytes)
        try:
            (found,) = results_of(self._jobs.run("clean", [None], function, work_bytes=self._bytes)).values()
        except LogTooLargeError:
            self._is_whole = False
            return super()._decide()
        decision: Decision = found[0]
        self._stored, staged = found[1:]
        rows = {each.decision.source.base: row for row, each in enumerate(self._stored)}
        firsts = [(rows[each.group.base], each) for each in staged]
        self._rewritten = {range(first, first + len(each.group.sources)): each for first, each in firsts}
        return replace(decision, segments=tuple(each.decision for each in self._stored))

    def pending_groups(self) -> Iterator[Group]:
        """As in :class:`Cleaning`; those that the task has staged are cut already."""
        return iter(self._rewritten) if self._is_whole else super().pending_groups()

    def removed_tombstone_keys(self) -> Iterator[NDArray[np.uint64]]:
        """As in :class:`Cleaning`; the task has found them."""
        if not self._is_whole:
            yield from super().removed_tombstone_keys()
            return
        for each in self._stored:
            if each.removed is not None:
                yield np.frombuffer(read_file(self.plan, each.removed), "<u8").astype(np.uint64)


def clean_in_one_task(packed: bytes, reserve_bytes: int, _task: None) -> Iterator[Row]:
    """Decide and stage the whole plan; nothing is staged if segments have to be split first (C-67)."""
    plan = plan_of(packed)
    attempt = new_attempt()
    with readers_of(plan) as pool:
        cleaning = Cleaning(plan, pool, NoProgress())
        try:
            decision = cleaning.decide()
            groups = [] if cleaning.overflowed() else _staged(cleaning, attempt, reserve_bytes)
            stored = [
                StoredDecision.without_bits(each, _removed_keys(plan, pool, each, attempt))
                for each in decision.segments
            ]
        except DEFINITE as error:
            yield error_row(error)
            return
        yield result_row(0, (replace(decision, segments=()), stored, groups))


def _staged(cleaning: Cleaning, attempt: str, reserve_bytes: int) -> list[StagedByTask]:
    staged = []
    totals = cleaning.totals
    with AttemptStaging(
        cleaning.plan, cleaning.pool.reader.directory, attempt=attempt, reserve_bytes=reserve_bytes
    ) as staging:
        try:
            for group in cleaning.pending_groups():
                if not cleaning.rewrite(group, staging):
                    continue  # cut: its parts are next
                output = cleaning.verify(group, staging)
                staged.append(StagedByTask(output, attempt, totals.large, totals.rewrite_seconds))
                totals.large, totals.rewrite_seconds = LargeBatches(), 0.0  # the driver adds up those of all groups
        except BaseException:
            staging.discard()
            raise
    return staged


def _removed_keys(plan: CleaningPlan, pool: ReaderPool, decision: SegmentDecision, attempt: str) -> str | None:
    """The file with the key hashes of the segment's removed tombstones; None without any."""
    if decision.removed_tombstones is None:
        return None
    hashes = removed_tombstone_keys(
        ChunkDecoding(plan, pool, lambda _: None), decision.source, decision.removed_tombstones
    )
    data = b"".join(each.astype("<u8").tobytes() for each in hashes)
    return write_file(plan, f"{decision.source.base:020d}.{attempt}.keys", data)
