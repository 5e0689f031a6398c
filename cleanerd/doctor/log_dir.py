"""Checks of ``cleanerd doctor`` for a log directory: its identity, its owner, its broker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from cleanerd.broker.command_line import overrides_of
from cleanerd.broker.lease import LeaseResult, probe_lease
from cleanerd.broker.lock_file import LOCK_FILE, owner_for_new_file, worker_of
from cleanerd.broker.mode import free_lock
from cleanerd.errors import CleanerdError, as_cleanerd_error
from cleanerd.format.config_keys import READABLE_BROKER_KEYS
from cleanerd.humanize import counted, user_name
from cleanerd.resolution.broker_facts import BrokerFacts, broker_facts
from cleanerd.resolution.log_dirs import log_dirs_in, relative_log_dirs_in
from cleanerd.resolution.zk_config_cache import NEVER_QUERIED, QUERY_HINT
from cleanerd.segments.log_dir import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    LogDir,
    read_log_dir,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.doctor.findings import CheckResults
    from cleanerd.doctor.host import Process
    from cleanerd.segments.partition import PartitionLog

_PLACES: Final = frozenset({"log.dir", "log.dirs", "metadata.log.dir"})
_ALL: Final = os.R_OK | os.W_OK | os.X_OK


def check_directory(findings: CheckResults, path: Path) -> LogDir | None:
    """Check ``meta.properties``, and that the checkpoints parse; None if nothing further can be checked."""
    try:
        log_dir = read_log_dir(path)
    except CleanerdError as error:
        fix = "name a directory from the broker's log.dirs, and run as a user that may read it"
        findings.failed("log directory", error, fix)
        return None
    node = "" if log_dir.meta.node_id is None else f" of node {log_dir.meta.node_id}"
    findings.ok("log directory", f"a broker's{node}, {counted(len(log_dir.partitions), 'partition')}", path)
    if log_dir.meta.directory_id is None:
        findings.note(
            "log directory",
            "has no directory.id; cleanerd knows it by its path, inode and file system",
            path / META_PROPERTIES,
        )
    return log_dir


def check_checkpoints(findings: CheckResults, log_dir: LogDir, *, running: bool) -> None:
    """Whether the broker has stored how far its logs are replicated and flushed."""
    path = log_dir.path
    fix = "start the broker and stop it cleanly: it writes its checkpoints"
    if running:
        fix = "wait a minute or two: the broker writes it while it runs (a broker that has just started has none yet)"
    if not log_dir.has_high_watermarks:
        what = "is missing: nothing is cleanable without it"
        findings.problem("checkpoints", what, path / HIGH_WATERMARK_CHECKPOINT, fix, exit_code=4)
    elif not log_dir.recovery_points and log_dir.partitions:
        what = "is missing or empty: nothing is known to be flushed, so nothing is cleanable"
        findings.warning("checkpoints", what, path / RECOVERY_POINT_CHECKPOINT, fix)
    else:
        findings.ok("checkpoints", "they parse", path)


def check_broker(
    findings: CheckResults, log_dir: LogDir, logs: Sequence[PartitionLog], others: Sequence[Path], settings: Settings
) -> bool:
    """Lock, lease probe, clean shutdown. Returns whether a broker runs, if that is visible.

    ``others``: its other log directories.
    """
    path = log_dir.path
    worker = worker_of(path)
    if worker is not None:
        findings.note("lock", f"is held by {worker}; no broker runs on this directory", path / LOCK_FILE)
        return True
    try:
        other_broker = free_lock(log_dir, others)
    except OSError as error:
        what = f"cannot be tested ({error.strerror}), so a broker is taken to run on this directory"
        findings.warning("lock", what, path / LOCK_FILE, "run as the broker's user")
        return True
    if other_broker is None:
        findings.note(
            "lock",
            "is held: a broker runs on this directory",
            path / LOCK_FILE,
            "nothing has to be done for plan, explain, stage, clean --live and the daemon; clean and apply need the "
            "broker stopped",
        )
        return True
    if other_broker:
        findings.warning(
            "lock",
            f"is free: no broker runs on this directory{other_broker}",
            path / LOCK_FILE,
            "the broker's log has the error; the broker uses the directory again after a restart",
        )
    else:
        findings.ok("lock", "is free", path / LOCK_FILE)
    _check_lease(findings, logs, required=settings.daemon.cleanerd_lease_probe == "required")
    if log_dir.clean_shutdown:
        findings.ok("clean shutdown", "the broker was stopped cleanly", path / CLEAN_SHUTDOWN)
    else:
        findings.warning(
            "clean shutdown",
            "no marker: the broker was killed, or never ran here",
            path / CLEAN_SHUTDOWN,
            "start the broker and stop it cleanly, or give --unclean to clean the log below the recovery point",
        )
    return False


def _check_lease(findings: CheckResults, logs: Sequence[PartitionLog], *, required: bool) -> None:
    """S-14 on the active segment of one partition; the lease is released at once."""
    if not logs:
        return
    segment = logs[0].path / f"{logs[0].active.base:020d}.log"
    try:
        answer = probe_lease(segment)
    except CleanerdError as error:
        findings.failed("lease probe", error, "a cleaning could not read it either: see the kernel's log")
        return
    if answer is LeaseResult.FREE:
        findings.ok("lease probe", "no process has a segment open", segment)
    elif answer is LeaseResult.OPENED:
        fix = "a broker runs although its lock is free: find it and stop it"
        findings.problem("lease probe", "a process has this segment open for writing", segment, fix, exit_code=4)
    elif required:
        fix = "run as the files' owner or with CAP_LEASE, or set cleanerd.lease.probe=auto"
        findings.problem("lease probe", "not available here, and required", segment, fix, exit_code=4)
    else:
        fix = "run as the files' owner or with CAP_LEASE; some file systems have no leases"
        findings.warning("lease probe", "not available: only the lock shows whether a broker runs", segment, fix)


def check_owner(
    findings: CheckResults,
    path: Path,
    logs: Sequence[PartitionLog],
    process: Process,
    access: Callable[..., bool] = os.access,
) -> None:
    """Whether cleanerd may write here, and whether its files will belong to the broker's user (S-60)."""
    try:
        owner = owner_for_new_file(path)
    except OSError as error:
        findings.problem("owner", f"cannot be read: {error.strerror}", path, "run as the broker's user", exit_code=1)
        return
    who, broker = user_name(process.uid), user_name(owner.uid)
    fix = f"run cleanerd as {broker} (to observe, to read is enough)"
    if not access(path, _ALL, effective_ids=True):
        findings.problem("owner", f"{who} may not write here; it belongs to {broker}", path, fix, exit_code=1)
    elif process.uid == owner.uid:
        findings.ok("owner", f"cleanerd runs as the broker's user {broker}", path)
    elif process.may_chown:
        findings.ok("owner", f"cleanerd runs as {who} and gives its files to {broker}", path)
    else:
        what = f"cleanerd runs as {who} and may not give its files to the broker's user {broker}"
        findings.problem("owner", what, path, fix, exit_code=1)
    _check_partition_owners(findings, path, logs, owner.uid, broker)


