"""Checks of ``cleanerd doctor`` for partitions: damage, leftovers, quarantine, free space."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.hanging_transaction import open_transaction
from cleanerd.cleaner.manifest import STAGING
from cleanerd.cleaner.resources import disk_reserve_bytes
from cleanerd.cleaner.rules_change import rules_change
from cleanerd.cleaner.verdict import of_rules
from cleanerd.config.strategy_keys import STRATEGY
from cleanerd.config.topic_config import INTERNAL_TOPICS, TopicConfig
from cleanerd.errors import CleanerdError
from cleanerd.format.names import DELETED_SUFFIX, PASSING_SUFFIXES, REMOTE_INDEX_CACHE, parse_topic_partition_dir
from cleanerd.humanize import counted, human_bytes
from cleanerd.resolution.broker_start import start_obstacles
from cleanerd.resolution.long_away import long_away
from cleanerd.resolution.partitions import OfflinePartitions
from cleanerd.resolution.selection import why_excluded
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.producers import read_producers
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.torn_tail import decided_below
from cleanerd.state.other_places import rules_of
from cleanerd.state.places import is_there
from cleanerd.state.quarantine import cause_and_fixes, is_outdated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.config.keys import DaemonSettings
    from cleanerd.doctor.findings import CheckResults
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.resolution.targets import TargetPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.state.cleaner_checkpoint import StateStore

NOT_COMPACTED_BYTES: Final = 2**30
"""Ten segments of ``__consumer_offsets``: of a partition that Kafka's cleaner cleans, one or two remain."""


def read_partitions(findings: CheckResults, log_dir: LogDir) -> list[PartitionLog]:
    """Every readable partition; the others are problems."""
    logs = []
    for name in log_dir.partitions:
        try:
            logs.append(read_partition(log_dir, name))
        except CleanerdError as error:
            findings.failed("partition", error, "see cleanerd inspect; the other partitions are cleaned nevertheless")
    if len(logs) == len(log_dir.partitions):
        findings.ok("partition", f"all {len(logs)} can be read", log_dir.path)
    return logs


def check_directories(findings: CheckResults, log_dir: LogDir, facts: BrokerFacts | None) -> None:
    """Whether the broker can start with these directories (U-60), and which of them cleanerd ignores."""
    obstacles = start_obstacles(log_dir, facts)
    for obstacle in obstacles:
        findings.warning("broker start", obstacle.what, obstacle.where, obstacle.fix)
    if not obstacles:
        findings.ok("broker start", "the broker can start with it", log_dir.path)
    reported = {obstacle.where.name for obstacle in obstacles}
    try:
        names = sorted(entry.name for entry in os.scandir(log_dir.path) if entry.is_dir())
    except OSError:
        return  # the directory was readable a moment ago
    for name in names:
        if name not in reported and name != REMOTE_INDEX_CACHE and parse_topic_partition_dir(name) is None:
            passing = name.endswith(PASSING_SUFFIXES)
            what = "being moved or deleted" if passing else "not a partition directory"
            findings.note("partition", f"{what}: ignored", log_dir.path / name)


def check_leftovers(findings: CheckResults, logs: Sequence[PartitionLog], *, running: bool) -> None:
    """Files of unfinished replacements, and staged plans (S-21, S-28)."""
    found = 0
    waiting: list[tuple[PartitionLog, int]] = []
    for log in logs:
        try:
            names = os.listdir(log.path)
        except OSError:
            continue  # already reported: it could not be read, or was deleted
        staged = STAGING in names
        deleted = [name for name in names if name.endswith(DELETED_SUFFIX)]
        found += bool(staged or log.unfinished or deleted)
        some = ", ".join(log.unfinished[:3])
        if log.unfinished and running:
            what = f"{some}: Kafka's cleaner is running, or the broker's next start removes them"
            findings.note("leftovers", what, log.path)
        elif log.unfinished and staged:
            fix = "cleanerd clean or the broker's next start finishes or undoes it"
            findings.warning("leftovers", f"a swap by cleanerd was interrupted: {some}", log.path, fix)
        elif log.unfinished:
            fix = "start the broker once: it finishes or undoes the swap; until then the partition is refused"
            findings.warning("leftovers", f"a swap by another program was interrupted: {some}", log.path, fix)
        elif staged:
            fix = "cleanerd apply swaps it in or deletes it"
            findings.note("leftovers", "a staged cleaning", log.path / STAGING, fix)
        elif deleted and not running:
            waiting.append((log, len(deleted)))
    if waiting:
        what = f"{counted(sum(count for _, count in waiting), 'file')} to be deleted ({DELETED_SUFFIX})"
        where = waiting[0][0].path
        if len(waiting) > 1:
            what, where = f"{what} in {len(waiting)} partitions, such as {waiting[0][0].name}", where.parent
        findings.note("leftovers", what, where, "the broker removes them when it starts")
    if not found:
        findings.ok("leftovers", "none", logs[0].path.parent if logs else "")


