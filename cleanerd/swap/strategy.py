"""The differences between the ways to swap; all other steps of a cleaning are in ``swap/round.py``.

``offline_swap.py``: the broker is stopped. ``live_swap.py``: it runs, and its agent swaps. ``deferred_swap.py``:
nothing is swapped yet, the plan waits for ``cleanerd apply``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.refusals import refuse_split
from cleanerd.cleaner.resources import Resources, disk_reserve_bytes
from cleanerd.errors import CleanerdError
from cleanerd.swap.group_swap import finish_plan
from cleanerd.swap.recover import rollback_on_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.stage import Staging
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.reading import SegmentReader
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.swap.files import PartitionFiles

TRIES: Final = 4
"""How often a partition is planned in a cleaning whose log changes while it is read."""


@dataclass(frozen=True, slots=True)
class SwappedGroups:
    """OP-12: the groups that a cleaning has swapped in so far, in all its tries; they stay if it fails."""

    groups: int = 0
    segments: int = 0
    bytes_before: int = 0
    bytes_after: int = 0

    def plus(self, staged: StagedGroup, members: Sequence[SegmentDecision]) -> SwappedGroups:
        """The totals with one more group."""
        return SwappedGroups(
            self.groups + 1,
            self.segments + len(members),
            self.bytes_before + sum(member.source.segment.size_bytes for member in members),
            self.bytes_after + staged.files["log"].bytes,
        )

    def in_failed(self, result: CleaningResult) -> CleaningResult:
        """The result of a failed cleaning, with the groups swapped before the failure."""
        return replace(
            result,
            groups=self.groups,
            segments_rewritten=self.segments,
            bytes_before=self.bytes_before,
            bytes_after=self.bytes_after,
        )

    def in_done(self, result: CleaningResult) -> CleaningResult:
        """The result of a complete cleaning, with the groups that earlier tries swapped."""
        return replace(
            result,
            outcome="cleaned",
            groups=result.groups + self.groups,
            segments_rewritten=result.segments_rewritten + self.segments,
            bytes_before=result.bytes_before + self.bytes_before - self.bytes_after,
        )


class SwapStrategy(ABC):
    """The steps of one partition.

    Methods are called in the order of this class, from :meth:`enter` on every try. Each may raise CleanerdError: then
    the partition is not cleaned, and ``errors.CONSEQUENCES`` determines the outcome. ``lasting``: staged files may be
    used after a crash of the machine. ``can_split``: see :meth:`split`.
    """

    lasting: ClassVar[bool] = True
    can_split: ClassVar[bool] = False

    def __init__(
        self, log_dir: LogDir, store: StateStore, resources: Resources, name: TopicPartition, options: CleaningOptions
    ) -> None:
        self.log_dir = log_dir
        self.store = store
        self.resources = resources
        self.name = name
        self.options = options
        self.last_base: int | None = None
        """The segment that was swapped in last, in any try."""
        self.swapped = SwappedGroups()

    def waits(self) -> Iterator[float]:
        """Seconds before each further try."""
        return iter([0.0] * (TRIES - 1))

    @abstractmethod
    def enter(self, files: PartitionFiles) -> None:
        """Claim the partition, in which nothing may be half done."""

    @abstractmethod
    def read(self) -> PartitionSnapshot:
        """Read the partition's current state."""

    def plan(self, snapshot: PartitionSnapshot, survey: Survey, reader: SegmentReader) -> CleaningPlan:
        return make_plan(snapshot.log_dir, survey, self.resources, self.options, reader)

    def split(
        self,
        files: PartitionFiles,
        survey: Survey,
        cleaning: Cleaning,
        overflowed: Sequence[SegmentDecision],
        *,
        grows: bool = False,
    ) -> tuple[str, ...]:
        """Split segments that no index or file can hold (C-67, U-55); then the partition is planned again.

        Returns notes.
        """
        del files, survey, overflowed, grows
        refuse_split(cleaning)
        return ()

    def check(self, files: PartitionFiles, cleaning: Cleaning) -> None:  # noqa: B027 - mostly there is nothing
        """Refuse a cleaning that cannot be swapped in."""

    def record_settings(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> None:
        """Store the settings before the first swap: a process killed later stores nothing (U-6)."""
        del files
        self.store.require_rules(self.log_dir, survey.log, cleaning.plan.fingerprint)

    @contextmanager
    def open_staging(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> Iterator[Staging]:
        """Where the groups, at least one, are staged; cleaned up at the end, and also if the block fails."""
        reserve_bytes = disk_reserve_bytes(self.resources, survey.config, cleaning.plan.path)
        back = partial(self._roll_back, files, cleaning.plan)
        with cleaning.staging(reserve_bytes, lasting=self.lasting) as staging, rollback_on_error(back):
            yield staging

    @abstractmethod
    def swap_group(
        self,
        files: PartitionFiles,
        cleaning: Cleaning,
        staging: Staging,
        staged: StagedGroup,
        members: Sequence[SegmentDecision],
    ) -> None:
        """Swap in a verified group, whose sources are ``members``; the next one is above it."""

    def finish(  # noqa: B027 - mostly there is nothing
        self, files: PartitionFiles, survey: Survey, cleaning: Cleaning, staging: Staging
    ) -> None:
        """Called after the last group."""

    @abstractmethod
    def record_result(self, survey: Survey, cleaning: Cleaning, result: CleaningResult) -> CleaningResult:
        """Store how far the log is clean now; returns the completed result."""

    def _count_swapped(self, staged: StagedGroup, members: Sequence[SegmentDecision]) -> None:
        """Count a group that is in the log, whatever happens to later groups."""
        self.last_base = staged.base
        self.swapped = self.swapped.plus(staged, members)

    def translate_error(self, error: CleanerdError) -> CleanerdError:
        """The actual reason of the failure, if it differs from ``error``."""
        return error

    def before_retry(self, error: CleanerdError) -> None:  # noqa: B027 - mostly there is nothing
        """Prepare another try after ``error``."""

    def _roll_back(self, files: PartitionFiles, plan: CleaningPlan) -> None:
        """Clean up; groups that were swapped in stay."""
        with suppress(CleanerdError):
            finish_plan(files, plan.plan_id)
