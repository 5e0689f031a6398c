"""Nothing is repeated without effect: what a cleaning could not change, or could not store."""

from __future__ import annotations

import errno
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.staged_plan import StagedPlan
from cleanerd.daemon.registry.partition_entry import HOLD_BACKOFF, RESTAGE_AFTER_MS, PartitionEntry
from cleanerd.daemon.registry.partition_registry import PartitionRegistry, RegistrySettings
from cleanerd.daemon.status.view_parts import partition_view
from cleanerd.daemon.work.job import Backoff
from cleanerd.errors import LogDirBusyError, RefusedError
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.daemon.registries import (
    CLEAN,
    DAY_MS,
    NOW,
    dir_scan,
    done,
    entry_of,
    job_on,
    partition_scan,
    registry_with,
    result,
    triggers,
)
from tests.daemon.service import BY_THE_CLOCK, SETTLES_SOON, assignments, broker, partition, rounds, serve, until
from tests.support.log_dirs import Partition, make_log_dir, write_checkpoint, write_segment
from tests.support.logs import Record, encode_batch
from tests.swap.live_round import held

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service


def read_only_state(root: Path) -> StateStore:
    """The state directory of ``root``: it has the compaction settings of the topic, and is read-only."""

    class ReadOnly(StateStore):
        def in_place(self, *_args: Any) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        def recheck(self) -> None:
            """Each scan checks whether the disk is writable again, and this disk would be."""

    log_dir = read_log_dir(root)
    log = read_partition(log_dir, log_dir.partitions[0])
    StateStore(root.parent / "state").require_rules(log_dir, log, "strategy=timestamp;tombstone.mode=null")
    return ReadOnly(root.parent / "state")


def horizon_without_tombstone() -> Partition:
    """Cleaned by Kafka: the tombstone is gone, the horizon stays in the header of its batch."""
    past_ms = time.time_ns() // 1_000_000 - 1000
    return Partition({0: encode_batch([Record(b"a", b"1", past_ms)], delete_horizon=past_ms), 1: b""}, cleaner_offset=1)


def test_a_horizon_without_tombstones_is_read_once_with_a_broker(root: Path) -> None:
    """R534-6: staging changes no log and no state, so the state directory still shows that the removal is due.

    D-16: nothing is tried before two readings of the high watermark agree.
    """
    make_log_dir(root, {"orders-0": horizon_without_tombstone()})

    async def story(service: Service) -> None:
        await until("decided", lambda: service.view().totals.cleanings.get("unchanged", 0) >= 1)
        await rounds(service, 3)
        assert service.view().totals.cleanings == {"unchanged": 1}
        assert partition(service.view()).next_purge_ms is None

    with held(root):
        serve([*assignments(root, **BY_THE_CLOCK), "topics.orders.cleanup.policy=compact"], story, limits=SETTLES_SOON)


@pytest.mark.slow
def test_a_tombstone_removal_that_cannot_be_stored_is_done_once(root: Path) -> None:
    """The state directory became read-only and still shows that the removal is due."""
    with broker(root, {"orders-0": horizon_without_tombstone()}):
        saved: list[Any] = []

        class Once(StateStore):
            def save(self, *state: Any) -> None:
                saved.append(state)
                if len(saved) == 1:
                    super().save(*state)

        async def story(service: Service) -> None:
            await until("tombstones removed", lambda: sum(service.view().totals.cleanings.values()) >= 1)
            await rounds(service, 3)
            assert sum(service.view().totals.cleanings.values()) == 1

        serve(assignments(root, **BY_THE_CLOCK), story, store=Once(root.parent / "state"))


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_causes_no_busy_loop(root: Path) -> None:
    """U-10: Kafka's checkpoint is unused for a versioned topic, so it always looks dirty; it is cleaned with pauses."""
    with broker(root) as agent:
        store = read_only_state(root)
        agent.settings |= {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(2**63 - 1)}

        async def story(service: Service) -> None:
            await until("cleaned", lambda: sum(service.view().totals.cleanings.values()) >= 2)
            await rounds(service, 3)
            view = service.view()
            assert sum(view.totals.cleanings.values()) == 2
            assert "cannot be stored" in partition(view).reason
            await until("reported", lambda: any("cannot be written" in warning for warning in service.view().warnings))

        serve([*assignments(root), "topics.orders.compaction.strategy=timestamp"], story, store=store)


