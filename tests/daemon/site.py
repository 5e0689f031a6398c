"""The real daemon with a real broker and agent, for tests that break something and repair it again."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from cleanerd.broker.agent_client import AgentClient
from cleanerd.broker.agent_facts import fetch_log
from cleanerd.broker.agent_transport import SOCKET
from cleanerd.format.names import TopicPartition
from cleanerd_lab.demo.ports import free_port
from tests.brokers.node import wait_until
from tests.daemon.process import Daemon
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.broker.agent_facts import LogFacts
    from cleanerd_lab.demo.broker import Broker

# Root may read and write everything. Without capabilities, root is a normal owner, and the agent accepts its uid.
NO_CAPABILITIES: Final = ("setpriv", "--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()
ROUND_MS: Final = 150
KEYS: Final = 25


@dataclass
class Site:
    """A topic with a partition in each of the broker's two log directories: ``hurt`` in the second, and ``other``."""

    broker: Broker
    topic: str
    base: Path
    settings: Sequence[str] = ()
    clock: WallClock | None = None

    def __post_init__(self) -> None:
        places = {n: d for d in self.broker.log_dirs for n in (0, 1) if (d / f"{self.topic}-{n}").is_dir()}
        (self.hurt,) = (n for n, place in places.items() if place == self.broker.log_dirs[1])
        (self.other,) = (n for n, place in places.items() if place == self.broker.log_dirs[0])
        self.port = free_port()
        self.state_dir = self.base / "state"
        environ = {} if self.clock is None else self.clock.environ
        self.daemon = Daemon(self._assignments(), self.base, environ, prefix=NO_CAPABILITIES)

    def _assignments(self) -> list[str]:
        return [
            f"cleanerd.broker.properties={self.broker.properties_file}",
            "cleanerd.mode=auto",
            f"cleanerd.state.dir={self.state_dir}",
            f"cleanerd.control.socket={self.base / 'control.sock'}",
            f"cleanerd.http.listen=127.0.0.1:{self.port}",
            f"cleanerd.topics.include={self.topic}",
            "cleanerd.disk.reserve=0",
            "cleanerd.retry.backoff.ms=1s",
            "cleanerd.retry.backoff.max.ms=2s",
            f"log.cleaner.backoff.ms={ROUND_MS}",
            "log.cleaner.threads=2",
            "topics.*.min.cleanable.dirty.ratio=0.1",
            *self.settings,
        ]

    # -- actions -----------------------------------------------------------------------------------------------------

    def write(self, *partitions: int, count: int = 300, keys: int = KEYS, value: bool = True) -> None:
        """Write ``count`` tombstones of few keys, and some more segments to clean."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "batch.size": 3000})
        for partition in partitions:
            for number in range(count):
                key, data = b"k%d" % (number % keys), os.urandom(40).hex().encode() if value else None
                producer.produce(self.topic, key=key, value=data, partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0
        for partition in partitions:
            wait_until("it is flushed", lambda p=partition: _is_flushed(self.facts(p)))

    def facts(self, partition: int) -> LogFacts:
        """What the broker reports about a partition."""
        with AgentClient.connect(self.broker.log_dirs[0] / SOCKET) as client:
            return fetch_log(client, TopicPartition(self.topic, partition))

    def directory(self, partition: int) -> Path:
        """The partition's directory."""
        return self.broker.log_dirs[partition == self.hurt] / f"{self.topic}-{partition}"

    def cleaned(self, *partitions: int) -> None:
        """Wait until everything written so far is clean."""
        ends = {partition: self.facts(partition).active.base for partition in partitions}
        self.daemon.until(
            f"{ends} clean",
            lambda view: all(
                found["first_dirty_offset"] == end and found["state"] == "idle" and not found["quarantine"]
                for found, end in ((self.partition(view, n), end) for n, end in ends.items())
            ),
        )

    def rounds(self, count: int = 4) -> None:
        """Wait until the daemon has scanned everything this many times."""
        for _ in range(count):
            before = self.daemon.ask("status")["last_scan_ms"]
            self.daemon.until("a scan", lambda view, before=before: view["last_scan_ms"] != before)

    # -- observations ------------------------------------------------------------------------------------------------

    def partition(self, view: dict[str, Any], number: int) -> dict[str, Any]:
        """Its entry in a status."""
        (found,) = [p for p in view["partitions"] if (p["topic"], p["partition"]) == (self.topic, number)] or [None]
        return found or {"first_dirty_offset": None, "state": None, "quarantine": None, "reason": ""}

    def log_dir(self, view: dict[str, Any], number: int) -> dict[str, Any]:
        """The entry of a log directory."""
        (found,) = (each for each in view["log_dirs"] if each["path"] == str(self.broker.log_dirs[number]))
        return dict(found)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an HTTP response."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, sample: str, text: str | None = None) -> float | None:
        """The value of a sample in ``text``, by default the current ``/metrics``.

        ``{hurt}`` and ``{other}`` in its labels are the log directories; ``{hurt_by_jmx}`` is the name that the JMX
        exporter uses.
        """
        other, hurt = self.broker.log_dirs
        sample = sample.replace("{hurt_by_jmx}", f'"\\"{hurt}\\""')
        wanted = sample.replace("{hurt}", f'"{hurt}"').replace("{other}", f'"{other}"')
        lines = (self.get("/metrics")[1] if text is None else text).splitlines()
        return next((float(line.removeprefix(wanted)) for line in lines if line.startswith(wanted + " ")), None)

    def logged(self, pattern: str) -> list[str]:
        """Lines of the daemon's log."""
        return [line for line in self.daemon.log.read_text().splitlines() if re.search(pattern, line)]


def _is_flushed(facts: LogFacts) -> bool:
    return facts.recovery_point >= facts.active.base


@contextmanager
def without_agent(broker: Broker) -> Iterator[None]:
    """Start processes without the agent in this block."""
    arguments, broker._jvm_args = broker._jvm_args, ()
    try:
        yield
    finally:
        broker._jvm_args = arguments


class WallClock:
    """The wall clock of the daemon alone, which a test can set forward and back."""

    def __init__(self, base: Path, source: Path) -> None:
        self._file = base / "clock-off"
        shim = base / "clock-shim.so"
        subprocess.run(
            ["cc", "-O1", "-shared", "-fPIC", "-Werror", "-o", shim, source], check=True, timeout=PATIENCE_SECONDS
        )
        self.set(0)
        self.environ = {"LD_PRELOAD": str(shim), "CLOCK_OFF": str(self._file)}

    def set(self, off_ms: int) -> None:
        """Set the clock's difference from the real time, from now on."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=q", off_ms))
