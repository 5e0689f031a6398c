"""The survey of a partition: the facts behind ``plan`` and the start of every ``clean``.

Reads only, and little: listings, small files, the end of the active segment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleanerd.cleaner.hanging_transaction import OpenTransaction, open_transaction
from cleanerd.cleaner.horizons import next_purge_ms
from cleanerd.cleaner.rules_change import RulesChange, rules_change
from cleanerd.cleaner.verdict import NOT_STOPPED_CLEANLY, NotCleanedReason, of_rules, verdict
from cleanerd.config.fingerprint import describe_changes, fingerprint
from cleanerd.errors import CorruptionError, OutOfRangeError
from cleanerd.format.names import MAX_OFFSET, TopicPartition
from cleanerd.humanize import counted
from cleanerd.policy.cleanable import LimitedBy, first_dirty
from cleanerd.policy.replicas import BY_CLOCK, ExpiryBound, held_in_words, lowest, ways_out
from cleanerd.segments.cleanable_range import CleanableRange, log_end_offset, read_bounds
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.state.first_dirty_offset import clean_below, kafka_checkpoint_changed, still_valid, unproven_below
from cleanerd.state.other_places import rules_of

if TYPE_CHECKING:
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, PartitionState, StateStore


@dataclass(frozen=True, slots=True)
class CleaningOptions:
    """The options of the command line; the same for every partition.

    ``tombstone_removal``: clean the clean section although nothing new was written, because tombstones or markers in it
    are past their delete horizon. ``clock_doubt_ms``: the time may be up to this much later than ``now_ms``. Removals
    use the earlier time, and a new horizon the later one, so that no tombstone is removed too early (KIP-534).
    ``change_strategy``: a change of rules since the last cleaning is intended. ``indexes_only``: do not read sealed
    segments to find their age; for scans, which clean nothing (U-51). ``waits_for_replicas``: False for Kafka's rule,
    as with an explicit ``--now-ms``. ``ignored_replicas``: brokers that never return, for which no tombstone waits
    (U-70). ``facts_bytes``: memory for the facts about a log's producers, the share of one of several threads (U-35);
    None: that of a program with one thread.
    """

    now_ms: int
    force: bool = False
    first_dirty_offset: int | None = None
    from_start: bool = False
    up_to_offset: int | None = None
    unclean: bool = False
    tombstone_removal: bool = False
    clock_doubt_ms: int = 0
    change_strategy: bool = False
    indexes_only: bool = False
    waits_for_replicas: bool = True
    ignored_replicas: frozenset[int] = frozenset()
    facts_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """The survey of one partition.

    Up to ``proven_offset`` the log is clean, by cleanerd's checkpoint or Kafka's; below ``unproven_below`` only by
    Kafka's (U-50). ``moves_checkpoint`` is false when ``--first-dirty`` left out a part that nothing proves clean:
    then the log is not clean up to ``end_offset`` afterwards, and no checkpoint may say so. ``verdict``: why not to
    clean now. ``notes`` for the operator in any case (repairs of C-03, outdated state). ``change``: it would be cleaned
    by other rules than before. ``state``: its stored state, if any. ``valid_checkpoint``: the checkpoint in it, if it
    describes the log. ``open_transaction``: the one that limits the cleaning (OP-14). ``expiry``: up to which delete
    horizon tombstones may be removed (U-70). ``tombstones_kept``: how many tombstones and markers of the clean section
    are still to be removed, as the last cleaning counted them; None: unknown. ``log_end_offset``: of the whole log.
    """

    log: PartitionLog
    config: TopicConfig
    bounds: CleanableRange
    end_offset: int
    log_end_offset: int
    first_dirty_origin: str
    proven_offset: int
    unproven_below: int
    moves_checkpoint: bool
    verdict: NotCleanedReason | None
    notes: tuple[str, ...]
    change: RulesChange | None = None
    state: PartitionState | None = None
    valid_checkpoint: CleanerdCheckpoint | None = None
    open_transaction: OpenTransaction | None = None
    expiry: ExpiryBound = BY_CLOCK
    tombstones_kept: int | None = None

    @property
    def to_clean(self) -> bool:
        """Whether it is to be cleaned."""
        return self.verdict is None

    @property
    def may_remove_tombstones(self) -> bool:
        """D-16: whether a cleaning for tombstones alone has something to clean: a clean section below every limit."""
        bounds, end = self.bounds, self.bounds.bound.offset
        if end <= bounds.first_dirty_offset:
            end = min(end, _limit_of_clean_section(self.log, bounds))
        return end > self.log.segments[0].base

    def may_grow(self, options: CleaningOptions) -> bool:
        """U-54: whether it is cleaned even if that only makes it larger: by request, or to remove records in time."""
        return options.force or self.config.max_compaction_lag_ms < MAX_OFFSET

    @property
    def refusal(self) -> str:
        """Why it is not cleaned now; empty if it is to be cleaned."""
        return "" if self.verdict is None else self.verdict.reason


def survey(
    log_dir: LogDir, name: TopicPartition, config: TopicConfig, store: StateStore, options: CleaningOptions
) -> Survey:
    """Survey one compacted partition.

    Raises:
        CorruptionError, CleanerdError: it cannot be read.
        OutOfRangeError: ``--first-dirty`` or ``--cleanable-to`` are outside the possible range.
    """
    return survey_log(log_dir, read_partition(log_dir, name), config, store, options)


def _foreign(log: PartitionLog) -> list[str]:
    """Names of files that may refer to segments which a cleaning replaces (S-49)."""
    if not log.foreign:
        return []
    some = ", ".join(log.foreign[:3])
    return [f"{counted(len(log.foreign), 'file')} beside the segments that no broker of Kafka writes, such as {some}"]


def survey_log(
    log_dir: LogDir, log: PartitionLog, config: TopicConfig, store: StateStore, options: CleaningOptions
) -> Survey:
    """As :func:`survey`, for a log that was listed already."""
    with SegmentReader.open(str(log.path), chunk_bytes=256 * 1024, at_once=False) as reader:
        may_be_torn = options.unclean and not log_dir.clean_shutdown
        log_end = _read_log_end(log_dir, log, reader, may_be_torn=may_be_torn)
        stored = _read_stored_state(log_dir, log, log_end, config, store, options)
        first, origin = _first_dirty_offset(log, log_end, stored, options)
        bounds = read_bounds(
            log,
            reader,
            first_dirty_offset=first,
            now_ms=options.now_ms,
            min_lag_ms=config.min_compaction_lag_ms,
            max_lag_ms=config.max_compaction_lag_ms,
            may_be_torn=may_be_torn,
            reads_batches=not options.indexes_only,
            facts_bytes=options.facts_bytes,
        )
        transaction = _limiting_transaction(log, reader, bounds, config)
    expiry = replace(expiry_bound(config, log, options, stored.proven_offset), log_end=log_end)
    end_offset, reason = _end_or_reason(log_dir, log, config, stored, bounds, expiry, options)
    if transaction is not None and reason is not None and reason.rule == LimitedBy.OPEN_TRANSACTION:
        text = f"{reason.reason}; {transaction.describe(options.now_ms)}"
        reason, transaction_note = replace(reason, reason=text, changes=transaction.remedy), []
    else:
        transaction_note = _hanging(transaction, options.now_ms)
    tombstones_kept = _tombstones_kept(stored.state, first)
    return Survey(
        log=log,
        config=config,
        bounds=bounds,
        end_offset=end_offset,
        log_end_offset=log_end,
        first_dirty_origin=origin,
        proven_offset=stored.proven_offset,
        unproven_below=unproven_below(stored.valid_checkpoint, stored.proven_offset),
        moves_checkpoint=first <= stored.proven_offset,
        verdict=reason,
        notes=(
            *stored.notes,
            *_waits_for_replicas(log, expiry, tombstones_kept),
            *transaction_note,
            *([] if bounds.wrong_time is None else [bounds.wrong_time.note]),
            *_foreign(log),
        ),
        change=stored.change,
        state=stored.state,
        valid_checkpoint=stored.valid_checkpoint,
        open_transaction=transaction,
        expiry=expiry,
        tombstones_kept=tombstones_kept,
    )


def _read_log_end(log_dir: LogDir, log: PartitionLog, reader: SegmentReader, *, may_be_torn: bool) -> int:
    try:
        return log_end_offset(log, reader, may_be_torn=may_be_torn)
    except CorruptionError as error:
        if not log_dir.clean_shutdown:  # a killed broker leaves a torn end and repairs it at its start
            error.hint = error.hint or NOT_STOPPED_CLEANLY
        raise


@dataclass(frozen=True, slots=True)
class _StoredState:
    """What earlier cleanings stored about a log, by cleanerd or Kafka.

    ``change``: the rules differ from those of the last cleaning. ``valid_checkpoint``: cleanerd's, if it describes the
    log. ``proven_offset``: up to there the log is proven clean, by the checkpoint ``origin``.
    """

    state: PartitionState | None
    change: RulesChange | None
    valid_checkpoint: CleanerdCheckpoint | None
    proven_offset: int
    origin: str
    notes: list[str]


def _read_stored_state(
    log_dir: LogDir, log: PartitionLog, log_end: int, config: TopicConfig, store: StateStore, options: CleaningOptions
) -> _StoredState:
    state = store.load(log_dir, log)
    change = rules_change(config, rules_of(store, log_dir, log, state))
    refused = of_rules(None if options.change_strategy else change) is not None
    checkpoint = None if state is None else state.cleanerd_checkpoint
    outdated = None if checkpoint is None else still_valid(checkpoint, log, log_end)
    proven, origin, notes = _proven_offset(log, log_end, checkpoint, outdated, config, refused=refused)
    return _StoredState(state, change, checkpoint if outdated is None else None, proven, origin, notes)


def _first_dirty_offset(
    log: PartitionLog, log_end: int, stored: _StoredState, options: CleaningOptions
) -> tuple[int, str]:
    """Where the dirty section begins, and which option or checkpoint says so."""
    if options.from_start:
        return log.log_start_offset, "--from-start"
    if options.first_dirty_offset is not None:
        return _requested_limit(options.first_dirty_offset, log, log_end), "--first-dirty"
    return stored.proven_offset, stored.origin


def _end_or_reason(
    log_dir: LogDir,
    log: PartitionLog,
    config: TopicConfig,
    stored: _StoredState,
    bounds: CleanableRange,
    expiry: ExpiryBound,
    options: CleaningOptions,
) -> tuple[int, NotCleanedReason | None]:
    """Up to where to clean, and why not to clean; None: nothing is against it."""
    end_offset = _end_offset(log.name, bounds, options)
    removal_end = min(end_offset, _limit_of_clean_section(log, bounds))
    if options.tombstone_removal and end_offset <= bounds.first_dirty_offset:
        end_offset = removal_end
    reason = verdict(
        log,
        log_dir,
        config,
        bounds,
        end_offset,
        now_ms=options.now_ms,
        force=options.force,
        unclean=options.unclean,
        tombstone_removal=options.tombstone_removal,
        change=None if options.change_strategy else stored.change,
    )
    if reason is not None and reason.rule in bounds.bound.limits and options.up_to_offset is None:
        first = bounds.first_dirty_offset
        reason = _unless_removal_is_due(reason, log, stored.state, first, removal_end, options, expiry)
        return (removal_end if reason is None else end_offset), reason
    return end_offset, reason


def _waits_for_replicas(log: PartitionLog, expiry: ExpiryBound, tombstones_kept: int | None) -> list[str]:
    """A note about replicas for which tombstones wait, if there are any (U-70)."""
    if not expiry.missing and not expiry.peers:
        return []
    text = held_in_words(expiry, at_most=tombstones_kept)
    return [f"{text}: {ways_out(expiry, log.name)}" if expiry.missing and not expiry.are_back else text]


def _hanging(transaction: OpenTransaction | None, now_ms: int) -> list[str]:
    """A note about an open transaction that limits the cleaning for long; younger ones are normal."""
    if transaction is None or not transaction.hangs(now_ms):
        return []
    text = transaction.describe(now_ms)
    return [
        f"offsets from {transaction.first_offset} on are not cleaned: {text}. They can be cleaned {transaction.remedy}"
    ]


def _tombstones_kept(state: PartitionState | None, first_dirty_offset: int) -> int | None:
    """U-94: as the last cleaning counted them, if it reached the end of the clean section; None: unknown."""
    if state is None or state.last_result is None or state.removal_known_below != first_dirty_offset:
        return None
    kept, end = (state.last_result.get(name) for name in ("tombstones_kept", "end_offset"))
    is_known = isinstance(kept, int) and isinstance(end, int) and 0 <= kept < 2**63 and end >= first_dirty_offset
    return kept if is_known else None


def expiry_bound(
    config: TopicConfig, log: PartitionLog, options: CleaningOptions, first_dirty_offset: int
) -> ExpiryBound:
    """Up to which delete horizon tombstones and markers of a partition may expire (U-70, U-79)."""
    if config.replicas is None or not options.waits_for_replicas:
        return BY_CLOCK
    replicas = config.replicas.of_topic(log.topic_id)
    return lowest([replicas.bound(log.name.partition, options.now_ms, options.ignored_replicas, first_dirty_offset)])


def _limiting_transaction(
    log: PartitionLog, reader: SegmentReader, bounds: CleanableRange, config: TopicConfig
) -> OpenTransaction | None:
    """OP-14: the open transaction that limits the cleaning, if any."""
    if bounds.bound.limited_by is not LimitedBy.OPEN_TRANSACTION:
        return None
    return open_transaction(log, reader, bounds.bound.limits[LimitedBy.OPEN_TRANSACTION], connect=config.connect)


def _unless_removal_is_due(
    reason: NotCleanedReason,
    log: PartitionLog,
    state: PartitionState | None,
    first_dirty_offset: int,
    end_offset: int,
    options: CleaningOptions,
    expiry: ExpiryBound,
) -> NotCleanedReason | None:
    """Why there is nothing to clean; None with ``force`` if tombstones or markers are past their horizon (R534-6).

    The last cleaning stored that time. If another cleaner wrote since, ``force`` reads all batch headers.
    """
    if state is not None and end_offset >= first_dirty_offset == state.removal_known_below:
        due_ms = state.next_purge_ms
    elif options.force and not options.indexes_only:
        clean = [segment for segment in log.segments[:-1] if segment.base < end_offset]
        with SegmentReader.open(str(log.path)) as reader:
            due_ms = next_purge_ms(reader, clean, expiry.expiry_ms(options.now_ms), waits=expiry.waits)
    else:
        return reason
    if expiry.holds(due_ms, options.now_ms):
        return replace(reason, reason=f"{reason.reason}; {held_in_words(expiry)}")
    if due_ms is None or due_ms > options.now_ms or end_offset <= log.segments[0].base:
        return reason
    if options.force:
        return None
    removable = "tombstones or markers are past their delete horizon (clean --force removes them)"
    return replace(reason, reason=f"{reason.reason}; {removable}")


def _limit_of_clean_section(log: PartitionLog, bounds: CleanableRange) -> int:
    """Up to where the clean section may be cleaned: a limit can be inside it."""
    lowest = min(bounds.bound.limits.values())
    return max((segment.base for segment in log.segments if segment.base <= lowest), default=log.segments[0].base)


def _requested_limit(offset: int, log: PartitionLog, log_end: int) -> int:
    if not log.log_start_offset <= offset <= log_end:
        raise OutOfRangeError(
            f"--first-dirty {offset} is outside the log {log.log_start_offset}..{log_end}", where=str(log.path)
        )
    return offset


def _proven_offset(
    log: PartitionLog,
    log_end: int,
    checkpoint: CleanerdCheckpoint | None,
    outdated: str | None,
    config: TopicConfig,
    *,
    refused: bool,
) -> tuple[int, str, list[str]]:
    """Up to where the log is proven clean, by which checkpoint, and notes (C-02, C-03, U-10).

    ``checkpoint``: cleanerd's, ``outdated``: why it no longer describes the log. ``refused``: the current rules are
    refused, so their effect does not matter.

    Kafka's checkpoint is used if the topic has Kafka's rules. A change of rules alone does not make the clean section
    dirty (R280-11).
    """
    notes: list[str] = []
    theirs = log.cleaner_offset if config.is_kafkas else None
    kafka = first_dirty(theirs, log.log_start_offset, log_end)
    if kafka.repair:
        notes.append(f"cleaner-offset-checkpoint: {kafka.repair}")
    believed = None if kafka.repair else theirs
    clean = clean_below(checkpoint, believed, is_valid=outdated is None)
    offset = log.log_start_offset if clean is None else clean
    origin = "log start offset" if clean is None else "cleaner-offset-checkpoint"
    if checkpoint is None:
        return offset, origin, notes
    if outdated is not None:
        note = f"the cleanerd checkpoint is outdated: {outdated}"
        if theirs is not None and not kafka_checkpoint_changed(theirs, checkpoint):
            ending = "too, as cleanerd wrote it" if theirs == checkpoint.offset else "as it did before that"
            notes += [note, f"cleaner-offset-checkpoint says {theirs} {ending}: the whole log is dirty"]
        else:
            notes.append(f"{note}, for example because the broker cleaned it since; {origin} is used")
        return offset, origin, notes
    if not refused and checkpoint.fingerprint != fingerprint(config):
        changed = describe_changes(checkpoint.fingerprint, fingerprint(config))
        notes.append(
            f"the topic was cleaned with other settings before ({changed}). Keys without new records stay as they are; "
            "--from-start cleans them by the new settings too"
        )
    return offset, "cleanerd's own state" if offset == checkpoint.offset else origin, notes


def _end_offset(name: TopicPartition, bounds: CleanableRange, options: CleaningOptions) -> int:
    if options.up_to_offset is None:
        return bounds.bound.offset
    if options.up_to_offset > bounds.bound.offset:
        raise OutOfRangeError(
            f"--cleanable-to {options.up_to_offset} is above the first uncleanable offset {bounds.bound.offset} of "
            f"{name}, which is set by {bounds.bound.limited_by}",
        )
    return options.up_to_offset
