"""cleanerd.daemon.discovery.scan_threads: stored data of a partition are removed with it, and not before."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.discovery.log_dir_scan import DirMode, LogDirScan
from cleanerd.daemon.discovery.scan_threads import KEPT_SECONDS, StateSweeper
from cleanerd.format.names import TopicPartition
from cleanerd.resolution.broker_facts import BrokerFacts
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.metadata_image import ClusterMetadata
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import PartitionState, StateStore
from tests.daemon.process import Daemon
from tests.daemon.service import assignments, broker
from tests.support.log_dirs import Partition, make_log_dir, with_directory_id
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [TopicPartition("orders", number) for number in range(3)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_log_dir(tmp_path / "logs", {str(name): Partition({0: b""}) for name in NAMES})
    log_dir, store = read_log_dir(root), StateStore(tmp_path / "state")
    for name in NAMES:
        store.save(log_dir, read_partition(log_dir, name), PartitionState(None, None, None))
    return root


def remembered(root: Path) -> int:
    return len(list((root.parent / "state" / "partitions").rglob("*.json")))


NO_TOPICS = ClusterMetadata({}, {}, {}, {}, {}, {}, as_of=1, as_of_ms=1)


def scan(
    root: Path,
    *present: TopicPartition,
    work: str = "live",
    log_dirs: tuple[Path, ...] = (),
    metadata: ClusterMetadata | None = NO_TOPICS,
) -> LogDirScan:
    mode = DirMode("live", "", work)  # type: ignore[arg-type]
    facts = BrokerFacts(metadata, None, None, load_settings([], [], {}), log_dirs=log_dirs)
    return LogDirScan(root, online=True, error="", mode=mode, choice=None, facts=facts, total_bytes=0, free_bytes=0,
                   present=frozenset(present))  # fmt: skip


def test_a_missing_partition_starts_a_sweep(root: Path) -> None:
    """After the first scan, and when a partition is missing: not at every scan, and no sooner than that."""
    store, sweeper = StateStore(root.parent / "state"), StateSweeper(0.0)
    shutil.rmtree(root / "orders-0")
    sweeper.after(scan(root, *NAMES[1:]), store)
    assert remembered(root) == 2
    shutil.rmtree(root / "orders-1")
    sweeper.after(scan(root, *NAMES[1:]), store)
    assert remembered(root) == 2, "it is not missing yet"
    sweeper.after(scan(root, NAMES[2]), store)
    assert remembered(root) == 1


def test_a_scan_that_failed_shows_nothing_missing(root: Path) -> None:
    """A disk that is unavailable has lost no partition; neither has a topic whose policy is no longer compact."""
    store, sweeper = StateStore(root.parent / "state"), StateSweeper(0.0)
    sweeper.after(scan(root, *NAMES), store)
    sweeper.after(replace(scan(root), present=None, error="away"), store)
    sweeper.after(scan(root), store)
    assert remembered(root) == 3, "their directories exist"
    root.rename(root.with_name("away"))
    sweeper.after(scan(root), store)
    assert remembered(root) == 3


def test_observe_mode_removes_nothing(root: Path) -> None:
    shutil.rmtree(root / "orders-0")
    StateSweeper(0.0).after(scan(root, *NAMES[1:], work="observe"), StateStore(root.parent / "state"))
    assert remembered(root) == 3


def test_sweeps_are_spaced_out(root: Path) -> None:
    """Topics that are deleted one after another are swept together; none is forgotten."""
    store, sweeper = StateStore(root.parent / "state"), StateSweeper(3600.0)
    sweeper.after(scan(root, *NAMES), store)
    shutil.rmtree(root / "orders-0")
    sweeper.after(scan(root, *NAMES[1:]), store)
    assert remembered(root) == 3
    sweeper._not_before.clear()
    sweeper.after(scan(root, *NAMES[1:]), store)
    assert remembered(root) == 2


def test_stored_settings_of_missing_topics_are_checked_again(root: Path) -> None:
    """U-6, S-51: the topic is deleted where its partition moved to, so no partition leaves this directory for it."""
    now = 1000.0
    store, sweeper = StateStore(root.parent / "state"), StateSweeper(0.0, clock=lambda: now)
    log_dir, other = read_log_dir(root), with_directory_id(make_log_dir(root.parent / "other", {}), uuid.UUID(int=1))
    store.require_rules(log_dir, read_partition(log_dir, NAMES[0]), "strategy=timestamp;tombstone.mode=null")
    seen = scan(root, *NAMES[1:], log_dirs=(root, other))
    (root / "orders-0").rename(other / "orders-0")
    sweeper.after(seen, store)
    assert remembered(root) == 3
    shutil.rmtree(other / "orders-0")
    sweeper.after(seen, store)
    assert remembered(root) == 3, "not at every scan"
    now += KEPT_SECONDS
    sweeper.after(seen, store, all_seen=False)
    assert remembered(root) == 3, "it may be on the unavailable disk"
    now += KEPT_SECONDS
    sweeper.after(seen, store)
    assert remembered(root) == 2
    sweeper.after(seen, store)
    assert sweeper._kept_until[root] == float("inf"), "and not after that"


def test_without_a_list_of_topics_none_is_missing(root: Path) -> None:
    """U-6: a live daemon needs no metadata log, and none was configured. The partition may be on another broker now.

    When it comes back, the settings of its last cleaning here decided which records were retained.
    """
    store = StateStore(root.parent / "state")
    log_dir = read_log_dir(root)
    store.require_rules(log_dir, read_partition(log_dir, NAMES[0]), "strategy=timestamp;tombstone.mode=null")
    for name in NAMES[:2]:
        shutil.rmtree(root / str(name))
    StateSweeper(0.0).after(scan(root, NAMES[2], log_dirs=(root,), metadata=None), store)
    assert remembered(root) == 2, "the other one is only known with Kafka's settings"
    StateSweeper(0.0).after(scan(root, NAMES[2], log_dirs=(root,)), store)
    assert remembered(root) == 1


def test_a_disk_that_is_unavailable_may_have_it(root: Path) -> None:
    """U-6: its partition moved to an unmounted disk, which also has the metadata log, so the topics are unknown."""
    now = 1000.0
    store, sweeper = StateStore(root.parent / "state"), StateSweeper(0.0, clock=lambda: now)
    log_dir, other = read_log_dir(root), with_directory_id(make_log_dir(root.parent / "other", {}), uuid.UUID(int=1))
    store.require_rules(log_dir, read_partition(log_dir, NAMES[0]), "strategy=timestamp;tombstone.mode=null")
    (root / "orders-0").rename(other / "orders-0")
    other.rename(root.parent / "away")
    for _ in range(2):
        seen = scan(root, *NAMES[1:], log_dirs=(root,))
        StateSweeper(0.0).after(seen, store, log_dirs=(root, other))
        assert remembered(root) == 3
        other.mkdir(exist_ok=True)  # the place of the missing mount
    other.rmdir()
    (root.parent / "away").rename(other)
    shutil.rmtree(other / "orders-0")
    sweeper.after(seen, store, log_dirs=(root, other))
    assert remembered(root) == 2


@pytest.mark.long
def test_the_daemon_sweeps(tmp_path: Path) -> None:
    """At its start, it sweeps topics that were deleted while it was stopped."""
    root = tmp_path / "logs"
    with broker(root, {"orders-0": two_groups(), "orders-1": two_groups()}):
        with Daemon(assignments(root), tmp_path) as daemon:
            daemon.until("clean", lambda view: view["totals"]["cleanings"].get("cleaned") == 2)
        assert remembered(root) == 2
        shutil.rmtree(root / "orders-1")
        with Daemon(assignments(root), tmp_path) as daemon:
            # It is ready after the first scan; stored data are swept after that.
            daemon.until("swept", lambda view: view["ready"] and remembered(root) == 1)
