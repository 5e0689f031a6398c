"""A broker with the agent, and topics on it with a staged cleaning."""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import cleanerd
from cleanerd._kernel import crc32c
from cleanerd.cleaner.manifest import KINDS, MANIFEST, Manifest, ManifestGroup
from cleanerd.cleaner.plan import new_plan_id
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import file_name, parse_topic_partition_dir, uuid_to_base64
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.round import stage_partition
from tests.agent.raw_client import SOCKET, Asking
from tests.brokers.ledger import Partition
from tests.brokers.readers import read_with_librdkafka
from tests.brokers.traffic import SILENT
from tests.cleaner.driver import Silent, config, resources
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker

JAR: Final = Path(cleanerd.__file__).parent / "agent" / "cleanerd-agent.jar"
SEGMENT_BYTES: Final = 20_000
KEYS: Final = 30

PROPERTIES: Final = {
    # The controller accepts a killed broker again when its session has ended.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.segment.delete.delay.ms": "1000",  # also of whole directories
    # cleanerd reads checkpoints on the disk, so the broker writes them often.
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}


def file_facts(data: bytes) -> tuple[int, int]:
    """Size and CRC-32C."""
    return len(data), crc32c(np.frombuffer(data, np.uint8))


def stage_log(log_dir: Path, topic: str, state: Path, **settings: object) -> None:
    """Stage partition 0 of ``topic`` in the calling process."""
    name = parse_topic_partition_dir(f"{topic}-0")
    rules = config(topic, segment_bytes=settings.pop("output_bytes", SEGMENT_BYTES), index_interval_bytes=512)
    options = CleaningOptions(now_ms=time.time_ns() // 1_000_000, force=True, unclean=True)
    store = StateStore(state)
    result = stage_partition(read_log_dir(log_dir), store, resources(), name, rules, options, Silent())
    assert result.outcome == "staged", result


@dataclass(slots=True)
class Topic:
    """A compacted topic of one partition; ``latest`` is what a read_committed consumer must find at the end."""

    broker: Broker
    name: str
    latest: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        (found,) = (path for log_dir in self.broker.log_dirs if (path := log_dir / f"{self.name}-0").is_dir())
        return found

    @property
    def log_dir(self) -> Path:
        """The broker's log directory that has it."""
        return self.directory.parent

    @property
    def cleaner_checkpoint(self) -> int | None:
        """The partition's line in the checkpoint of the broker's own cleaner."""
        path = self.log_dir / CLEANER_CHECKPOINT
        return read_checkpoint(path).get(f"{self.name}-0") if path.exists() else None

    def fill(self, *, transactions: bool) -> None:
        """Write some hundred superseded records of an idempotent producer, and transactions.

        Every third transaction is aborted. So are the last ones: each producer's last batch is retained aborted data.
        """
        chance = random.Random(self.name)
        plain = self._producer(**{"enable.idempotence": True, "compression.type": "lz4"})
        writers = [self._producer(**{"transactional.id": f"{self.name}-{i}"}) for i in range(2 if transactions else 0)]
        for writer in writers:
            writer.init_transactions(PATIENCE_SECONDS)
        for turn in range(12):
            self._write(plain, chance, 40)
            if not writers:
                continue
            writer = writers[turn % 2]
            writer.begin_transaction()
            aborts = turn % 3 == 2
            self._write(writer, chance, 8, counts=not aborts)
            if aborts:
                writer.abort_transaction(PATIENCE_SECONDS)
            else:
                writer.commit_transaction(PATIENCE_SECONDS)
        for writer in (*writers, *writers):
            writer.begin_transaction()
            self._write(writer, chance, 4, counts=False)
            writer.abort_transaction(PATIENCE_SECONDS)
        for number in range(100):  # these roll the last full segment, and their keys occur only once
            key = f"tail-{number}".encode()
            self.latest[key] = chance.randbytes(200)
            plain.produce(self.name, key=key, value=self.latest[key], partition=0)
            plain.flush(PATIENCE_SECONDS)

    def _producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 0, **settings}, logger=SILENT)

    def _write(self, producer: Producer, chance: random.Random, count: int, *, counts: bool = True) -> None:
        for _ in range(count // 4):
            for _ in range(4):
                key, value = b"key-%d" % chance.randrange(KEYS), chance.randbytes(200)
                if chance.randrange(8) == 0:
                    key = b"only-" + chance.randbytes(4).hex().encode()  # one record of every segment is retained
                if counts:
                    self.latest[key] = value
                producer.produce(self.name, key=key, value=value, partition=0)
            assert producer.flush(PATIENCE_SECONDS) == 0

    def wait_until_settled(self) -> None:
        """Wait until all written records but those of the active segment are below the checkpoints on the disk."""
        name = parse_topic_partition_dir(f"{self.name}-0")
        with Asking(self.broker.log_dirs[0] / SOCKET) as agent:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while True:
                log = agent.ask("log", topic=self.name, partition=0)
                on_disk = read_log_dir(self.log_dir)
                marked = on_disk.high_watermarks.get(name, 0) == log["leo"] == log["hw"] == log["lso"]
                if marked and on_disk.recovery_points.get(name, 0) >= log["segments"][-1][0] > 0:
                    return
                assert time.monotonic() < deadline, (log, on_disk)
                time.sleep(0.1)

    def stage(self, **settings: object) -> Manifest:
        """Stage a cleaning of the whole log by cleanerd itself, beside the running broker."""
        self.wait_until_settled()
        stage_log(self.log_dir, self.name, self.broker.work_dir / "state", **settings)
        return self.staged()

    def staged(self) -> Manifest:
        """The staged cleaning."""
        (plan,) = (self.directory / ".kstage").iterdir()
        return Manifest.from_json((plan / MANIFEST).read_bytes(), MANIFEST)

    def staged_files(self, manifest: Manifest, group: ManifestGroup) -> dict[str, bytes]:
        """The bytes of a group's staged files by kind."""
        folder = self.directory / ".kstage" / manifest.plan
        return {kind: (folder / file_name(group.base, f".{kind}")).read_bytes() for kind in group.kinds()}

    def copy_staged(self, group: ManifestGroup, files: dict[str, bytes]) -> str:
        """Put files into the staging directory of a plan of their own; returns its id."""
        plan = new_plan_id()
        folder = self.directory / ".kstage" / plan
        folder.mkdir()
        for kind, data in files.items():
            (folder / file_name(group.base, f".{kind}")).write_bytes(data)
        return plan

    def request(
        self, manifest: Manifest, groups: tuple[ManifestGroup, ...] | None = None, **changes: Any
    ) -> dict[str, Any]:
        """The fields of a swap request for ``groups`` (default: all) of the staged cleaning."""
        witnesses = {
            w.base: {"base": w.base, "size": w.size, "ino": w.inode, "mtime_ms": w.mtime_ns // 10**6}
            for w in manifest.witnesses
        }
        assert manifest.topic_id is not None
        return {
            "plan": manifest.plan,
            "topic": self.name,
            "partition": 0,
            "topic_id": uuid_to_base64(manifest.topic_id),
            "dir": str(self.directory),
            "log_start": None,
            "witnesses": list(witnesses.values()),
            "groups": [
                {
                    "base": group.base,
                    "end": group.end,
                    "sources": [dict(witnesses[base]) for base in group.sources],
                    "files": {kind: file_name(group.base, f".{kind}") for kind in KINDS if kind in group.files},
                    "sizes": {kind: fact.bytes for kind, fact in group.files.items()},
                    "crc32c": {kind: fact.crc32c for kind, fact in group.files.items()},
                }
                for group in (manifest.groups if groups is None else groups)
            ],
            "checkpoint": None,
        } | changes

    def listing(self) -> dict[str, tuple[int, int, int]]:
        """Inode, size and modification time of every segment file."""
        return {
            entry.name: ((stat := entry.stat()).st_ino, stat.st_size, stat.st_mtime_ns)
            for entry in self.directory.iterdir()
            if entry.name[:20].isdigit() and not entry.name.endswith(".snapshot")
        }

    def read(self, isolation: str = "read_committed") -> dict[bytes, bytes]:
        """Every key's last value from the beginning; offsets ascend and no error occurs."""
        name = Partition(self.name, 0)
        found = read_with_librdkafka(self.broker.bootstrap, [name], isolation=isolation)
        assert found.errors == ()
        records = found.partitions[name].records
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        return {record.key or b"": record.value or b"" for record in records}


@dataclass(slots=True)
class Live:
    """A running broker with the agent of ``jar``."""

    broker: Broker

    @property
    def socket(self) -> Path:
        """The default socket of its agent (U-31)."""
        return self.broker.log_dirs[0] / SOCKET

    def asking(self) -> Asking:
        """A connection to the agent."""
        return Asking(self.socket)

    def topic(self, name: str, *, transactions: bool = True, **settings: str) -> Topic:
        """A new compacted topic with small segments, filled."""
        size = "segment.bytes" if self.broker.version.startswith(("3.", "4.0.")) else "internal.segment.bytes"
        values = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "1",
            "file.delete.delay.ms": "1000",
            "index.interval.bytes": "512",
            "segment.index.bytes": "65536",
            size: str(SEGMENT_BYTES),
        }
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap}, logger=SILENT)
        admin.create_topics([NewTopic(name, 1, 1, config=values | settings)])[name].result(PATIENCE_SECONDS)
        topic = Topic(self.broker, name)
        topic.fill(transactions=transactions)
        return topic


def attach(live: Live, jar: Path, *options: str) -> None:
    """Load ``jar`` with the JDK's own tool; ``options``: further options of the agent."""
    command = ["jcmd", str(live.broker.pid), "JVMTI.agent_load", str(jar), f'"{",".join([f"jar={jar}", *options])}"']
    done = subprocess.run(command, check=True, timeout=PATIENCE_SECONDS, capture_output=True, text=True)
    assert "return code: 0" in done.stdout


def build_of(live: Live) -> tuple[str, int, str]:
    """Build, inode of the socket, and how it was loaded."""
    with live.asking() as agent:
        info = agent.ask("info")
    return info["build"], live.socket.stat().st_ino, info["loaded"]


def is_another_build(live: Live, before: str) -> bool:
    """Whether another build than ``before`` answers; an agent that is being replaced may close the connection first."""
    try:
        return live.socket.exists() and build_of(live)[0] != before
    except OSError:
        return False
