"""What a running broker says of its own log cleaner and log directories, read through JMX."""

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
# The cleaner of a test's broker looks for work every second (log.cleaner.backoff.ms); the rest is for a busy machine.
IDLE: Final = "time-since-last-run-ms"
IDLE_MS: Final = 5_000
# For the broker's start: where a client finds what JMX exports. The rest can be told a running JVM.
JVM_ARG: Final = "-Djava.rmi.server.hostname=127.0.0.1"


class Jmx:
    """JMX of a running broker that was started with ``JVM_ARG``, from now on and on 127.0.0.1 alone."""

    def __init__(self, broker: Broker) -> None:
        self.port = free_port()
        self._log_dirs = broker.log_dirs
        # As options of the start they would open a port of the JVM's choice on all addresses, too.
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
        """Those gauges that say: a dead or idle cleaner thread, a partition or a directory that was given up."""
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
        if idle_ms >= IDLE_MS:  # it may have stood still for a moment, as all of the machine: has it run meanwhile?
            time.sleep(2)
            idle_ms = max(0, self.read()[IDLE][""])
        return found if idle_ms < IDLE_MS else {**found, IDLE: {"": idle_ms}}


@cache
def _classes() -> TemporaryDirectory[str]:
    """The program, compiled once a run: a class more among the judges' would have all compiled in every checkout."""
    directory: TemporaryDirectory[str] = TemporaryDirectory(prefix="metrics-")
    _run(["javac", "-d", directory.name, str(PROGRAM)])
    return directory


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
