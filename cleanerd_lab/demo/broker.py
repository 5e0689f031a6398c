"""A real Kafka broker, one node with KRaft, on 127.0.0.1, for ``cleanerd demo`` and tests.

The process is java with the jars of a release; all its files are in one work directory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cleanerd.errors import CleanerdError
from cleanerd.format.names import uuid_to_base64
from cleanerd_lab.demo.classes import with_classes
from cleanerd_lab.demo.patience import PATIENCE_SECONDS
from cleanerd_lab.demo.ports import free_port
from cleanerd_lab.demo.signals import signals_wait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
STARTED: Final = "Kafka Server started"

_META: Final = "meta.properties"
_FEATURES: Final = ("unstable.", "inter.broker.protocol.version")
"""Properties that change which features the tool enables."""

# Enough for a demonstration, and small enough beside a test suite.
JVM: Final = ("-Xmx384m", "-Xms128m", "-XX:TieredStopAtLevel=1")
COLLECTOR: Final = "-XX:+UseSerialGC"

# One line for each logging backend that the jars of a release may bring: slf4j-simple, reload4j, log4j 2.
LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]",
    "-Dlog4j2.level=info",
)
RELOAD4J: Final = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class BrokerError(CleanerdError):
    """The broker failed; the message ends with the end of its log."""


@dataclass(frozen=True, slots=True)
class _Formatted:
    """Files that Kafka's tool writes into a log directory, kept because its JVM takes a third of a broker's start."""

    files: Mapping[Path, bytes]

    @classmethod
    def of(cls, log_dir: Path) -> Self:
        paths = [path for path in log_dir.rglob("*") if path.is_file()]
        return cls({path.relative_to(log_dir): path.read_bytes() for path in paths})

    def into(self, log_dir: Path, node_id: str) -> None:
        """The same files for another directory, which gets its own id if the release has such ids."""
        own_id = uuid_to_base64(uuid.uuid4())
        while own_id.startswith("-"):  # as in Kafka, because it would look like an option
            own_id = uuid_to_base64(uuid.uuid4())
        for path, content in self.files.items():
            (log_dir / path).parent.mkdir(parents=True, exist_ok=True)
            (log_dir / path).write_bytes(content)
        text = re.sub(r"(?m)^node\.id=.*", f"node.id={node_id}", (log_dir / _META).read_text())
        (log_dir / _META).write_text(re.sub(r"(?m)^directory\.id=.*", f"directory.id={own_id}", text))


_formatted: Final[dict[tuple[Path, str, int], list[_Formatted]]] = {}
"""By the jars of the release, the node's roles and the number of directories; the first has the metadata."""


