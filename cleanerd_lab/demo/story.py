"""The demonstration, step by step; what it says on screen is the verb's business (demo/run.py).

::

    start_and_write   a broker, topics in every codec, producers; what was acknowledged is remembered
    strategies        producers race on one more topic, see strategies.py and interleaved with the others
    stop_and_copy     the broker stops; a copy of its log directory for Kafka's own cleaner
    clean             ``cleanerd clean``, as an operator would run it
    start_and_read    the broker again, on the cleaned directory; two consumers, compared with what was acknowledged
    write_once_more   the topics still take records
    kafka_cleans      Kafka's own cleaner on the copy, timed, and read as well
    read_by_spark     a topic of the cleaned directory as a DataFrame, compared with what was acknowledged
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from cleanerd.format.names import SEGMENT_SUFFIX
from cleanerd_lab.demo.broker import Broker
from cleanerd_lab.demo.command import Command
from cleanerd_lab.demo.compare import ReadersComparison, compare
from cleanerd_lab.demo.dataframe import SparkRead, read_by_spark
from cleanerd_lab.demo.kafka_cleaner import KafkaCleanerBroker, KafkaCleaning
from cleanerd_lab.demo.reading import (
    KAFKA_PYTHON_CODECS,
    ConsumedPartition,
    read_with_confluent,
    read_with_kafka_python,
)
from cleanerd_lab.demo.strategies import CONFIG, StrategyDemo
from cleanerd_lab.demo.traffic import (
    OFF_LIMITS,
    TOPIC_CONFIG,
    AcknowledgedTopic,
    codecs,
    create_topics,
    topic_name,
    write,
)

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from cleanerd_lab.bench.process import Cost
    from cleanerd_lab.demo.jars import KafkaRelease

__all__ = ["OFF_LIMITS", "Cleaned", "Demo", "KafkaResult", "SecondCleaning"]

STARTS_OF_CLEANERD: Final = 2


@dataclass(frozen=True, slots=True)
class Cleaned:
    """``partitions`` is ``clean --json``'s, topic by topic; ``start``: the cost of starting the process.

    ``bytes_after``: those of all segments of a topic, including the active one.
    """

    partitions: dict[str, dict[str, Any]]
    bytes_after: dict[str, int]
    cost: Cost
    start: Cost


@dataclass(frozen=True, slots=True)
class SecondCleaning:
    """New records after the cleaning: how many were written to each topic, and how many were read back unchanged."""

    written: int
    read_back: int


@dataclass(frozen=True, slots=True)
class KafkaResult:
    """Kafka's own cleaner on the copy. ``same_records``: a consumer gets the same records as after cleanerd."""

    cleaning: KafkaCleaning
    bytes_after: dict[str, int]
    same_records: dict[str, bool]


