"""Why a partition is or is not cleaned now, with all numbers: the content of ``explain``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner.horizons import held_count
from cleanerd.cleaner.plan import rules_of
from cleanerd.cleaner.staged_plan import staged_json
from cleanerd.cleaner.verdict import NotCleanedReason
from cleanerd.config.fingerprint import fingerprint
from cleanerd.errors import Cause, CleanerdError, CorruptionError, NoSpaceError, RefusedError, as_cleanerd_error
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, file_name
from cleanerd.humanize import counted
from cleanerd.policy.replicas import held_in_words
from cleanerd.resolution.obstacles import refuse_obstacles
from cleanerd.resolution.repacked import repacked_sample
from cleanerd.segments.message_format import Formats, glance
from cleanerd.segments.reading import SegmentReader

if TYPE_CHECKING:
    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.errors import NotCompactedError
    from cleanerd.state.cleaner_checkpoint import PartitionState, StateStore

GLANCE_BYTES: Final = 4096

POLICY_RULE: Final = "cleanup.policy"
POLICY_CHANGES: Final = "when the topic's cleanup.policy contains compact"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one partition is or is not cleaned now. ``running``: a broker has the log directory.

    ``held``: how many tombstones and markers wait for a replica (U-70); None: not counted.
    """

    found: Survey
    formats: Formats | None
    state: PartitionState | None
    running: bool
    held: int | None = None

    def to_json(self) -> dict[str, Any]:
        return _json(self)


def explain(
    reading: PartitionSnapshot,
    store: StateStore,
    options: CleaningOptions,
    resources: Resources | None = None,
    *,
    counts_held: bool = False,
) -> Explanation:
    """Survey a partition and its state; with ``resources`` also check for other obstacles.

    ``counts_held``: if tombstones may wait for a replica, read all batch headers and count them.

    Raises:
        CleanerdError: it cannot be read.
    """
    found = reading.survey(store, options)
    if found.to_clean and resources is not None:
        try:
            refuse_obstacles(reading, resources)
        except (CleanerdError, OSError) as caught:
            found = replace(found, verdict=_verdict_of(as_cleanerd_error(caught, str(found.log.path))))
    formats, added_notes = formats_of(found)
    added_notes += repacked_notes(found)
    state = store.load(reading.log_dir, found.log)
    found, held = replace(found, notes=(*found.notes, *added_notes)), None
    if counts_held and resources is not None and (found.expiry.missing or found.expiry.peers):
        found, held = _with_count(found, options.now_ms, resources.max_unpacked_bytes)
    return Explanation(found, formats, state, reading.running, held)


def _with_count(found: Survey, now_ms: int, max_unpacked_bytes: int) -> tuple[Survey, int]:
    """The survey, with the number of held tombstones and markers in its sentences."""
    rules, clean = rules_of(found.config), found.log.segments[:-1]
    with SegmentReader.open(str(found.log.path), largest_batch_bytes=max_unpacked_bytes) as reader:
        held = held_count(reader, clean, found.expiry, now_ms, rules, max_unpacked_bytes)
    words = held_in_words(found.expiry, at_most=found.tombstones_kept), held_in_words(found.expiry, held)
    verdict = found.verdict and replace(found.verdict, reason=found.verdict.reason.replace(*words))
    return replace(found, verdict=verdict, notes=tuple(note.replace(*words) for note in found.notes)), held


def _verdict_of(error: CleanerdError) -> NotCleanedReason:
    if isinstance(error, NoSpaceError):
        rule = "free space"
    elif isinstance(error, RefusedError):
        rule = "the partition is in use"
    else:
        rule = "the machine" if error.cause is Cause.ENVIRONMENT else "the partition's directory"
    changes = error.hint or "once that is fixed"
    return NotCleanedReason(rule, f"{error.where}: {error.message}", changes, is_refusal=True)


def repacked_notes(found: Survey) -> tuple[str, ...]:
    """OP-23: a note if batches become larger when they are compressed again."""
    log = found.log
    files = [(log.path / file_name(each.base, SEGMENT_SUFFIX), each.size_bytes) for each in log.segments[:-1]]
    note = repacked_sample(files).note
    return (note,) if note else ()


def formats_of(found: Survey) -> tuple[Formats | None, tuple[str, ...]]:
    """The message formats by first batches (R192-4), and the timing of tombstones without a horizon (R534-4)."""
    try:
        with SegmentReader.open(str(found.log.path), chunk_bytes=GLANCE_BYTES) as reader:
            formats = glance(found.log, reader)
    except CorruptionError as error:
        return None, (str(error),)
    if not formats.legacy_segments:
        return formats, ()
    added_notes = (
        f"{counted(formats.legacy_segments, 'segment', 'begins')} with message format v0 or v1, which has no delete "
        "horizon: how long its tombstones stay is estimated from the modification times of the segments"
    )
    return formats, (added_notes,)


