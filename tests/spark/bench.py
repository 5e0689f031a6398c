"""``make bench-spark``: the cost of a cleaning by Spark, compared with the local engine, on logs of several sizes.

Sizes in GiB: ``BENCH_SPARK_GIB`` (default 0.5,1,2,4), cores: ``BENCH_SPARK_CORES`` (default 1,2). There is one session
for each number of cores. Its start is not counted, and neither is Java's compilation: the session is warmed up several
times with a log of its own.

Every log is cleaned ``BENCH_SPARK_ROUNDS`` (default 3) times, all sizes in turn, and the round with the least CPU
counts. CPU is that of Java and all Python workers. Wall time means little on a shared machine. Memory: the largest
Python worker, and Java, over all rounds. ``--json`` prints the numbers alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cleanerd.cleaner.manifest import STAGING
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.round import stage_partition
from cleanerd_lab.bench.generate import PARTITION, VERSION_HEADER, LogShape, make_log
from tests.cleaner.driver import Silent, config, resources

if TYPE_CHECKING:
    from cleanerd.cleaner.result import CleaningResult

GIB: Final = 1 << 30
SHAPE: Final = LogShape(
    "spark", "128 B records, 64 a batch, 50 % superseded, random versions", 128, 64, 0.5, versions=True
)
TOPIC: Final = config("bench", compaction_strategy="header", compaction_strategy_header=VERSION_HEADER)
RESOURCES: Final = resources(map_bytes=128 << 20, chunk_bytes=4 << 20)
NOW_MS: Final = 1_900_000_000_000
WARM_UP_ROUNDS: Final = 5
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """One run. ``cores`` 0: the local engine, one thread."""

    gib: float
    cores: int
    records: int
    shards: int
    wall_seconds: float
    cpu_seconds: float
    java_cpu_seconds: float
    worker_mib: float
    java_mib: float
    shuffle_bytes: int
    phases: dict[str, float]


class Family:
    """Watches all processes below this one: CPU of those that live and of those that ended, largest memory."""

    def __init__(self) -> None:
        self.largest = {"java": 0.0, "python": 0.0}  # MiB
        self._seen: dict[int, tuple[str, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def cpu_seconds(self, kind: str | None = None) -> float:
        """CPU seconds so far, of all processes or of one kind."""
        self._scan()
        own = sum(os.times()[:2]) if kind != "java" else 0.0
        return own + sum(spent for name, spent in self._seen.values() if kind in (None, name))

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._scan()

    def _scan(self) -> None:
        stats = _stats()
        for pid in _below(stats):
            name, fields = stats.get(pid, ("", []))
            if not fields:
                continue
            kind = "java" if name == "java" else "python"
            self._seen[pid] = (kind, (int(fields[11]) + int(fields[12])) / TICKS)
            self.largest[kind] = max(self.largest[kind], int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20))


def _stats() -> dict[int, tuple[str, list[str]]]:
    """By process: its name, and the other fields of ``/proc/PID/stat``."""
    stats = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                head, rest = Path("/proc", name, "stat").read_text().rsplit(")", 1)
            except OSError:
                continue
            stats[int(name)] = (head.split("(", 1)[1], rest.split())
    return stats


def _below(stats: dict[int, tuple[str, list[str]]]) -> set[int]:
    below = {os.getpid()}
    for pid in sorted(stats, key=lambda pid: int(stats[pid][1][19])):
        if int(stats[pid][1][1]) in below:
            below.add(pid)
    return below - {os.getpid()}


def descendants() -> set[int]:
    """The processes below this one."""
    return _below(_stats())


def shuffled_bytes(session: Any) -> int:
    """The bytes that all stages so far wrote into shuffles."""
    store = session.sparkContext._jsc.sc().statusStore()
    java = session.sparkContext._jvm
    stages = store.stageList(
        java.java.util.ArrayList(),
        False,
        False,
        session.sparkContext._gateway.new_array(java.double, 0),
        java.java.util.ArrayList(),
    )
    return sum(stages.apply(row).shuffleWriteBytes() for row in range(stages.size()))


def stage(log_dir: Path, stager: Any) -> CleaningResult:
    """Stage a cleaning, and remove it."""
    options = CleaningOptions(now_ms=NOW_MS, force=True, from_start=True)
    store = StateStore(log_dir.parent / "state")
    result: CleaningResult = stager(read_log_dir(log_dir), store, RESOURCES, PARTITION, TOPIC, options, Silent())
    assert result.outcome == "staged", result.reason
    shutil.rmtree(log_dir / str(PARTITION) / STAGING)
    return result


def measure_local(log_dir: Path, gib: float) -> Measured:
    """The local engine, as ``cleanerd stage`` uses it."""
    before, started = sum(os.times()[:2]), time.monotonic()
    result = stage(log_dir, stage_partition)
    wall, cpu = time.monotonic() - started, sum(os.times()[:2]) - before
    return Measured(gib, 0, result.records_read, result.passes, wall, cpu, 0.0, 0.0, 0.0, 0, result.seconds)


def measure_spark(cores: int, logs: dict[float, Path], warm_up: Path, answers: Any) -> None:
    """All logs in one session, in a new process."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from cleanerd.spark.clean import spark_stage_partition  # noqa: PLC0415
    from cleanerd.spark.session import REQUIRED  # noqa: PLC0415

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "OPENBLAS_NUM_THREADS": "1"}
    builder = SparkSession.builder.master(f"local[{cores},4]")
    for key, value in {
        **REQUIRED,
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": os.environ.get("BENCH_SPARK_HEAP", "512m"),
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()

    def by_spark(*arguments: Any) -> CleaningResult:
        return spark_stage_partition(session, *arguments, alone_bytes=0)

    for _ in range(WARM_UP_ROUNDS):
        stage(warm_up, by_spark)
    for _ in range(_rounds()):
        for gib, log_dir in logs.items():
            family = Family()
            shuffled = _reported(shuffled_bytes, session)
            before, java = family.cpu_seconds(), family.cpu_seconds("java")
            started = time.monotonic()
            result = stage(log_dir, by_spark)
            wall = time.monotonic() - started
            cpu, java = family.cpu_seconds() - before, family.cpu_seconds("java") - java
            family.close()
            answers.put(
                Measured(
                    gib,
                    cores,
                    result.records_read,
                    result.passes,
                    wall,
                    cpu,
                    java,
                    family.largest["python"],
                    family.largest["java"],
                    _reported(shuffled_bytes, session) - shuffled,
                    result.seconds,
                )
            )
    session.stop()
    answers.put(None)


def _rounds() -> int:
    return int(os.environ.get("BENCH_SPARK_ROUNDS", "3"))


def _best(rounds: list[Measured]) -> Measured:
    """The round with the least CPU, and the largest memory of all of them."""
    best = min(rounds, key=lambda each: each.cpu_seconds)
    memory = {name: max(getattr(each, name) for each in rounds) for name in ("worker_mib", "java_mib")}
    return replace(best, **memory)


def _reported(question: Any, session: Any) -> int:
    """Spark's own metrics, as far as this release keeps them in that place."""
    try:
        return int(question(session))
    except Exception:  # noqa: BLE001 - an internal class of Spark's: without it a column stays empty
        return 0


def main() -> None:
    """Measure and print."""
    sizes = [float(text) for text in os.environ.get("BENCH_SPARK_GIB", "0.5,1,2,4").split(",")]
    cores = [int(text) for text in os.environ.get("BENCH_SPARK_CORES", "1,2").split(",")]
    root = Path(tempfile.mkdtemp(prefix="cleanerd-bench-", dir=os.environ.get("BENCH_SPARK_DIR")))
    found = []
    try:
        warm_up = make_log(root / "warm" / "logs", SHAPE, unpacked_bytes=64 << 20, segment_bytes=8 << 20).log_dir
        logs = {}
        for gib in sizes:
            made = make_log(
                root / str(gib) / "logs",
                SHAPE,
                unpacked_bytes=int(gib * GIB),
                segment_bytes=min(int(gib * GIB / 8), GIB),
            )
            logs[gib] = made.log_dir
            found.append(_best([measure_local(made.log_dir, gib) for _ in range(_rounds())]))
        for count in cores:
            spawn = multiprocessing.get_context("spawn")
            answers = spawn.Queue()
            process = spawn.Process(target=measure_spark, args=(count, logs, warm_up, answers))
            process.start()
            rounds = defaultdict(list)
            while (answer := answers.get()) is not None:
                rounds[answer.gib].append(answer)
            process.join()
            found += [_best(rounds[gib]) for gib in sizes]
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if "--json" in sys.argv:
        print(json.dumps([asdict(each) for each in found], indent=1))  # noqa: T201
        return
    _print(found)


def _print(found: list[Measured]) -> None:
    print(f"{SHAPE.label}; CPU in seconds, cost in CPU ns a record, shuffle in bytes a record")  # noqa: T201
    head = ("GiB", "who", "records", "shards", "wall", "CPU", "ns/record", "java", "shuffle", "worker MiB", "java MiB")
    print("".join(f"{title:>12}" for title in head))  # noqa: T201
    for each in found:
        who = f"local[{each.cores}]" if each.cores else "stage"
        row = (
            f"{each.gib:g}",
            who,
            f"{each.records:,}",
            str(each.shards),
            f"{each.wall_seconds:.1f}",
            f"{each.cpu_seconds:.1f}",
            f"{1e9 * each.cpu_seconds / each.records:.0f}",
            f"{each.java_cpu_seconds:.1f}",
            f"{each.shuffle_bytes / each.records:.1f}",
            f"{each.worker_mib:.0f}",
            f"{each.java_mib:.0f}",
        )
        print("".join(f"{value:>12}" for value in row))  # noqa: T201


if __name__ == "__main__":
    main()
