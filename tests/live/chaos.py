"""Random events on two loaded brokers with a daemon beside each; a seed fixes their order.

The tests aim at broker events during a swap: the agents of these brokers pause at named points of the swap.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from cleanerd.broker.agent_transport import SOCKET
from tests.agent.building import build
from tests.agent.live import PROPERTIES
from tests.brokers.node import cleanerd, errors, wait_until
from tests.kafka.judge import fetch_jars
from tests.live.day import APPEND_REFUSED, OF_MOVES, without_early_appends
from tests.live.kill_checks import leftovers
from tests.live.kill_moment import Strike
from tests.live.load import Load, Writing, topic_config
from tests.live.proxy import Proxy
from tests.live.shared_broker import delete, read, write
from tests.live.two_brokers import (
    LOST,
    daemon_beside,
    in_sync,
    lead,
    leader,
    move,
    reassign,
    replicas,
    rows,
    two_brokers,
    write_lost_records,
)
from tests.support.log_dirs import read_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.daemon.process import Daemon

PARTITIONS: Final = 2
CUT: Final = "cut"
"""The test calls DeleteRecords on this topic."""
NATIVE: Final = "native"
"""Kafka's own cleaner cleans this topic as well."""
WRITINGS: Final = (
    Writing("plain", "plain", "none"),
    Writing("idempotent", "idempotent", "lz4"),
    Writing("transactional", "transactional", "zstd"),
    Writing(NATIVE, "idempotent", "gzip"),
    Writing(CUT, "idempotent", "snappy"),
)
PASSING: Final = "passing"
"""The test deletes this topic and creates it again under the same name."""
MOMENTS: Final = ("validated", "locked", "opened", "named", "moved", "swapped", "checkpoint")
NOT_OF_LOGS: Final = (*OF_MOVES, "kafka.server.ControllerApis")
"""Expected errors of stopping brokers: a starting or stopping controller also refuses requests of a previous broker
process.
"""
_MOVED: Final = re.compile(
    r"\[(?P<at>[^\]]+)\].* successfully replaced with the future replica for (?P<partition>\S+)$"
)
_NOT_VERIFIED: Final = "InvalidTxnStateException: Record was not part of an ongoing transaction"
_SOON: Final = timedelta(seconds=10)
LEAST_SWAPS: Final = 21
"""Per broker: a run with fewer swaps shows too little (U-26)."""
SLOW_SECONDS: Final = 900
INSIDE_SECONDS: Final = 0.7
"""Longest pause inside a swap while the other event happens."""


