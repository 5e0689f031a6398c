"""``cleanerd explain``: why this partition is or is not cleaned now, and where each setting came from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cleanerd.apply.lock import is_held
from cleanerd.cleaner.survey import Survey, survey
from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column, human_bytes
from cleanerd.cli.scope import broker_facts, compacted_partitions, parse_partitions, require_found
from cleanerd.cli.wishes import wishes_from
from cleanerd.errors import CorruptionError
from cleanerd.log.clean_point import PartitionState, StateStore
from cleanerd.log.log_dir import read_log_dir
from cleanerd.log.message_format import Formats, glance
from cleanerd.log.read import SegmentReader
from cleanerd.log.strategy_config import fingerprint

if TYPE_CHECKING:
    from cleanerd.cli.output import Output
    from cleanerd.log.topic_config import TopicConfig

GLANCE_BYTES = 4096


@click.command("explain")
@common_options
@click.argument("partition", metavar="TOPIC-N")
@click.argument("log_dir", metavar="LOG_DIR", type=click.Path(path_type=Path))
@click.option("--now-ms", type=click.IntRange(min=0), metavar="MS", help="As if it were that time. Default: the clock.")
def explain(common: Common, partition: str, log_dir: Path, now_ms: int | None) -> None:
    """Say why TOPIC-N is or is not cleaned now: the first rule that decides, its numbers, and when that changes."""
    settings = common.load_settings()
    wanted = parse_partitions([partition], said_as="TOPIC-N")
    directory = read_log_dir(log_dir)
    require_found(wanted, [directory])
    facts = broker_facts(settings, directory, [])
    (target,) = compacted_partitions(facts, directory, wanted)
    config = target.require_config()
    running = is_held(log_dir)
    store = StateStore(settings.daemon.cleanerd_state_dir)
    wishes = wishes_from({
        "now_ms": now_ms, "force": False, "first_dirty": None, "from_start": False, "up_to": None, "unclean": running,
    })  # fmt: skip
    found = survey(directory, target.name, config, store, wishes)
    formats, told = _formats(found)
    found = replace(found, notes=(*found.notes, *told))
    state = store.load(directory, found.log)
    if common.output.as_json:
        common.output.json(_document(found, formats, state, running=running))
    else:
        _tell(common.output, found, state, running=running)
    for warning in (*config.warnings, *facts.warnings, *store.warnings):
        common.output.warning(warning)


def _formats(found: Survey) -> tuple[Formats | None, tuple[str, ...]]:
    """What a glance tells (R192-4), and how tombstones without a horizon are timed if there may be any (R534-4)."""
    try:
        with SegmentReader.open(str(found.log.path), chunk_bytes=GLANCE_BYTES) as reader:
            formats = glance(found.log, reader)
    except CorruptionError as error:
        return None, (str(error),)
    if not formats.legacy_segments:
        return formats, ()
    told = (
        f"{formats.legacy_segments} segments begin with message format v0 or v1, which has no delete horizon: how long "
        "its tombstones stay is estimated from the modification times of the segments"
    )
    return formats, (told,)


def _document(found: Survey, formats: Formats | None, state: PartitionState | None, *, running: bool) -> dict[str, Any]:
    verdict = found.verdict
    return {
        "topic": found.log.name.topic,
        "partition": found.log.name.partition,
        "broker_running": running,
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
        "overdue_ms": found.bounds.overdue_ms,
        "overdue_at_ms": found.bounds.overdue_at_ms,
        "quarantine": None if state is None else state.quarantine,
        "notes": list(found.notes),
        "warnings": list(found.config.warnings),
        "delegation": found.config.delegation.state,
        "fingerprint": fingerprint(found.config),
        "cleaned_by_fingerprint": None if state is None or state.clean_point is None else state.clean_point.fingerprint,
        "lowest_magic": None if formats is None else formats.lowest,
        "highest_magic": None if formats is None else formats.highest,
        "settings": {key: {"value": value, "origin": origin} for key, value, origin in _settings(found)},
    }


def _tell(output: Output, found: Survey, state: PartitionState | None, *, running: bool) -> None:
    bounds = found.bounds
    if found.verdict is None:
        output.line(f"{found.log.name} is cleaned at the next run of cleanerd clean.")
    else:
        output.line(f"{found.log.name} is not cleaned now.")
        output.line(f"  rule:    {found.verdict.rule}")
        output.line(f"  reason:  {found.verdict.reason}")
        output.line(f"  changes: {found.verdict.changes}")
    if running:
        output.line("  A broker runs on this directory: offline cleaning waits until it is stopped.")
    if state is not None and state.quarantine is not None:
        output.line(f"  The last attempt failed: {state.quarantine}")
    output.line()
    output.line(f"Dirty from offset {bounds.first_dirty_offset}, says {found.first_dirty_origin}.")
    output.line(f"May be cleaned up to offset {bounds.bound.offset}: the lowest of these, rounded down to a segment.")
    limits = sorted(bounds.bound.limits.items(), key=lambda item: item[1])
    output.table([Column("limit"), Column("offset", right=True)], [[name, str(offset)] for name, offset in limits])
    output.line()
    output.line(
        f"{human_bytes(bounds.dirtiness.clean_bytes)} clean, "
        f"{human_bytes(bounds.dirtiness.cleanable_bytes)} cleanable: dirty ratio {bounds.dirtiness.ratio:.3f}."
    )
    output.line()
    columns = [Column("setting"), Column("value", right=True), Column("comes from")]
    output.table(columns, [[key, str(value), origin] for key, value, origin in _settings(found)])
    for note in found.notes:
        output.note(note)


def _settings(found: Survey) -> list[tuple[str, object, str]]:
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
    """The strategy, and what of the rest of its settings says something."""
    values: dict[str, object] = {"compaction.strategy": config.compaction_strategy}
    if config.compaction_strategy == "header":
        values["compaction.strategy.header"] = config.compaction_strategy_header
        values["compaction.strategy.header.encoding"] = config.compaction_strategy_header_encoding
    values["tombstone.mode"] = config.tombstone_mode
    if config.tombstone_mode == "header":
        values["tombstone.header"] = config.tombstone_header
    if config.compaction_strategy != "offset":
        values["tombstone.guard"] = config.tombstone_guard
    return values
