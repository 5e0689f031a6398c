"""One broker's lifecycle per release: written, cleaned, read, killed, cleaned, cleaned by Kafka, cleaned again.

Every step needs the previous one and returns a frozen record of its observations; the tests check these in any order. A
step that failed fails in every test that needs it, with the same error.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from tests.brokers import topics
from tests.brokers.accounts import Beside, Cleaning, Control, Crash, Seen, TakeOver, Uncleaned
from tests.brokers.ledger import History, Partition
from tests.brokers.lifecycle_step import Step
from tests.brokers.markers import wait_until_ended
from tests.brokers.node import (
    AGED,
    Run,
    checkpoint,
    cleanerd,
    complaints,
    directory_of,
    kafka_searches,
    segment_bases,
    sequences,
    wait_until,
)
from tests.brokers.readers import (
    Answers,
    read_with_kafka_python,
    read_with_librdkafka,
    times_with_kafka_python,
    times_with_librdkafka,
)
from tests.brokers.traffic import Drafts, KafkaPython, Librdkafka, Transactional, Writer, in_pieces
from tests.support.log_dirs import read_segments, tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.brokers.accounts import Files
    from tests.brokers.ledger import Record
    from tests.brokers.traffic import Draft


PROPERTIES: Final = {
    "log.flush.offset.checkpoint.interval.ms": "300",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "auto.create.topics.enable": "false",
    # no effect on topics with a ratio of 1; fast once that ratio is removed
    "log.cleaner.backoff.ms": "200",
    # the controller accepts a killed broker again when its last session has ended
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
"""Properties of the lifecycle's brokers besides those of a small node."""
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
FORCED: Final = ("--yes", "--force")
"""Without confirmation and whatever the ratio: the topics' ratio of 1 stops the broker's own cleaner, and cleanerd."""
TIMES: Final = 60
"""Approximate number of different times to query per partition."""


