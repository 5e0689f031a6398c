"""``__consumer_offsets`` and ``__transaction_state``, cleaned live while coordinators use them.

Kafka's cleaner is off in both brokers. The expected state of every group and transactional id is compared with the
coordinators' answers after they load the cleaned logs.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.admin import KafkaAdminClient

from cleanerd.broker.agent_transport import SOCKET
from tests.brokers.node import cleanerd, errors, wait_until
from tests.kafka.judge import fetch_jars
from tests.live.day import OF_MOVES
from tests.live.kill_moment import Strike
from tests.live.load import topic_config
from tests.live.proxy import Proxy
from tests.live.two_brokers import daemon_beside, lead, two_brokers
from tests.support.log_dirs import read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.daemon.process import Daemon

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
COORDINATORS: Final = tuple((topic, number) for topic in (OFFSETS, TRANSACTIONS) for number in range(2))
READ: Final = "read"
"""The topic whose offsets are committed."""
PARTITIONS: Final = 3
GROUPS: Final = 30
WRITERS: Final = 3
NEW_ID_SHARE: Final = 0.1
ABORTED_SHARE: Final = 0.3
PROPERTIES: Final = {
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "500",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
THE_SETTING: Final = f"*,{OFFSETS},{TRANSACTIONS}"

Offset = int | None


@dataclass
class Committed:
    """The offsets that may be committed, by group and partition. Several if the response to a commit was lost."""

    possible: dict[tuple[str, int], set[Offset]] = field(default_factory=dict)
    acknowledged: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def attempt(self, group: str, offsets: dict[int, Offset]) -> None:
        """Offsets were sent."""
        with self._lock:
            for partition, offset in offsets.items():
                self.possible.setdefault((group, partition), {None}).add(offset)

    def settle(self, group: str, offsets: dict[int, Offset]) -> None:
        """Offsets were acknowledged."""
        with self._lock:
            self.acknowledged += 1
            for partition, offset in offsets.items():
                self.possible[group, partition] = {offset}

    def before(self, group: str) -> dict[int, set[Offset]]:
        """The possible offsets by partition, to restore them when a transaction is aborted."""
        with self._lock:
            return {number: set(self.possible.get((group, number), {None})) for number in range(PARTITIONS)}

    def restore(self, group: str, before: dict[int, set[Offset]]) -> None:
        """The transaction was aborted: restore the previous offsets."""
        with self._lock:
            self.acknowledged += 1
            self.possible |= {(group, number): offsets for number, offsets in before.items()}

    def wrong(self, broker: Broker) -> list[str]:
        """Differences between the coordinators' answers and the expected offsets."""
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        found: dict[tuple[str, int], Offset] = {}
        for group in sorted({group for group, _ in self.possible}):
            arguments = [ConsumerGroupTopicPartitions(group)]
            (answer,) = admin.list_consumer_group_offsets(arguments, require_stable=True).values()
            for place in answer.result(PATIENCE_SECONDS).topic_partitions:
                found[group, place.partition] = None if place.offset < 0 else place.offset
        return [
            f"{group}, partition {number}: {found.get((group, number))}, not one of {offsets}"
            for (group, number), offsets in sorted(self.possible.items())
            if found.get((group, number)) not in offsets
        ]


