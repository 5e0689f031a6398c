"""A plan carried out by Spark jobs, as :class:`Cleaning` does in one process."""

from __future__ import annotations

import functools
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from cleanerd.cleaner.cleaner import Cleaning, Progress
from cleanerd.cleaner.decide import Decision, next_purge
from cleanerd.cleaner.map_size import MAP_ENTRY_BYTES, MIN_MAP_BYTES
from cleanerd.cleaner.marker_check import corrected_by_markers
from cleanerd.cleaner.record_anomalies import RecordAnomalies
from cleanerd.errors import CleanerdError
from cleanerd.humanize import human_bytes
from cleanerd.policy.transaction import OpenTransactions
from cleanerd.spark import proof
from cleanerd.spark.jobs import Jobs, Stage
from cleanerd.spark.plan import Sizes, first_sizes, larger_sizes, pack_plan, splits_of, tasks_of
from cleanerd.spark.rewrite import StagedByTask, rewrite, write_removed_keys
from cleanerd.spark.rows import ERROR, Row, error_of, value_in
from cleanerd.spark.scan import scan
from cleanerd.spark.settle import DeferredSegment, decide_deferred, settle
from cleanerd.spark.winners import choose
from cleanerd.spark.work import WorkDirectory, is_claimed, read_file, sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.stage import Staging
    from cleanerd.policy.grouping import Group
    from cleanerd.segments.pool import ReaderPool
    from cleanerd.spark.decisions import StoredDecision

BY_KIND: Final = ("kind", "segment", "split", "block")
BY_SEGMENT: Final = ("segment", "kind", "split", "block")
UNSPLIT: Final = 1 << 62


class _TooSmallError(Exception):
    """A map was full."""


class _WrongIndexError(Exception):
    """Damage at a place where an offset index says that a part begins: the index may be wrong."""


