"""SIGKILL of Spark during a cleaning in place: driver, executors, Python workers, or several of them.

``cleanerd spark clean`` on a standalone cluster of two workers; most kills come while staging files are written. After
each kill the log is unchanged, whatever remains of the staging. ``cleanerd apply`` swaps in exactly the completely
staged groups. The next run succeeds, the log equals the cleaned one byte for byte, and no files are left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.manifest import STAGING
from cleanerd_lab.bench.generate import PARTITION, LogShape, make_log
from cleanerd_lab.demo.ports import free_port
from tests.spark.cluster import Cluster, children, started_cluster
from tests.spark.sessions import ON_A_CLUSTER
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.loader_rules import Segments, as_loaded, leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MIB: Final = 1 << 20
SIZE_BYTES: Final = 96 * MIB
"""More than a driver cleans by itself."""
SHAPE: Final = LogShape("kills", "128 B, random keys", 128, 64, 0.5)
NOW_MS: Final = 1_900_000_000_000
VICTIMS: Final = ("driver", "executor", "driver and executors", "driver's Java", "executors", "Python workers")
WHILE_STAGED: Final = "while files are staged"


@dataclass
class SparkField:
    """A log, the result of its cleaning, and a cluster to clean it repeatedly."""

    cluster: Cluster
    work: Path
    dice: random.Random = field(default_factory=lambda: random.Random(0))
    moments: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        made = make_log(self.work / "model", SHAPE, unpacked_bytes=SIZE_BYTES, segment_bytes=8 * MIB)
        self._old = as_loaded(made.log_dir / str(PARTITION))
        self.logs = self.work / "logs"
        shutil.copytree(self.work / "model", self.logs)
        self._do("stage", str(self.logs))
        self._do("apply", str(self.logs))
        self._new = as_loaded(self._partition)
        if self._new == self._old:
            raise AssertionError("there is nothing to clean")
        self._clear()

    @property
    def _partition(self) -> Path:
        return self.logs / str(PARTITION)

    def kill_once(self, victims: str, *, while_staged: bool) -> list[str]:
        """Run once with a kill; returns the problems."""
        shutil.copytree(self.work / "model", self.logs)
        try:
            process = self._spark_clean()
            moment = self._strike(process, victims, while_staged=while_staged)
            code = process.wait(PATIENCE_SECONDS)
            self.moments[moment] += 1
            self.outcomes[f"{victims}: {'ended well' if code == 0 else 'failed'}"] += 1
            wrong = [] if self._found() == self._old else ["the log changed before cleanerd apply"]
            self._do("apply", str(self.logs))
            found = self._found()
            if found not in ((self._new,) if code == 0 else (self._old, self._new)):
                wrong.append(f"after apply, exit code {code} of Spark, the log is wrong")
            again = self._again()
            wrong += [f"{reported} ({victims}, {moment}, exit code {code})" for reported in again]
        finally:
            self._clear()
        return wrong

    def _again(self) -> list[str]:
        """The next run, by Spark or by the local engine, and its apply."""
        if self.dice.random() < 0.5:
            next_run = self._spark_clean()
            if next_run.wait(PATIENCE_SECONDS) != 0:
                return [f"the next run fails: {self._reported()}"]
            self.outcomes["the next run by Spark"] += 1
        else:
            self._do("stage", str(self.logs))
        self._do("apply", str(self.logs))
        wrong = [] if self._found() == self._new else ["after the next run the log is not the cleaned one"]
        left = sorted({*leftovers(self._partition), *map(str, self._partition.glob(f"{STAGING}/**"))})
        return [*wrong, *([f"files left after the next run: {left}"] if left else [])]

    def _found(self) -> Segments:
        return as_loaded(self._partition)

    def _clear(self) -> None:
        """Reset log and state; a task that outlives its run may still write."""
        shutil.rmtree(self.work / "state", ignore_errors=True)
        for _ in range(50):
            shutil.rmtree(self.logs, ignore_errors=True)
            if not self.logs.exists():
                return
            time.sleep(0.1)
        raise AssertionError(f"{self.logs} cannot be removed")

    def _settings(self) -> list[str]:
        settings = {
            "cleanerd.state.dir": self.work / "state",
            "cleanerd.disk.reserve": 0,
            "cleanerd.delegation": "assumed",
            "topics.bench.cleanup.policy": "compact",
            "topics.bench.segment.bytes": 8 * MIB,
        }
        return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]

    def _command(self, *arguments: str) -> list[str]:
        requested = [] if arguments[0] == "apply" else ["--force", "--now-ms", str(NOW_MS)]
        return [sys.executable, "-m", "cleanerd", *arguments, *requested, "--quiet", *self._settings()]

    def _do(self, *arguments: str) -> None:
        """Run a command that must succeed."""
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{arguments[0]}: exit code {done.returncode}: {done.stdout}{done.stderr}")

    def _spark_clean(self) -> subprocess.Popen[bytes]:
        settings = {**ON_A_CLUSTER, "spark.executor.instances": "2", "spark.task.maxFailures": "8"}
        conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        command = self._command("spark", "clean", str(self.logs), "--master", self.cluster.url, "--shards", "2", *conf)
        with (self.work / "reported").open("wb") as reported:
            return subprocess.Popen(command, stdout=reported, stderr=reported)

    def _reported(self) -> str:
        return (self.work / "reported").read_text(errors="replace")

    def _strike(self, process: subprocess.Popen[bytes], victims: str, *, while_staged: bool) -> str:
        """Kill the victims; returns the moment. Does nothing if the run is over."""
        staging = self._partition / STAGING
        if while_staged:
            _poll(process, lambda: _staged_bytes(staging) > 0)
            time.sleep(self.dice.uniform(0, 0.3))
        else:
            _poll(process, staging.exists)
            time.sleep(self.dice.uniform(0, 3))
        moment = WHILE_STAGED if _staged_bytes(staging) > 0 else "before" if staging.exists() else "at another time"
        if process.poll() is not None:
            return "after its end"
        for victim in self._victims(process, victims):
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        return moment

    def _victims(self, process: subprocess.Popen[bytes], victims: str) -> list[int]:
        """``spark-submit`` is Java, the driver's Python its child; the executors are children of the workers."""
        java = children(process.pid)
        driver = [*java, *children(*java)]
        executors = self.cluster.executors()
        found = {
            "driver": driver[1:2] or driver,
            "driver's Java": java,
            "executor": self.dice.sample(executors, min(1, len(executors))),
            "executors": executors,
            "driver and executors": [*driver, *executors],
            "Python workers": [each for daemon in children(*executors) for each in (*children(daemon), daemon)],
        }
        return found[victims]