@dataclass
class Chaos:
    """Both brokers, a daemon beside each, and the events so far."""

    nodes: tuple[Broker, Broker]
    proxies: list[Proxy]
    daemons: list[Daemon]
    moments: list[Path]
    load: Load
    dice: random.Random
    happened: Counter[str] = field(default_factory=Counter)
    swaps: list[int] = field(default_factory=lambda: [0, 0])

    def __post_init__(self) -> None:
        for number, proxy in enumerate(self.proxies):

            def note(_request: dict[str, Any], number: int = number) -> None:
                self.swaps[number] += 1

            proxy.before_swap = note

    @property
    def events(self) -> dict[str, Callable[[], None]]:
        """All events, by name."""
        return {
            "a replica moves to the other log directory": self.move_directory,
            "another broker leads": self.lead_elsewhere,
            "a replica is made again from cleaned segments": self.new_replica,
            "a topic is deleted and created again": self.delete_and_create_topic,
            "records are deleted": self.delete_records,
            "a broker is killed at a swap": lambda: self.at_a_swap(signal.SIGKILL),
            "a broker is stopped at a swap": lambda: self.at_a_swap(signal.SIGTERM),
            "a broker is killed inside a swap": lambda: self.inside_a_swap("kill"),
            "a broker is stopped inside a swap": lambda: self.inside_a_swap("stop"),
            "another broker leads inside a swap": lambda: self.inside_a_swap("lead"),
            "records are deleted inside a swap": lambda: self.inside_a_swap("delete records"),
            "a leader dies with records that only it has": self.truncate,
            "a daemon is killed at a swap": self.kill_daemon,
        }

    def play(self, seconds: float) -> None:
        """Run events one after the other, every kind once before any repeats; after each, both replicas are in sync.

        On a slow machine it goes on until each agent has made ``LEAST_SWAPS``.
        """
        deadline = time.monotonic() + seconds
        waiting: list[str] = []
        while time.monotonic() < deadline or waiting or min(self.swaps) < LEAST_SWAPS:
            assert time.monotonic() < deadline + SLOW_SECONDS, self.swaps
            waiting = waiting or self.dice.sample(sorted(self.events), len(self.events))
            name = waiting.pop()
            began = time.monotonic()
            self.events[name]()
            self.wait_until_in_sync()
            self.happened[name] += 1
            print(f"{time.monotonic() - began:5.1f} s  {name}; {self.swaps} swaps", flush=True)  # noqa: T201
            assert not self.load.ledger.problems, self.load.ledger.problems[:5]
            for daemon in self.daemons:
                assert daemon.process.poll() is None, daemon.log.read_text()[-3000:]

    def wait_until_in_sync(self) -> None:
        """Wait until both replicas of every partition are in sync."""

        def reached() -> bool:
            try:
                return in_sync(self.nodes[0], WRITINGS)
            except KafkaException:
                return False

        wait_until("both are in sync", reached)

    def a_place(self, topic: str = "") -> tuple[str, int]:
        """A random partition, of any topic or of the named one."""
        return topic or self.dice.choice(WRITINGS).topic, self.dice.randrange(PARTITIONS)

    # -- what a cluster does ------------------------------------------------------------------------------------------

    def move_directory(self) -> None:
        """Move one replica to another log directory while the daemon is running."""
        number = self.dice.randrange(2)
        move(self.nodes[number], number + 1, *self.a_place())

    def lead_elsewhere(self) -> None:
        """Run a controlled leader election."""
        topic, partition = self.a_place()
        lead(self.nodes, topic, partition, 3 - leader(self.nodes[0], topic, partition))

    def new_replica(self) -> None:
        """Delete a replica with its files; it then fetches the log that the other broker has cleaned."""
        topic, partition = self.a_place()
        stays = self.dice.choice((1, 2))
        reassign(self.nodes, topic, partition, stays)
        admin = KafkaAdminClient(bootstrap_servers=self.nodes[0].bootstrap)
        try:
            admin.alter_partition_reassignments({TopicPartition(topic, partition): [stays, 3 - stays]})
        finally:
            admin.close()
        wait_until("the replica is created again", lambda: replicas(self.nodes[0], topic, partition) == [1, 2])

    def delete_and_create_topic(self) -> None:
        """Write, perhaps clean, read and delete a topic; it must contain no records of its predecessor."""
        self.create(PASSING, 1, min_cleanable_dirty_ratio="0.01")
        latest = write(self.nodes[0], PASSING)
        time.sleep(self.dice.uniform(0, 3))
        assert read(self.nodes[0], PASSING) == latest
        delete(self.nodes[0], PASSING)
        wait_until(
            "the topic is deleted",
            lambda: not [d for n in self.nodes for d in n.log_dirs if (d / f"{PASSING}-0").is_dir()],
        )

    def delete_records(self) -> None:
        """Delete records up to an offset that may be in the middle of a batch."""
        topic, partition = self.a_place(CUT)
        (place,) = (each for each in self.load.places if each == (topic, partition))
        known = sorted(self.load.ledger.expected(place).values())
        if not known:
            return
        start = self.dice.randint(0, known[len(known) // 2])
        if self.load.ledger.is_cut(place, start):
            return
        self.load.ledger.cut(place, start)

        def deleted() -> bool:
            try:
                admin = KafkaAdminClient(bootstrap_servers=self.nodes[0].bootstrap)
                try:
                    admin.delete_records({TopicPartition(topic, partition): start}, timeout_ms=10_000)
                finally:
                    admin.close()
            except KafkaError:
                return False  # the leader is moving
            return True

        wait_until("records are deleted", deleted)

    # -- during a swap ------------------------------------------------------------------------------------------------

    def at_a_swap(self, number: signal.Signals) -> None:
        """Send the signal a few milliseconds after the agent received a swap request."""
        which = self.dice.randrange(2)
        broker, proxy = self.nodes[which], self.proxies[which]
        strike = Strike(lambda: os.kill(broker.pid, number), self.dice.uniform(0, 0.008))
        proxy.after_swap = strike
        wait_until("a swap is requested", strike.done.is_set)
        proxy.after_swap = lambda: None
        self.end(broker, number)
        broker.start()

    def end(self, broker: Broker, number: signal.Signals) -> None:
        """Wait until it ends."""
        (broker.kill if number == signal.SIGKILL else broker.stop)()

    def inside_a_swap(self, what: str) -> None:
        """Run the event while a swap is paused at one of its named points."""
        which, moment = self.dice.randrange(2), self.dice.choice(MOMENTS)
        broker, place = self.nodes[which], self.moments[which]
        jobs: dict[str, Callable[[], None]] = {
            "kill": lambda: self.end(broker, signal.SIGKILL),
            "stop": lambda: self.end(broker, signal.SIGTERM),
            "lead": self.lead_elsewhere,
            "delete records": self.delete_records,
        }
        stop, reached = place / f"{moment}.stop", place / f"{moment}.reached"
        stop.touch()
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                jobs[what]()
            except BaseException as error:  # noqa: BLE001 - it must be seen in the test, not in a thread
                failed.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        try:
            wait_until(f"a swap is at {moment}", reached.exists)
            thread.start()
            thread.join(INSIDE_SECONDS)
        finally:
            reached.unlink(missing_ok=True)
            stop.unlink()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive(), (what, moment)
        assert not failed, (what, moment, failed)
        if not broker.running:
            broker.start()

    def truncate(self) -> None:
        """End an epoch with records that only one replica has; that broker must truncate them (A-14)."""
        topic = self.dice.choice(("idempotent", "transactional"))
        lead(self.nodes, topic, 0, 2)
        self.wait_until_in_sync()
        write_lost_records(self.nodes, topic)
        self.nodes[1].start()

    def kill_daemon(self) -> None:
        """Kill the daemon and start it again."""
        which = self.dice.randrange(2)
        daemon = self.daemons[which]
        strike = Strike(daemon.process.kill, self.dice.uniform(0, 0.008))
        self.proxies[which].after_swap = strike
        wait_until("a swap is requested", strike.done.is_set)
        self.proxies[which].after_swap = lambda: None
        daemon.process.wait(PATIENCE_SECONDS)
        daemon.start()

    # -- before and after ---------------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int, **more: str) -> None:
        """Create the topics on both brokers, and wait until their replicas are in sync."""
        admin = AdminClient({"bootstrap.servers": self.nodes[0].bootstrap})
        config = topic_config(self.nodes[0], 10_000, delete_retention_ms="2000", **more)
        assigned = [[1 + number % 2, 2 - number % 2] for number in range(partitions)]
        (future,) = admin.create_topics(
            [NewTopic(topic, partitions, replica_assignment=assigned, config=config)]
        ).values()
        future.result(PATIENCE_SECONDS)

    def check(self) -> None:
        """Both readers find the state of the model, both replicas agree, and ``verify`` finds no problem."""
        self.load.check()
        for daemon in self.daemons:
            view = daemon.until("the daemon has scanned", lambda view: view["ready"])
            wrong = [each for each in view["partitions"] if each["state"] == "quarantined"]
            assert wrong == []
            assert view["totals"]["dead_workers"] == 0
            assert daemon.end(signal.SIGTERM) == 128 + signal.SIGTERM
        for node in self.nodes:
            wait_until("no files of a swap are left", lambda node=node: leftovers(node) == [])  # type: ignore[misc]
        for node, daemon in zip(reversed(self.nodes), reversed(self.daemons), strict=True):
            node.stop()
            log_text = without_early_appends(node.log_file.read_text(errors="replace"))
            reported = errors(without_lost_verifications(log_text))
            assert not [each for each in reported if not any(word in each for word in NOT_OF_LOGS)]
            verified = cleanerd("verify", node.log_dirs, daemon.base / "state")
            assert verified.exit_code == 0, (verified.document, verified.stderr)
        for place in self.load.places:
            name = f"{place.topic}-{place.partition}"
            both = [rows(node, name) for node in self.nodes]
            points = [max(checkpoints(node).get(name, 0), self.load.ledger.starts.get(place, 0)) for node in self.nodes]
            one, two = ({at: row for at, row in each.items() if at >= max(points)} for each in both)
            assert one == two, name
            assert all(both[0][offset] == both[1][offset] for offset in both[0].keys() & both[1].keys())
            for whole in both:
                assert LOST not in {value for _, value in whole.values()}
                self.load.check_winners(place, whole, name)


def without_lost_verifications(log_text: str) -> str:
    """A broker's log without the refused appends that Kafka itself causes when a replica moves between log directories.

    The moved log replaces the old one, which knew that the coordinator had verified a transaction. So an append that
    was verified before the move is refused, and the next one of its producer is out of order. Both are left out only
    in this order, and soon after a move of that partition.
    """
    moved: dict[str, datetime] = {}  # when, by partition
    unverified: set[str] = set()
    lines = log_text.splitlines()
    kept = []
    for line, cause in zip(lines, (*lines[1:], ""), strict=True):
        if found := _MOVED.match(line):
            moved[found["partition"]] = datetime.fromisoformat(found["at"])
        elif found := APPEND_REFUSED.match(line):
            name, at = found["partition"], datetime.fromisoformat(found["at"])
            is_soon = name in moved and at - moved[name] < _SOON
            if is_soon and cause.endswith(_NOT_VERIFIED):
                unverified.add(name)
                continue
            if is_soon and "OutOfOrderSequenceException" in cause and name in unverified:
                unverified.remove(name)
                continue
        kept.append(line)
    return "\n".join(kept)


def checkpoints(node: Broker) -> dict[str, int]:
    """First dirty offset per partition, from the checkpoints of its log directories."""
    paths = [log_dir / "cleaner-offset-checkpoint" for log_dir in node.log_dirs]
    return {name: point for path in paths if path.exists() for name, point in read_checkpoint(path).items()}


@contextmanager
def chaos(work_dir: Path, dice: random.Random) -> Iterator[Chaos]:
    """The brokers, their topics and the daemons, without load."""
    moments = [work_dir / "moments1", work_dir / "moments2"]
    for place in moments:
        place.mkdir()
    jar = build(work_dir, "moments")
    one, two = ([f"-Dcleanerd.test.moments={place}", f"-javaagent:{jar}"] for place in moments)
    with ExitStack() as stack:
        nodes = stack.enter_context(
            two_brokers(fetch_jars("4.3"), work_dir, log_dirs=2, properties=PROPERTIES, jvm_args=(one, two))
        )
        proxies = [
            stack.enter_context(Proxy(work_dir / f"{number}.sock", node.log_dirs[0] / SOCKET))
            for number, node in enumerate(nodes)
        ]
        often = {f"topics_{each.topic}_min_cleanable_dirty_ratio": "0.05" for each in WRITINGS}
        daemons = [
            daemon_beside(node, work_dir / f"daemon{number}", proxy.path, **often)
            for number, (node, proxy) in enumerate(zip(nodes, proxies, strict=True))
        ]
        load = Load(nodes[0], WRITINGS, partitions=PARTITIONS, brokers_come_and_go=True, tombstones=0.1)
        found = Chaos(nodes, proxies, daemons, moments, load, dice)
        for each in WRITINGS:
            more = {NATIVE: {"min_cleanable_dirty_ratio": "0.01"}, CUT: {"cleanup_policy": "compact,delete"}}
            found.create(each.topic, PARTITIONS, **more.get(each.topic, {}))
        found.wait_until_in_sync()
        for daemon in daemons:
            stack.enter_context(daemon)
        yield found
