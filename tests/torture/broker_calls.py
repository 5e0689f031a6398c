"""Every i-th call of a broker's JVM below a partition's directory fails while it swaps what cleanerd asks for.

    python -m tests.torture.broker_calls                                        all of it, hours
    python -m tests.torture.broker_calls --release 4.3 --fault EIO --call 17    one case again, with what was said
    python -m tests.torture.broker_calls --count                                how many calls a swap makes

The calls are those of the agent and of the broker's own code in its service: looking, proving, renaming, opening,
flushing, replacing, and what is removed in the end. After each: the log is old or new for Kafka's loader; cleanerd
names what failed; no descriptor stays open; a reader of committed records misses nothing, after a restart where the
broker took the log directory offline; the next round ends well and leaves nothing.
"""

from __future__ import annotations

import argparse
import errno
import random
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from cleanerd.broker.agent_transport import SOCKET
from cleanerd.broker.live_log import RESTART
from cleanerd.cli import clean_live
from cleanerd.cli.main import run
from cleanerd_lab.demo.broker import Broker
from tests.agent.asking import Asking, RefusedError
from tests.agent.live import PROPERTIES, Topic
from tests.apply.live_scene import QUICK
from tests.brokers.node import names_ending, open_files, wait_until
from tests.brokers.traffic import SILENT
from tests.crash.classify import STARTS, Classifier
from tests.crash.live_swap import LiveSwap
from tests.crash.volume import State
from tests.kafka.judge import Judge, fetch_jars
from tests.live.load import create_topics
from tests.live.proxy import Proxy
from tests.live.rounds import with_agent
from tests.support.patience import PATIENCE_SECONDS
from tests.torture.calls_bench import Done, forked, wrong_words
from tests.torture.shim import CLASSES, FAULTS, Fault, Struck, Switch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cleaner.manifest import FileKind

RELEASES: Final = ("4.3", "3.9")
_NAMED: Final = ("open", "create", "rename", "unlink", "link", "mkdir", "list", "stat", "access", "change")
BROKER_FAULTS: Final = {
    **{name: FAULTS[name] for name in ("EIO", "EIO-lasting", "ENOSPC", "ENOSPC-lasting", "EMFILE", "EMFILE-lasting")},
    "EACCES": Fault("EACCES", errno.EACCES, _NAMED),
    "close": FAULTS["close"],
}
COUNTED: Final = Fault("counted", 0, CLASSES[: CLASSES.index("socket")])
KEYS: Final = 30
SEGMENT_BYTES: Final = 6000
_DELETED_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Case:
    """One call that fails."""

    release: str
    fault: str
    call: int

    @property
    def again(self) -> str:
        """The command that plays it again; which call has the number depends on the log in part."""
        told = f"--release {self.release} --fault {self.fault} --call {self.call}"
        return f".venv/bin/python -m tests.torture.broker_calls {told}"


@dataclass
class Seen:
    """One round: the log before the plan that was asked for last, what was asked of the agent, the log's end."""

    old: State
    end: int
    plan: str = ""
    outputs: dict[int, dict[FileKind, bytes]] = field(default_factory=dict)
    groups: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def note(self, request: dict[str, Any]) -> None:
        """A swap that is asked for, before the agent knows."""
        directory = Path(request["dir"])
        if request["plan"] != self.plan:  # a round that failed plans again, on what it has done
            self.plan, self.outputs, self.groups = request["plan"], {}, {}
            self.old = state_of(directory)
        for group in request["groups"]:
            folder = directory / ".kstage" / request["plan"]
            if all((folder / name).exists() for name in group["files"].values()):  # else a repeat: some have moved
                self.outputs[group["base"]] = {
                    kind: (folder / name).read_bytes() for kind, name in group["files"].items()
                }
                self.groups[group["base"]] = (group["end"], tuple(each["base"] for each in group["sources"]))

    def swap(self) -> LiveSwap:
        """What Kafka's loader may find: some first groups new, the others old."""
        active = max(int(name[:20]) for name in self.old.files if name.endswith(".log") and name[:20].isdigit())
        return LiveSwap(self.old, self.outputs, self.groups, (), self.end, active)