class Broker:
    """A broker that can be started, stopped, killed and started again on the same directories.

    ``libs_dir`` holds the jars of release ``version`` (``4.3.1``) and an SLF4J binding; ``work_dir`` gets the log
    directories, the properties file and the broker's log. ``properties`` override the small-node defaults. ``jvm_args``
    may name an agent, or another collector; ``java``: the program of another JVM than that in PATH. As a context
    manager it is started on entry, and stopped on exit (killed if the block raised).
    """

    def __init__(
        self,
        libs_dir: Path,
        work_dir: Path,
        *,
        version: str,
        log_dirs: int = 1,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        jvm_args: Sequence[str] = (),
        java: Path | None = None,
    ) -> None:
        self.libs_dir = libs_dir.resolve()
        self.work_dir = work_dir.resolve()
        self.version = version
        self.port = port or free_port()
        self.log_dirs = tuple(self.work_dir / f"d{i + 1}" for i in range(log_dirs))
        self._controller_port = free_port()
        self._overrides = dict(properties or {})
        own = any(each.startswith("-XX:+Use") and each.endswith("GC") for each in jvm_args)
        self._jvm_args = (*(() if own else (COLLECTOR,)), *jvm_args)
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the running broker.

        Raises:
            BrokerError: it is not running.
        """
        if self._process is None:
            raise BrokerError("the broker is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists, serving or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def properties_file(self) -> Path:
        """The broker's server.properties, written at each start."""
        return self.work_dir / "server.properties"

    @property
    def log_file(self) -> Path:
        """The broker's log, of all its starts."""
        return self.work_dir / "broker.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()

    def start(self) -> None:
        """Format new log directories, start, and wait until the broker serves.

        Raises:
            BrokerError: it ended, did not serve in time, or its log lacks ``Kafka Server started`` (U-27).
        """
        if self.running:
            raise BrokerError("the broker is running already")
        self.work_dir.mkdir(parents=True, exist_ok=True)
        self.properties_file.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        (self.work_dir / "log4j.properties").write_text(RELOAD4J)
        if not all((log_dir / _META).exists() for log_dir in self.log_dirs):
            self._format()
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log, signals_wait():
            self._process = subprocess.Popen(
                [
                    *self._java_head(),
                    *JVM,
                    *self._jvm_args,
                    *self._java_tail("kafka.Kafka", str(self.properties_file)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.work_dir,
                process_group=0,  # Ctrl-C is for its parent
            )
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down cleanly (SIGTERM) and wait. Does nothing if it is not running.

        Raises:
            BrokerError: it did not end in time; it has been killed then.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"the broker did not stop within {PATIENCE_SECONDS:.0f} s") from None
        self._process = None

    def kill(self) -> None:
        """Kill the process (SIGKILL). Does nothing if it is not running."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def log_text(self) -> str:
        """Return what the broker logged since it was last started."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def properties(self) -> dict[str, str]:
        """Return the server.properties of a small node, with this broker's overrides."""
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self._controller_port}"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": ",".join(str(log_dir) for log_dir in self.log_dirs),
            "num.network.threads": "2",
            "num.io.threads": "2",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "log.cleaner.io.buffer.size": "65536",
            "log.cleaner.backoff.ms": "1000",
            "log.retention.check.interval.ms": "2000",
        }
        if not self.version.startswith("3."):
            properties["log.initial.task.delay.ms"] = "1000"
        return {**properties, **self._overrides}

    def _java_head(self) -> list[str]:
        """The program; the archive of classes is only for that in PATH."""
        return ["java", *with_classes(self.libs_dir)] if self._java is None else [os.fspath(self._java)]

    def _java_tail(self, main: str, *arguments: str) -> list[str]:
        log4j = f"-Dlog4j.configuration=file:{self.work_dir / 'log4j.properties'}"
        return [*LOGGING, log4j, "-cp", f"{self.libs_dir}/*", main, *arguments]

    def _format(self) -> None:
        """With Kafka's tool; or from an earlier result for the same jars in this process."""
        properties = self.properties()
        names = [properties[name] for name in ("metadata.log.dir", "log.dirs") if name in properties]
        places = [Path(name) for name in ",".join(names).split(",")]
        is_plain = not any(name.startswith(_FEATURES) for name in self._overrides)
        is_empty = not any((place / _META).exists() for place in places)
        kind = (self.libs_dir, properties["process.roles"], len(places))
        if is_plain and is_empty and kind in _formatted:
            for place, made in zip(places, _formatted[kind], strict=True):
                made.into(place, properties["node.id"])
            return
        self._format_by_kafka()
        if is_plain and is_empty:
            _formatted[kind] = [_Formatted.of(place) for place in places]

    def _format_by_kafka(self) -> None:
        command = [
            *self._java_head(),
            "-Xmx128m",
            COLLECTOR,
            "-XX:TieredStopAtLevel=1",
            *self._java_tail("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.properties_file)),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
        except FileNotFoundError:
            raise BrokerError("java is missing", hint="install a Java runtime, 17 or newer") from None
        if done.returncode != 0:
            raise BrokerError(f"the log directories cannot be formatted:\n{done.stdout}{done.stderr}")

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if not self.running:
                raise self._failure("the broker ended while it was starting")
            if self._answers() and STARTED in self.log_text():
                return
            time.sleep(0.2)
        if self._answers() and not self.log_text().strip():
            raise BrokerError(
                "the broker serves but logs nothing", where=str(self.libs_dir), hint="add slf4j-simple to the jars"
            )
        raise self._failure(f"the broker did not serve within {PATIENCE_SECONDS:.0f} s")

    def _answers(self) -> bool:
        """Whether a metadata request succeeds; a listening socket alone proves nothing."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            client = AdminClient({"bootstrap.servers": self.bootstrap}, logger=_SILENT)
            try:
                return bool(client.list_topics(timeout=5).brokers)
            except KafkaException:
                return False
        return False

    def _failure(self, message: str) -> BrokerError:
        return BrokerError(f"{message}; the end of its log:\n{self.log_text()[-3000:]}", where=os.fspath(self.log_file))


def beside(controller: Broker, node_id: int, work_dir: Path, *, properties: Mapping[str, str], **more: Any) -> Broker:
    """Another broker of the cluster of ``controller``, with the same jars; not started yet."""
    port = free_port()
    own = {
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": controller.properties()["controller.quorum.voters"],
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    return Broker(controller.libs_dir, work_dir, port=port, properties={**properties, **own}, **more)


_SILENT: Final = logging.getLogger("cleanerd_lab.demo.broker")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
