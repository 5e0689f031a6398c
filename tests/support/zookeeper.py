"""A real broker in ZooKeeper mode, with a ZooKeeper of its own from the same jars: Kafka up to 3.9."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from cleanerd_lab.demo import broker as demo
from cleanerd_lab.demo.broker import Broker, BrokerError
from cleanerd_lab.demo.ports import free_port
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

_KRAFT_ONLY = frozenset(
    {"process.roles", "node.id", "controller.quorum.voters", "controller.listener.names", "inter.broker.listener.name"}
)


class ZooKeeperBroker(Broker):
    """Like any other broker of the tests.

    ZooKeeper runs from the first start to ``end``, so the cluster outlives a restart.
    """

    def __init__(self, libs_dir: Path, work_dir: Path, *, version: str) -> None:
        super().__init__(libs_dir, work_dir, version=version)
        self._zookeeper_port = free_port()
        self._zookeeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start ZooKeeper when it does not run yet, then the broker."""
        if self._zookeeper is None:
            self.work_dir.mkdir(parents=True, exist_ok=True)
            with (self.work_dir / "zookeeper.log").open("wb") as log:
                self._zookeeper = subprocess.Popen(
                    [
                        *("java", *demo.JVM, "-Dzookeeper.admin.enableServer=false", "-cp", f"{self.libs_dir}/*"),
                        "org.apache.zookeeper.server.ZooKeeperServerMain",
                        *(str(self._zookeeper_port), str(self.work_dir / "zookeeper")),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        super().start()

    def end(self) -> None:
        """Kill the broker and ZooKeeper."""
        self.kill()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper.wait()
            self._zookeeper = None

    def properties(self) -> dict[str, str]:
        """Return a server.properties without KRaft."""
        common = {key: text for key, text in super().properties().items() if key not in _KRAFT_ONLY}
        return {
            **common,
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            # A broker that is stopped while it cleans leaves files that only its next start resolves.
            "log.cleaner.enable": "false",
        }

    def _format(self) -> None:
        """A broker in this mode creates its directories itself."""

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise self._failure("the broker ended while it was starting")
            if self._answers() and "started (kafka.server.KafkaServer)" in self.log_text():
                return
            time.sleep(0.2)
        raise BrokerError(f"the broker did not serve:\n{self.log_text()[-3000:]}")