def check_place(findings: CheckResults, log_dir: LogDir, store: StateStore) -> None:
    """U-46: a copy that may have replaced its original starts without state, unless an operator declares it."""
    with suppress(OSError):
        if any(store.directory(log_dir).glob("*.json")):
            return
        known = store.places.gone_to(log_dir.place, None).values()
        gone = [each.place.path for each in known if not is_there(each.place, log_dir.place)]
        if gone:
            places = ", ".join(sorted(gone))
            what = f"none is known for this directory, but for {places}, which had its directory.id and is gone"
            fix = f"if this copy replaces it, run cleanerd adopt-state {log_dir.path}; otherwise all of it is dirty"
            findings.note("state", what, log_dir.path, fix)


def check_quarantine(findings: CheckResults, log_dir: LogDir, logs: Sequence[PartitionLog], store: StateStore) -> None:
    """Partitions whose last cleaning failed, from the state directory."""
    known = len(store.warnings)
    count = 0
    for log in logs:
        state = store.load(log_dir, log)
        if state is None or state.quarantine is None:
            continue
        count += 1
        if is_outdated(state, log):
            what = f"{state.quarantine}; but that segment was replaced or deleted since"
            fix = "nothing: the daemon's next scan, or the next cleaning, tries it again"
            findings.note("quarantine", what, log.path, fix)
        else:
            cause, fixes = cause_and_fixes(state.quarantine)
            again = f"clean it again, or cleanerd retry {log.name}; the daemon tries again by itself"
            findings.warning("quarantine", cause, log.path, "; ".join([*(fixes or ["remove the cause"]), again]))
    for warning in store.warnings[known:]:
        where, _, what = warning.partition(": ")
        fix = "make it readable; if you delete it, it is forgotten how far and by which strategy it was cleaned"
        findings.warning("state directory", what, where, fix)
    if not count:
        findings.ok("quarantine", "none", log_dir.path)


def check_topics(
    findings: CheckResults, facts: BrokerFacts, log_dir: LogDir, logs: Sequence[PartitionLog]
) -> list[tuple[PartitionLog, TopicConfig]]:
    """Reasons against cleaning topics that do not depend on their logs; returns the compacted ones."""
    by_name = {log.name: log for log in logs}
    targets = OfflinePartitions(log_dir, facts).admitted()
    for target in targets:
        if target.error is not None and facts.not_in_place(target.name) is None:
            findings.failed("topic configuration", target.error, "correct it; until then the partition is skipped")
    _check_delegation(findings, targets)
    compacted = [(by_name[t.name], t.config) for t in targets if t.config is not None and t.name in by_name]
    if compacted:
        findings.ok("compacted partitions", f"{len(compacted)} of {len(log_dir.partitions)}", log_dir.path)
    else:
        fix = "see cleanerd.metadata.log.dir, or --set topics.NAME.cleanup.policy=compact"
        findings.note("compacted partitions", "none found", log_dir.path, fix)
    return compacted