class SparkCleaning(Cleaning):
    """Carries out one plan up to staged files, on executors. A context manager: it owns the work directory."""

    def __init__(
        self,
        plan: CleaningPlan,
        pool: ReaderPool,
        progress: Progress,
        jobs: Jobs,
        reserve_bytes: int,
        *,
        shards: int | None,
        split_bytes: int,
    ) -> None:
        super().__init__(plan, pool, progress)
        self._jobs = jobs
        self._reserve_bytes = reserve_bytes
        self._packed_plan = pack_plan(plan)
        self._work = WorkDirectory(plan, pool.reader.directory)
        self._sizes = first_sizes(plan, shards=shards, cores=jobs.cores, split_bytes=split_bytes)
        self._bytes = sum(source.segment.size_bytes for source in plan.sources)
        self._stored: list[StoredDecision] = []
        self._rewritten: dict[Group, StagedByTask] = {}
        self._too_large: dict[Group, int] = {}
        """Where to cut each group whose output would be too large."""

    def __enter__(self) -> Self:
        sweep(Path(self.plan.path), alone=is_claimed(self.plan.path))
        try:
            self._work.make()
        except BaseException:
            self._work.remove()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._work.remove()

    def decide(self) -> Decision:
        """As in :class:`Cleaning`, but the segments' keep bits and actions stay with the executors."""
        self._decision = self._decide()
        return self._decision

    def _decide(self) -> Decision:
        started = time.monotonic()
        settled, index_note = self._resolve_with_markers()
        index_seconds = time.monotonic() - started
        oddities = RecordAnomalies(self.plan.rules, self.plan.now_ms)
        for summary in settled:
            oddities.merge(summary["oddities"])
        facts = {row: summary["facts"] for row, summary in enumerate(settled) if summary["candidates"]}
        guards, guard_note = self._guards(facts, sum(summary["candidates"] for summary in settled))
        deferred = list(_deferred(settled, guards, guard_all=bool(guard_note)))
        decided = self._run_locally("decide", _portions(deferred, self._jobs.cores), decide_deferred)
        self._stored = [summary.get("decision") or decided[row] for row, summary in enumerate(settled)]
        segments = tuple(each.decision for each in self._stored)
        return Decision(
            segments=segments,
            passes=self._sizes.shards,
            map_note="",
            map_entries=0,
            index_seconds=index_seconds,
            decide_seconds=time.monotonic() - started - index_seconds,
            oddities=oddities,
            guard_note=guard_note,
            disorder_note="",
            # No task reports which records a tombstone waits for.
            next_purge=next_purge(
                self.plan, segments, for_deleted=self.plan.lasting_start_offset < self.plan.log_start_offset
            ),
            map_utilization=0.0,
            index_note=index_note,
        )

    def _resolve_with_markers(self) -> tuple[list[dict[str, Any]], str]:
        """As :meth:`_resolve`; again if the log's markers contradict the transaction index (U-44)."""
        settled = self._resolve()
        edges = (edge for summary in settled for edge in summary.get("markers", ()))
        corrected = corrected_by_markers(self.plan, self.pool.reader, edges)
        if corrected is None:
            return settled, ""
        self._packed_plan = pack_plan(replace(self.plan, aborted=corrected.aborted))
        return self._resolve(), corrected.note

    def _resolve(self) -> list[dict[str, Any]]:
        """The results of ``settle`` per segment; again with larger maps or uncut segments if needed."""
        while True:
            sizes, sources = self._sizes, self.plan.sources
            splits = splits_of(self.plan.path, sources, sizes.split_bytes)
            counts = np.bincount([split.segment for split in splits], minlength=len(sources)).tolist()
            stages = (
                Stage("choose", functools.partial(choose, self._packed_plan, sizes), sizes.shards, BY_KIND),
                Stage("settle", functools.partial(settle, self._packed_plan, counts), self._partitions, BY_SEGMENT),
            )
            tasks = tasks_of(splits, cores=self._jobs.cores, split_bytes=sizes.split_bytes)
            try:
                rows = self._jobs.run(
                    "scan", tasks, functools.partial(scan, self._packed_plan, sizes), *stages, work_bytes=self._bytes
                )
                found = results_of(rows)
            except _TooSmallError:
                larger = larger_sizes(self.plan, sizes)
                if larger is None:
                    maps = f"{sizes.shards} offset maps of {human_bytes(sizes.map_bytes)}"
                    raise CleanerdError(
                        f"the keys of {self.plan.name} do not fit {maps}",
                        where=self.plan.path,
                        hint="raise log.cleaner.dedupe.buffer.size",
                    ) from None
                self._sizes = larger
            except _WrongIndexError:
                self._sizes = replace(sizes, split_bytes=UNSPLIT)
            else:
                return [found[row] for row in range(len(sources))]

    @property
    def _partitions(self) -> int:
        return max(1, min(len(self.plan.sources), 2 * self._jobs.cores))

    def _guards(self, facts: Mapping[int, str], count: int) -> tuple[dict[int, str], str]:
        """The file of retained tombstones per segment; and why none may be removed, if that is so (U-1)."""
        if not count:
            return {}, ""
        needed = int(count * MAP_ENTRY_BYTES / self.plan.map_load) + MIN_MAP_BYTES
        largest = max(MIN_MAP_BYTES, self.plan.map_bytes)
        shards = max(-(-needed // largest), min(self._jobs.cores, self._sizes.shards))
        sizes = replace(self._sizes, shards=shards, map_bytes=min(largest, needed // shards + 2 * MIN_MAP_BYTES))
        while True:
            try:
                found = results_of(self._prove(sizes, facts))
            except _TooSmallError:
                sizes = replace(sizes, shards=2 * sizes.shards)
            except _WrongIndexError:
                sizes = replace(sizes, split_bytes=UNSPLIT)
            except _TailError as tail:
                # This part is not cleaned, so its damage is not an error. Later records are unknown.
                return {}, f"no expired tombstone is removed: the end of the log cannot be read ({tail.error})"
            else:
                return found, ""

    def _prove(self, sizes: Sizes, facts: Mapping[int, str]) -> list[Row]:
        plan, packed = self.plan, self._packed_plan
        splits = splits_of(plan.path, plan.sources, sizes.split_bytes)
        splits += splits_of(plan.path, plan.guarding_sources, sizes.split_bytes, first=len(plan.sources))
        return self._jobs.run(
            "check which tombstones can be removed",
            tasks_of(splits, cores=self._jobs.cores, split_bytes=sizes.split_bytes),
            functools.partial(proof.gather, packed, sizes, facts),
            Stage("prove", functools.partial(proof.prove, packed, sizes), sizes.shards, BY_KIND),
            Stage("guard", functools.partial(proof.guard, packed, facts), self._partitions, BY_SEGMENT),
            work_bytes=sum(split.bytes for split in splits),
        )

    def rewrite(self, group: Group, staging: Staging) -> bool:
        """As in :class:`Cleaning`; the first call has executors rewrite and verify all groups, in parallel."""
        if not self._rewritten:
            self._rewrite_by_tasks([group, *self._pending])
        if group in self._too_large:
            self._cut(group, self._too_large[group])
            return False
        rewritten = self._rewritten[group]
        self._work.move(rewritten.attempt, rewritten.names, staging.directory)
        return True

    def verify(self, group: Group, staging: Staging) -> StagedGroup:  # noqa: ARG002
        """The group, which its task has verified."""
        rewritten = self._rewritten[group]
        self.count(rewritten.group, self.members(group), rewritten.large, rewritten.seconds)
        return rewritten.group

    def _rewrite_by_tasks(self, waiting: list[Group]) -> None:
        """Stage the groups in tasks; then the parts of those that are too large."""
        while waiting:
            groups = [(number, [self._stored[row] for row in rows]) for number, rows in enumerate(waiting)]
            function = functools.partial(rewrite, self._packed_plan, self._reserve_bytes)
            work_bytes = sum(each.source.segment.size_bytes for rows in waiting for each in self.members(rows))
            found = results_of(self._jobs.run("rewrite", [[each] for each in groups], function, work_bytes=work_bytes))
            again: list[Group] = []
            for number, rows in enumerate(waiting):
                result: StagedByTask | int = found[number]
                if isinstance(result, int):
                    self._too_large[rows] = result
                    again += self.parts(rows, result)
                else:
                    self._rewritten[rows] = result
            waiting = again

    def removed_tombstone_keys(self) -> Iterator[NDArray[np.uint64]]:
        """As in :class:`Cleaning`; the executors find them, and this copies their files."""
        wanted = [(row, each.removed) for row, each in enumerate(self._stored) if each.removed is not None]
        found = self._run_locally(
            "keys of tombstones to remove", _portions(wanted, self._jobs.cores), write_removed_keys
        )
        for row, _ in wanted:
            yield np.frombuffer(read_file(self.plan, found[row]), "<u8").astype(np.uint64)

    def _run_locally(self, name: str, tasks: Sequence[Any], function: Any) -> dict[int, Any]:
        return results_of(
            self._jobs.run(name, tasks, functools.partial(function, self._packed_plan), work_bytes=self._bytes)
        )


class _TailError(Exception):
    """The end of the log, which is not cleaned, cannot be read."""

    def __init__(self, error: CleanerdError) -> None:
        super().__init__(str(error))
        self.error = error


def results_of(rows: Sequence[Row]) -> dict[int, Any]:
    """The tasks' results by segment or number.

    Raises:
        _TooSmallError, _WrongIndexError, _TailError: repeat it with other parameters.
        CleanerdError: the error of a task.
    """
    errors = [value_in(row) for row in rows if row.kind == ERROR]
    if any(summary.get("guessed") for summary in errors):
        raise _WrongIndexError
    fatal = [summary for summary in errors if not summary.get("full") and not summary.get("tail")]
    if fatal:
        raise error_of(min(fatal, key=lambda summary: (summary["where"] or "", summary["position"])))
    if any(summary.get("full") for summary in errors):
        raise _TooSmallError
    if errors:
        raise _TailError(error_of(errors[0]))
    return {row.segment: value_in(row) for row in rows}


def _deferred(
    settled: Sequence[Mapping[str, Any]], guards: Mapping[int, str], *, guard_all: bool
) -> Iterator[DeferredSegment]:
    """Undecided segments, with the facts from the log before them that they depend on (C-33)."""
    transactions = OpenTransactions()
    for row, summary in enumerate(settled):
        if "facts" not in summary:
            continue
        before = transactions.pass_by(summary["edges"])
        committed, aborted = (tuple(sorted(producers)) for producers in before.producers)
        yield DeferredSegment(
            row,
            summary["facts"],
            (committed, aborted),
            guards.get(row),
            guard_all=guard_all and summary["candidates"] > 0,
        )


def _portions(items: Sequence[Any], cores: int) -> list[list[Any]]:
    """The items for a few tasks per core."""
    count = min(len(items), 2 * cores)
    return [list(items[number::count]) for number in range(count)]