class Lifecycle:
    """The broker, the producers, which stay open from the first step to the last, and the histories."""

    def __init__(self, broker: Broker, work_dir: Path) -> None:
        self.broker = broker
        self.work_dir = work_dir
        self.state_dir = work_dir / "state"
        self.done: dict[str, Any] = {}
        self.histories: dict[Partition, History] = {partition: History() for partition in topics.PARTITIONS}
        self.drafts = Drafts(random.Random(20240607))
        self.writers: dict[str, Writer] = {}
        self.rounds = 0

    # ---- steps ----

    @Step
    def written(self) -> Uncleaned:
        """Start, create, write; read once, which also makes the broker create its topic of group offsets."""
        self.broker.start()
        topics.create(self.broker.bootstrap, self.broker.version)
        self._open_writers()
        self._write_keyless()
        topics.alter(self.broker.bootstrap, topics.KEYLESS.name, "cleanup.policy", "compact")
        self._write_idle()
        self._write_everywhere(300)
        return Uncleaned(read_with_librdkafka(self.broker.bootstrap, topics.PARTITIONS), self._visible())

    @Step
    def control(self) -> Control:
        """Restart without cleaning, to see the broker's usual warnings. Then stop, ready to be cleaned."""
        _ = self.written
        self.broker.stop()
        self.broker.start()
        self._write_everywhere(60)
        self.broker.stop()
        return Control(complaints(self.broker.log_text()))

    @Step
    def eligible(self) -> Run:
        """``clean`` without ``--force``: the ratio of 1 is never exceeded."""
        _ = self.control
        return self._cleanerd("clean", "--yes")

    @Step
    def cleaned(self) -> Cleaning:
        """Clean the stopped broker's directories; a copy of the originals is kept."""
        _ = self.eligible
        for log_dir in self.broker.log_dirs:
            shutil.copytree(log_dir, self.copies / log_dir.name)
        return self._clean()

    @Step
    def restarted(self) -> Seen:
        """Start on the result and read everything."""
        _ = self.cleaned
        self.broker.start()
        return self._scan()

    @Step
    def continued(self) -> Seen:
        """The producers that were open all the time continue."""
        _ = self.restarted
        self._write_everywhere(120)
        return self._scan()

    @Step
    def beside(self) -> Beside:
        """``plan`` and ``clean`` beside the running broker."""
        _ = self.continued
        self._wait_for_checkpoints()
        before = self._files()
        young = self._cleanerd("plan", "--force")
        plan = cleanerd("plan", self.broker.log_dirs, self.state_dir, "--force", program=AGED)
        refused = self._cleanerd("clean", *FORCED)
        return Beside(young, plan, refused, before, self._files())

    @Step
    def crashed(self) -> Crash:
        """Kill the broker before it flushes the last segments, and clean below the recovery points."""
        _ = self.beside
        noted = {log_dir: (log_dir / RECOVERY_POINTS).read_bytes() for log_dir in self.broker.log_dirs}
        self._write_everywhere(80)
        self.broker.kill()
        # As if killed a moment earlier: it is random whether the last points were stored, but these were not.
        for log_dir, content in noted.items():
            (log_dir / RECOVERY_POINTS).write_bytes(content)
        before = self._files()
        skipped = self._cleanerd("clean", *FORCED)
        changed = before != self._files()
        recovery_points = checkpoint(self.broker.log_dirs, RECOVERY_POINTS)
        cleaning = self._clean("--unclean")
        # The producers' state must come from the batches alone: snapshots may contain more (VERIFY-18).
        for partition in topics.CLEANED:
            for snapshot in self._directory(partition).glob("*.snapshot"):
                snapshot.unlink()
        return Crash(skipped, changed, recovery_points, cleaning)

    @Step
    def recovered(self) -> Seen:
        """Start after the crash; every acknowledged record exists or is superseded, and the producers continue."""
        _ = self.crashed
        self.broker.start()
        self._write_everywhere(80)
        return self._scan()

    @Step
    def taken_over(self) -> TakeOver:
        """The topics get a low ratio, and Kafka's own cleaner cleans them; then it is stopped again."""
        _ = self.recovered
        ends = {p: segment_bases(self._directory(p))[-1] for p in topics.CLEANED}
        started_at = self._cleaner_checkpoint()
        for topic in {p.topic for p in topics.CLEANED}:
            topics.alter(self.broker.bootstrap, topic, topics.RATIO, "0.01")

        def done() -> bool:
            found = self._cleaner_checkpoint()
            return all(found.get(partition) == end for partition, end in ends.items())

        wait_until("Kafka's own cleaner", done)
        for partition, end in ends.items():
            expire = topics.TOPIC_OF[partition].tombstones_expire
            self.histories[partition].clean(end, tombstones_expire=expire)
        for topic in {p.topic for p in topics.CLEANED}:
            topics.alter(self.broker.bootstrap, topic, topics.RATIO, "1")
        return TakeOver(started_at, ends, self.broker.log_text(), self._scan())

    @property
    def after_kafka(self) -> Seen:
        """Observations after Kafka's own cleaner."""
        return self.taken_over.seen

    @Step
    def cleaned_again(self) -> Cleaning:
        """Stop cleanly and clean once more, after Kafka's own cleaner."""
        _ = self.taken_over
        self._write_everywhere(80)
        self.broker.stop()
        return self._clean()

    @Step
    def restarted_again(self) -> Seen:
        """Start on the result of the second clean stop."""
        _ = self.cleaned_again
        self.broker.start()
        self._write_everywhere(80)
        return self._scan()

    # ---- parts of the steps ----

    @property
    def copies(self) -> Path:
        """The log directories before the first cleaning."""
        return self.work_dir / "copies"

    def _open_writers(self) -> None:
        bootstrap = self.broker.bootstrap
        writers: list[Writer] = [
            *(Librdkafka(f"rd-{codec}", bootstrap, **{"compression.type": codec}) for codec in topics.CODECS),
            Librdkafka("rd-idle", bootstrap),
            KafkaPython("py-idempotent", bootstrap, idempotent=True, codec="gzip"),
            KafkaPython("py-plain", bootstrap, idempotent=False),
            Transactional("rd-transactional", bootstrap),
        ]
        self.writers = {writer.name: writer for writer in writers}

    def close(self) -> None:
        """Close the producers."""
        for writer in self.writers.values():
            writer.close()

    def _write(self, writer: str, partition: Partition, drafts: Sequence[Draft]) -> None:
        self.histories[partition].add(self.writers[writer].write(partition, drafts))

    def _write_keyless(self) -> None:
        for partition in topics.KEYLESS.names:
            self._write("rd-none", partition, self.drafts.make(150, "rd-none", keyless=0.3))

    def _write_idle(self) -> None:
        """A producer writes a retained record, then one that another producer supersedes, and then stops writing."""
        for partition in topics.IDLE.names:
            for key in (b"stays", b"goes"):
                self._write("rd-idle", partition, [self.drafts.draft(key, "rd-idle")])
            self._write("rd-gzip", partition, [self.drafts.draft(b"goes", "rd-gzip")])

    def _write_everywhere(self, count: int) -> None:
        """About ``count`` records into each partition."""
        make = self.drafts.make
        self.rounds += 1
        for codec, topic in topics.BY_CODEC.items():
            self._write(f"rd-{codec}", topic.names[0], make(count, f"rd-{codec}"))
        for topic in topics.ORDINARY[len(topics.CODECS) :]:
            self._write("rd-gzip", topic.names[0], make(count, "rd-gzip", deletes=0.3))
        readable_by_all = ["rd-none", "py-idempotent", "rd-gzip", "py-plain"]
        for partition in topics.MIXED.names:
            mixers = readable_by_all + ["rd-snappy", "rd-lz4", "rd-zstd"] * (partition.number == 0)
            for turn in range(10):
                mixer = mixers[turn % len(mixers)]
                self._write(mixer, partition, make(count // 10, mixer))
        for partition in topics.KEYLESS.names:
            self._write("py-idempotent", partition, make(count, "py-idempotent"))
        for partition in topics.WIPED.names:
            self._write("rd-none", partition, make(3 * count, "rd-none", hot_keys=8, rare=0, deletes=0))
        for partition in topics.IDLE.names:
            if self.rounds in {3, 5, 6, 7}:
                for key in (b"stays-%d" % self.rounds, b"goes"):
                    self._write("rd-idle", partition, [self.drafts.draft(key, "rd-idle")])
            self._write("rd-gzip", partition, [self.drafts.draft(b"goes", "rd-gzip"), *make(count, "rd-gzip")])
        for partition in topics.TRANSACTIONAL.names:
            self._write_transactions(partition, count)
            wait_until_ended(self.broker.bootstrap, partition)
        for partition in topics.PLAIN.names:
            self._write("rd-none", partition, make(count, "rd-none", keyless=0.2))

    def _write_transactions(self, partition: Partition, count: int) -> None:
        transactional = self.writers["rd-transactional"]
        assert isinstance(transactional, Transactional)
        for number, drafts in enumerate(in_pieces(self.drafts.make(count, "rd-transactional"), max(1, count // 6))):
            if number % 3 == 2:
                self.histories[partition].aborted += transactional.abort(partition, drafts)
            else:
                self._write("rd-transactional", partition, drafts)

    def _cleanerd(self, command: str, *options: str) -> Run:
        return cleanerd(command, self.broker.log_dirs, self.state_dir, *options)

    def _clean(self, *options: str) -> Cleaning:
        """Clean with force and update the histories, up to the limits that the directories show."""
        before = self._files()
        ends = self._expected_ends()
        run = self._cleanerd("clean", *FORCED, *options)
        dropped = {
            partition: self.histories[partition].clean(
                end, tombstones_expire=topics.TOPIC_OF[partition].tombstones_expire
            )
            for partition, end in ends.items()
        }
        idle = tuple(sequences(self._directory(topics.IDLE.names[0]), "rd-idle"))
        return Cleaning(run, before, self._files(), ends, dropped, self._cleaner_checkpoint(), idle)

    def _expected_ends(self) -> dict[Partition, int]:
        """The start of the segment with the lowest of active base, high watermark and recovery point (C-05)."""
        limits = [checkpoint(self.broker.log_dirs, name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)]
        ends = {}
        for partition in topics.CLEANED:
            bases = segment_bases(self._directory(partition))
            lowest = min(bases[-1], *(limit[partition] for limit in limits))
            ends[partition] = max(base for base in bases if base <= lowest)
        return ends

    def _scan(self) -> Seen:
        """Read everything with both libraries, and query offsets by time."""
        bootstrap = self.broker.bootstrap
        times = {
            partition: history.interesting_times_ms(TIMES)
            for partition, history in self.histories.items()
            if partition.topic != topics.TRANSACTIONAL.name
        }
        expected: Answers = defaultdict(list)
        for partition, requested in times.items():
            for time_ms in requested:
                found = self.histories[partition].first_at_or_after(time_ms)
                expected[partition].append(None if found is None else found.offset)
        readings = {
            "librdkafka": read_with_librdkafka(bootstrap, topics.PARTITIONS),
            "kafka-python": read_with_kafka_python(bootstrap, topics.READ_BY_BOTH),
        }
        answers = {
            "librdkafka": times_with_librdkafka(bootstrap, times),
            "kafka-python": times_with_kafka_python(bootstrap, times),
        }
        log_text = self.broker.log_text()
        return Seen(
            log_text=log_text,
            complaints=complaints(log_text),
            expected=self._visible(),
            readings=readings,
            requested=times,
            expected_times=expected,
            searched={
                partition: [kafka_searches(self._directory(partition), time_ms) for time_ms in requested]
                for partition, requested in times.items()
                if any(answer[partition] != expected[partition] for answer in answers.values())
            },
            times=answers,
            sequences=tuple(sequences(self._directory(topics.IDLE.names[0]), "rd-idle")),
            producer_ids=self._producer_ids(),
            problems={name: tuple(writer.problems) for name, writer in self.writers.items()},
        )

    def _visible(self) -> dict[Partition, tuple[Record, ...]]:
        return {partition: tuple(history.visible) for partition, history in self.histories.items()}

    def _producer_ids(self) -> dict[str, frozenset[tuple[int, int]]]:
        found: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for partition in topics.CLEANED:
            for batches in read_segments(self._directory(partition)).values():
                for batch in batches:
                    values = [record.value for record in batch.records if record.value is not None]
                    writers = {value.split(b":")[0].decode() for value in values}
                    for writer in writers:
                        found[writer].add((batch.header.producer_id, batch.header.producer_epoch))
        return {writer: frozenset(ids) for writer, ids in found.items()}

    def _wait_for_checkpoints(self) -> None:
        """Wait until the broker has stored that everything below the active segments is flushed and replicated.

        3.9 does so for the first time 30 s after its start.
        """
        active = {partition: segment_bases(self._directory(partition))[-1] for partition in topics.PARTITIONS}

        def noted() -> bool:
            files = [checkpoint(self.broker.log_dirs, name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)]
            return all(file.get(partition, 0) >= offset for file in files for partition, offset in active.items())

        wait_until("recovery points and high watermarks", noted)

    def _cleaner_checkpoint(self) -> dict[Partition, int]:
        return checkpoint(self.broker.log_dirs, "cleaner-offset-checkpoint")

    def _directory(self, partition: Partition) -> Path:
        return directory_of(self.broker.log_dirs, partition)

    def _files(self) -> Files:
        return {partition: tree(self._directory(partition)) for partition in topics.PARTITIONS}
