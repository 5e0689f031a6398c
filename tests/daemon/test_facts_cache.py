"""Inputs of scans: the broker's configuration, read again when it changed, and staged cleanings on the disk."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.admin.peers import Peers
from cleanerd.cleaner.staged_plan import staged_plan
from cleanerd.config.load import load_settings
from cleanerd.daemon.discovery.facts_cache import FactsCache
from cleanerd.daemon.discovery.log_dir_scan import ScanContext
from cleanerd.errors import CleanerdError
from cleanerd.resolution.zk_config_cache import QUERY_INTERVAL_MS
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.daemon.serving import serving
from tests.daemon.views import log_dir as log_dir_view
from tests.daemon.views import partition, view
from tests.segments.metadata_logs import ID1
from tests.segments.replica_records import NO_OP, T0, log_of
from tests.segments.replica_records import partition as partition_record
from tests.support.format_bytes import topic
from tests.support.log_dirs import CLUSTER_ID, make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path


def settings(tmp_path: Path, *more: str) -> Any:
    return load_settings([], [f"cleanerd.state.dir={tmp_path / 'state'}", *more], {})


def scanned(tmp_path: Path, *more: str) -> ScanContext:
    return ScanContext(settings(tmp_path, *more), (tmp_path / "logs",), StateStore(tmp_path / "state"))


def test_facts_are_read_again_when_a_file_changed(tmp_path: Path) -> None:
    """SIGHUP is not needed for a change of the topic's or the broker's configuration."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    properties = tmp_path / "server.properties"
    properties.write_text("log.cleaner.delete.retention.ms=5\n")
    known = scanned(tmp_path, f"cleanerd.broker.properties={properties}", "topics.*.cleanup.policy=compact")
    log_dir, cache = read_log_dir(root), FactsCache()
    first = cache.get(known, log_dir, running=False)
    assert cache.get(known, log_dir, running=False) is first
    properties.write_text("log.cleaner.delete.retention.ms=50\n")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (facts := cache.get(known, log_dir, running=False)) is first:
        assert time.monotonic() < deadline, "the interval of reading depends on the cost of reading"
    assert facts.topic_config("orders").delete_retention_ms == 50


def test_a_broker_in_zookeeper_mode_is_queried_again(tmp_path: Path) -> None:
    """U-40: no file shows a change there, so it is queried at intervals while the broker runs; KRaft has its files."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    known, now = scanned(tmp_path), [1000.0]

    def is_kept(*, running: bool) -> bool:
        cache, log_dir = FactsCache(share=0, clock=lambda: now[0]), read_log_dir(root)
        first = cache.get(known, log_dir, running=running)
        assert cache.get(known, log_dir, running=running) is first
        now[0] += QUERY_INTERVAL_MS / 1000
        return cache.get(known, log_dir, running=running) is first

    assert is_kept(running=True)
    (root / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=a\n")
    assert not is_kept(running=True)
    assert is_kept(running=False)


def test_the_last_metadata_are_used_while_the_log_cannot_be_read(tmp_path: Path) -> None:
    """A metadata log that is damaged for a moment stops no cleaning, and is reported."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    properties = tmp_path / "server.properties"
    properties.write_text("a=1\n")
    known = scanned(tmp_path, f"cleanerd.broker.properties={properties}")
    log_dir, cache = read_log_dir(root), FactsCache(share=0)
    first = cache.get(known, log_dir, running=False)
    properties.unlink()
    assert cache.get(known, log_dir, running=False) is first
    assert "the last known one stays in use" in cache.warnings[0]
    with pytest.raises(CleanerdError, match="cannot be read"):
        FactsCache().get(known, log_dir, running=False)
    properties.write_text("a=1\n")
    assert cache.get(known, log_dir, running=False) is not first
    assert cache.warnings == ()


def test_a_file_that_became_readable(tmp_path: Path) -> None:
    """U-6: the file with the delegations got another owner or mode; its bytes and its time did not change."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    known, log_dir, cache = scanned(tmp_path), read_log_dir(root), FactsCache()
    report = tmp_path / "state" / "delegations.json"
    report.parent.mkdir()
    report.write_text("[]")
    first = cache.get(known, log_dir, running=False)
    assert cache.get(known, log_dir, running=False) is first
    time.sleep(0.02)
    report.chmod(0o600)
    assert cache.get(known, log_dir, running=False) is not first


def test_a_damaged_file_that_was_removed(tmp_path: Path) -> None:
    """U-6: the delegated topics were unknown until then; the broker is stopped, and nothing else changes."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    known, log_dir, cache = scanned(tmp_path), read_log_dir(root), FactsCache()
    aside = tmp_path / "state" / "delegations.damaged"
    aside.parent.mkdir()
    aside.write_text("[]")
    assert cache.get(known, log_dir, running=False).saved_unread is not None
    aside.unlink()
    assert cache.get(known, log_dir, running=False).saved_unread is None


def test_rubbish_in_a_staging_directory_is_not_a_staged_cleaning(tmp_path: Path) -> None:
    plan = tmp_path / ".kstage" / "20260101t000000-00000000"
    assert staged_plan(tmp_path) is None
    plan.mkdir(parents=True)
    assert staged_plan(tmp_path) is None
    (plan / "ready.json").write_text("{}")
    assert staged_plan(tmp_path) is None
    (plan / "manifest.json").write_text("{")
    assert staged_plan(tmp_path) is None


def test_the_checkpoints_of_other_brokers(tmp_path: Path) -> None:
    """U-79: newer ones are used although no file has changed; the bound of the topic's tombstones contains them."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    created = topic("orders", ID1), partition_record(ID1, 0, [1, 2], [1, 2])
    log_of(root / "__cluster_metadata-0", (0, created), (90, (NO_OP,)))
    shown = partition("orders", 0, first_dirty_offset=4)
    directory = log_dir_view(shown.log_dir, node_id=2, cluster_id=CLUSTER_ID)
    now, log_dir = [0.0], read_log_dir(root)
    with serving(view(partitions=(shown,), log_dirs=(directory,))) as served:
        known = scanned(tmp_path, f"cleanerd.cluster.peers=1=127.0.0.1:1,2=127.0.0.1:{served.port}")
        cache = FactsCache(peers=Peers(clock=lambda: now[0]))

        def waits_for() -> tuple[int, ...]:
            replicas = cache.get(known, log_dir, running=False).topic_config("orders").replicas
            assert replicas is not None
            peers: tuple[int, ...] = replicas.bound(0, T0 + 100 * 60_000, first_dirty_offset=5).peers
            return peers

        assert waits_for() == (2,)
        served.stage.shown = view(partitions=(replace(shown, first_dirty_offset=5),), log_dirs=(directory,))
        assert waits_for() == (2,)
        now[0] = 60.0
        assert waits_for() == ()