def _check_partition_owners(
    findings: CheckResults, path: Path, logs: Sequence[PartitionLog], uid: int, broker: str
) -> None:
    strange = [log for log in logs if any(segment.uid != uid for segment in log.segments)]
    if strange:
        some = _some(str(log.name) for log in strange)
        what = f"segments of {counted(len(strange), 'partition')} do not belong to {broker}: {some}"
        findings.warning("owner", what, path, f"chown them to {broker}, or the broker cannot start on them")
    locked = [log for log in logs if not os.access(log.path, _ALL, effective_ids=True)]
    if locked:
        some = _some(str(log.name) for log in locked)
        what = f"this user may not write into {counted(len(locked), 'partition')}: {some}"
        findings.problem("owner", what, path, f"run cleanerd as {broker} (to observe, to read is enough)", exit_code=1)


def check_command_line(findings: CheckResults, settings: Settings, path: Path) -> None:
    """Whether the running broker uses settings that no file contains (U-24)."""
    keys = [key for key in sorted(overrides_of(path)) if key in READABLE_BROKER_KEYS or key in _PLACES]
    if not keys:
        return
    message = f"the broker was started with --override of {_some(keys)}, which is in no file"
    if settings.daemon.cleanerd_broker_properties is None:
        what = f"{message}: cleanerd ignores it because cleanerd.broker.properties is not set"
    else:
        what = f"{message}: cleanerd uses it only while the broker runs; clean and apply do not"
    findings.warning("server.properties", what, path, "write it into server.properties")


