"""Finds a key's copies in one partition of this host, and what removes each copy by when (U-85).

It combines the search of ``verify/audit.py``, the facts of ``explain`` and the rules of ``policy/removal.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError
from cleanerd.format.batch import parse_header
from cleanerd.host.memory import batch_bytes
from cleanerd.policy.cleanable import LimitedBy
from cleanerd.policy.removal import CleanedBy, RemovalFacts, SegmentTimes, Step, steps_of_tombstone, steps_of_value
from cleanerd.policy.version import rank
from cleanerd.segments.batch_file import read_batches
from cleanerd.segments.reading import SegmentReader
from cleanerd.verify.audit import LIVE, Occurrence
from cleanerd.verify.record_places import COPIED, MOVED_ASIDE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleanerd.cleaner.survey import Survey
    from cleanerd.config.load import Settings
    from cleanerd.resolution.explanation import Explanation
    from cleanerd.segments.segment import Segment
    from cleanerd.verify.rules import KeyRules

_OWN_LIMITS: Final = frozenset({LimitedBy.ACTIVE_SEGMENT, LimitedBy.MIN_COMPACTION_LAG})
"""Limits that have their own steps, with times."""
_PLAN: Final = re.compile(r"([0-9]{8}t[0-9]{6})-[0-9a-f]{8}", re.ASCII)
_WORKING_PHASES: Final = frozenset({"idle", "queued", "cleaning"})


@dataclass(frozen=True, slots=True)
class CopyOutlook:
    """A copy of the key, and the steps until it is removed."""

    copy: Occurrence
    steps: tuple[Step, ...]


def removal_facts(
    answer: Explanation,
    settings: Settings,
    now_ms: int,
    *,
    daemon: Mapping[str, object] | None,
    has_request: bool,
    kafka_cleans: bool = True,
) -> RemovalFacts:
    """The facts of an explained partition. ``daemon``: what a running daemon reports about it, None without an answer.

    ``kafka_cleans`` False: Kafka's cleaner is off.

    Raises:
        CorruptionError, CleanerdError: a segment's headers cannot be read.
    """
    found = answer.found
    config, own = found.config, settings.daemon
    # A running broker flushes a segment when it rolls it (U-49).
    moved = _OWN_LIMITS | {LimitedBy.RECOVERY_POINT} if answer.running else _OWN_LIMITS
    with SegmentReader.open(str(found.log.path)) as reader:
        segments = [_times_of(reader, each, is_active=each is found.log.active) for each in found.log.segments]
    limits = {str(name): offset for name, offset in found.bounds.bound.limits.items() if name not in moved}
    return RemovalFacts(
        now_ms=now_ms,
        segments=segments,
        first_dirty_offset=found.proven_offset,
        cleaned_by=_cleaned_by(found, daemon, kafka_cleans=kafka_cleans),
        has_request=has_request,
        segment_ms=config.segment_ms,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
        delete_retention_ms=config.delete_retention_ms,
        file_delete_delay_ms=config.file_delete_delay_ms,
        scan_ms=own.log_cleaner_backoff_ms,
        kept_ms=own.cleanerd_keep_replaced_retention_ms if own.cleanerd_keep_replaced_dir else None,
        limits=limits,
        expiry=found.expiry,
        keeps_tombstones=config.compaction_strategy != "offset" and config.tombstone_guard == "forever",
    )


def _times_of(reader: SegmentReader, segment: Segment, *, is_active: bool) -> SegmentTimes:
    first_ms, largest_ms = -1, -1
    read = reader.headers_until_damage if is_active else reader.headers
    for batches in read(segment):
        if len(batches):
            first_ms = int(batches.max_timestamp[0]) if first_ms < 0 else first_ms
            largest_ms = max(largest_ms, int(batches.max_timestamp.max()))
    return SegmentTimes(segment.base, first_ms, largest_ms, is_active)


def _cleaned_by(found: Survey, daemon: Mapping[str, object] | None, *, kafka_cleans: bool) -> CleanedBy:
    if daemon is not None and daemon["mode"] == "live" and daemon["phase"] in _WORKING_PHASES:
        return "daemon"
    is_kafkas = found.config.is_kafkas and not found.config.may_be_kept_away
    return "kafka" if kafka_cleans and is_kafkas else "operator"


def outlook(
    copies: Sequence[Occurrence], rules: KeyRules, facts: RemovalFacts | None, settings: Settings, why_unknown: str = ""
) -> list[CopyOutlook]:
    """The steps of each copy of one key in one partition.

    ``facts`` None: the log does not exist, or is not compacted. ``why_unknown``: then what would give live copies a
    latest time.
    """
    live = [each for each in copies if each.state == LIVE]
    seen = [each for each in live if each.visible]
    winner = max(seen, key=lambda each: _rank_of(each, rules), default=None)
    tombstone = winner if winner is not None and winner.is_tombstone else None
    others = [each.offset for each in live if each is not tombstone]
    found = []
    for each in copies:
        if each.state != LIVE:
            steps = _steps_elsewhere(each, facts, settings)
        elif facts is None:
            steps = (Step("a cleaning removes it", 0, None, None, why_unknown),)
        elif each is tombstone:
            last = max(others, default=None) if rules.by_version else None
            steps = steps_of_tombstone(facts, each.offset, horizon_of(each), last)
        else:
            steps = steps_of_value(facts, each.offset, None if tombstone is None else tombstone.offset)
        found.append(CopyOutlook(each, steps))
    return found


def _rank_of(copy: Occurrence, rules: KeyRules) -> tuple[bool, int, int]:
    return rank(copy.version if rules.by_version else None, copy.offset)


def horizon_of(copy: Occurrence) -> int | None:
    """The delete horizon of the batch with ``copy``; None without one, or if the file changed since."""
    try:
        stored = next(read_batches(Path(copy.file), start=copy.position, cut_tail_ends=True, limit_bytes=batch_bytes()))
        return parse_header(stored.data).delete_horizon_ms
    except (CleanerdError, OSError, StopIteration):
        return None


def _steps_elsewhere(copy: Occurrence, facts: RemovalFacts | None, settings: Settings) -> tuple[Step, ...]:
    """The steps for a file that is not live, from its state."""
    delay_ms = 60_000 if facts is None else facts.file_delete_delay_ms
    if _plan_of(copy) is not None:
        step = _step_of_kept(copy, settings)
    elif copy.state in {"deleted", "-delete"}:
        changed_ms = _changed_ms(Path(copy.file) if copy.state == "deleted" else Path(copy.file).parent)
        step = Step("a running broker deletes it", changed_ms, changed_ms + delay_ms, delay_ms, "file.delete.delay.ms")
    else:
        event, setting = _LEFT_OVER.get(copy.state, ("it is deleted", "delete it by hand"))
        step = Step(event, 0, None, None, setting)
    return (step,)


def _plan_of(copy: Occurrence) -> re.Match[str] | None:
    """The plan id, with the time of the cleaning that replaced the file."""
    return _PLAN.fullmatch(Path(copy.file).parent.parent.name)


def _step_of_kept(copy: Occurrence, settings: Settings) -> Step:
    own, known = settings.daemon, _plan_of(copy)
    below = any(each in Path(copy.file).parents for each in own.cleanerd_keep_replaced_dir)
    if known is None or not below:
        return Step(
            "its directory is deleted", 0, None, None, "cleanerd.keep.replaced.retention.ms, or delete it by hand"
        )
    kept_ms = int(datetime.strptime(known[1], "%Y%m%dt%H%M%S").replace(tzinfo=UTC).timestamp() * 1000)
    wait_ms = own.cleanerd_keep_replaced_retention_ms
    return Step(
        "a running daemon deletes the kept copy",
        kept_ms,
        kept_ms + wait_ms,
        wait_ms,
        "cleanerd.keep.replaced.retention.ms",
    )


def _changed_ms(path: Path) -> int:
    try:
        return path.stat().st_ctime_ns // 1_000_000
    except OSError:
        return 0  # deleted since


_LEFT_OVER: Final = {
    "swap": ("the interrupted swap is finished", "start the broker, or run cleanerd clean"),
    "cleaned": ("the interrupted swap is undone", "start the broker, or run cleanerd clean"),
    "staged": ("the staged cleaning is swapped in or discarded", "cleanerd apply, or cleanerd stage"),
    "-stray": ("the directory is deleted", "delete it by hand: the broker set it aside"),
    "-future": ("the broker completes the move, or it is deleted", "kafka-reassign-partitions.sh --verify"),
    MOVED_ASIDE: ("the directory is deleted", "delete it by hand when the ISR is full: cleanerd move-aside moved it"),
    COPIED: ("the directory is deleted", "delete it by hand: a killed cleanerd spark archive left it"),
}
