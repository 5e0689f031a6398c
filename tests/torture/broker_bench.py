"""Runs the cases of :mod:`broker_calls`: a broker with partitions that may be damaged.

Each partition is alone in a log directory, and a case uses one of them without affecting the others. So the cases of a
batch run one after the other, and states that need a restart share one.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import Producer

from cleanerd.broker.agent_transport import SOCKET
from cleanerd.broker.live_log import RESTART
from cleanerd.cli import clean
from cleanerd.cli.main import run
from cleanerd_lab.demo.broker import Broker
from tests.agent.live import PROPERTIES, Topic
from tests.agent.raw_client import Asking, RefusedError
from tests.brokers.node import names_ending, open_files, wait_until
from tests.brokers.traffic import SILENT
from tests.crash.classify import STARTS, Classifier
from tests.kafka.judge import Judge, fetch_jars
from tests.live.load import create_topics
from tests.live.proxy import Proxy
from tests.live.rounds import with_agent
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.live_round import QUICK
from tests.torture.calls_bench import Done, forked, wrong_output
from tests.torture.seen import Seen, state_of
from tests.torture.shim import CLASSES, Fault, Struck, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

COUNTED: Final = Fault("counted", 0, CLASSES[: CLASSES.index("socket")])
KEYS: Final = 30
SEGMENT_BYTES: Final = 6000
SPARE: Final = 4
"""Log directories for the metadata and the broker's own topics."""
_DELETED_SECONDS: Final = 3.0
_GIVING_UP_SECONDS: Final = 10.0
"""The agent retries every second to rename the files of the new segment, then takes the log directory offline."""
_FOR_HALF: Final = "log_dir_failed: group"
_FOR_ANOTHER: Final = "log_dir_failed: the broker gives up the log directory"
"""The agent's messages for an offline directory: after its own half-finished swap, or for another reason."""
T = TypeVar("T")


@dataclass
class Stage:
    """Shared by all partitions."""

    broker: Broker
    proxy: Proxy
    switch: Switch
    judge: Judge
    work: Path

    def asking(self) -> Asking:
        """The agent itself."""
        return Asking(self.broker.log_dirs[0] / SOCKET)


