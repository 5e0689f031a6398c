"""What would be done with a partition, and why or why not: the facts behind ``plan`` and the start of every ``clean``.

Reads only; cheap (listings, small files, the end of the active segment).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleanerd.cleaner.verdict import Verdict, verdict
from cleanerd.errors import OutOfRangeError
from cleanerd.log.bounds import Bounds, log_end_offset, read_bounds
from cleanerd.log.clean_point import PartitionState, StateStore, still_valid
from cleanerd.log.partition import PartitionLog, read_partition
from cleanerd.log.read import SegmentReader
from cleanerd.log.strategy_config import changes_in_words, fingerprint
from cleanerd.policy.cleanable import first_dirty

if TYPE_CHECKING:
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for on the command line; the same for every partition (cli.md).

    ``purge``: the clean part is worth a round although nothing new was written, because tombstones or markers in it are
    past their delete horizon.
    ``clock_doubt_ms``: it may be so much later than ``now_ms``. What goes, goes by the earlier time, and a horizon that
    is set now counts from the later one, so that whichever is right no tombstone goes too early (KIP-534).
    """

    now_ms: int
    force: bool = False
    first_dirty_offset: int | None = None
    from_start: bool = False
    up_to_offset: int | None = None
    unclean: bool = False
    purge: bool = False
    clock_doubt_ms: int = 0


@dataclass(frozen=True, slots=True)
class Survey:
    """One partition, looked at.

    ``proven_offset`` is up to where the log is provably clean as it lies there. ``moves_clean_point`` is false when
    ``--first-dirty`` left out a part that nothing shows to be clean: then the log is not clean up to ``end_offset``
    afterwards, and nobody may be told so. ``verdict`` is what speaks against cleaning now. ``notes`` are things that
    the operator should know either way (repairs of C-03, state that was outdated).
    """

    log: PartitionLog
    config: TopicConfig
    bounds: Bounds
    end_offset: int
    first_dirty_origin: str
    proven_offset: int
    moves_clean_point: bool
    verdict: Verdict | None
    notes: tuple[str, ...]

    @property
    def to_clean(self) -> bool:
        """Whether it is to be cleaned."""
        return self.verdict is None

    @property
    def refusal(self) -> str:
        """Why it is not cleaned now, empty when it is to be cleaned."""
        return "" if self.verdict is None else self.verdict.reason


def survey(log_dir: LogDir, name: TopicPartition, config: TopicConfig, store: StateStore, wishes: Wishes) -> Survey:
    """Look at one compacted partition.

    Raises:
        CorruptionError, CleanerdError: it cannot be read.
        OutOfRangeError: ``--first-dirty`` or ``--up-to`` lie outside of what is possible.
    """
    return survey_log(log_dir, read_partition(log_dir, name), config, store, wishes)


def survey_log(log_dir: LogDir, log: PartitionLog, config: TopicConfig, store: StateStore, wishes: Wishes) -> Survey:
    """As :func:`survey`, of a log that was listed already."""
    with SegmentReader.open(str(log.path), chunk_bytes=256 * 1024) as reader:
        may_be_torn = wishes.unclean and not log_dir.clean_shutdown
        log_end = log_end_offset(log, reader, may_be_torn=may_be_torn)
        proven, origin, notes = _clean_point(log_dir, log, log_end, store, config)
        first = proven
        if wishes.from_start:
            first, origin = log.log_start_offset, "--from-start"
        elif wishes.first_dirty_offset is not None:
            first, origin = _asked_for(wishes.first_dirty_offset, log, log_end), "--first-dirty"
        bounds = read_bounds(
            log,
            reader,
            first_dirty_offset=first,
            now_ms=wishes.now_ms,
            min_lag_ms=config.min_compaction_lag_ms,
            max_lag_ms=config.max_compaction_lag_ms,
            may_be_torn=may_be_torn,
        )
    end = _end_offset(log.name, bounds, wishes)
    return Survey(
        log=log,
        config=config,
        bounds=bounds,
        end_offset=end,
        first_dirty_origin=origin,
        proven_offset=proven,
        moves_clean_point=first <= proven,
        verdict=verdict(
            log,
            log_dir,
            config,
            bounds,
            end,
            now_ms=wishes.now_ms,
            force=wishes.force,
            unclean=wishes.unclean,
            purge=wishes.purge,
        ),
        notes=tuple(notes),
    )


def _asked_for(offset: int, log: PartitionLog, log_end: int) -> int:
    if not log.log_start_offset <= offset <= log_end:
        raise OutOfRangeError(
            f"--first-dirty {offset} lies outside the log {log.log_start_offset}..{log_end}", where=str(log.path)
        )
    return offset


def _clean_point(
    log_dir: LogDir, log: PartitionLog, log_end: int, store: StateStore, config: TopicConfig
) -> tuple[int, str, list[str]]:
    """Up to where the log is provably clean, who says so, and notes (C-02, C-03, U-10).

    Kafka's checkpoint counts where Kafka's own rules do. Other rules than those that the clean part was cleaned by are
    no reason to clean it again (R280-11).
    """
    notes: list[str] = []
    theirs = log.cleaner_offset if config.is_kafkas else None
    kafka = first_dirty(theirs, log.log_start_offset, log_end)
    if kafka.repair:
        notes.append(f"cleaner-offset-checkpoint: {kafka.repair}")
    origin = "log start offset" if theirs is None or kafka.repair else "cleaner-offset-checkpoint"
    state = store.load(log_dir, log)
    if state is None or state.clean_point is None:
        return kafka.offset, origin, notes
    outdated = still_valid(state.clean_point, log, log_end)
    if outdated is not None:
        notes.append(f"cleanerd's own clean point is outdated: {outdated}")
        return kafka.offset, origin, notes
    if state.clean_point.fingerprint != fingerprint(config):
        changed = changes_in_words(state.clean_point.fingerprint, fingerprint(config))
        notes.append(
            f"cleaned so far with other settings ({changed}): keys that do not occur in the dirty part stay as they "
            "are (R280-11); --from-start cleans all of them again"
        )
    # Under `offset` the broker's cleaner proves as much as ours, so the further of the two is right.
    if kafka.offset > state.clean_point.offset:
        return kafka.offset, origin, notes
    return state.clean_point.offset, "cleanerd's own state", notes


def _end_offset(name: TopicPartition, bounds: Bounds, wishes: Wishes) -> int:
    if wishes.up_to_offset is None:
        return bounds.bound.offset
    if wishes.up_to_offset > bounds.bound.offset:
        raise OutOfRangeError(
            f"--up-to {wishes.up_to_offset} is above the bound {bounds.bound.offset} of {name}, "
            f"which is set by {bounds.bound.limited_by}",
        )
    return wishes.up_to_offset


def quarantined(reason: str, before: PartitionState | None) -> PartitionState:
    """The state of a partition that could not be cleaned; its clean point stays what it was."""
    return PartitionState(None, reason, None) if before is None else replace(before, quarantine=reason)
