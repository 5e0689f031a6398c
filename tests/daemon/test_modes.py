"""The daemon's behaviour in a log directory by mode: it observes, stages for the next start, or waits."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker.lock_file import is_held
from cleanerd.broker.mode import ModeChoice
from cleanerd.cli import main
from cleanerd.cli.status import headline
from cleanerd.config.load import load_settings
from cleanerd.daemon.discovery.log_dir_scan import OFFLINE_GRACE_MS, Configured, ScanContext, dir_mode
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.partition_scan import PartitionScan
from cleanerd.format.names import TopicPartition
from cleanerd.host.clock import Clock, steady_ms, wall_ms
from cleanerd.resolution.selection import why_excluded
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap import deferred_swap
from cleanerd.swap.files import PartitionFiles
from tests.daemon.service import COMPACT, SETTLES_SOON, assignments, broker, partition, rounds, serve, until
from tests.support.log_dirs import make_log_dir, write_checkpoint
from tests.swap.live_round import content, held
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service


def everything(root: Path) -> dict[str, tuple[int, ...]]:
    """Every name below, with size, inode and times, also of the directories, which any change would alter."""
    found = {}
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)
    return found


def choice(mode: str) -> ModeChoice:
    return ModeChoice(mode, f"because {mode}")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("configured", "found", "away_ms", "expected"),
    [
        ("auto", "live", 0, ("live", "live")),
        ("auto", "on-start", 0, ("on-start", "stage")),
        ("auto", "offline", OFFLINE_GRACE_MS, ("offline", "stage")),
        ("auto", "offline", OFFLINE_GRACE_MS - 1, ("offline", None)),
        ("live", "live", 0, ("live", "live")),
        ("live", "on-start", 0, ("live", None)),
        ("live", "offline", 10**9, ("live", None)),
        ("on-start", "live", 0, ("on-start", "stage")),
        ("on-start", "on-start", 0, ("on-start", "stage")),
        ("on-start", "offline", 10**9, ("offline", "stage")),
        ("observe", "live", 0, ("observe", "observe")),
        ("observe", "offline", 10**9, ("observe", "observe")),
    ],
)
def test_the_operations_of_a_mode(
    configured: Configured, found: str, away_ms: int, expected: tuple[str, str | None]
) -> None:
    """OP-6: a file that a broker may have open is never changed from outside, so it has no offline cleanings."""
    mode = dir_mode(configured, choice(found), away_ms)
    assert (mode.mode, mode.work) == expected
    assert f"because {found}" in mode.reason or configured == "on-start"


def test_which_topics_are_left_to_kafka() -> None:
    """U-11."""
    assert why_excluded("orders", ("*",), ()) == ""
    assert "include" in why_excluded("orders", ("pay*",), ())
    assert "exclude" in why_excluded("orders", ("*",), ("ord*",))
    assert why_excluded("__consumer_offsets", ("*", "__*"), ()) != "", "a glob does not match an internal topic"
    assert why_excluded("__consumer_offsets", ("__consumer_offsets",), ()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("running", ["agent", "no agent", "no broker"])
def test_observe_writes_nothing(root: Path, running: str) -> None:
    """Savings are exact, as a cleaning then achieves them; no byte, name or time changes below the log directory."""
    settings = assignments(root, cleanerd_mode="observe")
    saving = 0

    async def story(service: Service) -> None:
        nonlocal saving
        await until("ready", lambda: service.view().ready)
        before = everything(root)
        await until("worked out", lambda: all(p.reclaimable_exact for p in service.view().partitions))
        view = service.view()
        assert {p.mode for p in view.partitions} == {"observe"}
        assert partition(view).reason == "would be cleaned"
        saving = partition(view).reclaimable_bytes or 0
        service.registry.named("orders-0")[0].requested = True
        await rounds(service)
        assert everything(root) == before
        assert view.totals.cleanings == {}

    if running == "agent":
        with broker(root, 2):
            serve(settings, story)
            serve(assignments(root), lambda s: until("clean", lambda: len(s.view().history) == 2))
    else:
        make_log_dir(root, {f"orders-{n}": two_groups() for n in range(2)})
        if running == "no broker":
            serve([*settings, COMPACT], story)
            options = [option for each in [*assignments(root), COMPACT] for option in ("--set", each)]
            assert main.run(["clean", str(root), "--yes", *options]) == 0
        else:
            with held(root):
                serve([*settings, COMPACT], story, limits=SETTLES_SOON)
            return
    sizes = [os.path.getsize(path) for path in (root / "orders-0").glob("*.log")]
    assert sum(sizes) == sum(len(data) for data in two_groups().segments.values()) - saving
    assert saving > 0


def test_a_daemon_without_a_mode_observes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If only log directories are configured, nothing is cleaned; the start logs the mode and where it is from."""
    settings = [each for each in assignments(root) if not each.startswith("cleanerd.mode=")]

    async def story(service: Service) -> None:
        await until("ready", lambda: service.view().ready)
        before = everything(root)
        await until("worked out", lambda: all(p.reclaimable_exact for p in service.view().partitions))
        assert service.view().mode == "observe"
        assert everything(root) == before
        assert service.view().totals.cleanings == {}

    with broker(root, 1):
        serve(settings, story)
    assert "cleanerd.mode is observe (default)" in capsys.readouterr().err