class BrokerBench:
    """A broker whose calls can be made to fail, and a partition of it in a log directory that it can do without."""

    def __init__(self, broker: Broker, proxy: Proxy, switch: Switch, judge: Judge, work: Path) -> None:
        self._broker, self._proxy, self._switch, self._judge, self._work = broker, proxy, switch, judge, work
        self._dice = random.Random(0)
        self._written = 0
        self.restarts = 0
        self.start()
        self.topic = self._new_topic()
        self.directory = self.topic.directory
        for _ in range(2):  # from then on a round is like the one before
            self._write()
            seen, done, _ = self._round(COUNTED, -1)
            if done.code != 0 or not seen.groups:
                raise AssertionError(f"{len(seen.groups)} groups, exit code {done.code}: {done.words}")

    def start(self) -> None:
        """So that its calls can fail."""
        with self._switch.listening():
            self._broker.start()

    def _new_topic(self) -> Topic:
        """Not in the directory with the metadata: a broker that loses that one ends."""
        for number in range(8):
            topic = Topic(self._broker, f"faults{number}")
            create_topics(self._broker, [topic.name], segment_bytes=SEGMENT_BYTES, file_delete_delay_ms="100")
            if topic.log_dir == self._broker.log_dirs[1]:
                return topic
        raise AssertionError("the broker puts everything into one directory")

    def count(self) -> dict[str, int]:
        """How many calls of each class a round makes, when nothing fails."""
        self._write()
        _, done, struck = self._round(COUNTED, -1)
        if done.code != 0:
            raise AssertionError(f"exit code {done.code}: {done.words}")
        return {name: calls for name, calls in struck.by_class.items() if name in COUNTED.classes}

    def play(self, case: Case) -> tuple[Done, list[str]]:
        """One case: what was said, and what is wrong."""
        return self.fail(BROKER_FAULTS[case.fault], case.call)

    def fail(self, fault: Fault, call: int) -> tuple[Done, list[str]]:
        """A round with this fault, and all that is looked at after it."""
        self._write()
        seen, done, struck = self._round(fault, call)
        done = replace(done, seen=struck.seen, hits=struck.hits, call=struck.call, path=struck.path)
        wrong = [*self._log(seen, done), *self._words(fault, done)]
        if self._is_offline():
            self._restart()
        elif self._is_in_doubt():
            words = done.words if RESTART in done.words else self._round(COUNTED, -1)[1].words
            if RESTART not in words:
                wrong.append(f"nobody is told to restart the broker: {_listing(self.directory)}: {words}")
            self._restart()
        else:
            wrong += self._descriptors()
        wrong += self._read("after it")
        wrong += self._again()
        return done, wrong

    def _write(self) -> None:
        """Superseded records in several segments, a committed and an aborted transaction, then what rolls the last."""
        settings = {"bootstrap.servers": self._broker.bootstrap, "linger.ms": 0}
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
        self.topic.wait_until_settled()

    def _produce(self, producer: Producer, count: int, *, counts: bool = True) -> None:
        for _ in range(count):
            self._written += 1
            key, value = b"key-%d" % self._dice.randrange(KEYS), b"%08d" % self._written + self._dice.randbytes(150)
            if counts:
                self.topic.latest[key] = value
            producer.produce(self.topic.name, key=key, value=value, partition=0)
        if producer.flush(PATIENCE_SECONDS):
            raise AssertionError("what was written was not acknowledged")

    def _asking(self) -> Asking:
        return Asking(self._broker.log_dirs[0] / SOCKET)

    def _round(self, fault: Fault, call: int) -> tuple[Seen, Done, Struck]:
        """``cleanerd clean --live``, up to the removal of what was replaced."""
        with self._asking() as agent:
            end = agent.ask("log", topic=self.topic.name, partition=0)["leo"]
        seen = Seen(state_of(self.directory), end)
        self._proxy.before_swap = seen.note
        self._switch.arm(self.directory, fault, call)
        done = forked(self._work / "words", self._clean)
        deadline = time.monotonic() + _DELETED_SECONDS
        while list(self.directory.glob("*.deleted")) and time.monotonic() < deadline:
            time.sleep(0.05)
        return seen, done, self._switch.disarm()

    def _clean(self) -> Done:
        """In a fork."""
        patience = replace(QUICK, deletion_seconds=PATIENCE_SECONDS)
        real = clean_live.SwappingBroker
        vars(clean_live)["SwappingBroker"] = lambda socket: real(socket, patience)
        settings = {
            "cleanerd.state.dir": self._work / "state",
            "cleanerd.disk.reserve": 0,
            "cleanerd.agent.socket": self._proxy.path,
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = ["clean", "--live", "--yes", "--force", "--partition", self.directory.name]
        return Done(run([*command, str(self.topic.log_dir), *words]), "", [])

    def _log(self, seen: Seen, done: Done) -> list[str]:
        """What a start would make of it now, be the broker at work or not."""
        swap = seen.swap()
        place = self._work / "loaded"
        (verdict,) = Classifier(swap, self._judge, place).judged([state_of(self.directory)], STARTS[1])
        if verdict.problem is not None:
            return [f"for Kafka's loader: {verdict.problem[:300]}: {_listing(self.directory)}"]
        if done.code == 0 and not seen.groups:
            return [f"nothing was swapped: {done.words}"]
        if done.code == 0 and verdict.swapped != swap.bases:
            return [f"exit code 0, and {verdict.swapped} of {swap.bases} are swapped: {done.words}"]
        return []

    def _words(self, fault: Fault, done: Done) -> list[str]:
        """Of a log directory that the broker has given up it tells in its own log why, and we that it did."""
        given_up = "no_log" in done.words and self._is_offline()
        return [] if given_up else wrong_words(fault, done, self.directory.name)

    def _descriptors(self) -> list[str]:
        """What the broker's JVM has open that has no name any more, or one that a swap gives for a while.

        Kafka's own code leaves a file to the garbage collector when it cannot be asked for its size.
        """
        if self._open_for_nothing():
            subprocess.run(["jcmd", str(self._broker.pid), "GC.run"], check=True, capture_output=True)
        deadline = time.monotonic() + _DELETED_SECONDS
        while left := self._open_for_nothing():
            if time.monotonic() > deadline:
                return [f"the broker has open: {left}"]
            time.sleep(0.1)
        return []

    def _open_for_nothing(self) -> list[str]:
        open_now = [path for path in open_files(self._broker.pid) if path.startswith(str(self.directory))]
        endings = (" (deleted)", ".deleted", ".swap", ".cleaned")
        return [path for path in open_now if path.endswith(endings) or "/.kstage/" in path]

    def _left(self) -> list[str]:
        return names_ending([self.directory], ".swap", ".cleaned", ".kstage", ".deleted")

    def _is_in_doubt(self) -> bool:
        """A swap that stopped half-way lies there (U-34)."""
        return bool(names_ending([self.directory], ".swap", ".cleaned"))

    def _is_offline(self) -> bool:
        try:
            with self._asking() as agent:
                agent.ask("log", topic=self.topic.name, partition=0)
        except RefusedError:
            return True
        return False

    def _restart(self) -> None:
        self._broker.kill()
        self.start()
        self.restarts += 1
        wait_until("the partition is there again", lambda: not self._is_offline())

    def _read(self, when: str) -> list[str]:
        """Of committed records every key's last value."""
        found = self.topic.read()
        if found == self.topic.latest:
            return []
        differ = {
            key for key in found.keys() | self.topic.latest.keys() if found.get(key) != self.topic.latest.get(key)
        }
        return [f"{when} a reader of committed records finds other values of {sorted(differ)}"]

    def _again(self) -> list[str]:
        """The next round, in peace; a swap in doubt asks for a restart, and gets it."""
        self._write()
        seen, done, _ = self._round(COUNTED, -1)
        wrong = [] if done.code == 0 else [f"the next round fails with exit code {done.code}: {done.words}"]
        wrong += self._log(seen, done) + self._read("after the next round") + self._descriptors()
        if any(name.endswith(".snapshot.deleted") for name in self._left()):
            self._restart()  # a snapshot that the broker renamed and forgot goes at its next start
        left = self._left()
        if left:
            wrong.append(f"after the next round there are left: {left}")
        return wrong


def state_of(directory: Path) -> State:
    """What lies there; of what the broker removes meanwhile nothing."""
    while True:
        with suppress(FileNotFoundError):
            return State.read(directory)


def _listing(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.endswith((".snapshot", "index", "log")))


@contextmanager
def broker_bench(release: str, judge: Judge) -> Iterator[BrokerBench]:
    """A broker of that release; it, and what it wrote, is gone in the end."""
    work = Path(tempfile.mkdtemp(prefix=f"broker-calls-{release}-"))
    jars = fetch_jars(release)
    broker = Broker(
        jars.libs, work / "broker", version=jars.version, properties=PROPERTIES, jvm_args=with_agent(), log_dirs=2
    )
    try:
        with Switch(work / "control") as switch, Proxy(work / "proxy.sock", broker.log_dirs[0] / SOCKET) as proxy:
            yield BrokerBench(broker, proxy, switch, judge, work)
    finally:
        broker.kill()
        shutil.rmtree(work)


def all_cases(release: str, by_class: dict[str, int], faults: Sequence[str] = tuple(BROKER_FAULTS)) -> list[Case]:
    """Every call that can fail so, once."""
    found = []
    for fault in (BROKER_FAULTS[each] for each in faults):
        total = sum(by_class.get(each, 0) for each in fault.classes)
        found += [Case(release, fault.name, call) for call in range(total)]
    return found


def main(arguments: Sequence[str]) -> int:
    """Play one case, all, or some that are drawn; the exit code is 1 when one is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--release", choices=RELEASES, action="append", default=[])
    parser.add_argument("--fault", choices=BROKER_FAULTS, action="append", default=[])
    parser.add_argument("--call", type=int, default=-1, help="only this one, and what it said")
    parser.add_argument("--count", action="store_true", help="only how many calls there are")
    parser.add_argument("--sample", type=int, default=0, help="so many of each release, drawn from all")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    faults, wrong_cases, played = options.fault or list(BROKER_FAULTS), 0, 0
    with Judge("4.3") as judge:
        for release in options.release or RELEASES:
            with broker_bench(release, judge) as here:
                by_class = here.count()
                cases = all_cases(release, by_class, faults)
                sys.stdout.write(f"{release}: {len(cases)} cases, {sum(by_class.values())} calls: {by_class}\n")
                sys.stdout.flush()
                if options.call >= 0:
                    cases = [Case(release, fault, options.call) for fault in faults]
                elif options.count:
                    continue
                elif options.sample:
                    cases = random.Random(options.seed).sample(cases, min(options.sample, len(cases)))
                for case in cases:
                    done, wrong = here.play(case)
                    played += 1
                    if options.call >= 0:
                        sys.stdout.write(f"{done.call} of {done.path}: exit code {done.code}\n{done.words}\n")
                    if wrong:
                        wrong_cases += 1
                        told = [case.again, f"{done.call} of {done.path}: exit code {done.code}", *wrong]
                        sys.stdout.write("\n  ".join(told) + "\n")
                        sys.stdout.flush()
                sys.stdout.write(f"{release}: {here.restarts} restarts\n")
    sys.stdout.write(f"{played} played, {wrong_cases} wrong\n")
    return int(wrong_cases > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