def check_internal_topics(
    findings: CheckResults, daemon: DaemonSettings, compacted: Sequence[tuple[PartitionLog, TopicConfig]]
) -> None:
    """I-22: an internal topic that no process compacts, and the setting with which cleanerd does."""
    dirty: dict[str, list[tuple[int, PartitionLog]]] = {}
    for log, config in compacted:
        if config.topic in INTERNAL_TOPICS:
            dirty.setdefault(config.topic, []).append((_not_compacted_bytes(log), log))
    for topic, logs in dirty.items():
        most, largest = max(logs, key=lambda each: each[0])
        total = human_bytes(sum(size for size, _ in logs))
        what = f"{total} of {topic} are not compacted yet, {human_bytes(most)} of them in {largest.name}"
        if most < NOT_COMPACTED_BYTES:
            findings.ok("internal topics", what, largest.path.parent)
            continue
        excluded = why_excluded(topic, daemon.cleanerd_topics_include, daemon.cleanerd_topics_exclude)
        include = ",".join(dict.fromkeys((*daemon.cleanerd_topics_include, topic)))
        steps = [f'"cleanerd.topics.include" = "{include}"'] if excluded else []
        steps += ['"cleanerd.mode" = "auto"'] if daemon.cleanerd_mode == "observe" else []
        if steps:
            fix = f"let the daemon clean it: {' and '.join(steps)} in its settings, then cleanerd reload"
            findings.warning("internal topics", f"{what}; {excluded or 'cleanerd only observes'}", largest.path, fix)
        else:
            findings.note("internal topics", f"{what}; the daemon cleans it", largest.path)


def check_rules(
    findings: CheckResults, log_dir: LogDir, compacted: Sequence[tuple[PartitionLog, TopicConfig]], store: StateStore
) -> None:
    """Topics that would be cleaned by other rules than before without the operator's confirmation (U-6)."""
    reported = set()
    for log, config in compacted:
        if config.topic in reported or not config.delegation.permits:
            continue
        refused = of_rules(rules_change(config, rules_of(store, log_dir, log, store.load(log_dir, log))))
        if refused is not None:
            reported.add(config.topic)
            findings.problem("strategy", refused.reason, config.topic, refused.changes, exit_code=4)


def check_transactions(
    findings: CheckResults, compacted: Sequence[tuple[PartitionLog, TopicConfig]], *, now_ms: int, may_be_torn: bool
) -> None:
    """OP-14: transactions that limit cleaning for longer than a transaction may take by default."""
    for log, config in compacted:
        with suppress(CleanerdError), SegmentReader.open(str(log.path)) as reader:  # verify reports damage
            offset = log.last_stable_offset
            if offset is None:
                torn_from = log.recovery_point if may_be_torn else None
                below = decided_below(log, may_be_torn=may_be_torn)
                offset = read_producers(log, reader, below=below, torn_from=torn_from).first_open_offset()
            found = None if offset is None else open_transaction(log, reader, offset, connect=config.connect)
            if found is not None and found.hangs(now_ms):
                what = f"nothing from offset {found.first_offset} on is cleaned: {found.describe(now_ms)}"
                findings.warning("open transaction", what, log.path, found.remedy)


def check_long_away(findings: CheckResults, log_dir: LogDir, facts: BrokerFacts, *, now_ms: int, running: bool) -> None:
    """U-76: replicas here that missed tombstones or markers; of topics cleaned by any cleaner."""
    if facts.replicas_note:
        findings.note("replicas", facts.replicas_note, log_dir.path)
        return
    found = long_away(log_dir, facts, now_ms, running=running)
    for held in (False, True):
        some = [each for each in found if each.is_held is held]
        if not some:
            continue
        first, others = some[0], f" and {len(some) - 1} more" if len(some) > 1 else ""
        what = f"{first.name}{others}: {first.describe(now_ms)}"
        if held:
            what += "; cleanerd keeps the tombstones of such topics if it cleans them on every broker"
            findings.note("replicas", what, log_dir.path)
            continue
        what += ": deleted keys or aborted records may come back"
        before = "stop the broker, then " if running else "before the broker starts: "
        findings.warning("replicas", what, log_dir.path, f"{before}cleanerd move-aside {log_dir.path}")
    if not found:
        findings.ok("replicas", "none was away for longer than delete.retention.ms", log_dir.path)