class Demo:
    """One run in ``work_dir``: ``broker/`` is the broker's, ``copy/`` the copy for Kafka's cleaner.

    As a context manager it kills everything that it started on exit.
    """

    def __init__(self, release: KafkaRelease, work_dir: Path, *, records: int, seed: int) -> None:
        self.work_dir = work_dir
        self.written: list[AcknowledgedTopic] = []
        self._all_written: dict[str, AcknowledgedTopic] = {}
        self._records_each = max(records // (len(codecs()) + 1), 1)
        self._seed = seed
        self._broker = Broker(release.libs_dir, work_dir / "broker", version=release.version)
        self._kafka = KafkaCleanerBroker(release, work_dir / "copy")
        self._command = Command(self._broker, work_dir, CONFIG)
        self._reads: dict[str, ConsumedPartition] = {}
        self.strategies = StrategyDemo(self._broker, self._kafka, self._command, records=self._records_each, seed=seed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.kill()
        self._kafka.broker.kill()

    @property
    def log_dir(self) -> Path:
        """The broker's log directory, which cleanerd cleans."""
        return self._broker.log_dirs[0]

    @property
    def copied_log_dir(self) -> Path:
        """The copy for Kafka's cleaner."""
        return self._kafka.broker.log_dirs[0]

    def start_and_write(self) -> list[AcknowledgedTopic]:
        """Start a broker and write to a topic for each codec.

        Raises:
            BrokerError: it did not start, or did not acknowledge everything.
        """
        self._broker.start()
        create_topics(self._broker.bootstrap, [topic_name(codec) for codec in codecs()], TOPIC_CONFIG)
        for number, codec in enumerate(codecs()):
            self.written.append(write(self._broker.bootstrap, codec, self._records_each, seed=self._seed + number))
        return self.written

    def stop_and_copy(self) -> None:
        """Stop the broker cleanly and copy its log directory, flushed, so that no later step is slowed down.

        Raises:
            BrokerError: it did not stop.
            OSError: no space for the copy.
        """
        self._broker.stop()
        self._kafka.broker.work_dir.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.log_dir, self.copied_log_dir)
        os.sync()

    def clean(self) -> Cleaned:
        """Run ``cleanerd clean`` on the stopped broker's log directory, for the topics in every codec.

        Raises: CleanerdError: it failed, or did not clean a topic.
        """
        topics = [written.topic for written in self.written]
        # Planning loads the same modules as cleaning and reads very little: the least of a few runs is the start's
        # cost.
        starts = [self._command.plan(topics).cost for _ in range(STARTS_OF_CLEANERD)]
        partitions, done = self._command.clean(topics, "--force")
        return Cleaned(
            partitions=partitions,
            bytes_after={written.topic: log_bytes(self.log_dir, written.topic) for written in self.written},
            cost=done.cost,
            start=min(starts, key=lambda cost: cost.cpu_seconds),
        )

    def start_and_read(self, cleaned: Cleaned) -> list[ReadersComparison]:
        """Start the broker on what cleanerd left and read every topic from its beginning, with both clients.

        Raises:
            BrokerError: it did not start, or a client could not read.
        """
        self._broker.start()
        verdicts = []
        for written in self.written:
            first_dirty_offset = cleaned.partitions[written.topic]["end_offset"]
            read = read_with_confluent(self._broker.bootstrap, written.topic)
            self._reads[written.topic] = read
            verdicts.append(compare(written, read, first_dirty_offset))
            if KAFKA_PYTHON_CODECS[written.codec]():
                other = read_with_kafka_python(self._broker.bootstrap, written.topic)
                verdicts.append(compare(written, other, first_dirty_offset))
        return verdicts

    def write_once_more(self, records: int) -> SecondCleaning:
        """Write a few records more to each topic, read them back, and stop the broker.

        Raises:
            BrokerError: something was not acknowledged or not readable.
        """
        read_back = 0
        for number, before in enumerate(self.written):
            more = write(self._broker.bootstrap, before.codec, records, seed=-self._seed - number)
            self._all_written[before.topic] = AcknowledgedTopic(
                before.topic, before.codec, before.records | more.records
            )
            read = read_with_confluent(self._broker.bootstrap, before.topic)
            read_back += sum(read.records.get(offset) == record for offset, record in more.records.items())
        self._broker.stop()
        return SecondCleaning(records * len(self.written), read_back)

    def kafka_cleans(self) -> KafkaResult:
        """Let Kafka's cleaner do the same work on the copy; its broker keeps running.

        Raises:
            BrokerError: its broker did not start, or its cleaner did not complete.
        """
        topics = [written.topic for written in self.written]
        kafka = self._kafka
        kafka.warm_up(self._records_each)
        cleaning = kafka.clean(topics)
        same = {
            topic: read_with_confluent(kafka.broker.bootstrap, topic).records == self._reads[topic].records
            for topic in topics
        }
        return KafkaResult(cleaning, {topic: log_bytes(self.copied_log_dir, topic) for topic in topics}, same)

    def read_by_spark(self) -> SparkRead:
        """Read the last topic's segments with PySpark, including the records written after the cleaning.

        Raises:
            CleanerdError: PySpark did not complete.
        """
        return read_by_spark(self.log_dir, self._all_written[self.written[-1].topic])


def log_bytes(log_dir: Path, topic: str) -> int:
    """Bytes of the segments of a topic's only partition."""
    return sum(path.stat().st_size for path in (log_dir / f"{topic}-0").glob(f"*{SEGMENT_SUFFIX}"))
