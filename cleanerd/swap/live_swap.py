"""A cleaning beside a running broker, whose agent swaps the segments.

::

    ask the broker -> list -> survey -> ... -> per group: request the swap -> checkpoint -> the broker's own checkpoint

This side does not touch the log: it writes below ``.kstage`` and sends requests; the agent in the broker checks and
swaps. A refusal is an ordinary outcome: the log changed, and the partition is planned again, a few times in a cleaning.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from cleanerd.broker.live_log import held_as, read_live
from cleanerd.broker.partition_snapshot import PartitionSnapshot
from cleanerd.cleaner.refusals import refuse_live
from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT
from cleanerd.errors import (
    LATER,
    AgentRefusalError,
    AgentUnavailableError,
    Cause,
    CleanerdError,
    RefusedError,
    StalePlanError,
)
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, file_name
from cleanerd.humanize import counted
from cleanerd.swap.agent_swap import Swapper
from cleanerd.swap.backup import Backup, BackupPlace
from cleanerd.swap.group_swap import drop_plans, drop_work, finish_plan, names_staged
from cleanerd.swap.record_outcome import record_settings_only, require_below, save_checkpoint
from cleanerd.swap.strategy import SwapStrategy
from cleanerd.swap.unfinished import refuse_strange_staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cleanerd.broker.agent_facts import BrokerSegment, LogFacts
    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.decide import SegmentDecision
    from cleanerd.cleaner.manifest import StagedGroup
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.stage import Staging
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.reading import SegmentReader
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.swap.files import PartitionFiles
    from cleanerd.swap.swapping_broker import SwappingBroker


@dataclass(frozen=True, slots=True)
class LiveDir:
    """A log directory of a running broker, with the resources of a cleaning in it.

    ``read`` returns a partition as the broker reports it, or refuses it (U-23): see ``LivePartitions``.
    ``keep``: where segments that the broker replaces are kept for ``undo`` (S-40); None: nowhere. ``read_after``
    receives the partition after its cleaning, with the checkpoint that the broker received.
    """

    log_dir: LogDir
    store: StateStore
    resources: Resources
    broker: SwappingBroker
    read: Callable[[TopicPartition], PartitionSnapshot]
    keep: BackupPlace | None = None
    read_after: Callable[[PartitionSnapshot], None] = lambda _snapshot: None


class LiveSwap(SwapStrategy):
    """Cleans one partition beside its broker.

    The agent uses staged files at once, so files of a cleanerd that died are not used.
    """

    lasting: ClassVar[bool] = False

    def __init__(self, live: LiveDir, name: TopicPartition, options: CleaningOptions) -> None:
        super().__init__(live.log_dir, live.store, live.resources, name, options)
        self._live = live
        self._broker = live.broker
        self._is_read = False
        self._some_wait = False
        self._facts: LogFacts | None = None
        self._swapper: Swapper | None = None
        self._keep: Backup | None = None

    def waits(self) -> Iterator[float]:
        return self._broker.patience.waits_to_plan()

    def enter(self, files: PartitionFiles) -> None:
        """Remove plans of killed processes; the broker checks the rest."""
        self._is_read, self._facts = False, None
        may_have_plans = refuse_strange_staging(files)
        files.claim()
        left = names_staged(files) if may_have_plans else []
        self._some_wait = drop_plans(files, left, keep_ready=True)  # the others belong to a killed cleanerd
        drop_work(files, left)

    def read(self) -> PartitionSnapshot:
        """The partition with the broker's own offsets and settings."""
        self._is_read = True
        snapshot = self._live.read(self.name)
        self._facts = snapshot.broker
        return snapshot

    def plan(self, snapshot: PartitionSnapshot, survey: Survey, reader: SegmentReader) -> CleaningPlan:
        """The plan, which also protects the producers that the broker knows (R192-1)."""
        plan = super().plan(snapshot, survey, reader)
        if brokers := list(self._broker.producers(self.name, plan.last_records.known)):
            plan = replace(plan, last_records=plan.last_records.also(brokers))
        return plan

    def check(self, files: PartitionFiles, cleaning: Cleaning) -> None:
        """Refuse what only an offline cleaning can do."""
        refuse_live(cleaning, proves_by_markers=self._fetch_facts().proves_by_markers)
        self._swapper = Swapper(self._broker, files, self._fetch_facts(), cleaning, self.resources)

    def record_settings(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> None:
        """Start the backup for ``undo``."""
        self._keep = self._keeper(files, survey, cleaning)
        super().record_settings(files, survey, cleaning)

    @contextmanager
    def open_staging(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> Iterator[Staging]:
        """Where the groups are staged, when the log is ready for swaps; removed after the last swap."""
        self._swaps().wait_for_deletions(survey.config.file_delete_delay_ms)
        _flush(files, survey.log, self._fetch_facts().recovery_point)
        if self._some_wait:
            drop_plans(files, names_staged(files))  # plans of `cleanerd stage` are outdated now
        with super().open_staging(files, survey, cleaning) as staging:
            yield staging
            # All groups are in the log. The next run deletes files that a crash of the machine restores.
            emptied = staging.empty()
        if not emptied:
            finish_plan(files, cleaning.plan.plan_id, lasting=False)

    def swap_group(
        self,
        files: PartitionFiles,  # noqa: ARG002
        cleaning: Cleaning,  # noqa: ARG002
        staging: Staging,
        staged: StagedGroup,
        members: Sequence[SegmentDecision],
    ) -> None:
        """Have the agent swap the group."""
        swapper = self._swaps()
        with _keep_sources(self._keep, staged, swapper):
            swapper.swap(staging, staged, members)
        self._count_swapped(staged, members)
        swapper.require_no_half_swap(staged)

    def _keeper(self, files: PartitionFiles, survey: Survey, cleaning: Cleaning) -> Backup | None:
        place = self._live.keep
        if place is None:
            return None
        segments = cleaning.decision.segments
        size_bytes = sum(segments[row].source.segment.size_bytes for rows in cleaning.groups() for row in rows)
        no_room = place.room(size_bytes)
        if no_room:
            self._swaps().notes += (f"the replaced segments are not kept, so the cleaning cannot be undone: {no_room}",)
            return None
        return Backup.of_plan(place, self.log_dir, self.store, files, survey, cleaning.plan)

    def record_result(self, survey: Survey, cleaning: Cleaning, result: CleaningResult) -> CleaningResult:
        """Store cleanerd's checkpoint, then the broker's (U-10, A-20). Losing the second only costs work."""
        swapper = self._swaps()
        result.seconds["held"] = swapper.held_seconds
        if swapper.notes:
            result = replace(result, notes=(*result.notes, *swapper.notes))
        notes = self._record_checkpoints(survey, cleaning.plan, swapper, result)
        return replace(result, notes=(*result.notes, *notes)) if notes else result

    def translate_error(self, error: CleanerdError) -> CleanerdError:
        """The error, with the groups that were swapped before it, which stay, and what the agent said of them.

        After a swap that the agent could not complete, the partition stays paused, and the next swap gets "busy".
        """
        translated = self._by_the_broker(error)
        if self.swapped.groups:
            translated.message += f"; {counted(self.swapped.groups, 'group', 'was')} swapped before that"
        if isinstance(error, AgentRefusalError) and self._swapper is not None:
            translated.message += "".join(f"; {note}" for note in self._swapper.notes)
        return translated

    def before_retry(self, error: CleanerdError) -> None:
        """Reconnect to a broker that disappeared."""
        if isinstance(error, AgentUnavailableError):
            self._broker.reconnect()

    def _by_the_broker(self, error: CleanerdError) -> CleanerdError:
        """A file that was unreadable or invalid may just have been replaced by the broker (D-06).

        Then the partition is planned again.
        """
        if not self._is_read or error.cause is not Cause.DATA or isinstance(error, AgentRefusalError):
            return error
        before = self._facts
        try:
            now = self._live.read(self.name).broker
            if before is not None and now is not None and now.segments[:-1] == before.segments[:-1]:
                return error
        except StalePlanError:
            pass
        except RefusedError as unknown:
            return unknown
        except CleanerdError:
            return error
        return StalePlanError(f"the broker changed the log during the cleaning ({error})", where=error.where)

    def _fetch_facts(self) -> LogFacts:
        if self._facts is None:
            raise AssertionError("the broker was not asked")
        return self._facts

    def _swaps(self) -> Swapper:
        if self._swapper is None:
            raise AssertionError("nothing was decided")
        return self._swapper

    def _record_checkpoints(
        self, survey: Survey, plan: CleaningPlan, swapper: Swapper, result: CleaningResult
    ) -> tuple[str, ...]:
        if not survey.moves_checkpoint:
            self._record_settings_only(survey, plan, swapper)
            return ()
        offset = max(plan.end_offset, survey.proven_offset)
        try:
            facts = self._broker.log(self.name)
            log_dir, after = read_live(self.log_dir, self.name, facts, self._broker.patience)
            last = require_below(after, offset)
            if held_as(last) != swapper.segment_below(offset):
                return (f"the broker changed segment {last.base} after the swap: cleanerd's checkpoint was not moved",)
            save_checkpoint(
                self.store,
                log_dir,
                after,
                offset,
                plan.fingerprint,
                result,
                last_base=self.last_base,
                unproven_below=survey.unproven_below,
            )
            if plan.fingerprint == KAFKAS_FINGERPRINT and _should_send_checkpoint(offset, survey.log, after):
                self._send_checkpoint(facts, offset, held_as(last))
                log_dir = replace(log_dir, cleaner_offsets={self.name: offset})
                after = replace(after, cleaner_offset=offset)
            before = self._fetch_facts()
            if facts.config == before.config:
                self._live.read_after(PartitionSnapshot(log_dir, after, survey.config, running=True, broker=facts))
        except CleanerdError as error:
            return (f"cleanerd's checkpoint, or the broker's, was not moved: {error}",)
        return ()

    def _record_settings_only(self, survey: Survey, plan: CleaningPlan, swapper: Swapper) -> None:
        """Keep the checkpoint if the broker's segments below it are the reported ones."""
        after, checkpoint = survey.log, survey.valid_checkpoint
        if checkpoint is not None:
            try:
                _, after = read_live(self.log_dir, self.name, self._broker.log(self.name), self._broker.patience)
                if held_as(require_below(after, checkpoint.offset)) != swapper.segment_below(checkpoint.offset):
                    checkpoint = None
            except CleanerdError:
                checkpoint = None
        record_settings_only(self.store, self.log_dir, after, plan.fingerprint, checkpoint, last_base=self.last_base)

    def _send_checkpoint(self, facts: LogFacts, offset: int, clean: BrokerSegment) -> None:
        """A-20: send the checkpoint, again if needed: the broker's cleaner checks every compacted log now and then.

        Raises:
            AgentUnavailableError, AgentRefusalError: the broker's checkpoint stays unchanged.
        """
        for wait in (*self._broker.patience.waits(), None):
            try:
                self._broker.checkpoint(self.name, facts, offset, clean)
            except AgentRefusalError as error:
                if wait is None or error.code not in LATER:
                    raise
                time.sleep(wait)
            else:
                return


def _flush(files: PartitionFiles, log: PartitionLog, recovery_point: int) -> None:
    """Flush the closed segments that the broker has not flushed, so that winners survive a power failure (U-49).

    Kafka's cleaner rewrites all of them, and flushes what it writes. cleanerd leaves unchanged segments alone.
    """
    for number, segment in enumerate(log.segments[:-1]):
        if log.end_of(number) > recovery_point:
            files.fsync(file_name(segment.base, SEGMENT_SUFFIX))


def _should_send_checkpoint(offset: int, before: PartitionLog, after: PartitionLog) -> bool:
    """Whether to set Kafka's checkpoint to ``offset``: it is lower, or was not trusted ``before`` (S-50).

    A higher value since then is from Kafka's cleaner.
    """
    stored = after.cleaner_offset
    return stored is None or stored < offset or offset < stored == before.cleaner_offset


@contextmanager
def _keep_sources(keep: Backup | None, staged: StagedGroup, swapper: Swapper) -> Iterator[None]:
    """Keep the sources of ``staged`` while the block swaps them; release them if that certainly failed."""
    if keep is None:
        yield
        return
    try:
        keep.keep(staged)
        yield
    except CleanerdError:
        if not swapper.in_doubt:
            keep.release(staged)
        raise
