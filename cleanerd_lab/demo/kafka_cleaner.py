"""Kafka's own cleaner, in a broker on a copy of the same log directory, timed by the operating system.

The cleaner is a thread of the broker, so its CPU time is known to the nanosecond: ``/proc/PID/task/TID/schedstat``.
Only that thread counts, not the JVM's collector and compiler. To warm up the JVM, it first cleans a separate topic.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from cleanerd.format.checkpoint import read_offset_checkpoint
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT
from cleanerd_lab.demo.broker import Broker, BrokerError
from cleanerd_lab.demo.patience import PATIENCE_SECONDS
from cleanerd_lab.demo.traffic import SILENT, TOPIC_CONFIG, create_topics, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cleanerd_lab.demo.jars import KafkaRelease

WARM_UP_TOPIC: Final = "warm-up"
EAGER: Final = {"min.cleanable.dirty.ratio": "0.0"}

KAFKAS_DEFAULTS: Final = {
    "log.cleaner.dedupe.buffer.size": str(128 * 1024 * 1024),
    "log.cleaner.io.buffer.size": str(512 * 1024),
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "200",
}
"""The cleaner's default sizes, which the small broker reduces; the backoff only decides how soon it checks."""

OPTIMIZING_COMPILER: Final = ("-XX:TieredStopAtLevel=4",)
_THREAD: Final = "kafka-log-cleaner-thread-0"[:15]
_CLEANED: Final = re.compile(r"cleaned log (\S+) \(dirty section.*?of log processed in ([\d.,]+) seconds", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KafkaCleaning:
    """CPU time of the cleaning thread, and the seconds that it reports for all partitions together."""

    cpu_seconds: float
    reported_seconds: float


class KafkaCleanerBroker:
    """A broker on a copied log directory, ``work_dir / "d1"``, whose cleaner starts on request."""

    def __init__(self, release: KafkaRelease, work_dir: Path) -> None:
        self.broker = Broker(
            release.libs_dir,
            work_dir,
            version=release.version,
            properties=KAFKAS_DEFAULTS,
            jvm_args=(*OPTIMIZING_COMPILER, "-Xmx768m"),
        )

    def warm_up(self, records: int) -> None:
        """Start the broker and let its cleaner clean a separate topic.

        Raises:
            BrokerError: it did not start, or did not clean.
        """
        self.broker.start()
        create_topics(self.broker.bootstrap, [WARM_UP_TOPIC], TOPIC_CONFIG)
        write(self.broker.bootstrap, "none", records, seed=1, topic=WARM_UP_TOPIC)
        self.clean([WARM_UP_TOPIC])

    def clean(self, topics: Sequence[str]) -> KafkaCleaning:
        """Make ``topics`` eligible and wait until the cleaner's checkpoint contains all of them.

        Raises:
            BrokerError: that took too long.
        """
        before = thread_seconds(self.broker)
        alter(self.broker.bootstrap, topics, EAGER)
        wanted = {TopicPartition(topic, 0) for topic in topics}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not wanted <= self._cleaned_partitions():
            if time.monotonic() > deadline or not self.broker.running:
                raise BrokerError(f"Kafka's cleaner did not clean {', '.join(topics)}", where=str(self.broker.log_file))
            time.sleep(0.1)
        reported = dict(_CLEANED.findall(self.broker.log_text()))
        seconds = [float(reported.get(str(name), "0").replace(",", "")) for name in wanted]
        return KafkaCleaning(thread_seconds(self.broker) - before, sum(seconds))

    def _cleaned_partitions(self) -> set[TopicPartition]:
        path = self.broker.log_dirs[0] / CLEANER_CHECKPOINT
        return set(read_offset_checkpoint(path.read_bytes(), str(path))) if path.exists() else set()


def thread_seconds(broker: Broker) -> float:
    """CPU seconds of the broker's first cleaner thread, the only one by Kafka's default.

    Raises:
        BrokerError: there is none.
    """
    for task in Path(f"/proc/{broker.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == _THREAD:
            # The first number: nanoseconds on a CPU.
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise BrokerError("the broker has no cleaner thread", where=str(broker.log_file))


def alter(bootstrap: str, topics: Sequence[str], config: Mapping[str, str]) -> None:
    """Change these keys of topics, and no others.

    Raises:
        BrokerError: the broker refuses.
    """
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=SILENT)
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=list(entries)) for topic in topics
    ]
    for resource, future in admin.incremental_alter_configs(resources).items():
        try:
            future.result(timeout=PATIENCE_SECONDS)
        except KafkaException as error:
            raise BrokerError(f"topic {resource.name} cannot be altered: {error}") from error