@dataclass
class Traffic:
    """Commits of all kinds until the block ends, each repeated until it is acknowledged."""

    broker: Broker
    committed: Committed = field(default_factory=Committed)
    deleted: int = 0
    ended: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    problems: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        self._stop, self._local = threading.Event(), threading.local()
        jobs: list[Callable[[], None]] = [self._by_admin, self._delete_groups]
        jobs += [lambda kind=kind: self._subscribed(kind) for kind in ("classic", "consumer")]  # type: ignore[misc]
        jobs += [lambda number=number: self._in_transactions(number) for number in range(WRITERS)]  # type: ignore[misc]
        self._threads = [threading.Thread(target=self._guarded, args=(job,), daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def _guarded(self, job: Callable[[], None]) -> None:
        self._local.admin = self._client()
        try:
            job()
        except Exception as error:  # noqa: BLE001 - it must be seen in the test, not in a thread
            self.problems.append(f"{type(error).__name__}: {error}")

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def _until_acknowledged(self, ask: Callable[[AdminClient], None], *, done: tuple[str, ...] = ()) -> None:
        """Retry until acknowledged; ``done``: names of errors that mean an earlier try succeeded.

        Each retry uses a new client: librdkafka keeps asking the coordinator it knows, even when that has moved.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                ask(self._local.admin)
            except KafkaException as error:
                if error.args[0].name() in done:
                    return
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
                self._local.admin = self._client()
            else:
                return

    def _by_admin(self) -> None:
        """Commits for groups without members."""
        dice, offset = random.Random("admin"), 0
        while not self._stop.is_set():
            offset += 1
            some = dice.sample(range(GROUPS), 10)
            for group in [f"group-{number}" for number in some]:
                self._commit(group, dict.fromkeys(range(PARTITIONS), offset))

    def _commit(self, group: str, offsets: dict[int, Offset]) -> None:
        places = [TopicPartition(READ, number, offset or 0) for number, offset in offsets.items()]
        self.committed.attempt(group, offsets)

        def commit(admin: AdminClient) -> None:
            (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)]).values()
            for place in future.result(PATIENCE_SECONDS).topic_partitions:
                if place.error is not None:
                    raise KafkaException(place.error)

        self._until_acknowledged(commit)
        self.committed.settle(group, offsets)

    def _delete_groups(self) -> None:
        """Create and delete groups: their tombstones expire soon, and the groups must not come back."""
        while not self._stop.is_set():
            group = f"deleted-{self.deleted}"
            for offset in range(1, 4):
                self._commit(group, dict.fromkeys(range(PARTITIONS), offset))
            nothing: dict[int, Offset] = dict.fromkeys(range(PARTITIONS))
            self.committed.attempt(group, nothing)

            def delete(admin: AdminClient, group: str = group) -> None:
                (future,) = admin.delete_consumer_groups([group]).values()
                future.result(PATIENCE_SECONDS)

            self._until_acknowledged(delete, done=("GROUP_ID_NOT_FOUND",))
            self.committed.settle(group, nothing)
            self.deleted += 1
            time.sleep(0.2)

    def _subscribed(self, protocol: str) -> None:
        """A group with a member, of either protocol: its own records are between the offsets."""
        group = f"subscribed-{protocol}"
        consumer = Consumer({
            "bootstrap.servers": self.broker.bootstrap, "group.id": group, "enable.auto.commit": False,
            "group.protocol": protocol,
        })  # fmt: skip
        consumer.subscribe([READ])
        offset = 0
        try:
            while not self._stop.is_set():
                consumer.poll(0.05)
                assigned = consumer.assignment()
                if not assigned:
                    continue
                offset += 1
                offsets: dict[int, Offset] = {place.partition: offset for place in assigned}
                self.committed.attempt(group, offsets)
                places = [TopicPartition(READ, place.partition, offset) for place in assigned]
                try:
                    answers = consumer.commit(offsets=places, asynchronous=False)
                except KafkaException:
                    continue  # the coordinator moved, or the member was removed: the commit may have happened
                if all(place.error is None for place in answers or ()):
                    self.committed.settle(group, offsets)
        finally:
            consumer.close()

    def _in_transactions(self, number: int) -> None:
        """A third is aborted and must keep the offsets committed before. Sometimes a new transactional id starts."""
        group, dice, offset = f"eos-{number}", random.Random(number), 0
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group})
        name = f"id-{number}-{offset}"
        producer = self.new_producer(name)
        while not self._stop.is_set():
            if dice.random() < NEW_ID_SHARE:
                name = f"id-{number}-{offset}"
                producer = self.new_producer(name)
            offset += 1
            before = self.committed.before(group)
            offsets: dict[int, Offset] = dict.fromkeys(range(PARTITIONS), offset)
            self.committed.attempt(group, offsets)
            try:
                within_seconds(20, lambda p=producer, o=offset: write_in_transaction(p, consumer, number, o))  # type: ignore[misc]
                aborted = end(producer, aborted=dice.random() < ABORTED_SHARE)
            except (KafkaException, TimeoutError):
                # The response was lost with a broker: committed or not. The next producer of this id ends it.
                producer = self.new_producer(name)
                continue
            self.ended[aborted] += 1
            if aborted:
                self.committed.restore(group, before)
            else:
                self.committed.settle(group, offsets)
        consumer.close()

    def new_producer(self, name: str) -> Producer:
        """Fence the previous producer of this id and end its transaction."""
        producer = Producer({
            "bootstrap.servers": self.broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000,
        })  # fmt: skip
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                producer.init_transactions(PATIENCE_SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                self.ids.add(name)
                return producer


def within_seconds(seconds: float, call: Callable[[], None]) -> None:
    """Call with a time limit: librdkafka may query a former coordinator without end. The thread is then abandoned.

    Raises:
        TimeoutError: it did not end in time.
        KafkaException: what the call raised.
    """
    ended: Future[None] = Future()

    def run() -> None:
        try:
            ended.set_result(call())
        except BaseException as error:  # noqa: BLE001 - who waits for it gets it
            ended.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    ended.result(seconds)


def write_in_transaction(producer: Producer, consumer: Consumer, partition: int, offset: int) -> None:
    """Begin a transaction with a record and an offset for each partition; it stays open."""
    producer.begin_transaction()
    producer.produce(READ, value=b"%d" % offset, partition=partition)
    places = [TopicPartition(READ, each, offset) for each in range(PARTITIONS)]
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 15)


def end(producer: Producer, *, aborted: bool) -> bool:
    """End the transaction; returns whether it was aborted."""
    while True:
        try:
            (producer.abort_transaction if aborted else producer.commit_transaction)(15)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                aborted = True
            elif not error.args[0].retriable():
                raise
        else:
            return aborted


@dataclass
class Coordinators:
    """Both brokers, and a daemon beside each whose swaps are counted by topic."""

    nodes: tuple[Broker, Broker]
    proxies: list[Proxy]
    daemons: list[Daemon]
    swaps: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))

    def count_swaps(self) -> None:
        """Count swaps from now on."""
        for proxy, counter in zip(self.proxies, self.swaps, strict=True):

            def note(request: dict[str, Any], counter: Counter[str] = counter) -> None:
                counter[os.path.basename(request["dir"]).rpartition("-")[0]] += 1

            proxy.before_swap = note

    def lead(self, target: int) -> None:
        """Move every coordinator to that broker, which loads the state from its logs."""
        for topic, number in COORDINATORS:
            lead(self.nodes, topic, number, target)

    def kill_at_a_swap(self, number: int) -> None:
        """SIGKILL a broker while its agent has a swap to do, and start it again."""
        broker = self.nodes[number]
        strike = Strike(lambda: os.kill(broker.pid, signal.SIGKILL), 0.002)
        self.proxies[number].after_swap = strike
        wait_until("there is a swap", strike.done.is_set)
        self.proxies[number].after_swap = lambda: None
        broker.kill()
        broker.start()
        self.wait_until_in_sync()

    def kill_daemon(self, number: int) -> None:
        """SIGKILL the daemon while it waits for a swap, and start it again."""
        daemon = self.daemons[number]
        strike = Strike(daemon.process.kill, 0.0)
        self.proxies[number].after_swap = strike
        wait_until("there is a swap", strike.done.is_set)
        self.proxies[number].after_swap = lambda: None
        daemon.process.wait(PATIENCE_SECONDS)
        daemon.start()

    def wait_until_in_sync(self) -> None:
        """Wait until both replicas of every partition are in sync."""

        def in_sync() -> bool:
            try:
                topics = AdminClient({"bootstrap.servers": self.nodes[0].bootstrap}).list_topics(timeout=10).topics
            except KafkaException:
                return False
            return all(
                topic in topics and len(topics[topic].partitions[number].isrs) == 2 for topic, number in COORDINATORS
            )

        wait_until("both are in sync", in_sync)

    def wait_for_swaps(self, more: int) -> None:
        """Wait for ``count`` more swaps in both topics at both brokers."""
        wanted = [{topic: counter[topic] + more for topic in (OFFSETS, TRANSACTIONS)} for counter in self.swaps]
        wait_until(
            f"{wanted}",
            lambda: all(
                counter[topic] >= least
                for counter, want in zip(self.swaps, wanted, strict=True)
                for topic, least in want.items()
            ),
        )

    def check_logs(self) -> None:
        """No partition was quarantined; with both brokers stopped, every log passes ``verify``."""
        for number, (node, daemon) in reversed(list(enumerate(zip(self.nodes, self.daemons, strict=True)))):
            assert [each for each in daemon.ask("status")["partitions"] if each["state"] == "quarantined"] == []
            assert daemon.end(signal.SIGTERM) == 128 + signal.SIGTERM
            node.stop()
            assert not [each for each in errors(node.log_text()) if not any(word in each for word in OF_MOVES)]
            verified = cleanerd("verify", node.log_dirs, daemon.base / "state")
            assert verified.exit_code == 0, (number, verified.document, verified.stderr)

    def transactions(self, ids: set[str]) -> dict[str, tuple[str, int, int]]:
        """State, producer id and epoch by transactional id."""
        admin = KafkaAdminClient(bootstrap_servers=self.nodes[0].bootstrap)
        try:
            found = admin.describe_transactions(sorted(ids))
            return {name: (each.state.name, each.producer_id, each.producer_epoch) for name, each in found.items()}
        finally:
            admin.close()


@contextmanager
def coordinators(work_dir: Path) -> Iterator[Coordinators]:
    """Both brokers; the topics have small segments and a tombstone retention of one second."""
    with ExitStack() as stack:
        nodes = stack.enter_context(two_brokers(fetch_jars("4.3"), work_dir, properties=PROPERTIES))
        admin = AdminClient({"bootstrap.servers": nodes[0].bootstrap})
        config = topic_config(nodes[0], 10_000, min_cleanable_dirty_ratio="0.3", delete_retention_ms="1000")
        topics = [
            NewTopic(OFFSETS, 2, replica_assignment=[[1, 2], [2, 1]], config=config),
            NewTopic(TRANSACTIONS, 2, replica_assignment=[[1, 2], [2, 1]], config=config),
            NewTopic(READ, PARTITIONS, replica_assignment=[[1, 2]] * PARTITIONS),
        ]
        for future in admin.create_topics(topics).values():
            future.result(PATIENCE_SECONDS)
        proxies = [
            stack.enter_context(Proxy(work_dir / f"{number}.sock", node.log_dirs[0] / SOCKET))
            for number, node in enumerate(nodes)
        ]
        daemons = [
            stack.enter_context(
                daemon_beside(node, work_dir / f"daemon{number}", proxy.path, cleanerd_topics_include=THE_SETTING)
            )
            for number, (node, proxy) in enumerate(zip(nodes, proxies, strict=True))
        ]
        found = Coordinators(nodes, proxies, daemons)
        found.wait_until_in_sync()
        found.count_swaps()
        yield found


def records_in(broker: Broker, topic: str) -> int:
    """Number of records on a broker's disk, of all partitions."""
    directories = broker.log_dirs[0].glob(f"{topic}-?")
    return sum(len(batch.records) for each in directories for found in read_segments(each).values() for batch in found)


def test_coordinators(tmp_path: Path) -> None:
    """LT-20: after leader moves and kills during swaps every group has its last acknowledged offsets.

    Groups without members, with members of both protocols, deleted ones, and offsets of transactions. Transactional ids
    keep state, producer id and epoch; a transaction that stays open meanwhile can be committed at the end.
    """
    with coordinators(tmp_path) as both:
        first = both.nodes[0]
        with Traffic(first) as traffic:
            for number in (0, 1):
                both.lead(1 + number)
                both.kill_at_a_swap(number)
                both.kill_daemon(1 - number)
            both.wait_for_swaps(10)
        committed = traffic.committed
        assert traffic.problems == []
        unsure = [place for place, offsets in committed.possible.items() if len(offsets) > 1]
        assert len(unsure) <= len(committed.possible) // 5, "U-26: too many answers were lost"
        assert min(traffic.ended.values(), default=0) > 0
        assert traffic.deleted > 0
        held, holder = (
            traffic.new_producer("held"),
            Consumer({"bootstrap.servers": first.bootstrap, "group.id": "held"}),
        )
        write_in_transaction(held, holder, 0, 7)
        ids = both.transactions(traffic.ids)
        assert {state for state, _, _ in ids.values()} >= {"COMPLETE_COMMIT", "COMPLETE_ABORT", "ONGOING"}
        for target in (1, 2):
            both.lead(target)
            assert committed.wrong(first) == []
            assert both.transactions(traffic.ids) == ids
        for node in reversed(both.nodes):
            node.stop()
        for node in both.nodes:
            node.start()
        both.wait_until_in_sync()
        assert committed.wrong(first) == []
        assert both.transactions(traffic.ids) == ids
        assert not end(held, aborted=False)
        committed.settle("held", dict.fromkeys(range(PARTITIONS), 7))
        assert committed.wrong(first) == []
        both.check_logs()
    written = committed.acknowledged * PARTITIONS
    print(f"\n{committed.acknowledged} commits, {len(ids)} transactional ids, swaps {both.swaps}")  # noqa: T201 - figures
    assert all(records_in(node, OFFSETS) < written for node in both.nodes), "U-26: hardly anything was cleaned"
