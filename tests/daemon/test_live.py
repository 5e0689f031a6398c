"""The daemon with a broker that runs the agent: dirty partitions are cleaned, and the status shows them."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from inotify_simple import INotify

from cleanerd.daemon.discovery.watch import Watcher
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.work.run_job import run
from tests.daemon.service import assignments, broker, is_clean, outcomes, partition, rounds, serve, until
from tests.support.fake_agent import FakeAgent, refuse, wait
from tests.support.log_dirs import Partition, make_log_dir, write_checkpoint, write_partition, write_segment
from tests.swap.live_round import content, held, leftovers
from tests.swap.offline_round import batch, two_groups

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.work.job import CleaningJob, JobDone


def test_a_dirty_partition_is_cleaned_and_shown(root: Path) -> None:
    """OP-1: found, cleaned through the agent, stored, counted."""
    with broker(root, 3) as agent:
        before = content(root)

        async def story(service: Service) -> None:
            await until("all are clean", lambda: len(service.view().history) == 3)
            await until("it is seen", lambda: all(p.first_dirty_offset == 8 for p in service.view().partitions))
            view = service.view()
            assert view.ready
            assert view.healthy
            assert [p.phase for p in view.partitions] == ["idle"] * 3
            assert {p.mode for p in view.partitions} == {"live"}
            assert partition(view).reason.startswith("nothing to clean")
            assert partition(view).last_cleaning is not None
            assert view.totals.cleanings == {"cleaned": 3}
            assert view.totals.swaps == 6
            assert view.totals.removed_records["superseded"] == 9
            assert view.totals.bytes_read > 0 < view.totals.bytes_written
            assert view.log_dirs[0].agent is not None
            assert view.log_dirs[0].agent["version"] == "4.3.1"

        service = serve(assignments(root), story)
        assert outcomes(service.view()) == ["cleaned"] * 3
        assert len(content(root)) < len(before)
        assert len(agent.requested("swap")) == 6
        assert not leftovers(root)
        states = list((root.parent / "state" / "partitions").rglob("*.json"))
        assert len(states) == 3
        assert json.loads(states[0].read_text())["removal_known_below"] == 8


def test_one_bad_partition_stops_no_other(root: Path) -> None:
    """OP-10, invariant 7: a damaged segment is reported, the others are cleaned; once repaired it is cleaned too."""
    bad = Partition({0: batch(0, ("a", "1"), ("a", "2")), 2: batch(2, ("a", "3")), 3: b""})
    with broker(root, {"orders-0": two_groups(), "orders-1": bad, "orders-2": two_groups()}):
        log = root / "orders-1" / f"{0:020d}.log"
        sound = log.read_bytes()
        log.write_bytes(sound[:-5] + b"\xff\xff\xff\xff\xff")

        async def story(service: Service) -> None:
            await until("the others are clean", lambda: service.view().totals.cleanings.get("cleaned") == 2)
            await until("it is quarantined", lambda: partition(service.view(), "orders-1").phase == "quarantined")
            found = partition(service.view(), "orders-1").quarantine
            assert found is not None
            assert f"{0:020d}.log" in found.reason
            assert log.read_bytes() != sound, "damaged bytes are never rewritten"
            log.write_bytes(sound)
            await until("it is clean", lambda: is_clean(service.view(), 3, "orders-1"))
            assert partition(service.view(), "orders-1").quarantine is None

        serve(assignments(root, cleanerd_retry_backoff_ms="300"), story)


def test_a_quarantine_ends_when_its_segment_is_replaced(root: Path) -> None:
    """OP-10: whatever replaced it, and although the next try is far away; the state directory drops it as well."""
    bad = Partition({0: batch(0, ("a", "1"), ("a", "2")), 2: batch(2, ("a", "3")), 3: b""})
    with broker(root, {"orders-1": bad}):
        log = root / "orders-1" / f"{0:020d}.log"
        sound = log.read_bytes()
        log.write_bytes(sound[:-5] + b"\xff\xff\xff\xff\xff")

        async def story(service: Service) -> None:
            await until("it is quarantined", lambda: partition(service.view(), "orders-1").phase == "quarantined")
            (state,) = (root.parent / "state" / "partitions").rglob("*.json")
            assert json.loads(state.read_text())["quarantined_segment"]["base"] == 0
            new = log.with_name("new")
            new.write_bytes(sound)
            new.rename(log)
            await until("it is clean", lambda: is_clean(service.view(), 3, "orders-1"))
            await until("forgotten", lambda: json.loads(state.read_text())["quarantine"] is None)
            assert json.loads(state.read_text())["quarantined_segment"] is None

        serve(assignments(root, cleanerd_retry_backoff_ms="3600000"), story)


@pytest.mark.slow
def test_failures_back_off(root: Path) -> None:
    """Each wait twice as long as the one before, up to a maximum."""
    failures: list[tuple[int, int]] = []
    ended_ms: list[int] = []

    def noted(job: CleaningJob, *more: Any) -> JobDone:
        if job.before is not None:  # the registry's record of the earlier failure
            failures.append((job.before.failures, job.before.at_ms - ended_ms[-1]))
        done = run(job, *more)
        ended_ms.append(done.ended_ms)
        return done

    with broker(root) as agent:
        agent.fail("swap", *[refuse("bad_batch")] * 50)

        async def story(_service: Service) -> None:
            await until("four failures", lambda: len(failures) >= 4)

        serve(
            assignments(root, cleanerd_retry_backoff_ms="100", cleanerd_retry_backoff_max_ms="300",
                        log_cleaner_backoff_ms="50"), story, run_job=noted
        )  # fmt: skip
    assert [number for number, _ in failures[:4]] == [1, 2, 3, 4]
    for (_, wait_ms), expected in zip(failures[:4], (100, 200, 300, 300), strict=True):
        assert expected <= wait_ms + 5 <= expected + 100


def test_a_busy_partition_is_not_a_failure(root: Path) -> None:
    """A partition that is busy is tried again later, without quarantine."""
    with broker(root) as agent:
        agent.fail("log", *[wait(0.0)] * 2)
        agent.info["accepting_swaps"] = True
        agent.fail("swap", refuse("busy"), refuse("no_evidence"), refuse("log_changed"))

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            assert partition(service.view()).quarantine is None
            # Each refusal counts, whatever the outcome of the cleaning; the agent's request to send data again does
            # not.
            assert service.view().totals.refused_swaps == 2

        serve(assignments(root), story)


def test_a_worker_that_dies_is_replaced_and_counted(root: Path) -> None:
    """A bug in one cleaning: its partition is quarantined, and the number of workers stays the same."""

    def breaks(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind == "live" and job.name.partition == 0:
            raise ZeroDivisionError("a bug")
        return run(job, *more)

    with broker(root, 3):

        async def story(service: Service) -> None:
            await until("the others are clean", lambda: service.view().totals.cleanings.get("cleaned") == 2)
            await until("it is quarantined", lambda: partition(service.view()).phase == "quarantined")
            found = partition(service.view()).quarantine
            assert found is not None
            assert found.reason == "unexpected error: ZeroDivisionError: a bug"
            totals = service.view().totals
            assert (totals.dead_workers, totals.worker_restarts) == (1, 1)
            assert service.dispatcher.workers.alive == service.dispatcher.workers.size == 1

        serve(assignments(root), story, run_job=breaks)


@pytest.mark.slow
def test_the_broker_stops_and_starts_again(tmp_path: Path) -> None:
    """The daemon is not restarted: it waits for the broker, and continues when the broker is back."""
    root = tmp_path / "logs"
    make_log_dir(root, {"orders-0": two_groups()}, clean_shutdown=False)

    async def story(service: Service) -> None:
        await until("ready", lambda: service.view().ready)
        assert service.view().log_dirs[0].mode == "live"
        assert "no broker runs on it" in service.view().log_dirs[0].mode_reason
        before = content(root)
        await rounds(service)
        assert content(root) == before
        with held(root):
            await until("no agent", lambda: "without cleanerd's agent" in service.view().log_dirs[0].mode_reason)
            with FakeAgent(root, root / ".cleanerd-agent.sock"):
                await until("clean", lambda: is_clean(service.view(), 8))
                assert content(root) != before

    serve([*assignments(root, cleanerd_mode="live"), "topics.orders.cleanup.policy=compact"], story)


@pytest.mark.slow
def test_a_daemon_stays_ready_during_a_reload(root: Path) -> None:
    """Otherwise an orchestrator would restart the sidecar, and an alert would fire; all is scanned again."""
    with broker(root, 2):

        async def story(service: Service) -> None:
            await until("clean", lambda: service.view().totals.cleanings.get("cleaned") == 2)
            rounds = service.view().last_scan_ms
            service.reload()
            readiness: list[bool] = []

            def scanned() -> bool:
                readiness.append(service.view().ready)
                return service.view().last_scan_ms != rounds

            # The backoff is an hour: only the reload starts a full scan.
            await until("everything was scanned", scanned)
            assert set(readiness) == {True}
            assert service.view().settings_generation == 2

        serve(assignments(root, log_cleaner_backoff_ms="3600000"), story)


@pytest.mark.long
def test_a_new_partition_is_noticed_at_once(root: Path) -> None:
    """By inotify, not only after log.cleaner.backoff.ms; a deleted partition is forgotten."""
    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            write_partition(root / "orders-1", two_groups())
            offsets = {"orders-0": 8, "orders-1": 8}
            write_checkpoint(root / "replication-offset-checkpoint", offsets)
            write_checkpoint(root / "recovery-point-offset-checkpoint", offsets)
            await until("it is clean", lambda: is_clean(service.view(), 8, "orders-1"))
            shutil.rmtree(root / "orders-1")
            await until("it is forgotten", lambda: len(service.view().partitions) == 1)

        serve(assignments(root, log_cleaner_backoff_ms="3600000"), story)


@pytest.mark.long
def test_a_partition_that_was_created_again_is_watched_again(root: Path) -> None:
    """Its directory is a new one without a watch, as after a log directory was mounted again."""
    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            shutil.rmtree(root / "orders-0")
            write_partition(root / "orders-0", two_groups())
            await asyncio.sleep(3)
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                write_checkpoint(root / name, {"orders-0": 9})
            write_segment(root / "orders-0", 9, b"")
            await until("it is seen", lambda: partition(service.view()).first_uncleanable_offset == 9)

        serve(assignments(root, log_cleaner_backoff_ms="3600000"), story)


def test_too_few_watches_are_reported(root: Path) -> None:
    """fs.inotify.max_user_watches: the daemon continues, and reports what to raise."""

    class Full(INotify):  # type: ignore[misc]
        def add_watch(self, *_: Any) -> Any:
            raise OSError(errno.ENOSPC, "No space left on device")

    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            await until("reported", lambda: "max_user_watches" in " ".join(service.view().warnings))

        serve(assignments(root), story, watcher=partial(Watcher, make=Full))


def test_without_inotify_polling_is_enough(root: Path) -> None:
    """Polling is the truth."""

    def none_left() -> INotify:
        raise OSError(errno.EMFILE, "Too many open files")

    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            assert "inotify" in " ".join(service.view().warnings)
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                write_checkpoint(root / name, {"orders-0": 9})
            write_segment(root / "orders-0", 9, b"")
            await until("it is seen", lambda: partition(service.view()).first_uncleanable_offset == 9)

        serve(assignments(root), story, watcher=partial(Watcher, make=none_left))


def test_topics_that_settings_leave_to_kafka(root: Path) -> None:
    """U-11: internal topics only by their own names; exclude overrides include."""
    names = ("__consumer_offsets-0", "tmp-a-0", "orders-0", "__transaction_state-0")
    with broker(root, {name: two_groups() for name in names}):

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            await until("cleaned", lambda: len(service.view().history) == 2)
            phases = {each.name: each.phase for each in service.view().partitions}
            assert phases["tmp-a-0"] == phases["__transaction_state-0"] == "excluded"
            assert {clean.topic for clean in service.view().history} == {"orders", "__consumer_offsets"}
            assert "cleanerd.topics.include" in partition(service.view(), "__transaction_state-0").reason

        serve(assignments(root, cleanerd_topics_include="*,__consumer_offsets", cleanerd_topics_exclude="tmp-*"), story)


def test_outside_of_the_windows_only_requests_start(root: Path) -> None:
    now = datetime.now().astimezone()
    closed = f"{now + timedelta(hours=3):%H}:00-{now + timedelta(hours=4):%H}:00"
    with broker(root, 2):

        async def story(service: Service) -> None:
            await until("queued", lambda: {p.phase for p in service.view().partitions} == {"queued"})
            assert not service.view().window_open
            service.registry.named("orders-1")[0].requested = True
            await until("one is clean", lambda: is_clean(service.view(), 8, "orders-1"))
            assert partition(service.view()).phase == "queued"

        serve(assignments(root, cleanerd_windows=closed), story)


def test_the_disk_reserve_is_kept(root: Path) -> None:
    """U-16: nothing starts on a disk without space to spare; this is not a failure of a partition."""
    with broker(root) as agent:

        async def story(service: Service) -> None:
            await until("ready", lambda: service.view().ready)
            await rounds(service)
            found = service.view().log_dirs[0]
            assert found.free_bytes < found.reserve_bytes
            assert partition(service.view()).quarantine is None
            assert not agent.requested("swap")

        serve(assignments(root, cleanerd_disk_reserve="100TiB"), story)


def test_a_damaged_state_directory_costs_work_only(root: Path) -> None:
    """Set aside with a warning; the daemon continues."""
    with broker(root):

        async def cleans(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))

        async def continues(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            assert any("damaged" in warning for warning in service.view().warnings)

        serve(assignments(root), cleans)
        (state,) = (root.parent / "state" / "partitions").rglob("*.json")
        state.write_text("{")
        serve(assignments(root), continues)


def test_leftovers_of_a_killed_daemon_are_removed(root: Path) -> None:
    """A staging directory without a running owner, although nothing is dirty any more."""
    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: is_clean(service.view(), 8))
            plan = root / "orders-0" / ".kstage" / "20260101t000000-0000abcd"
            plan.mkdir(parents=True)
            (plan / "plan.json").write_text("{}")
            await until("it is deleted", lambda: not (root / "orders-0" / ".kstage").exists())
            assert content(root)

        serve(assignments(root), story)


@pytest.mark.long
def test_a_broker_that_hangs_costs_one_wait_per_scan(root: Path) -> None:
    """Not one wait for each of its partitions; nothing is quarantined, and all continues when the broker answers."""
    with broker(root, 20) as agent:
        agent.fail("log", *[wait(0.6)] * 6)

        async def story(service: Service) -> None:
            await until("all are clean", lambda: service.view().totals.cleanings.get("cleaned") == 20)
            assert not [p for p in service.view().partitions if p.quarantine is not None]

        serve(assignments(root), story, limits=DaemonLimits(agent_seconds=0.3))


def test_the_http_server_is_started_and_stopped(root: Path) -> None:
    """The calls to ``cleanerd.daemon.http.server``: it gets the snapshot and explain, listens, and is stopped."""
    seen: list[str] = []

    class Shows:
        address = "http://localhost:1/"

        def __init__(self, listen: str, view: Any, explain: Any, **_more: Any) -> None:
            seen.append(listen)
            self.view, self.explain = view, explain

        async def start(self) -> None:
            seen.append(f"start, {len(self.view().partitions)} partitions")

        async def stop(self) -> None:
            seen.append((await self.explain("orders-0"))["topic"])

    with broker(root):
        reported = [each for each in assignments(root) if not each.startswith("cleanerd.http")]
        serve(
            [*reported, "cleanerd.http.listen=127.0.0.1:1"],
            lambda s: until("ready", lambda: s.view().ready),
            http=Shows,
        )
    assert seen == ["127.0.0.1:1", "start, 0 partitions", "orders"]
