"""A standalone master with two workers of a core each, on 127.0.0.1 and 127.0.0.2."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from cleanerd.spark.launch import environment
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Cluster:
    """The master's address, and its workers' processes."""

    url: str
    workers: list[int]

    def executors(self) -> list[int]:
        """Java processes that the workers have running."""
        return children(*self.workers)


def children(*parents: int) -> list[int]:
    """Processes that ``parents`` have started and that are not over."""
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
def started_cluster(place: Path, port: int) -> Iterator[Cluster]:
    """It listens on ``port``, its logs and what executors write lie in ``place``; all of it ends with the block."""
    home = Path(pyspark.__path__[0])
    inherited = environment(os.environ, local=False) | {
        "SPARK_HOME": str(home),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOG_DIR": str(place),
        "SPARK_WORKER_DIR": str(place / "work"),
    }
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(home, inherited, place, "master.Master", "--host", "127.0.0.1", "--port", port))
        until(lambda: "I have been elected leader" in (place / "master.Master.log").read_text())
        for number in (1, 2):
            host = f"127.0.0.{number}"
            worker = ("worker.Worker", "--host", host, "--cores", 1, "--memory", "1g", "--webui-port", 0, url)
            started.append(_start(home, inherited | {"SPARK_LOCAL_IP": host}, place, *worker, log=f"worker{number}"))
        until(lambda: (place / "master.Master.log").read_text().count("Registering worker") == 2)
        yield Cluster(url, [process.pid for process in started[1:]])
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(PATIENCE_SECONDS)


def _start(
    home: Path, inherited: dict[str, str], place: Path, kind: str, *arguments: object, log: str = ""
) -> subprocess.Popen[bytes]:
    command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
    if kind == "master.Master":
        command += ["--webui-port", "0"]
    with (place / f"{log or kind}.log").open("wb") as output:
        return subprocess.Popen(
            [str(each) for each in command], env=inherited, stdout=output, stderr=output, start_new_session=True
        )


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
