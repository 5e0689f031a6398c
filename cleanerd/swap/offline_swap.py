"""A cleaning that swaps by renames: the broker is stopped, and this process holds its log directory's lock.

Kafka's ``cleaner-offset-checkpoint`` comes last: too low an entry costs work, too high an entry hides duplicates
(S-50).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cleanerd.broker.partition_snapshot import PartitionSnapshot
from cleanerd.cleaner.manifest import Manifest, write_manifest
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, file_name
from cleanerd.segments.partition import read_partition
from cleanerd.swap.backup import Backup, BackupPlace
from cleanerd.swap.enter import enter_partition
from cleanerd.swap.group_swap import finish_plan, swap_group
from cleanerd.swap.journal import Journal
from cleanerd.swap.record_outcome import record_checkpoints
from cleanerd.swap.recover import abandon
from cleanerd.swap.signals import signals_wait
from cleanerd.swap.split import split_segments
from cleanerd.swap.strategy import SwapStrategy
from cleanerd.swap.validate import CurrentFacts, validate_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.stage import Staging
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.swap.files import PartitionFiles
    from cleanerd.swap.session import LockedDir


class OfflineSwap(SwapStrategy):
    """Cleans one partition of a locked log directory."""

    can_split = True

    def __init__(self, locked: LockedDir, name: TopicPartition, config: TopicConfig, options: CleaningOptions) -> None:
        super().__init__(locked.log_dir, locked.store, locked.resources, name, options)
        self._locked = locked
        self._config = config
        self._keep: Backup | None = None
        self._journal: Journal | None = None
        self._is_validated = False

    def enter(self, files: PartitionFiles) -> None:
        """Complete or undo an interrupted swap (S-28)."""
        enter_partition(self._locked, files)

    def read(self) -> PartitionSnapshot:
        """The log, with the offsets of the checkpoint files."""
        return PartitionSnapshot(self.log_dir, read_partition(self.log_dir, self.name), self._config)

    def split(
        self,
        files: PartitionFiles,
        survey: Survey,
        cleaning: Cleaning,
        overflowed: Sequence[SegmentDecision],
        *,
        grows: bool = False,
    ) -> tuple[str, ...]:
        """Split segments; no other process has them open."""
        return split_segments(self._locked, files, cleaning, overflowed, survey.config, grows=grows)

    def record_settings(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> None:
        """Start the backup for ``undo``."""
        self._keep = self._keeper(files, survey, cleaning)
        super().record_settings(files, survey, cleaning)

    def _keeper(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> Backup | None:
        kept = self._locked.keep_replaced
        if kept is None:
            return None
        return Backup.of_plan(BackupPlace(kept), self.log_dir, self.store, files, survey, cleaning.plan)

    @contextmanager
    def open_staging(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> Iterator[Staging]:
        """Where the groups are staged; removed after the last swap."""
        self._journal = Journal(files, cleaning.plan.plan_id)
        self._is_validated = False
        with super().open_staging(files, survey, cleaning) as staging:
            yield staging
        finish_plan(files, cleaning.plan.plan_id)

    def swap_group(
        self,
        files: PartitionFiles,
        cleaning: Cleaning,
        staging: Staging,
        staged: StagedGroup,
        members: Sequence[SegmentDecision],
    ) -> None:
        """Validate the group, then swap it by renames."""
        plan, journal = cleaning.plan, self._journal
        if journal is None:
            raise AssertionError("no group is staged yet")
        # The lock excludes other processes, so the plan's preconditions are checked before the first swap only, and a
        # group that is done in the journal needs no manifest any more. All groups in each manifest would be quadratic.
        witnesses = tuple(each.witness for each in (members if self._is_validated else cleaning.decision.segments))
        manifest = Manifest.of(plan, (staged,), witnesses, self.resources.plan_max_age_ms)
        write_manifest(staging.directory, manifest, where=staging.path)
        validate_plan(files, manifest, CurrentFacts.as_planned(plan), checksums=False)
        self._is_validated = True
        if self._keep is not None:
            self._keep.keep(staged)
        with signals_wait():
            swap_group(files, plan.plan_id, staged, journal, self._locked.lock, source_files=_source_files(members))
        self._count_swapped(staged, members)

    def _roll_back(self, files: PartitionFiles, plan: CleaningPlan) -> None:  # noqa: ARG002
        """Before the commit point of the first group the log is unchanged; after it recovery cleans up."""
        abandon(files)

    def record_result(self, survey: Survey, cleaning: Cleaning, result: CleaningResult) -> CleaningResult:
        """Store cleanerd's checkpoint, then Kafka's (U-10)."""
        after = read_partition(self.log_dir, self.name)
        record_checkpoints(self._locked, survey, cleaning.plan, after, result, last_base=self.last_base)
        return result


def _source_files(members: Sequence[SegmentDecision]) -> dict[int, list[str]]:
    return {
        member.source.base: [
            file_name(member.source.base, suffix)
            for suffix in (SEGMENT_SUFFIX, *sorted(member.source.segment.suffixes))
        ]
        for member in members
    }
