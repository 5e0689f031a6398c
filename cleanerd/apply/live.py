"""Cleaning a partition beside a running broker, which swaps the segments itself (live-agent.md).

::

    ask the broker -> list -> survey -> producers -> plan -> decide -> per group: stage, verify, ask for the swap ->
    clean point -> the broker's own cleaner checkpoint

Nothing of the log is touched here: this side writes below ``.kstage`` and asks, the agent in the broker checks and
swaps. A refusal is an ordinary outcome: the log moved on, and the partition is planned again, a few times in a round.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleanerd.apply.files import PartitionFiles
from cleanerd.apply.live_broker import LATER, NOT_HERE, PLAN_AGAIN
from cleanerd.apply.live_log import held_as, read_live
from cleanerd.apply.live_swap import Swapper
from cleanerd.apply.offline import blank_result, counted, make_plan
from cleanerd.apply.remember import remember_quarantine, save_clean_point
from cleanerd.apply.session import disk_reserve_bytes
from cleanerd.apply.swap import drop_plans, finish_plan
from cleanerd.cleaner.cleaner import Cleaning, Progress
from cleanerd.cleaner.result import CleaningResult
from cleanerd.cleaner.survey import Survey, survey_log
from cleanerd.errors import (
    AgentRefusalError,
    AgentUnavailableError,
    CleanerdError,
    ConfigError,
    NoSpaceError,
    RefusedError,
    StalePlanError,
    UnsupportedLogError,
)
from cleanerd.log.pool import ReaderPool
from cleanerd.log.strategy_config import KAFKAS_FINGERPRINT
from cleanerd.policy.producer import LastRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.apply.agent_facts import LogFacts
    from cleanerd.apply.live_broker import LiveBroker
    from cleanerd.apply.session import Means
    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.survey import Wishes
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class LiveDir:
    """A log directory of a running broker, and what a cleaning in it may use.

    ``config_of`` gives a topic's configuration from its name and the broker's effective values for it (U-23).
    """

    log_dir: LogDir
    store: StateStore
    means: Means
    broker: LiveBroker
    config_of: Callable[[str, LogFacts], TopicConfig]


def clean_live(live: LiveDir, name: TopicPartition, wishes: Wishes, progress: Progress) -> CleaningResult:
    """Clean one partition and say what came of it; only a signal or a bug gets out as an exception.

    Whatever goes wrong, every group is old or new, new ones first.
    """
    where = str(live.log_dir.path)
    try:
        with PartitionFiles(live.log_dir.path / str(name)) as files:
            files.claim()
            return _Round(live, files, name, replace(wishes, unclean=True), progress).run()
    except (CleanerdError, OSError) as caught:
        told = caught if isinstance(caught, CleanerdError) else CleanerdError(str(caught), where=where)
        if _is_ordinary(told):
            return CleaningResult(name, where, "skipped", str(told), error=told)
        remember_quarantine(live.store, live.log_dir, name, str(told))
        return CleaningResult(name, where, "quarantined", str(told), error=told)


def _is_ordinary(error: CleanerdError) -> bool:
    """Whether nothing is wrong with the log or with what was staged for it."""
    if isinstance(error, AgentRefusalError):
        return error.code in LATER | PLAN_AGAIN | NOT_HERE
    if isinstance(error, NoSpaceError):
        return True
    return isinstance(error, RefusedError | ConfigError) and not isinstance(error, UnsupportedLogError)


def _passes(error: CleanerdError) -> bool:
    """Whether planning again in a moment may help."""
    if isinstance(error, AgentRefusalError):
        # A swap has been asked for again and again already.
        return error.code in PLAN_AGAIN or (error.code in LATER and error.operation != "swap")
    return isinstance(error, StalePlanError | AgentUnavailableError)


class _Round:
    """The tries of one partition."""

    def __init__(
        self, live: LiveDir, files: PartitionFiles, name: TopicPartition, wishes: Wishes, progress: Progress
    ) -> None:
        self._live = live
        self._broker = live.broker
        self._files = files
        self._name = name
        self._wishes = wishes
        self._progress = progress
        self._swapped = 0
        self._facts: LogFacts | None = None

    def run(self) -> CleaningResult:
        """Try until it works, it is clear that it does not, or patience ends.

        Raises:
            CleanerdError: the last try's.
        """
        waits = self._broker.patience.waits()
        while True:
            try:
                return self._try()
            except CleanerdError as error:
                told = self._explained(error)
                wait = next(waits, None) if _passes(told) else None
                if wait is None:
                    raise self._with_what_was_done(told) from error
                time.sleep(wait)
                if isinstance(told, AgentUnavailableError):
                    self._broker.find_again()

    def _explained(self, error: CleanerdError) -> CleanerdError:
        """A file that could not be read, or made no sense, may just have been replaced by the broker meanwhile (D-06).

        Then planning again is the answer.
        """
        facts = self._facts
        if facts is None or isinstance(error, ConfigError):
            return error
        if isinstance(error, RefusedError) and not isinstance(error, UnsupportedLogError):
            return error
        try:
            read_live(self._live.log_dir, self._name, facts)
            if self._broker.log(self._name).segments[:-1] == facts.segments[:-1]:
                return error
        except StalePlanError:
            pass
        except RefusedError as unknown:
            return unknown
        except CleanerdError:
            return error
        return StalePlanError(f"the broker changed the log meanwhile ({error})", where=error.where)

    def _with_what_was_done(self, error: CleanerdError) -> CleanerdError:
        if self._swapped:
            error.message += f"; {self._swapped} groups were swapped before that"
        return error

    def _try(self) -> CleaningResult:
        live = self._live
        self._facts = facts = self._broker.log(self._name)
        _refuse_unfit(facts, str(self._files.path))
        drop_plans(self._files, keep_ready=True)  # of a cleanerd that was killed
        log_dir, log = read_live(live.log_dir, self._name, facts)
        config = live.config_of(self._name.topic, facts)
        if not config.is_compacted:
            policy = ",".join(sorted(config.cleanup_policy))
            raise RefusedError(f"cleanup.policy is {policy!r}, not compact", where=str(self._files.path))
        found = survey_log(log_dir, log, config, live.store, self._wishes)
        blank = blank_result(log_dir, found)
        if not found.to_clean:
            return blank
        with ReaderPool(str(log.path), workers=live.means.workers, chunk_bytes=live.means.chunk_bytes) as pool:
            plan = make_plan(log_dir, found, live.means, self._wishes, pool.reader)
            plan = replace(plan, last_records=_with_brokers(plan.last_records, facts))
            cleaning = Cleaning(plan, pool, self._progress)
            _refuse_unswappable(cleaning)
            return self._carry_out(facts, found, cleaning, blank)

    def _carry_out(self, facts: LogFacts, found: Survey, cleaning: Cleaning, blank: CleaningResult) -> CleaningResult:
        plan, live = cleaning.plan, self._live
        swapper = Swapper(self._broker, self._files, facts, cleaning, live.means)
        started = time.monotonic()
        if cleaning.groups():
            swapper.wait_for_deletions(found.config.file_delete_delay_ms)
            drop_plans(self._files)  # what `cleanerd stage` made: outdated now
            reserve_bytes = disk_reserve_bytes(live.means, found.config, plan.path)
            with cleaning.staging(reserve_bytes) as staging:
                try:
                    for staged, members in cleaning.staged_groups(staging):
                        swapper.swap(staging, staged, members)
                        self._swapped += 1
                except BaseException:
                    with contextlib.suppress(CleanerdError):
                        finish_plan(self._files, plan.plan_id)
                    raise
            finish_plan(self._files, plan.plan_id)
        apply_seconds = time.monotonic() - started - cleaning.totals.rewrite_seconds
        result = counted(blank, found, cleaning)
        result = replace(
            result,
            outcome="cleaned" if cleaning.totals.groups else "unchanged",
            seconds={**result.seconds, "apply": apply_seconds, "held": swapper.held_seconds},
            notes=(*result.notes, *swapper.notes),
        )
        return replace(result, notes=(*result.notes, *self._remember(found, plan, swapper, result)))

    def _remember(self, found: Survey, plan: CleaningPlan, swapper: Swapper, result: CleaningResult) -> tuple[str, ...]:
        """The clean point, then the broker's checkpoint (U-10, A-20). Work that it spares is all that can be lost."""
        if not found.moves_clean_point:
            return ()
        offset = max(plan.end_offset, found.proven_offset)
        try:
            facts = self._broker.log(self._name)
            log_dir, after = read_live(self._live.log_dir, self._name, facts)
            last = next(segment for segment in reversed(after.segments) if segment.base < offset)
            if held_as(last) != swapper.segment_below(offset):
                return (f"the broker changed segment {last.base} at once: the clean point stays where it was",)
            save_clean_point(self._live.store, log_dir, after, offset, plan.fingerprint, result)
            if plan.fingerprint == KAFKAS_FINGERPRINT and (facts.checkpoint is None or facts.checkpoint < offset):
                self._broker.checkpoint(self._name, facts, offset)
        except CleanerdError as error:
            return (f"the clean point, or the broker's, stays where it was: {error}",)
        return ()