@pytest.mark.slow
def test_on_start_stages_and_apply_swaps(root: Path) -> None:
    """OP-6, S-03: with a broker without an agent; the second of two readings is used; apply swaps it in."""
    make_log_dir(root, {"orders-0": two_groups()})
    before = content(root)

    async def story(service: Service) -> None:
        await until("staged", lambda: partition(service.view()).phase == "staged")
        view = service.view()
        assert view.totals.cleanings == {"staged": 1}
        assert partition(view).mode == "on-start"
        assert "without cleanerd's agent" in view.log_dirs[0].mode_reason
        await rounds(service)
        assert service.view().totals.cleanings == {"staged": 1}, "once is enough"
        assert content(root) == before

    with held(root):
        serve([*assignments(root), COMPACT], story, limits=SETTLES_SOON)
    options = [option for each in [*assignments(root), COMPACT] for option in ("--set", each)]
    assert main.run(["apply", str(root), *options]) == 0
    assert content(root) != before


def log_bytes(root: Path) -> int:
    return sum(each.stat().st_size for each in (root / "orders-0").glob("*.log"))


@pytest.mark.slow
def test_what_apply_swaps_in_counts_as_saved(root: Path) -> None:
    """OP-11: a daemon that runs on over the broker's restart shows it as saved, and no longer as staged."""
    make_log_dir(root, {"orders-0": two_groups()})
    before = log_bytes(root)
    settings = [*assignments(root), COMPACT]
    options = [option for each in settings for option in ("--set", each)]
    lock = ExitStack()

    async def story(service: Service) -> None:
        await until("staged", lambda: partition(service.view()).phase == "staged")
        view = service.view()
        saves = view.totals.staged_bytes
        assert (view.totals.bytes_before, saves > 0) == (0, True)
        shown = headline(view.to_json())
        assert "0 cleaned, 0 B saved, " in shown
        assert f", 1 staged, which saves {saves} B at the broker's next start" in shown
        lock.close()
        apply = await asyncio.create_subprocess_exec(sys.executable, "-m", "cleanerd", "apply", str(root), *options)
        assert await apply.wait() == 0
        await until("seen", lambda: service.view().totals.cleanings == {"staged": 1, "cleaned": 1})
        totals = service.view().totals
        assert totals.bytes_before - totals.bytes_after == saves == before - log_bytes(root)
        assert totals.staged_bytes == 0
        assert totals.removed_records["superseded"] > 0
        assert f"1 cleaned, {saves} B saved" in headline(service.view().to_json())
        assert "staged" not in headline(service.view().to_json())
        last = partition(service.view()).last_cleaning
        assert last is not None
        assert last.result["outcome"] == "cleaned"
        await rounds(service)
        assert service.view().totals.cleanings == {"staged": 1, "cleaned": 1}, "it counts once"

    with lock:
        lock.enter_context(held(root))
        serve(settings, story, limits=SETTLES_SOON)


@pytest.mark.long
def test_a_staged_cleaning_that_cannot_be_applied_does_not_occupy_the_disk(root: Path) -> None:
    """U-15: it is too old, and not staged again because the broker's own cleaner cleaned meanwhile."""
    make_log_dir(root, {"orders-0": two_groups()})

    async def story(service: Service) -> None:
        await until("staged", lambda: partition(service.view()).phase == "staged")
        write_checkpoint(root / "cleaner-offset-checkpoint", {"orders-0": 8})
        os.utime(root / "orders-0")
        await until("dropped", lambda: not list((root / "orders-0").glob(".kstage/*")))
        await until("reported", lambda: partition(service.view()).phase == "idle")
        assert partition(service.view()).quarantine is None

    with held(root):
        serve([*assignments(root, cleanerd_plan_max_age_ms="2000"), COMPACT], story, limits=SETTLES_SOON)


def test_nothing_is_staged_on_one_reading(root: Path) -> None:
    """S-03: a high watermark that is too high for a moment is not used."""
    make_log_dir(root, {"orders-0": two_groups()})

    async def story(service: Service) -> None:
        await until("scanned", lambda: partition(service.view()).first_uncleanable_offset is not None)
        await rounds(service)
        assert partition(service.view()).first_uncleanable_offset == 0
        assert not (root / "orders-0" / ".kstage").exists()

    with held(root):
        serve([*assignments(root), COMPACT], story, limits=DaemonLimits(settle_seconds=3600))