def test_new_records_are_cleaned_at_once_without_a_state_directory(root: Path) -> None:
    """The pause between repeated cleanings does not apply to new records."""
    with broker(root) as agent:
        store = read_only_state(root)
        agent.settings |= {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(2**63 - 1)}

        async def story(service: Service) -> None:
            hour_long = Backoff(3_600_000, 3_600_000)
            service.registry.settings = replace(service.registry.settings, hold=hour_long)
            await until("it is held", lambda: "cannot be stored" in partition(service.view()).reason)
            cleanings = sum(service.view().totals.cleanings.values())
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                write_checkpoint(root / name, {"orders-0": 9})
            write_segment(root / "orders-0", 9, b"")
            await until("it is cleaned", lambda: sum(service.view().totals.cleanings.values()) > cleanings)

        serve([*assignments(root), "topics.orders.compaction.strategy=timestamp"], story, store=store)


def test_horizons_are_not_read_while_a_worker_has_the_partition(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted and created again while it was cleaned: two jobs of one name would leave it "cleaning" indefinitely."""
    make_log_dir(root, {"orders-0": horizon_without_tombstone()})

    async def story(service: Service) -> None:
        await until("scanned", lambda: partition(service.view()).first_dirty_offset is not None)
        running, stale = service.dispatcher.running, service.registry.stale
        await until("no job has it", lambda: not running and not stale)
        begun: list[object] = []
        # A second job would show only among the started jobs.
        monkeypatch.setattr(service.dispatcher, "_begin", lambda entry, *_args, **_more: begun.append(entry.key))
        (entry,) = service.registry.partitions.values()
        service.registry.partitions[entry.key] = PartitionEntry(entry.name, entry.path, scan=entry.scan)
        service.dispatcher.schedule()
        assert begun == [entry.key]
        assert entry.scan is not None
        service.dispatcher.running[entry.key] = job_on(entry.scan)
        service.dispatcher.schedule()
        del service.dispatcher.running[entry.key]
        assert begun == [entry.key]

    serve([*assignments(root, log_cleaner_threads="2"), "topics.orders.cleanup.policy=compact"], story)


def test_a_refusal_of_old_formats_is_tried_at_growing_intervals() -> None:
    """U-18: a v0 log with a running broker is indexed and decided before the refusal is known."""
    registry = PartitionRegistry(RegistrySettings(Backoff(1000, 3_600_000), 7 * DAY_MS, 100))
    registry.merge(dir_scan(partition_scan()), NOW)
    for _ in range(14):
        done(registry, result=result("skipped", reason="v0", error=RefusedError("v0")))
    assert triggers(registry, NOW + 3_599_999) == []
    assert triggers(registry, NOW + 3_600_000) == ["ratio"]
    busy = PartitionRegistry(RegistrySettings(Backoff(1000, 3_600_000), 7 * DAY_MS, 100))
    busy.merge(dir_scan(partition_scan()), NOW)
    for _ in range(12):
        done(busy, result=result("skipped", reason="busy", error=LogDirBusyError("busy")))
    assert triggers(busy, NOW + HOLD_BACKOFF.longest_ms) == ["ratio"]


def test_tombstones_of_a_staged_partition_are_removed_once() -> None:
    """The removal stays due; only the staged cleaning keeps it from being staged again."""
    due = partition_scan(**CLEAN, removal_known=True, next_purge_ms=NOW - 5)
    registry = registry_with(due, work="stage")
    assert triggers(registry) == ["tombstone_removal"]
    done(registry, kind="stage", result=result("staged", next_purge_ms=NOW + DAY_MS))
    registry.merge(dir_scan(replace(due, staged=StagedPlan(20, NOW)), work="stage"), NOW)
    assert triggers(registry) == []
    assert partition_view(registry, entry_of(registry)).next_purge_ms == NOW - 5
    registry.merge(dir_scan(due, work="stage"), NOW)
    assert triggers(registry, NOW + RESTAGE_AFTER_MS) == ["tombstone_removal"]
