"""The daemon and forgotten settings: a change of the compaction settings needs a confirmation (U-6, U-8)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import structlog
from structlog.testing import LogCapture

from cleanerd.daemon.status import log_messages
from cleanerd.daemon.work import run_job
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, PartitionState, StateStore
from tests.daemon.service import assignments, broker, control_requests, partition, serve, until
from tests.support.log_dirs import CLUSTER_ID, Partition, read_segments
from tests.support.logs import keyed_batch
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from cleanerd.daemon.service import Service

BY_HEADER = "strategy=header;header=version;encoding=long;tombstone.mode=null"
BY_TIMESTAMP = "strategy=timestamp;tombstone.mode=null"


def remember(root: Path, name: str, fingerprint: str) -> None:
    """Store a checkpoint at the start of the log, with these compaction settings."""
    log_dir = read_log_dir(root)
    (topic,) = [each for each in log_dir.partitions if str(each) == name]
    log = read_partition(log_dir, topic)
    point = CleanerdCheckpoint(log.log_start_offset, -1, fingerprint, LastSegment.of(log.segments[0]))
    StateStore(root.parent / "state").save(log_dir, log, PartitionState(point, None, None))


def delegate(root: Path, topic: str) -> None:
    """As ``cleanerd delegate`` stores it."""
    entry = {"cluster_id": CLUSTER_ID, "topic": topic, "topic_id": "", "delegated_ms": 1, "changes": {}}
    document = {"format": 1, "delegations": [entry]}
    (root.parent / "state" / "delegations.json").write_text(json.dumps(document))


def test_an_unconfirmed_change_of_settings_is_refused(root: Path) -> None:
    """U-6: the topic is refused, with the reason, and stays as it is; the others are cleaned."""
    with broker(root, {"orders-0": two_groups(), "stock-0": two_groups(), "good-0": two_groups()}):
        remember(root, "orders-0", BY_HEADER)
        delegate(root, "stock")
        before = {name: read_segments(root / name) for name in ("orders-0", "stock-0")}

        async def story(service: Service) -> None:
            await until("the good one is clean", lambda: service.view().totals.cleanings.get("cleaned") == 1)
            await until("all were scanned", lambda: all(p.reason for p in service.view().partitions))
            reported = partition(service.view(), "orders-0")
            assert reported.reason.startswith(
                "refused: orders was last cleaned by header:version; these settings say off"
            )
            assert reported.fingerprint_changed
            assert reported.phase == "refused"
            assert "refused: stock is delegated; these" in partition(service.view(), "stock-0").reason

        serve(assignments(root), story)
        for name in ("orders-0", "stock-0"):
            assert read_segments(root / name) == before[name]


def test_a_topic_with_the_values_of_delegate_is_refused_without_state(root: Path) -> None:
    """U-96: another state directory and a forgotten --config; what a scan shows and what a worker does."""
    with broker(root) as agent:
        agent.settings |= {"min.cleanable.dirty.ratio": "1.0", "max.compaction.lag.ms": str(2**63 - 1)}

        async def story(service: Service) -> None:
            await until("scanned", lambda: partition(service.view()).phase == "refused")
            assert "knows of no delegation; these settings say offset" in partition(service.view()).reason
            await control_requests(root)("trigger", partition="orders-0")
            await until("refused", lambda: service.view().totals.cleanings.get("refused") == 1)

        serve(assignments(root), story)
        assert not agent.requested("swap")


def test_a_strategy_in_the_settings_is_enough(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-6: a setting for the topic counts as intended; the log reports its cost before it takes effect."""
    # An already used logger keeps its configuration; a new one would use the configuration of another test.
    heard = LogCapture()
    for module in (run_job, log_messages):
        logger = structlog.wrap_logger(
            structlog.PrintLogger(), processors=[heard], wrapper_class=structlog.make_filtering_bound_logger(0)
        )
        # See above: loggers are made when modules are imported.
        monkeypatch.setattr(module, "_log", logger)
    later_is_older = {**two_groups().segments, 5: keyed_batch(5, [("a", "2"), ("b", "2"), ("a", "3")], timestamp=1)}
    with broker(root, {"orders-0": Partition(later_is_older), "stock-0": two_groups()}):
        remember(root, "orders-0", BY_TIMESTAMP)
        delegate(root, "stock")

        async def story(service: Service) -> None:
            await until("both are clean", lambda: service.view().totals.cleanings.get("cleaned") == 2)

        words = [f"topics.{topic}.compaction.strategy=offset" for topic in ("orders", "stock")]
        serve([*assignments(root), *words], story)
        events = [(each["event"], str(each.get("partition"))) for each in heard.entries]
        (line,) = [each for each in heard.entries if each["event"] == "strategy_changed"]
        assert "keys get another record by offset than by timestamp, the strategy of the last cleaning" in line["cost"]
        assert events.index(("strategy_changed", "orders-0")) < events.index(("cleaning_ended", "orders-0"))
