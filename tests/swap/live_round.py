"""Helpers for the live tests: a log directory, a stand-in for the agent, and a cleaning beside it."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from cleanerd.broker.live_broker import RetryPolicy
from cleanerd.resolution.partitions import LivePartitions
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.live_swap import LiveDir
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_live
from cleanerd.swap.session import LockedDir
from cleanerd.swap.swapping_broker import SWAP_SOURCES, SwappingBroker, SwapSources
from cleanerd.swap.undo import UndoResult, entries_of, undo_cleaning
from tests.cleaner.driver import NAME, Silent, clean, resources
from tests.support.fake_agent import FakeAgent
from tests.support.log_dirs import CLEAN_SHUTDOWN, Partition, make_log_dir, read_segments
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import TOPIC, force, two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.cleaner import Progress
    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.swap.backup import BackupPlace

QUICK = RetryPolicy(
    plans=4,
    tries=4,
    first_wait_seconds=0.01,
    longest_wait_seconds=0.02,
    lost_seconds=0.3,
    deletion_seconds=0.3,
    connect_seconds=PATIENCE_SECONDS,
    answer_seconds=PATIENCE_SECONDS,
    swap_seconds=PATIENCE_SECONDS,
)


@contextmanager
def running(root: Path, partition: Partition | None = None) -> Iterator[FakeAgent]:
    """A log directory whose lock is held, as by a broker, with an agent beside it."""
    make_log_dir(root, {NAME: partition or two_groups()})
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    with held(root), FakeAgent(root, root / ".cleanerd-agent.sock") as agent:
        yield agent


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Another process holds ``.lock``, so every lock attempt of this process fails, too."""
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        yield
    finally:
        os.close(descriptor)


def clean_beside(
    agent: FakeAgent,
    options: CleaningOptions | None = None,
    topic: TopicConfig = TOPIC,
    *,
    patience: RetryPolicy = QUICK,
    with_resources: Resources | None = None,
    keep: BackupPlace | None = None,
    sources: SwapSources = SWAP_SOURCES,
    progress: Progress | None = None,
    broker_type: type[SwappingBroker] = SwappingBroker,
) -> CleaningResult:
    """Clean once."""
    root = agent.log_dir
    log_dir = read_log_dir(root)
    with broker_type(agent.socket_path, patience, sources) as broker:
        facts = cast("BrokerFacts", SimpleNamespace(topic_config=lambda *_: topic))
        store = StateStore(root.parent / "state")
        read = LivePartitions(log_dir, facts, broker).read
        live = LiveDir(log_dir, store, with_resources or resources(), broker, read, keep)
        return clean_live(live, log_dir.partitions[0], options or force(), progress or Silent())


def content(root: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record of the partition."""
    batches = (batch for found in read_segments(root / NAME).values() for batch in found)
    return [(record.offset, record.key, record.value) for batch in batches for record in batch.records]


def leftovers(root: Path) -> list[str]:
    """Names that must not remain."""
    return sorted(
        path.name
        for path in (root / NAME).rglob("*")
        if path.name.endswith((".kstage", ".swap", ".cleaned", ".tmp", "manifest.json"))
    )


def cleaned_offline(root: Path, partition: Partition | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """The result of an offline cleaning of the same log."""
    offline = root.parent / "offline"
    make_log_dir(offline, {NAME: partition or two_groups()})
    assert clean(offline, force(), TOPIC, state=root.parent / "offline-state").outcome == "cleaned"
    return content(offline)


@contextmanager
def stopped(root: Path) -> Iterator[LockedDir]:
    """A broker that stopped cleanly."""
    (root / CLEAN_SHUTDOWN).touch()
    with LogDirLock.acquire(root, settle_seconds=0) as lock:
        yield LockedDir(read_log_dir(root), lock, StateStore(root.parent / "state"), resources())


def undo_offline(root: Path) -> UndoResult:
    kept_segments = KeptSegments(root.parent / "state")
    with stopped(root) as locked:
        return undo_cleaning(locked, kept_segments, entries_of(kept_segments, locked.log_dir)[0])
