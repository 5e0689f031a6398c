"""Idle partitions: expired tombstones are removed although nothing new is written, which Kafka never does."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, clean, config
from tests.daemon.service import BY_THE_CLOCK, assignments, broker, now_ms, partition, serve, until
from tests.support.fake_agent import wait_for
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, keyed_batch
from tests.swap.live_round import content

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.view import DaemonView


def with_tombstone(age_ms: int = 1000) -> Partition:
    stamp = now_ms() - age_ms
    return Partition({
        0: keyed_batch(0, (("a", "1"), ("b", "1")), timestamp=stamp),
        2: keyed_batch(2, (("a", None), ("c", "1")), timestamp=stamp),
        4: b"",
    })  # fmt: skip


def keys(root: Path) -> list[bytes | None]:
    return [key for _, key, _ in content(root)]


@pytest.mark.slow
def test_tombstones_are_removed_in_time_from_an_idle_partition(root: Path) -> None:
    """R534-6: scheduled, done, and not tried again."""
    seen = threading.Event()
    with broker(root, {"orders-0": with_tombstone()}) as agent:
        agent.settings |= {"delete.retention.ms": "2500", "file.delete.delay.ms": "100"}
        # The removal's swap waits, however late the test reads the earlier state.
        agent.fail("swap", lambda _agent, _request: None, wait_for(seen))

        def is_known(view: DaemonView) -> bool:
            return len(view.history) == 1 and partition(view).next_purge_ms is not None

        async def story(service: Service) -> None:
            await until("cleaned", lambda: is_known(service.view()))
            due_ms = partition(service.view()).next_purge_ms
            assert due_ms is not None
            clean = partition(service.view()).last_cleaning
            assert clean is not None
            assert clean.started_ms + 2500 <= due_ms <= clean.ended_ms + 2500
            assert partition(service.view()).first_dirty_offset == 4
            assert keys(root) == [b"b", b"a", b"c"]
            seen.set()
            await until("tombstones removed", lambda: len(service.view().history) == 2)
            last = service.view().history[0]
            assert last.trigger == "tombstone_removal"
            assert last.started_ms >= due_ms
            assert last.result["removed"]["tombstone"] == 1
            assert keys(root) == [b"b", b"c"]
            await until("nothing left", lambda: partition(service.view()).next_purge_ms is None)

        serve(assignments(root, **BY_THE_CLOCK), story)


def test_the_next_tombstone_removal_outlives_the_daemon(root: Path) -> None:
    """R534-6: the time is in the partition's state file, so a restart does not forget it."""
    with broker(root, {"orders-0": with_tombstone()}) as agent:
        agent.settings["delete.retention.ms"] = "3600000"
        due: list[int | None] = []

        async def story(service: Service) -> None:
            await until("known", lambda: partition(service.view()).next_purge_ms is not None)
            due.append(partition(service.view()).next_purge_ms)

        serve(assignments(root), story)
        serve(assignments(root), story)
        assert due[0] == due[1]


@pytest.mark.parametrize("passed", [True, False])
def test_horizons_are_read_after_a_cleaning_by_the_broker(root: Path, passed: bool) -> None:
    """Kafka's checkpoint says that it is clean; the batch headers have the delete horizons of its tombstones."""
    horizon = now_ms() + (-1000 if passed else 3_600_000)
    held = encode_batch([Record(b"a", None, horizon - 1000)], delete_horizon=horizon)
    log = Partition({0: held, 1: b""}, cleaner_offset=1)
    with broker(root, {"orders-0": log}):

        async def story(service: Service) -> None:
            if passed:
                await until("tombstones removed", lambda: len(service.view().history) == 1)
                assert service.view().history[0].trigger == "tombstone_removal"
                assert keys(root) == []
            else:
                await until("known", lambda: partition(service.view()).next_purge_ms == horizon)
                assert service.view().history == ()

        serve(assignments(root, **BY_THE_CLOCK), story)


def test_a_tombstone_removal_reads_no_keys(root: Path) -> None:
    """``CleaningOptions.tombstone_removal``: only the clean section is cleaned, with an empty offset map."""
    make_log_dir(root, {NAME: with_tombstone()})
    topic = config(delete_retention_ms=1000)
    start = now_ms()
    first = clean(root, CleaningOptions(start, force=True), topic)
    assert first.next_purge_ms == start + 1000
    idle = clean(root, CleaningOptions(start + 1000), topic)
    assert idle.outcome == "skipped"
    cleaned = clean(root, CleaningOptions(start + 1000, tombstone_removal=True), topic)
    assert (cleaned.outcome, cleaned.removed.tombstone, cleaned.map_utilization) == ("cleaned", 1, 0.0)
    assert cleaned.next_purge_ms is None
    assert clean(root, CleaningOptions(start + 999, tombstone_removal=True), topic).removed.total == 0
