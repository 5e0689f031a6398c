"""How cleanerd works on a log after a power cut: each way up to the broker's start on the result."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

from cleanerd.cleaner.cleaner import NoProgress
from cleanerd.cleaner.resources import Resources
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.config.topic_config import TopicConfig, read_key, resolve_topic_config
from cleanerd.daemon.work import run_job
from cleanerd.daemon.work.job import Backoff, CleaningJob
from cleanerd.errors import StalePlanError
from cleanerd.format.names import TopicPartition
from cleanerd.host.clock import Clock
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition, stage_partition
from cleanerd.swap.session import LockedDir
from tests.differential.duel import META_PROPERTIES, NEVER_MS, put_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.daemon.partition_scan import PartitionScan
    from cleanerd.daemon.work.progress import JobProgress
    from cleanerd.resolution.broker_facts import BrokerFacts
    from tests.torn.power_cut import Cut

NAME: Final = TopicPartition("t", 0)
CLEAN_SHUTDOWN: Final = '{"version":0,"brokerEpoch":-1}'
DELETE_RETENTION_MS: Final = 1000
RESOURCES: Final = Resources(
    map_bytes=1 << 20,
    map_load=0.85,
    chunk_bytes=1 << 16,
    max_unpacked_bytes=1 << 30,
    disk_reserve_bytes=0,
    producer_id_expiration_ms=NEVER_MS,
    lease_required=False,
)


def config_of(strategy: str) -> TopicConfig:
    """A compacted topic's settings, by offset or by the header ``version``."""
    settings = {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "delete.retention.ms": str(DELETE_RETENTION_MS),
        "compaction.strategy": strategy,
        "min.cleanable.dirty.ratio": "1",
        "max.compaction.lag.ms": str(2**63 - 1),
    }
    if strategy == "header":
        settings["compaction.strategy.header"] = "version"
    overrides = {key: read_key(key, value, "topic") for key, value in settings.items()}
    return resolve_topic_config(NAME.topic, overrides=overrides, topic_configs=None, assume_delegated=True)


def copy_log_dir(source: Path, target: Path) -> Path:
    """Copy the one partition into a log directory of its own; returns the partition's directory."""
    shutil.copytree(source, target)
    return target / str(NAME)


def write_log_dir(path: Path, cut: Cut) -> None:
    """Write the log directory's other files after the power cut."""
    (path / "meta.properties").write_text(META_PROPERTIES)
    put_checkpoint(path, "recovery-point-offset-checkpoint", cut.recovery_point)
    put_checkpoint(path, "replication-offset-checkpoint", cut.high_watermark)
    if cut.log_start_offset:
        put_checkpoint(path, "log-start-offset-checkpoint", cut.log_start_offset)


def was_stopped(path: Path, end_offset: int) -> None:
    """The broker recovered the log, and was stopped cleanly."""
    put_checkpoint(path, "recovery-point-offset-checkpoint", end_offset)
    put_checkpoint(path, "replication-offset-checkpoint", end_offset)
    (path / ".kafka_cleanshutdown").write_text(CLEAN_SHUTDOWN)


def clean(path: Path, config: TopicConfig, now_ms: int) -> CleaningResult:
    """``cleanerd clean --unclean``."""
    store = StateStore(path.parent / f"{path.name}-state")
    with LogDirLock.acquire(path, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(path), lock, store, RESOURCES)
        options = CleaningOptions(now_ms=now_ms, force=True, tombstone_removal=True, unclean=True)
        return clean_partition(locked, NAME, config, options, NoProgress())


def stage(path: Path, config: TopicConfig, now_ms: int, *, daemon: bool) -> CleaningResult | None:
    """``cleanerd stage --unclean``, or staging by the daemon; None if there was no work."""
    store = StateStore(path.parent / f"{path.name}-state")
    log_dir = read_log_dir(path)
    if daemon:
        return _by_the_daemon(log_dir, store, config, now_ms)
    options = CleaningOptions(now_ms=now_ms, force=True, tombstone_removal=True, unclean=True)
    return stage_partition(log_dir, store, RESOURCES, NAME, config, options, NoProgress())


def _by_the_daemon(log_dir: LogDir, store: StateStore, config: TopicConfig, now_ms: int) -> CleaningResult | None:
    facts: Mapping[str, object] = {"resources": lambda **_inside: RESOURCES}
    job = CleaningJob(
        name=NAME,
        path=log_dir.path,
        kind="stage",
        trigger="manual",
        scan=cast(
            "PartitionScan",
            SimpleNamespace(log_dir=log_dir, config=config, fingerprint_changed=False, size_bytes=1 << 20),
        ),
        facts=cast("BrokerFacts", SimpleNamespace(**facts)),
        socket=None,
        store=store,
        progress=cast("JobProgress", NoProgress()),
        started_ms=now_ms,
        threads=1,
        before=None,
        backoff=Backoff(1000, 8000),
        clock=Clock(wall=lambda: now_ms, steady=lambda: 0),
    )
    done = run_job.run(job)
    assert done.failed == "", done.failed
    return done.result


def apply(path: Path, config: TopicConfig, now_ms: int) -> CleaningResult:
    """``cleanerd apply``, between the broker's stop and its start."""
    store = StateStore(path.parent / f"{path.name}-state")
    with LogDirLock.acquire(path, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(path), lock, store, RESOURCES)
        return apply_partition(locked, NAME, config, CleaningOptions(now_ms=now_ms, force=True))


def is_stale(result: CleaningResult) -> bool:
    """Whether the plan was dropped because the log changed."""
    return isinstance(result.error, StalePlanError)