class Victim:
    """A partition, alone in its log directory, that the case writes, cleans, reads and checks."""

    def __init__(self, stage: Stage, topic: Topic) -> None:
        self._stage = stage
        self.topic = topic
        self.directory = topic.directory
        self._dice = random.Random(topic.name)
        self._written = 0

    def write(self) -> None:
        """Write superseded records in several segments and two transactions, then roll the last segment.

        One transaction is committed, the other one aborted.
        """
        settings = {"bootstrap.servers": self._stage.broker.bootstrap, "linger.ms": 0}
        writer = Producer({**settings, "transactional.id": self.topic.name}, logger=SILENT)
        writer.init_transactions(PATIENCE_SECONDS)
        for aborts in (False, True):
            writer.begin_transaction()
            self._produce(writer, 12, counts=not aborts)
            if aborts:
                writer.abort_transaction(PATIENCE_SECONDS)
            else:
                writer.commit_transaction(PATIENCE_SECONDS)
        plain = Producer({**settings, "enable.idempotence": True}, logger=SILENT)
        for _ in range(6):
            self._produce(plain, 20)

    def _produce(self, producer: Producer, count: int, *, counts: bool = True) -> None:
        for _ in range(count):
            self._written += 1
            key, value = b"key-%d" % self._dice.randrange(KEYS), b"%08d" % self._written + self._dice.randbytes(150)
            if counts:
                self.topic.latest[key] = value
            producer.produce(self.topic.name, key=key, value=value, partition=0)
        if producer.flush(PATIENCE_SECONDS):
            raise AssertionError("not all records were acknowledged")

    def round(self, fault: Fault = COUNTED, call: int = -1) -> tuple[Seen, Done, Struck]:
        """``cleanerd clean --live``, including the removal of replaced segments."""
        with self._stage.asking() as agent:
            end = agent.ask("log", topic=self.topic.name, partition=0)["leo"]
        seen = Seen(state_of(self.directory), end)
        self._stage.proxy.before_swap = seen.note
        self._stage.switch.arm(self.directory, fault, call)
        done = forked(self._stage.work / "output", self._clean)
        deadline = time.monotonic() + _DELETED_SECONDS
        while list(self.directory.glob("*.deleted")) and time.monotonic() < deadline:
            time.sleep(0.05)
        struck = self._stage.switch.disarm()
        done = replace(done, seen=struck.seen, hits=struck.hits, call=struck.call, path=struck.path)
        return seen, done, struck

    def _clean(self) -> Done:
        """In a fork."""
        patience = replace(QUICK, deletion_seconds=PATIENCE_SECONDS)
        real = clean.SwappingBroker
        vars(clean)["SwappingBroker"] = lambda socket: real(socket, patience)
        settings = {
            "cleanerd.state.dir": self._stage.work / "state",
            "cleanerd.disk.reserve": 0,
            "cleanerd.agent.socket": self._stage.proxy.path,
        }
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = ["clean", "--live", "--yes", "--force", "--partition", self.directory.name]
        return Done(run([*command, str(self.topic.log_dir), *arguments]), "", [])

    def fail(self, fault: Fault, call: int) -> tuple[Done, list[str]]:
        """Clean with this fault, then make all checks that are possible before a restart, if it needs one."""
        seen, done, _ = self.round(fault, call)
        wrong = [*self._log(seen, done), *self._half_way(seen, done), *self._wrong_output(fault, done)]
        if self.is_offline():
            return done, wrong
        if not self.is_in_doubt():
            return done, wrong + self._descriptors()
        output = done.output if RESTART in done.output else self.round()[1].output
        # The agent tries every second to complete the swap, so the doubt may be over by now.
        if RESTART not in output and self.is_in_doubt():
            wrong.append(f"the message does not ask for a restart of the broker: {_listing(self.directory)}: {output}")
        return done, wrong

    def clean_again(self) -> list[str]:
        """Clean once more without a fault."""
        seen, done, _ = self.round()
        wrong = [] if done.code == 0 else [f"the next cleaning fails with exit code {done.code}: {done.output}"]
        return [*wrong, *self._log(seen, done), *self._descriptors()]

    def _log(self, seen: Seen, done: Done) -> list[str]:
        """Check what a broker start would load now, whether the broker is running or not."""
        swap = seen.swap()
        place = self._stage.work / "loaded"
        (verdict,) = Classifier(swap, self._stage.judge, place).judged([state_of(self.directory)], STARTS[1])
        if verdict.problem is not None:
            return [f"for Kafka's loader: {verdict.problem[:300]}: {_listing(self.directory)}"]
        if done.code == 0 and not seen.groups:
            return [f"nothing was swapped: {done.output}"]
        if done.code == 0 and verdict.swapped != swap.bases:
            return [f"exit code 0, and {verdict.swapped} of {swap.bases} are swapped: {done.output}"]
        return []

    def _half_way(self, seen: Seen, done: Done) -> list[str]:
        """A-24: the directory is offline exactly if the new segment and a source exist side by side.

        Unless the agent has completed the swap by then: it tries once a second, and the fault has ended.
        """
        if not seen.is_mixed(self.directory):
            return [f"taken offline, and no swap stopped half-way: {done.output}"] if _FOR_HALF in done.output else []
        deadline = time.monotonic() + _GIVING_UP_SECONDS
        while not self.is_offline() and seen.is_mixed(self.directory):
            if time.monotonic() > deadline:
                return [f"the broker runs although a swap stopped half-way: {_listing(self.directory)}: {done.output}"]
            time.sleep(0.1)
        return []

    def _wrong_output(self, fault: Fault, done: Done) -> list[str]:
        """If the broker took the log directory offline, its log has the reason; cleanerd must report that state."""
        reported = "no_log" in done.output or _FOR_ANOTHER in done.output
        return [] if reported and self.is_offline() else wrong_output(fault, done, self.directory.name)

    def _descriptors(self) -> list[str]:
        """Files without a name, or with a temporary name of a swap, that the broker's JVM has open.

        Kafka's own code leaves a file to the garbage collector if its size cannot be read.
        """
        if self._open_for_nothing():
            subprocess.run(["jcmd", str(self._stage.broker.pid), "GC.run"], check=True, capture_output=True)
        deadline = time.monotonic() + _DELETED_SECONDS
        while left := self._open_for_nothing():
            if time.monotonic() > deadline:
                return [f"the broker has open: {left}"]
            time.sleep(0.1)
        return []

    def _open_for_nothing(self) -> list[str]:
        open_now = [path for path in open_files(self._stage.broker.pid) if path.startswith(str(self.directory))]
        endings = (" (deleted)", ".deleted", ".swap", ".cleaned")
        return [path for path in open_now if path.endswith(endings) or "/.kstage/" in path]

    def left(self) -> list[str]:
        return names_ending([self.directory], ".swap", ".cleaned", ".kstage", ".deleted")

    def is_in_doubt(self) -> bool:
        """Whether a half-finished swap is there (U-34)."""
        return bool(names_ending([self.directory], ".swap", ".cleaned"))

    def is_offline(self) -> bool:
        """Whether the broker has taken its log directory offline."""
        try:
            with self._stage.asking() as agent:
                agent.ask("log", topic=self.topic.name, partition=0)
        except RefusedError:
            return True
        return False

    def needs_a_restart(self) -> bool:
        """Whether only a restart restores it."""
        return self.is_offline() or self.is_in_doubt()

    def read(self, when: str) -> list[str]:
        """Compare every key's last value for a read_committed consumer."""
        found = self.topic.read()
        if found == self.topic.latest:
            return []
        differ = {
            key for key in found.keys() | self.topic.latest.keys() if found.get(key) != self.topic.latest.get(key)
        }
        return [f"{when} a reader of committed records finds other values of {sorted(differ)}"]