@pytest.mark.parametrize("second", ["reported", "everything"])
@pytest.mark.parametrize("between", ["nothing", "a scan that fails"])
def test_a_log_that_became_shorter_a_moment_ago(root: Path, second: str, between: str) -> None:
    """S-03: the broker has truncated it and not written its checkpoint since: two scans in a row are too close."""
    place = make_log_dir(root, {"orders-0": two_groups()}) / "orders-0"
    state = root.parent / "state"
    settings = load_settings([], [f"cleanerd.state.dir={state}", COMPACT], {})
    known, scanner = (
        ScanContext(settings, (root,), StateStore(state)),
        LogDirScanner(root, limits=DaemonLimits(settle_seconds=3600)),
    )

    def bound(*names: TopicPartition) -> int:
        found = scanner.scan(replace(known, only_due=True) if names else known, names or None).scans
        return next((scan.first_uncleanable_offset for scan in found if isinstance(scan, PartitionScan)), -1)

    def bound_a_while_later() -> int:
        """All that was seen until now is two hours old."""
        for seen in scanner._seen.values():
            seen.since -= 7200
        readings = scanner._readings
        latest, earlier = readings._latest, readings._earlier
        assert latest is not None
        readings._latest = latest[0] - 7200, latest[1]
        readings._earlier = readings._latest if earlier is latest else earlier
        return bound()

    with held(root):
        assert bound() == 0, "one reading"
        for number in range(2):
            (place / f"{number}.tmp").touch()
            assert bound_a_while_later() == 8
        if between == "a look that fails":
            (place / "leader-epoch-checkpoint").write_text("x")
            assert bound() == -1
            (place / "leader-epoch-checkpoint").unlink()
        for each in place.glob("00000000000000000008.*"):
            each.unlink()
        assert bound() == 0
        assert bound(*([TopicPartition("orders", 0)] if second == "reported" else [])) == 0, "by the same checkpoint"
        assert bound_a_while_later() == 5


def test_the_lock_is_never_acquired(root: Path) -> None:
    """A broker that starts while the lock is held dies; so without a broker the daemon stages, after a while."""
    make_log_dir(root, {"orders-0": two_groups()})
    passed_ms: list[int] = []
    clock = Clock(lambda: wall_ms() + sum(passed_ms), lambda: steady_ms() + sum(passed_ms))

    async def story(service: Service) -> None:
        taken = False

        def staged() -> bool:
            nonlocal taken
            taken = taken or is_held(root) or (root / ".lock").exists()
            return partition(service.view()).phase == "staged"

        await until("scanned", lambda: service.view().ready)
        assert "it may be about to start" in service.view().log_dirs[0].mode_reason
        passed_ms.append(OFFLINE_GRACE_MS)  # it is over
        await until("staged", staged)
        assert not taken
        assert partition(service.view()).mode == "offline"

    serve([*assignments(root), COMPACT], story, clock=clock)


def test_a_topic_of_a_strategy_is_refused_until_it_is_delegated(root: Path) -> None:
    """U-5, U-8: shown as undelegated, with what to do; not cleaned, not quarantined."""
    with broker(root) as agent:

        async def story(service: Service) -> None:
            await until("scanned", lambda: partition(service.view()).delegated is False)
            found = partition(service.view())
            assert found.strategy == "timestamp"
            assert found.fingerprint == "strategy=timestamp;tombstone.mode=null"
            assert "cleanerd delegate orders" in found.reason
            assert not agent.requested("swap")
            agent.settings |= {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(2**63 - 1)}
            (root / "orders-0" / "partition.metadata.tmp").touch()  # something happens there
            await until("it is seen", lambda: partition(service.view()).delegated is True)

        serve([*assignments(root), "topics.orders.compaction.strategy=timestamp"], story)


@pytest.mark.slow
def test_another_process_on_a_partition_is_not_a_failure(root: Path) -> None:
    """``cleanerd stage`` has the claim, or the broker's cleaner replaces the segments: a short pause, no alert."""
    make_log_dir(root, {"orders-0": two_groups()})

    async def story(service: Service) -> None:
        await until("tried", lambda: service.registry.named("orders-0")[0].hold.times > 0)
        assert partition(service.view()).quarantine is None
        assert "another cleanerd works on this partition" in service.registry.named("orders-0")[0].hold.reason

    with held(root), PartitionFiles(root / "orders-0") as files:
        files.claim()
        serve([*assignments(root), COMPACT], story, limits=SETTLES_SOON)


def test_a_log_that_changes_while_it_is_staged_is_not_a_failure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's own cleaner keeps running next to an on-start daemon."""
    make_log_dir(root, {"orders-0": two_groups()})
    validate = deferred_swap.validate_plan

    def changed(files: PartitionFiles, *arguments: Any, **more: Any) -> None:
        (segment, *_) = sorted((root / "orders-0").glob("*.log"))
        (root / "new").write_bytes(segment.read_bytes())
        (root / "new").rename(segment)
        validate(files, *arguments, **more)

    # The log has to change after it was staged and before the staged cleaning is validated.
    monkeypatch.setattr(deferred_swap, "validate_plan", changed)

    async def story(service: Service) -> None:
        await until("tried", lambda: service.registry.named("orders-0")[0].hold.times > 0)
        assert partition(service.view()).quarantine is None

    with held(root):
        serve([*assignments(root), COMPACT], story, limits=SETTLES_SOON)