def _staged_bytes(staging: Path) -> int:
    """Bytes of segments that a run has staged so far."""
    with suppress(OSError):
        return sum(path.stat().st_size for path in staging.glob("spark-*/*/*.log"))
    return 0


def _poll(process: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    """Wait until the condition holds or the run has ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds() and process.poll() is None:
        if time.monotonic() > deadline:
            raise AssertionError("Spark does not get there")
        time.sleep(0.002)


@contextmanager
def spark_field() -> Iterator[SparkField]:
    """A cluster, and a log beside it; both end with the block."""
    work = Path(tempfile.mkdtemp(prefix="spark-kills-"))
    (work / "spark").mkdir()
    try:
        with started_cluster(work / "spark", free_port()) as cluster:
            yield SparkField(cluster, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main(arguments: Sequence[str]) -> int:
    """Run the requested number of kills; the exit code is 1 after a problem."""
    count = int(arguments[0]) if arguments else len(VICTIMS)
    wrong_runs = 0
    with spark_field() as attacked:
        for number in range(count):
            wrong = attacked.kill_once(VICTIMS[number % len(VICTIMS)], while_staged=number % 4 != 3)
            wrong_runs += bool(wrong)
            sys.stdout.write("".join(f"{number}: {each}\n" for each in wrong))
            sys.stdout.flush()
        sys.stdout.write(f"{count} kills, {wrong_runs} wrong: {dict(attacked.moments)} {dict(attacked.outcomes)}\n")
    return int(wrong_runs > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