def check_shared_tombstones(
    findings: CheckResults, facts: BrokerFacts, log_dir: LogDir, compacted: Sequence[tuple[PartitionLog, TopicConfig]]
) -> None:
    """U-93: replicated topics that Kafka's cleaner cleans as well, where no tombstone waits for a replica."""
    daemon = facts.settings.daemon
    shared = {
        config.topic
        for log, config in compacted
        if config.replicas is not None  # None: tombstones expire by Kafka's rule here too
        and config.is_kafkas
        and not config.may_be_kept_away
        and facts.is_replicated(log.name)
        and not why_excluded(config.topic, daemon.cleanerd_topics_include, daemon.cleanerd_topics_exclude)
    }
    if shared:
        first = min(shared)
        others = f" and {counted(len(shared) - 1, 'more topic')}" if len(shared) > 1 else ""
        what = (
            f"{first}{others}: cleanerd keeps tombstones for a replica that is away, but Kafka's cleaner cleans the "
            "topic too, and removes them after delete.retention.ms"
        )
        fix = f"let cleanerd alone clean it: cleanerd delegate {first}, and topics.{first}.{STRATEGY} in the settings"
        findings.note("tombstones", what, log_dir.path, fix)


def check_space(
    findings: CheckResults, facts: BrokerFacts, log_dir: LogDir, compacted: Sequence[tuple[PartitionLog, TopicConfig]]
) -> None:
    """Free space, compared with the reserve and the most that one group per thread may need at once (U-16)."""
    if not compacted:
        return
    try:
        resources = facts.resources()
        status = os.statvfs(log_dir.path)
        # It depends on segment.bytes: __transaction_state alone may need more than all other partitions.
        reserves = [(disk_reserve_bytes(resources, config, str(log.path)), log.name) for log, config in compacted]
        (least, _), (reserve, greediest) = min(reserves), max(reserves)
    except CleanerdError as error:
        findings.failed("free space", error, "correct the setting")
        return
    except OSError as error:
        findings.problem("free space", f"cannot be read: {error.strerror}", log_dir.path, "try again", exit_code=1)
        return
    needs = sorted((_peak_bytes(log, config) for log, config in compacted), reverse=True)
    peak = sum(needs[: facts.settings.daemon.log_cleaner_threads])
    free = status.f_bavail * status.f_frsize
    for_whom = "" if least == reserve else f" for {greediest}"
    what = (
        f"{human_bytes(free)} free, {human_bytes(reserve)} are kept free{for_whom}, one cleaning needs at most "
        f"{human_bytes(peak)} at once"
    )
    fix = "free some space, or lower cleanerd.disk.reserve"
    if free < least:
        findings.problem("free space", what, log_dir.path, fix, exit_code=1)
    elif free < reserve + peak:
        findings.warning("free space", f"{what}: some partitions may be refused", log_dir.path, fix)
    else:
        findings.ok("free space", what, log_dir.path)


def _check_delegation(findings: CheckResults, targets: Sequence[TargetPartition]) -> None:
    """Topics that the broker's own cleaner would clean by other rules (U-8), and settings that may surprise."""
    configs = {target.config.topic: target.config for target in targets if target.config is not None}
    for topic, config in configs.items():
        if not config.delegation.permits:
            findings.problem("delegation", config.delegation.reason, topic, config.delegation.fix, exit_code=4)
        elif config.delegation.state == "delegated":
            findings.ok("delegation", "Kafka's cleaner skips the topic", topic)
        elif config.delegation.state == "assumed":
            what = "Kafka's cleaner may clean the topic too: cleanerd.delegation=assumed says that it does not"
            findings.warning("delegation", what, topic, "give the metadata log: cleanerd.metadata.log.dir")
        for warning in config.warnings:
            findings.warning("strategy", warning, topic, "change one of the settings")


def _not_compacted_bytes(log: PartitionLog) -> int:
    """The bytes of segments above Kafka's checkpoint, which cleanerd updates for these topics."""
    clean_below = log.cleaner_offset or 0
    return sum(each.size_bytes for n, each in enumerate(log.segments[:-1]) if log.end_of(n) > clean_below)


def _peak_bytes(log: PartitionLog, config: TopicConfig) -> int:
    """Limit of one group's output: the segment size, the largest source, or the whole log."""
    sizes = [segment.size_bytes for segment in log.segments[:-1]]
    return min(sum(sizes), max(config.segment_bytes, *sizes)) if sizes else 0