def _json(answer: Explanation) -> dict[str, Any]:
    found, formats, state = answer.found, answer.formats, answer.state
    verdict = found.verdict
    return {
        "topic": found.log.name.topic,
        "partition": found.log.name.partition,
        "broker_running": answer.running,
        "cleaned_now": found.to_clean,
        "rule": None if verdict is None else verdict.rule,
        "reason": found.refusal,
        "changes": None if verdict is None else verdict.changes,
        "first_dirty_offset": found.bounds.first_dirty_offset,
        "first_dirty_origin": found.first_dirty_origin,
        "end_offset": found.end_offset,
        "limits": dict(found.bounds.bound.limits),
        "limited_by": found.bounds.bound.limited_by,
        "clean_bytes": found.bounds.dirtiness.clean_bytes,
        "cleanable_bytes": found.bounds.dirtiness.cleanable_bytes,
        "dirty_ratio": found.bounds.dirtiness.ratio,
        "waits_for_replicas": list(found.expiry.missing),
        "waits_since_ms": None if found.expiry.since_ms < 0 else found.expiry.since_ms,
        "waits_at": [list(each) for each in found.expiry.missing_ends],
        "held_tombstones": answer.held,
        "overdue_ms": found.bounds.overdue_ms,
        "overdue_at_ms": found.bounds.overdue_at_ms,
        "quarantine": None if state is None else state.quarantine,
        "retry": None if state is None or state.retry is None else asdict(state.retry),
        "next_purge_ms": None
        if state is None or state.removal_known_below != found.bounds.first_dirty_offset
        else state.next_purge_ms,
        "staged": staged_json(found.log.path),
        "notes": list(found.notes),
        "warnings": list(found.config.warnings),
        "delegation": found.config.delegation.state,
        "fingerprint": fingerprint(found.config),
        "cleaned_by_fingerprint": None if state is None else state.cleaned_by,
        "lowest_magic": None if formats is None else formats.lowest,
        "highest_magic": None if formats is None else formats.highest,
        "settings": {key: {"value": value, "origin": origin} for key, value, origin in settings_of(found)},
    }


def explanation_of_policy(name: TopicPartition, reason: NotCompactedError, *, running: bool) -> dict[str, Any]:
    """The answer for a topic that is not compacted, with the fields that apply to it."""
    return {
        "topic": name.topic,
        "partition": name.partition,
        "broker_running": running,
        "cleaned_now": False,
        "rule": POLICY_RULE,
        "reason": reason.message,
        "changes": POLICY_CHANGES,
        "notes": [reason.hint],
    }


def settings_of(found: Survey) -> list[tuple[str, object, str]]:
    """The topic's settings that affect a cleaning: key, value, origin."""
    config = found.config
    values: dict[str, object] = {
        "cleanup.policy": ",".join(sorted(config.cleanup_policy)),
        **_strategy_settings(config),
        "min.cleanable.dirty.ratio": config.min_cleanable_dirty_ratio,
        "min.compaction.lag.ms": config.min_compaction_lag_ms,
        "max.compaction.lag.ms": config.max_compaction_lag_ms,
        "delete.retention.ms": config.delete_retention_ms,
        "segment.bytes": config.segment_bytes,
        "segment.ms": config.segment_ms,
        "segment.index.bytes": config.segment_index_bytes,
        "index.interval.bytes": config.index_interval_bytes,
        "max.message.bytes": config.max_message_bytes,
        "retention.ms": config.retention_ms,
    }
    return [(key, value, config.origins[key]) for key, value in values.items()]


def _strategy_settings(config: TopicConfig) -> dict[str, object]:
    """The strategy, and its effective further settings."""
    values: dict[str, object] = {"compaction.strategy": config.compaction_strategy}
    if config.compaction_strategy == "header":
        values["compaction.strategy.header"] = config.compaction_strategy_header
        values["compaction.strategy.header.encoding"] = config.compaction_strategy_header_encoding
    values["tombstone.mode"] = config.tombstone_mode
    if config.tombstone_mode == "header":
        values["tombstone.header"] = config.tombstone_header
    if config.compaction_strategy != "offset":
        values["tombstone.guard"] = config.tombstone_guard
        values["compaction.winner.retention"] = config.compaction_winner_retention
    return values
