"""Makes the plan of a cleaning from a survey, with everything that the decision depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.plan import (
    CleaningPlan,
    Source,
    legacy_horizon_ms,
    new_hash_key,
    new_plan_id,
    rules_of,
    uncleanable_sources,
)
from cleanerd.config.fingerprint import fingerprint
from cleanerd.policy.grouping import GroupLimits
from cleanerd.segments.producers import read_last_records
from cleanerd.segments.torn_tail import decided_aborted, decided_below

if TYPE_CHECKING:
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.policy.producer import LastRecords
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.reading import SegmentReader

SPAN_SHARE_OF_RETENTION: Final = 10
"""Under ``compact,delete`` a group spans at most this share of ``retention.ms``, because it is deleted as a whole."""


def make_plan(
    log_dir: LogDir, found: Survey, resources: Resources, options: CleaningOptions, reader: SegmentReader
) -> CleaningPlan:
    """Make the plan, with everything that the decision depends on.

    Raises CorruptionError: the producer state cannot be rebuilt from the log.
    """
    log, config = found.log, found.config
    first_dirty, bound = found.bounds.first_dirty_offset, found.bounds.bound.offset
    may_be_torn = not log_dir.clean_shutdown
    torn_from = log.recovery_point if may_be_torn else None
    last_records, damaged_snapshots = _read_last_records(found, resources, options, reader, torn_from)
    sources = _sources(log, found.end_offset)
    rules = rules_of(config)
    return CleaningPlan(
        plan_id=(resources.new_plan_id or new_plan_id)(),
        name=log.name,
        path=str(log.path),
        topic_id=log.topic_id,
        directory_id=log_dir.meta.directory_id,
        sources=sources,
        uncleanable=uncleanable_sources(log, len(sources)),
        torn_from=torn_from if log.last_stable_offset is None else None,
        log_start_offset=log.log_start_offset,
        lasting_start_offset=log.log_start_offset if log.lasting_start_offset is None else log.lasting_start_offset,
        proven_offset=found.proven_offset,
        unproven_below=min(found.unproven_below, first_dirty),
        first_dirty_offset=first_dirty,
        end_offset=found.end_offset,
        first_uncleanable_offset=bound,
        # A checkpoint may have raised the bound: data below it was decided by an earlier cleaning.
        decided_offset=max(bound, decided_below(log, may_be_torn=may_be_torn)),
        rules=rules,
        fingerprint=fingerprint(config),
        now_ms=options.now_ms,
        expiry_ms=found.expiry.expiry_ms(options.now_ms),
        expires_below=found.expiry.below_offset,
        waits=found.expiry.waits,
        delete_retention_ms=_delete_retention_ms(found, options),
        last_records=last_records,
        producers_expired_ms=options.now_ms + resources.producer_id_expiration_ms,
        aborted=decided_aborted(log, reader, bound, may_be_torn=may_be_torn),
        legacy_horizon_ms=legacy_horizon_ms(sources, first_dirty, config.delete_retention_ms, found.expiry.at_ms),
        # A v0 or v1 tombstone has no flag, so as v2 it would not be a tombstone (R87-2).
        convert_legacy=resources.convert_legacy and rules.tombstone_mode != "flag",
        max_message_bytes=config.max_message_bytes,
        limits=_group_limits(config, resources),
        hash_key=(resources.new_hash_key or new_hash_key)(),
        map_bytes=resources.map_bytes,
        map_load=resources.map_load,
        passes_bytes=resources.passes_bytes,
        map_dir=resources.map_dir,
        map_file_bytes=resources.map_file_bytes,
        map_reserve_bytes=resources.disk_reserve_bytes,
        chunk_bytes=resources.chunk_bytes,
        max_unpacked_bytes=resources.max_unpacked_bytes,
        facts_bytes=resources.facts_bytes,
        origins=tuple(sorted({**config.origins, "cleanerd.broker.version": resources.profile_origin}.items())),
        notes=tuple(f"producer snapshot ignored: {damage}" for damage in damaged_snapshots),
    )


def _read_last_records(
    found: Survey, resources: Resources, options: CleaningOptions, reader: SegmentReader, torn_from: int | None
) -> tuple[LastRecords, tuple[str, ...]]:
    """The last records of the log's producers (R192-1), and damaged snapshots; as the survey read them, if it did."""
    producers = found.bounds.producers
    return read_last_records(
        found.log,
        reader,
        now_ms=options.now_ms,
        expiration_ms=resources.producer_id_expiration_ms,
        torn_from=torn_from,
        memory_bytes=resources.facts_bytes,
        known=producers if producers and producers.is_of_all(found.log, found.log_end_offset, torn_from) else None,
    )


def _sources(log: PartitionLog, end_offset: int) -> tuple[Source, ...]:
    """The closed segments with records below ``end_offset``."""
    rows = enumerate(log.segments[:-1])
    return tuple(Source(segment, log.end_of(row)) for row, segment in rows if segment.base < end_offset)


def _delete_retention_ms(found: Survey, options: CleaningOptions) -> int:
    """How long after ``now_ms`` a new horizon is: it begins late enough for the clock's doubt and the replicas."""
    doubt_ms = max(options.clock_doubt_ms, found.expiry.begin_ms(options.now_ms) - options.now_ms)
    return found.config.delete_retention_ms + doubt_ms


def _group_limits(config: TopicConfig, resources: Resources) -> GroupLimits:
    deletes = "delete" in config.cleanup_policy and config.retention_ms >= 0
    return GroupLimits(
        segment_bytes=config.segment_bytes,
        index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        max_span_ms=config.retention_ms // SPAN_SHARE_OF_RETENTION if deletes else None,
        most_bytes=resources.most_segment_bytes,
    )