def _refuse_unfit(facts: LogFacts, where: str) -> None:
    """A-13, as far as it can be said before anything is read.

    Raises:
        RefusedError: the partition is on its way to another place.
    """
    for reason, holds in {
        "it is being moved to another log directory": facts.future,
        "it keeps segments in remote storage (S-49)": facts.remote,
        "it is being deleted": facts.deleted,
    }.items():
        if holds:
            raise RefusedError(reason, where=where)


def _refuse_unswappable(cleaning: Cleaning) -> None:
    """What only the offline way can do.

    Raises:
        RefusedError: such a segment is to be rewritten.
    """
    segments = cleaning.decision.segments
    legacy = [segments[row].source.base for rows in cleaning.groups() for row in rows if segments[row].legacy_batches]
    if legacy:
        raise RefusedError(
            f"segment {legacy[0]} holds message format v0 or v1, and a running broker is given v2 only (U-18)",
            where=cleaning.plan.path,
            hint="stage it and apply it on start, or clean it offline",
        )
    if overflowed := cleaning.overflowed():
        raise RefusedError(
            f"the offsets of segment {overflowed[0].source.base} pass 2^31-1 above its base: it has to be split first "
            "(C-67)",
            where=cleaning.plan.path,
            hint="stop the broker and run cleanerd clean on it",
        )


def _with_brokers(ours: LastRecords, facts: LogFacts) -> LastRecords:
    """Both views of the active producers together: what either holds on to stays (R192-1)."""
    data = {offset for offset, _ in facts.producers.values() if offset is not None}
    markers = {(producer, epoch) for producer, (offset, epoch) in facts.producers.items() if offset is None}
    known = zip(ours.marker_producers.tolist(), ours.marker_epochs.tolist(), strict=True)
    merged = dict(known) | dict(markers)
    return LastRecords.of(data_offsets=data | set(ours.data_offsets.tolist()), marker_epochs=merged.items())
