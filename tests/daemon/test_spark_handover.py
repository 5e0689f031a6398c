"""Partitions with many keys are handed over to Spark: which ones, how Spark is stopped, and what its outcome means."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.result import CleaningResult
from cleanerd.cli import main
from cleanerd.config.load import load_settings
from cleanerd.daemon.registry.pauses import NO_PAUSES, Pauses, save_pauses
from cleanerd.daemon.work.spark_offload import SparkOffload, spark_command
from cleanerd.errors import ConfigError
from cleanerd.format.names import TopicPartition
from cleanerd.host.clock import Clock, wall_ms
from tests.cleaner.driver import scratch
from tests.daemon.process import Daemon
from tests.daemon.service import (
    BY_THE_CLOCK,
    SETTLES_SOON,
    assignments,
    broker,
    is_clean,
    outcomes,
    partition,
    serve,
    until,
)
from tests.support.log_dirs import make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.live_round import content, held
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.work.job import CleaningJob

COMPACT = "topics.orders.cleanup.policy=compact"
KEYS = 4
"""``two_groups``: a, b, c, big."""


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


class Spark:
    """Replaces ``cleanerd spark clean``: a Python program that finds that command line in ``argv[1]``.

    ``instead``: a command that is run in its place.
    """

    def __init__(self, base: Path, program: str, require: Callable[[], object] = lambda: None) -> None:
        self.offload = SparkOffload(require, self._command)
        self.commands: list[list[str]] = []
        self.settings: list[Any] = []
        self.instead: list[str] = []
        self._program = f"import json, os, signal, sys, time\nbase = {str(base)!r}\n{program}"

    def _command(self, job: CleaningJob, settings: Path) -> list[str]:
        if self.instead:
            return self.instead
        command = spark_command(job, settings)
        self.commands.append(command)
        self.settings.append(load_settings([settings], [], {}))
        return [sys.executable, "-c", self._program, json.dumps(command)]


STAGES = """
words = json.loads(sys.argv[1])
words[words.index('spark'):words.index('clean') + 1] = ['stage']
at = words.index('--master')
del words[at:at + 2]
from cleanerd.cli import main
from cleanerd.resolution import checkpoint_pair
checkpoint_pair.SETTLE_SECONDS = 0.1
sys.exit(main.run(words[3:]))
"""
"""The local engine, with the same command line, which it has to accept."""

HANGS = """
import subprocess
stubborn = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)'
child = subprocess.Popen([sys.executable, '-c', stubborn], stdout=subprocess.PIPE)
child.stdout.readline()
open(base + '/pids', 'w').write(f'{os.getpid()} {child.pid}')
time.sleep(600)
"""


DAMAGED = json.dumps(
    {"partitions": [CleaningResult(TopicPartition("orders", 0), "/logs", "quarantined", "damaged").to_json()]}
)


def threshold(root: Path, keys: int | str = KEYS, **more: str) -> list[str]:
    return [*assignments(root, cleanerd_spark_threshold_keys=str(keys), **BY_THE_CLOCK, **more), COMPACT]


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_spark_uses_our_clock(root: Path) -> None:
    """A wall clock that jumped ahead is not trusted, but a separate process has only that one."""
    spark = Spark(root.parent, STAGES)
    make_log_dir(root, {"orders-0": two_groups()})
    clock = Clock(lambda: wall_ms() - 86_400_000)

    async def story(service: Service) -> None:
        await until("staged", lambda: outcomes(service.view()) == ["staged"])

    with held(root):
        serve(
            threshold(root, cleanerd_mode="on-start"),
            story,
            clock=clock,
            spark_offload=spark.offload,
            limits=SETTLES_SOON,
        )
    (command,) = spark.commands
    behind_ms = wall_ms() - int(command[command.index("--now-ms") + 1])
    assert 86_400_000 <= behind_ms < 2 * 86_400_000


@pytest.mark.long
@pytest.mark.parametrize(("keys", "handed"), [(KEYS, True), (KEYS + 1, False), (7, False), ("never", False)])
def test_partitions_from_the_key_limit_on_go_to_spark(root: Path, keys: int | str, handed: bool) -> None:
    """7 records of 4 keys: the limit is about keys. It is staged once, by either, and apply swaps it in."""
    spark = Spark(root.parent, STAGES)
    make_log_dir(root, {"orders-0": two_groups()})
    before = content(root)
    settings = threshold(root, keys, cleanerd_spark_master="local[3]", cleanerd_mode="on-start")

    async def story(service: Service) -> None:
        await until("staged", lambda: partition(service.view()).phase == "staged")
        assert outcomes(service.view()) == ["staged"]
        assert service.view().history[0].result["removed"]["superseded"] == 3
        assert service.view().warnings == ()

    with held(root):
        serve(settings, story, spark_offload=spark.offload, limits=SETTLES_SOON)
    assert len(spark.commands) == handed
    for command, reported in zip(spark.commands, spark.settings, strict=True):
        assert command[3:7] == ["spark", "clean", str(root), "--partition"]
        assert command[command.index("--master") + 1] == "local[3]"
        assert "--force" not in command
        assert reported.daemon.cleanerd_state_dir == root.parent / "state"
        assert reported.topic_overrides("orders").keys() == {"cleanup.policy", "cleanerd.tombstone.replicated"}
    options = [option for each in settings for option in ("--set", each)]
    assert main.run(["apply", str(root), *options]) == 0
    assert content(root) != before


@pytest.mark.long
@pytest.mark.parametrize("how", ["stop", "pause", "observe"])
def test_its_process_group_ends_with_the_cleaning(root: Path, how: str) -> None:
    """SIGTERM and a pause: all its child processes end soon, and no partition is blamed."""
    spark = Spark(root.parent, HANGS)
    make_log_dir(root, {"orders-0": two_groups()})
    pids = root.parent / "pids"
    settings = threshold(root)
    began = 0.0

    async def story(service: Service) -> None:
        nonlocal began
        await until("it runs", lambda: pids.exists() and len(pids.read_text().split()) == 2)
        assert all(lives(int(pid)) for pid in pids.read_text().split())
        began = time.monotonic()
        if how == "pause":
            service.registry.pause(None, paused=True)
            service.dispatcher.interrupt(lambda _: True)
        elif how == "observe":
            service.configuration.reread = lambda: load_settings([], [*settings, "cleanerd.mode=observe"], {})
            service.reload()
        if how != "stop":
            await until("it ended", lambda: not service.dispatcher.running)
            assert partition(service.view()).quarantine is None

    with held(root):
        serve(settings, story, spark_offload=spark.offload, limits=SETTLES_SOON)
    assert time.monotonic() - began < PATIENCE_SECONDS / 2  # it hangs indefinitely by itself
    while any(lives(int(pid)) for pid in pids.read_text().split()):  # a killed process takes a moment to disappear
        assert time.monotonic() - began < PATIENCE_SECONDS
        time.sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print('{}'); print('x.Y: 1\\ncleanerd: no room\\n  at Z', file=sys.stderr); sys.exit(1)", "code 1: no room"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "exit code -9: it printed nothing"),
        ("print(json.dumps({'partitions': []}))", "exit code 0"),
        (f"print({DAMAGED!r}); sys.exit(5)", "by Spark: damaged"),
    ],
)
def test_its_failure_is_a_failed_job(root: Path, program: str, reason: str) -> None:
    """OP-10: quarantined with its message, and with the usual back-off."""
    spark = Spark(root.parent, program)
    make_log_dir(root, {"orders-0": two_groups()})

    async def story(service: Service) -> None:
        await until("quarantined", lambda: partition(service.view()).phase == "quarantined")
        found = partition(service.view()).quarantine
        assert found is not None
        assert reason in found.reason
        assert found.retry_at_ms == found.since_ms + 60_000

    with held(root):
        serve(threshold(root), story, spark_offload=spark.offload, limits=SETTLES_SOON)
    assert len(spark.commands) == 1


@pytest.mark.long
@pytest.mark.parametrize("lacks", ["room for its files", "the program"])
def test_a_lack_of_resources_is_not_a_quarantine(root: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    """A full or missing /tmp, no more processes: the partition waits.

    It was quarantined, and a worker counted as dead.
    """
    spark = Spark(root.parent, STAGES)
    make_log_dir(root, {"orders-0": two_groups()})
    nowhere = root.parent / "nowhere"
    with monkeypatch.context() as lacking:
        if lacks == "the program":
            spark.instead = [str(nowhere)]
        else:
            # The directory for temporary files is a setting of the whole process, not a parameter.
            lacking.setattr(tempfile, "tempdir", str(nowhere))

        async def story(service: Service) -> None:
            await until("it failed", lambda: outcomes(service.view()) == ["failed"])
            found = partition(service.view())
            assert (found.quarantine, service.view().totals.dead_workers) == (None, 0)
            assert f"{nowhere}" in found.reason
            assert "cannot be offloaded to Spark: No such file or directory" in found.reason
            lacking.undo()
            spark.instead = []
            for entry in service.registry.partitions.values():
                entry.requested = True
            await until("staged", lambda: outcomes(service.view()) == ["failed", "staged"])

        with held(root):
            serve(threshold(root), story, spark_offload=spark.offload, limits=SETTLES_SOON)
    assert len(spark.commands) == 1


@pytest.mark.long
def test_a_bad_master_is_reported(root: Path) -> None:
    """By the command itself, as it starts; it reports this before it searches for Java."""
    make_log_dir(root, {"orders-0": two_groups()})

    async def story(service: Service) -> None:
        await until("quarantined", lambda: partition(service.view()).phase == "quarantined")
        found = partition(service.view()).quarantine
        assert found is not None
        assert "exit code 3: --master: 'nonsense' is not a Spark master" in found.reason

    with held(root):
        serve(threshold(root, cleanerd_spark_master="nonsense"), story, limits=SETTLES_SOON)


def test_without_spark_the_worker_stages(root: Path) -> None:
    """One warning, however many partitions; nothing is started, nothing fails."""
    make_log_dir(root, {f"orders-{n}": two_groups() for n in range(2)})

    def require() -> None:
        raise ConfigError("not installed: pyspark", hint="pip install 'cleanerd[spark]'")

    spark = Spark(root.parent, STAGES, require)

    async def story(service: Service) -> None:
        await until("staged", lambda: {each.phase for each in service.view().partitions} == {"staged"})
        await until("reported", lambda: len(service.view().warnings) == 1)
        assert "not installed: pyspark (pip install" in service.view().warnings[0]

    with held(root):
        serve(threshold(root), story, spark_offload=spark.offload, limits=SETTLES_SOON)
    assert spark.commands == []


def test_live_and_observe_hand_nothing_over(root: Path) -> None:
    """Spark can only stage for a start; the reason says that the partition is cleaned live nevertheless."""
    spark = Spark(root.parent, STAGES)
    reasons: list[str] = []

    async def observed(service: Service) -> None:
        await until("worked out", lambda: partition(service.view()).reclaimable_exact)
        assert partition(service.view()).reason == "would be cleaned"

    async def paused(service: Service) -> None:
        await until("shown", lambda: partition(service.view()).phase == "paused")
        reasons.append(partition(service.view()).reason)

    async def cleaned(service: Service) -> None:
        await until("clean", lambda: is_clean(service.view(), 8))
        assert "Spark" not in partition(service.view()).reason or service.dispatcher.running

    with broker(root):
        serve(threshold(root, 5, cleanerd_mode="observe"), observed, spark_offload=spark.offload, limits=SETTLES_SOON)
        for keys in (8, 9):
            save_pauses(root.parent / "state", Pauses(everything=True))
            serve(threshold(root, keys), paused, spark_offload=spark.offload, limits=SETTLES_SOON)
        save_pauses(root.parent / "state", NO_PAUSES)
        serve(threshold(root, 5), cleaned, spark_offload=spark.offload, limits=SETTLES_SOON)
    assert "cleanerd.spark.threshold.keys" in reasons[0]
    assert "swapped in live" in reasons[0]
    assert "Spark" not in reasons[1]
    assert spark.commands == []


@pytest.mark.long
def test_one_driver_at_a_time_and_forced_by_trigger(root: Path) -> None:
    """Drivers are large: with two workers the second waits. ``cleanerd trigger`` is ``--force``."""
    clash = "try: os.mkdir(base + '/one')\nexcept OSError: sys.exit('two at once')\ntime.sleep(0.5)\n"
    spark = Spark(root.parent, f"{clash}os.rmdir(base + '/one'){STAGES}")
    make_log_dir(root, {f"orders-{n}": two_groups() for n in range(2)})

    async def story(service: Service) -> None:
        await until("settled", lambda: [each.first_uncleanable_offset for each in service.view().partitions] == [8, 8])
        assert not service.dispatcher.running, "clean enough"
        for entry in service.registry.partitions.values():
            entry.requested = True
        await until("both", lambda: outcomes(service.view()) == ["staged", "staged"])

    with held(root):
        ratio = "topics.orders.min.cleanable.dirty.ratio=1"
        serve(
            [*threshold(root, 1, log_cleaner_threads="2"), ratio],
            story,
            spark_offload=spark.offload,
            limits=SETTLES_SOON,
        )
    assert len(spark.commands) == 2
    assert all("--force" in command for command in spark.commands)


@pytest.mark.long
def test_with_real_spark(root: Path) -> None:
    """From end to end: the daemon hands over, Spark stages, the broker stops, apply swaps.

    As the local engine would.
    """
    pytest.importorskip("pyspark")
    make_log_dir(root, {"orders-0": two_groups()})
    make_log_dir(root.parent / "other", {"orders-0": two_groups()})
    settings = threshold(root, cleanerd_spark_master="local[1]")
    with held(root), Daemon(settings, root.parent, {"SPARK_DRIVER_MEMORY": "512m"}) as daemon:
        view = daemon.until("staged", lambda view: view["totals"]["cleanings"].get("staged", 0) == 1)
        assert view["warnings"] == []
        assert daemon.end(signal.SIGTERM) == 143
        assert "event=offloaded_to_spark" in daemon.log.read_text()
    options = [option for each in settings for option in ("--set", each)]
    assert main.run(["apply", str(root), *options]) == 0
    local = [*assignments(root.parent / "other"), f"cleanerd.state.dir={root.parent}/state2", COMPACT]
    options = [option for each in local for option in ("--set", each)]
    assert main.run(["clean", str(root.parent / "other"), "--yes", "--force", *options]) == 0
    assert content(root) == content(root.parent / "other")
    assert not os.path.exists(root / "orders-0" / ".kstage")


@pytest.mark.long
def test_a_stop_ends_real_spark(root: Path) -> None:
    """Java is in a process group of its own; it ends with the daemon, and nothing is left."""
    pytest.importorskip("pyspark")
    make_log_dir(root, {"orders-0": two_groups()})
    settings = threshold(root, cleanerd_spark_master="local[1]")
    with held(root), Daemon(settings, root.parent, {"SPARK_DRIVER_MEMORY": "512m"}) as daemon:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (java := [pid for pid in descendants(daemon.process.pid) if "java" in program_of(pid)]):
            assert time.monotonic() < deadline, daemon.log.read_text()
            time.sleep(0.05)
        family = descendants(daemon.process.pid)
        assert daemon.end(signal.SIGTERM) == 143
        deadline = time.monotonic() + PATIENCE_SECONDS  # its shutdown hooks
        while any(lives(pid) for pid in {*family, *java}):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert not os.path.exists(root / "orders-0" / ".kstage")


def descendants(root: int) -> list[int]:
    """All processes that it started, and that these did."""
    found = [root]
    for pid in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    found += map(int, file.read().split())
    return found[1:]


def program_of(pid: int) -> str:
    """The name of the process's program, empty when it has ended."""
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read()
    except OSError:
        return ""