class BrokerBench:
    """A broker whose calls can be made to fail, and partitions for the cases."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.restarts = 0
        self.start()
        self._victims = self._partitions(len(stage.broker.log_dirs) - SPARE)
        for _ in range(2):  # later cleanings are like the previous one
            self._write(self._victims)
            for each in self._victims:
                seen, done, _ = each.round()
                if done.code != 0 or not seen.groups:
                    raise AssertionError(f"{len(seen.groups)} groups, exit code {done.code}: {done.output}")

    @property
    def size(self) -> int:
        """Number of cases that run at once."""
        return len(self._victims)

    def start(self) -> None:
        """Start the broker with the library that makes calls fail."""
        with self._stage.switch.listening():
            self._stage.broker.start()

    def _partitions(self, count: int) -> list[Victim]:
        """Each alone in a directory, apart from the metadata, whose loss stops a broker, and the broker's topics."""
        broker = self._stage.broker
        first = self._new_topic("first")
        Victim(self._stage, first).write()  # creates the broker's own topics
        found: dict[Path, Victim] = {}
        for number in range(8 * len(broker.log_dirs)):
            topic = self._new_topic(f"faults{number}")
            taken = {path.parent for log_dir in broker.log_dirs for path in log_dir.glob("__*")} | {first.log_dir}
            if topic.log_dir not in taken:
                found.setdefault(topic.log_dir, Victim(self._stage, topic))
            if len(found) == count:
                return list(found.values())
        raise AssertionError(f"the broker puts its topics into {len(found)} of its directories")

    def _new_topic(self, name: str) -> Topic:
        create_topics(self._stage.broker, [name], segment_bytes=SEGMENT_BYTES, file_delete_delay_ms="100")
        return Topic(self._stage.broker, name)

    def count(self) -> dict[str, int]:
        """Number of calls per class in a cleaning without a fault."""
        victim = self._victims[0]
        self._write([victim])
        _, done, struck = victim.round()
        if done.code != 0:
            raise AssertionError(f"exit code {done.code}: {done.output}")
        return {name: calls for name, calls in struck.by_class.items() if name in COUNTED.classes}

    def fail(self, fault: Fault, call: int) -> tuple[Done, list[str]]:
        """Clean with this fault, and make all checks."""
        (found,) = self.fail_each([(fault, call)])
        return found

    def fail_each(self, faults: Sequence[tuple[Fault, int]]) -> list[tuple[Done, list[str]]]:
        """The same for several cases, at most one per partition: outputs and problems."""
        victims = self._victims[: len(faults)]
        self._write(victims)
        found = [victim.fail(fault, call) for victim, (fault, call) in zip(victims, faults, strict=True)]
        if any(each.needs_a_restart() for each in victims):
            self._restart()
        wrong = [reported for _, reported in found]
        _add(wrong, _at_once(lambda each: each.read("after it"), victims))
        self._write(victims)
        _add(wrong, [each.clean_again() for each in victims])
        _add(wrong, _at_once(lambda each: each.read("after the next cleaning"), victims))
        if any(name.endswith(".snapshot.deleted") for each in victims for name in each.left()):
            self._restart()  # a snapshot that the broker renamed and lost track of is removed at its next start
        left = [each.left() for each in victims]
        _add(wrong, [[f"files left after the next cleaning: {names}"] if names else [] for names in left])
        return found

    def _write(self, victims: Sequence[Victim]) -> None:
        _at_once(lambda each: each.write(), victims)
        for each in victims:
            each.topic.wait_until_settled()

    def _restart(self) -> None:
        self._stage.broker.kill()
        self.start()
        self.restarts += 1
        wait_until("the partitions are there again", lambda: not any(each.is_offline() for each in self._victims))


def _add(wrong: list[list[str]], more: list[list[str]]) -> None:
    for reported, added in zip(wrong, more, strict=True):
        reported.extend(added)


def _at_once(do: Callable[[Victim], T], victims: Sequence[Victim]) -> list[T]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(do, victims))


def _listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith((".snapshot", "index", "log")))


@contextmanager
def broker_bench(release: str, judge: Judge, partitions: int = 1) -> Iterator[BrokerBench]:
    """A broker of that release, removed with its files at the end. ``partitions``: cases at once."""
    work = Path(tempfile.mkdtemp(prefix=f"broker-calls-{release}-"))
    jars = fetch_jars(release)
    broker = Broker(
        jars.libs,
        work / "broker",
        version=jars.version,
        properties=PROPERTIES,
        jvm_args=with_agent(),
        log_dirs=partitions + SPARE,
    )
    try:
        with Switch(work / "control") as switch, Proxy(work / "proxy.sock", broker.log_dirs[0] / SOCKET) as proxy:
            yield BrokerBench(Stage(broker, proxy, switch, judge, work))
    finally:
        broker.kill()
        shutil.rmtree(work)
