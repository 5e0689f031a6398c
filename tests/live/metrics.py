"""JMX metrics of a running broker about its log cleaner and log directories."""

from __future__ import annotations

import subprocess
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from cleanerd_lab.demo.ports import free_port
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker

PROGRAM: Final = Path(__file__).with_name("BrokerMetrics.java")
# The broker's cleaner scans every second (log.cleaner.backoff.ms); the rest is allowance for a busy machine.
IDLE: Final = "time-since-last-run-ms"
IDLE_MS: Final = 5_000
# For the broker's start: where a client finds the JMX exports. Everything else can be set at run time.
JVM_ARG: Final = "-Djava.rmi.server.hostname=127.0.0.1"


class Jmx:
    """JMX of a running broker that was started with ``JVM_ARG``, enabled now and on 127.0.0.1 only."""

    def __init__(self, broker: Broker) -> None:
        self.port = free_port()
        self._log_dirs = broker.log_dirs
        # As start options these would open a random port on all addresses, too.
        options = {
            "host": "127.0.0.1", "port": self.port, "rmi.port": self.port, "authenticate": "false", "ssl": "false",
        }  # fmt: skip
        words = [f"jmxremote.{name}={value}" for name, value in options.items()]
        _run(["jcmd", str(broker.pid), "ManagementAgent.start", *words])

    def read(self) -> dict[str, dict[str, int]]:
        """Gauges by name, then by log directory (``""``: one for the whole broker)."""
        options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command = ["java", *options, "-cp", _classes().name, PROGRAM.stem, str(self.port)]
        gauges: dict[str, dict[str, int]] = {}
        for line in _run(command).splitlines():
            name, directory, value = line.split("\t")
            gauges.setdefault(name, {})[directory] = int(value)
        return gauges

    def unhealthy(self) -> dict[str, dict[str, int]]:
        """Gauges that show a dead or idle cleaner thread, an uncleanable partition, or an offline directory."""
        gauges = self.read()
        nowhere = {str(log_dir): 0 for log_dir in self._log_dirs}
        wanted = {
            "DeadThreadCount": {"": 0},
            "uncleanable-partitions-count": nowhere,
            "uncleanable-bytes": nowhere,
            "OfflineLogDirectoryCount": {"": 0},
            "LogDirectoryOffline": nowhere,
        }
        found = {name: gauges[name] for name, values in wanted.items() if gauges[name] != values}
        idle_ms = gauges[IDLE][""]
        if idle_ms >= IDLE_MS:  # the whole machine may have paused for a moment: did the cleaner run since?
            time.sleep(2)
            idle_ms = max(0, self.read()[IDLE][""])
        return found if idle_ms < IDLE_MS else {**found, IDLE: {"": idle_ms}}


@cache
def _classes() -> TemporaryDirectory[str]:
    """The program, compiled once per run.

    As a class of the other test programs it would be recompiled in every checkout.
    """
    directory: TemporaryDirectory[str] = TemporaryDirectory(prefix="metrics-")
    _run(["javac", "-d", directory.name, str(PROGRAM)])
    return directory


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