def check_metadata(
    findings: CheckResults, settings: Settings, log_dir: LogDir, others: Sequence[Path]
) -> BrokerFacts | None:
    """The source of topic configurations, and ``server.properties``; None if one exists but cannot be read."""
    try:
        facts = broker_facts(settings, log_dir, others)
    except (CleanerdError, OSError) as caught:
        error = as_cleanerd_error(caught, str(log_dir.path))
        findings.failed("configuration", error, "see cleanerd.metadata.log.dir and cleanerd.broker.properties")
        return None
    _check_topics(findings, facts, log_dir.path)
    _check_delegations(findings, facts)
    if facts.server_properties is None:
        findings.note(
            "server.properties",
            "not given: for broker-level settings outside of KRaft metadata cleanerd uses Kafka's defaults",
            log_dir.path,
            "set cleanerd.broker.properties to its path",
        )
        return facts
    properties = settings.daemon.cleanerd_broker_properties
    directories = {path.resolve() for path in log_dirs_in(facts.server_properties)}
    unclear = relative_log_dirs_in(facts.server_properties)
    if unclear and log_dir.path.resolve() not in directories:
        what = f"its log.dirs name {unclear[0]}, relative to the directory that the broker is started in"
        message = f"{what}: it is unknown whether that is {log_dir.path}"
        findings.warning("server.properties", message, properties, "write absolute paths in log.dirs")
    elif directories and log_dir.path.resolve() not in directories:
        fix = "name the server.properties of the broker whose log directory this is"
        findings.warning("server.properties", f"its log.dirs do not name {log_dir.path}", properties, fix)
    else:
        findings.ok("server.properties", "it is read for log and cleaner keys", properties)
    return facts


def _check_topics(findings: CheckResults, facts: BrokerFacts, path: Path) -> None:
    """Check the source of topic configurations: the metadata log, or in ZooKeeper mode the broker (U-40)."""
    if facts.metadata is not None:
        known = f"{counted(len(facts.metadata.topics), 'topic', 'is')} known"
        findings.ok("KRaft metadata", known, facts.metadata_dir or path)
    elif not facts.zookeeper:
        findings.warning(
            "KRaft metadata",
            "not found: topics are compacted only if the settings say so",
            path,
            "set cleanerd.metadata.log.dir to the directory with __cluster_metadata-0",
        )
    else:
        for warning in facts.zk_warnings:
            where, _, what = warning.partition(": ")
            findings.warning("topics", what, where, QUERY_HINT)
        if facts.zk_topics:
            message = (
                f"ZooKeeper mode: the broker reported {counted(len(facts.zk_topics), 'topic')} when it was last asked"
            )
            findings.ok("topics", message, path)
        elif not facts.zk_warnings:
            findings.warning("topics", NEVER_QUERIED, path, QUERY_HINT)


def _check_delegations(findings: CheckResults, facts: BrokerFacts) -> None:
    """U-6: topics may be delegated although the state directory does not show it."""
    unread = facts.saved_unread
    if unread is None:
        return
    findings.warning(
        "delegations",
        f"{unread.why}: it is unknown which topics are delegated, and which settings they had before",
        unread.where,
        "restore it, or make it readable; remove it only if no topic is delegated",
    )


def _some(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:3]) + (", ..." if len(known) > 3 else "")
