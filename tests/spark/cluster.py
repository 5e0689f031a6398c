"""A standalone master with two workers of one core each, on 127.0.0.1 and 127.0.0.2."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.spark.launch import environment
from cleanerd_lab.bench.generate import LogShape
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


SHAPE = LogShape("ties", "128 B, random versions, a tenth of them ties", 128, 64, 0.5, versions=True, ties=0.1)
OPTIONS = CleaningOptions(now_ms=1_900_000_000_000, force=True, from_start=True)


@dataclass(frozen=True)
class Cluster:
    """The master's address, and its workers' processes."""

    url: str
    workers: list[int]

    def executors(self) -> list[int]:
        """Java processes that the workers have running."""
        return children(*self.workers)


def children(*parents: int) -> list[int]:
    """Running processes that ``parents`` have started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) in parents and fields[0] != "Z":
                found.append(int(name))
    return found


@contextmanager
def started_cluster(place: Path, port: int, *, hidden: Sequence[Path] = ()) -> Iterator[Cluster]:
    """The cluster listens on ``port``; ``place`` gets its logs and the executors' files; all of it ends with the block.

    ``hidden``: directories that are empty for the workers and their children, as if they had no such disk. Then neither
    sees the other's files, and they have none of our credentials.
    """
    home = Path(pyspark.__path__[0])
    inherited = environment(os.environ, tasks=None) | {
        "SPARK_HOME": str(home),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOG_DIR": str(place),
    }
    if hidden:
        inherited = {key: value for key, value in inherited.items() if not key.startswith("AWS_")}
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    hosts = ("127.0.0.1", "127.0.0.2")
    for host in hosts:
        (place / host).mkdir()
    try:
        master = ("master.Master", "--host", hosts[0], "--port", port, "--webui-port", 0)
        started.append(_start([home / "bin" / "spark-class"], inherited, place / "master.log", *master))
        until(lambda: "I have been elected leader" in (place / "master.log").read_text())
        for host in hosts:
            own = {"SPARK_WORKER_DIR": str(place / host), "SPARK_LOCAL_DIRS": str(place / host), "SPARK_LOCAL_IP": host}
            others = [place / other for other in hosts if other != host]
            prefix = [*(_without([*hidden, *others]) if hidden else ()), home / "bin" / "spark-class"]
            worker = ("worker.Worker", "--host", host, "--cores", 1, "--memory", "1g", "--webui-port", 0, url)
            started.append(_start(prefix, inherited | own, place / f"worker-{host}.log", *worker))
        until(lambda: (place / "master.log").read_text().count("Registering worker") == len(hosts))
        yield Cluster(url, [process.pid for process in started[1:]])
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)


def _without(hidden: Sequence[Path]) -> list[str]:
    """The beginning of a command that sees ``hidden`` as empty: in a mount namespace of its own."""
    mounts = [f"mount -t tmpfs -o size=1m none {shlex.quote(str(each))} &&" for each in hidden]
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *user, "sh", "-c", " ".join([*mounts, 'exec "$@"']), "sh"]


def _start(
    prefix: Sequence[object], inherited: dict[str, str], log: Path, kind: str, *arguments: object
) -> subprocess.Popen[bytes]:
    command = [*prefix, f"org.apache.spark.deploy.{kind}", *arguments]
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(each) for each in command], env=inherited, stdout=output, stderr=output, start_new_session=True
        )


@contextmanager
def executor_killed(chosen: Callable[[], Sequence[int]]) -> Iterator[None]:
    """During the block, kill the first process that ``chosen`` names; asserts that one was killed."""
    killed: list[int] = []

    def kill() -> None:
        until(lambda: bool(killed.extend(chosen()[:1]) or killed), 600)
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    yield
    killer.join(1)
    assert killed


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
