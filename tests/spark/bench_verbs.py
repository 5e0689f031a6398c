"""``make bench-verbs``: CPU seconds of Spark's commands on logs of several sizes, cold and warm.

Sizes in MB: ``BENCH_VERBS_MB`` (default 2.2,200); commands: ``BENCH_VERBS`` (default all); how: ``BENCH_VERBS_HOW``
(default cold,session,warm).

*cold* is a whole process, as a user starts it: CPU of all its processes, to the last one that it leaves. *session* is
the same with a requested session (``--conf``), with a heap of ``BENCH_VERBS_HEAP`` (1g). *warm* is the third call in a
session of two cores that has made two: CPU of Java and all Python workers. The least of ``BENCH_VERBS_ROUNDS`` (default
2) counts. Memory is the peak of all processes below the bench together, shared pages once.

``BENCH_VERBS_SKEW``: ``key``, half of all records are of one key; ``partition``, one of ten has 90 % of the bytes;
``many``, 40 of equal size; ``partition,key``: both.

``BENCH_VERBS_LIMIT_MIB``: runs every cold call in a new memory cgroup with this limit, on ``local[*]``. It needs root,
and fails if the kernel kills a process. ``--json`` prints the numbers alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from cleanerd.format.names import TopicPartition
from cleanerd_lab.bench.generate import PARTITION, VERSION_HEADER, make_log, write_broker_files
from tests.daemon.little_memory import Cgroup, cgroup
from tests.spark.bench import SHAPE, Family, descendants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

MB: Final = 1_000_000
MASTER: Final = "local[2]"
COMMANDS: Final = ("clean", "snapshot", "profile", "audit", "divergence")
STRATEGY: Final = f"header:{VERSION_HEADER}"
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "compaction.strategy": "header",
    "compaction.strategy.header": VERSION_HEADER,
}
CALLS_BEFORE: Final = 2
_PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(frozen=True)
class Spent:
    """One command on one log: seconds."""

    mb: float
    command: str
    how: str
    wall_seconds: float
    cpu_seconds: float
    mib: float


@dataclass(frozen=True)
class Scene:
    """A log directory, and a cleaned copy of it."""

    root: Path

    @property
    def before(self) -> Path:
        return self.root / "before" / "data"

    @property
    def after(self) -> Path:
        return self.root / "after" / "data"


def main() -> None:
    """Measure and print."""
    # we have to wait for processes that a command leaves running
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sizes = [float(text) for text in os.environ.get("BENCH_VERBS_MB", "2.2,200").split(",")]
    commands = os.environ.get("BENCH_VERBS", ",".join(COMMANDS)).split(",")
    root = Path(tempfile.mkdtemp(prefix="cleanerd-bench-", dir=os.environ.get("BENCH_SPARK_DIR")))
    found: list[Spent] = []
    try:
        for mb in sizes:
            scene = _made(root / str(mb), mb)
            for command in commands:
                for how, more in (("cold", []), ("session", ["--conf", f"spark.driver.memory={_heap()}"])):
                    if how not in _hows():
                        continue
                    found.append(_best([_cold(scene, mb, command, how, more) for _ in range(_rounds())]))
            if "warm" in _hows():
                found += _warm(scene, mb, commands)
            shutil.rmtree(scene.root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if "--json" in sys.argv:
        print(json.dumps([asdict(each) for each in found], indent=1))  # noqa: T201
        return
    print(f"{SHAPE.label}; seconds")  # noqa: T201
    print(f"{'MB':>8}  {'verb':12}{'how':10}{'wall':>8}{'CPU':>8}{'MiB':>8}")  # noqa: T201
    for each in found:
        line = f"{each.mb:>8g}  {each.command:12}{each.how:10}{each.wall_seconds:>8.1f}{each.cpu_seconds:>8.1f}"
        line += f"{each.mib:>8.0f}"
        print(line)  # noqa: T201


def _hows() -> list[str]:
    return os.environ.get("BENCH_VERBS_HOW", "cold,session,warm").split(",")


def _heap() -> str:
    return os.environ.get("BENCH_VERBS_HEAP", "1g")


class Memory:
    """The peak of all processes below this one together, in MiB."""

    def __init__(self) -> None:
        self.most = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            self.most = max(self.most, sum(map(_proportional_kib, descendants())) / 1024)


def _proportional_kib(pid: int) -> int:
    try:
        text = Path("/proc", str(pid), "smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def _rounds() -> int:
    return int(os.environ.get("BENCH_VERBS_ROUNDS", "2"))


def _best(rounds: Sequence[Spent]) -> Spent:
    return min(rounds, key=lambda each: each.cpu_seconds)


def _made(root: Path, mb: float) -> Scene:
    scene = Scene(root)
    skew = os.environ.get("BENCH_VERBS_SKEW", "").split(",")
    uneven = {"partition": [0.9, *[0.1 / 9] * 9], "many": [1 / 40] * 40}
    shares = next((uneven[each] for each in skew if each in uneven), [1.0])
    ends = {}
    for number, share in enumerate(shares):
        size_bytes = int(share * mb * MB)
        place = scene.before if number == 0 else root / "more"
        shape = replace(SHAPE, hot=0.5) if "key" in skew else SHAPE
        made = make_log(place, shape, unpacked_bytes=size_bytes,
                        segment_bytes=min(max(size_bytes // 8, 1 << 20), 1 << 30))  # fmt: skip
        name = TopicPartition(PARTITION.topic, number)
        ends[name] = made.end_offset
        if number:
            made.partition_dir.rename(scene.before / str(name))
            shutil.rmtree(place)
    write_broker_files(scene.before, ends)
    shutil.copytree(scene.before, scene.after, copy_function=shutil.copy2)
    subprocess.run(_command(scene, "clean", str(scene.after), "--force", "--from-start", "--yes"), check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return scene


def _command(scene: Scene, *arguments: str) -> list[str]:
    messages = [word for each in _printed(scene, SETTINGS) for word in ("--set", each)]
    return [sys.executable, "-m", "cleanerd", *arguments, "--quiet", *messages]


def _printed(scene: Scene, keys: Iterable[str]) -> list[str]:
    """Settings, with ``keys`` of the topic."""
    topic = [f"topics.{PARTITION.topic}.{key}={SETTINGS[key]}" for key in keys]
    ours = {"state.dir": scene.root / "state", "disk.reserve": 0, "delegation": "assumed"}
    return [*(f"cleanerd.{key}={value}" for key, value in ours.items()), *topic]


def _arguments(scene: Scene, command: str) -> list[str]:
    before, after = str(scene.before), str(scene.after)
    return {
        "clean": ["clean", before, "--force", "--from-start"],
        "snapshot": ["snapshot", before, "--out", str(scene.root / "state.parquet")],
        "profile": ["profile", before],
        "audit": ["audit", before, after],
        "divergence": ["divergence", before, after],
    }[command]


def _tidy(scene: Scene) -> None:
    shutil.rmtree(scene.root / "state.parquet", ignore_errors=True)
    shutil.rmtree(scene.before / str(PARTITION) / ".kstage", ignore_errors=True)


def _cold(scene: Scene, mb: float, subcommand: str, how: str, more: Sequence[str]) -> Spent:
    spent, started = _children_cpu(), time.monotonic()
    limit_mib = int(os.environ.get("BENCH_VERBS_LIMIT_MIB", "0"))
    master = "local[*]" if limit_mib else MASTER
    command = _command(scene, "spark", *_arguments(scene, subcommand), "--json", "--master", master, *more)
    with (
        cgroup(limit_mib << 20) if limit_mib else contextlib.nullcontext(Cgroup(Path(), 0)) as group,
        Memory() as memory,
    ):
        assert group.version or not limit_mib, "this process may not create a memory cgroup"
        command = [*group.prefix, *command]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        wall = time.monotonic() - started
        assert (done.returncode, group.kills()) == (0, 0), done.stderr
        for _ in _orphans():
            pass
    _tidy(scene)
    return Spent(mb, subcommand, how, wall, _children_cpu() - spent, memory.most)


def _orphans() -> Iterator[int]:
    """Wait for the processes that a command has left running."""
    while True:
        try:
            yield os.waitpid(-1, 0)[0]
        except ChildProcessError:
            return


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _warm(scene: Scene, mb: float, commands: Sequence[str]) -> list[Spent]:
    """In a new process, which measures itself."""
    command = [sys.executable, "-m", "tests.spark.bench_verbs", "--session", str(scene.root), *commands]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    return [Spent(mb, subcommand, "warm", *each) for subcommand, *each in report]


def in_session(scene: Scene, commands: Sequence[str]) -> list[tuple[str, float, float, float]]:
    """All commands, after some calls, in a session as a notebook has one."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "OPENBLAS_NUM_THREADS": "1"}
    builder = SparkSession.builder.master(MASTER)
    for key, value in {
        "spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.driver.memory": _heap(),
        "spark.ui.showConsoleProgress": "false",
    }.items():  # fmt: skip
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    reported = []
    for command in commands:
        for _ in range(CALLS_BEFORE):
            _called(session, scene, command)
        rounds = []
        for _ in range(_rounds()):
            family = Family()
            before, started = family.cpu_seconds(), time.monotonic()
            with Memory() as memory:
                _called(session, scene, command)
            rounds.append((family.cpu_seconds() - before, time.monotonic() - started, memory.most))
            family.close()
        cpu, wall, mib = min(rounds)
        reported.append((command, wall, cpu, mib))
    session.stop()
    return reported


def _called(session: Any, scene: Scene, command: str) -> None:
    from cleanerd.spark.notebook import Logs  # noqa: PLC0415

    strategies = {PARTITION.topic: STRATEGY}
    logs, after = Logs(session, scene.before, strategies), Logs(session, scene.after, strategies)
    calls: Mapping[str, Callable[[], object]] = {
        "clean": lambda: logs.stage(_printed(scene, ("cleanup.policy",)), force=True, from_start=True),
        "snapshot": lambda: logs.latest().write_parquet(scene.root / "state.parquet"),
        "profile": logs.profile,
        "audit": lambda: after.audit(scene.before, clean_below=after.found()[0].segments[-1].base),
        "divergence": lambda: logs.compare_replicas(scene.after),
    }
    calls[command]()
    _tidy(scene)


if __name__ == "__main__":
    if "--session" in sys.argv:
        place, *requested = sys.argv[sys.argv.index("--session") + 1 :]
        print(json.dumps(in_session(Scene(Path(place)), requested)))  # noqa: T201
    else:
        main()
