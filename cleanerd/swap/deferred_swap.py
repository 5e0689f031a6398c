"""Staging ahead of a broker's restart: everything but the swap, also beside a running broker (U-15).

::

    all groups: stage, verify -> are the sources what was read? -> ready.json -> manifest

The log is not changed. Witnesses show at the end, and again before the swap, whether the broker deleted, truncated or
cleaned segments that the decision depends on. Appended segments matter only for the keys of removed tombstones
(``swap/removed_tombstones.py``).
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.broker.lock_file import FileOwner
from cleanerd.broker.partition_snapshot import PartitionSnapshot
from cleanerd.cleaner.manifest import READY, Manifest, aborted_witnesses, staging_path, write_manifest
from cleanerd.cleaner.result import CleaningResult, cleaning_result
from cleanerd.errors import Cause, CleanerdError, StalePlanError
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.state.quarantine import forget_quarantine
from cleanerd.swap.group_swap import drop_plans, drop_work, names_staged
from cleanerd.swap.ready_file import ReadyFile
from cleanerd.swap.removed_tombstones import stage_removed_keys
from cleanerd.swap.strategy import SwapStrategy
from cleanerd.swap.unfinished import refuse_strange_staging, refuse_unfinished
from cleanerd.swap.validate import CurrentFacts, validate_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.stage import Staging
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.reading import SegmentReader
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.swap.files import PartitionFiles


class DeferredSwap(SwapStrategy):
    """Stages one partition for ``cleanerd apply``, which keeps the replaced segments in ``keep_replaced``."""

    def __init__(
        self,
        log_dir: LogDir,
        store: StateStore,
        resources: Resources,
        name: TopicPartition,
        config: TopicConfig,
        options: CleaningOptions,
        keep_replaced: Path | None,
    ) -> None:
        super().__init__(log_dir, store, resources, name, options)
        self._config = config
        self._keep_replaced = keep_replaced
        # The plan's age counts from here, as its horizons do, however long staging takes.
        self._started_ms = time.time_ns() // 1_000_000
        self._is_read = False
        self._listed: PartitionLog | None = None
        self._groups: list[StagedGroup] = []

    def enter(self, files: PartitionFiles) -> None:
        """A broker may run, but no replacement may be half done."""
        self._is_read, self._listed = False, None
        refuse_strange_staging(files)
        files.claim()
        refuse_unfinished(files, files.names())
        drop_work(files, names_staged(files))

    def read(self) -> PartitionSnapshot:
        """The log, with the offsets of the checkpoint files."""
        self._is_read = True
        self._listed = read_partition(self.log_dir, self.name)
        return PartitionSnapshot(self.log_dir, self._listed, self._config)

    def plan(self, snapshot: PartitionSnapshot, survey: Survey, reader: SegmentReader) -> CleaningPlan:
        """U-15: the old values stay readable until the plan is applied, or is too old for that."""
        plan = super().plan(snapshot, survey, reader)
        return replace(plan, delete_retention_ms=plan.delete_retention_ms + self.resources.plan_max_age_ms)

    def record_settings(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> None:
        """``apply`` does this: nothing is cleaned by these settings yet."""

    @contextmanager
    def open_staging(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> Iterator[Staging]:
        """Where the groups are staged, for one plan at most; the directory stays."""
        # We have the claim and nothing is half swapped, so other plans are not needed.
        drop_plans(files, names_staged(files))
        self._groups = []
        with super().open_staging(files, survey, cleaning) as staging:
            yield staging

    def swap_group(
        self,
        files: PartitionFiles,  # noqa: ARG002
        cleaning: Cleaning,  # noqa: ARG002
        staging: Staging,  # noqa: ARG002
        staged: StagedGroup,
        members: Sequence[SegmentDecision],  # noqa: ARG002
    ) -> None:
        """Only collect the group: ``apply`` swaps it."""
        self._groups.append(staged)

    def finish(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning, staging: Staging) -> None:
        """Write ``ready.json``, and last the manifest, which makes the plan valid."""
        plan, groups = cleaning.plan, tuple(self._groups)
        witnesses = tuple(segment.witness for segment in cleaning.decision.segments)
        manifest = replace(
            Manifest.of(plan, groups, witnesses, self.resources.plan_max_age_ms),
            created_ms=self._started_ms,
            aborted=aborted_witnesses(plan.aborted, groups),
        )
        validate_plan(files, manifest, CurrentFacts.as_planned(plan), checksums=False)
        ready = ReadyFile(
            max(plan.end_offset, survey.proven_offset) if survey.moves_checkpoint else None,
            plan.rules.strategy,
            cleaning_result(survey, str(self.log_dir.path), cleaning, outcome="staged").to_json(),
            None if self._keep_replaced is None else str(self._keep_replaced.resolve()),
            stage_removed_keys(files, cleaning, _owner(files)),
            self.options.change_strategy,
        )
        name = f"{staging_path(plan.plan_id)}/{READY}"
        files.write(name, ready.to_json(), _owner(files))
        files.fsync(name)
        write_manifest(staging.directory, manifest, where=staging.path)

    def record_result(self, survey: Survey, cleaning: Cleaning, result: CleaningResult) -> CleaningResult:
        """Only end a quarantine; cleanerd's checkpoint is stored when the plan is applied."""
        forget_quarantine(self.store, self.log_dir, survey.log)
        return replace(result, outcome="staged") if cleaning.groups() else result

    def translate_error(self, error: CleanerdError) -> CleanerdError:
        """A file that could not be read, or made no sense, may just have been replaced by the broker (D-06)."""
        met = error.cause is Cause.DATA and self._is_read
        if not met or not has_changed(self.log_dir, self.name, self._listed):
            return error
        return StalePlanError(f"the broker changed the log during the cleaning ({error})", where=error.where)


def has_changed(log_dir: LogDir, name: TopicPartition, before: PartitionLog | None) -> bool:
    """Whether the broker changed closed segments since they were listed ``before``; None: listing them failed."""
    try:
        after = read_partition(log_dir, name)
    except CleanerdError:
        return False
    if before is None or before.unfinished or after.unfinished:
        return True
    # A segment that was rolled since is not a change: the damage is in the listed part.
    return not _closed(after).issuperset(_closed(before))


def _closed(log: PartitionLog) -> set[tuple[int, int, int]]:
    return {(segment.base, segment.inode, segment.size_bytes) for segment in log.segments[:-1]}


def _owner(files: PartitionFiles) -> FileOwner:
    status = files.stat(".")
    return FileOwner(-1, -1, 0o644) if status is None else FileOwner(status.st_uid, status.st_gid, 0o644)
