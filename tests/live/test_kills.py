"""LT-4: broker, cleanerd or both killed around a swap: every group old or new, nothing lost, nothing left behind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer

from cleanerd.broker.agent_transport import SOCKET
from cleanerd_lab.demo.broker import Broker
from tests.brokers.node import cleanerd, names_ending, wait_until
from tests.kafka.judge import fetch_jars
from tests.live.ledger import Place, Written
from tests.live.load import Load, Writing, create_topics
from tests.live.proxy import Proxy
from tests.live.rounds import with_agent
from tests.support.length import at_length
from tests.support.log_dirs import batches_of, read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

TOPIC = Writing("kills", "plain", "lz4")
KEYS = 60
IN_BETWEEN = "between request and answer"
Records = list[tuple[int, bytes | None, bytes | None]]


@dataclass
class Asked:
    """The last swap request, and the records of its group before and after by what lay on the disk then."""

    directory: Path
    base: int
    end: int
    old: Records
    new: Records


@dataclass
class Killing:
    """A broker with a log that grows, and rounds of cleanerd of which somebody does not see the end."""

    broker: Broker
    proxy: Proxy
    state: Path
    dice: random.Random
    load: Load = field(init=False)
    asked: Asked | None = None
    moments: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    written: int = 0

    def __post_init__(self) -> None:
        self.load = Load(self.broker, (TOPIC,))
        self.proxy.before_swap = self._note

    def write(self, records: int) -> None:
        """All of them acknowledged."""
        place = Place(TOPIC.topic, 0)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, **TOPIC.properties()})

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            written = Written(message.key(), message.value(), message.timestamp()[1])
            self.load.ledger.add(place, message.offset(), written)

        for _ in range(records):
            value = b"%d:" % self.written + os.urandom(60).hex().encode()
            producer.produce(
                TOPIC.topic, key=b"k%d" % self.dice.randrange(KEYS), value=value, partition=0, on_delivery=delivered
            )
            self.written += 1
        assert producer.flush(PATIENCE_SECONDS) == 0

    def cleanerd(self) -> subprocess.Popen[bytes]:
        """A round in a process of its own, through the proxy.

        On a partition that is named: otherwise one that cleanerd was killed at twice would be left alone for a while.
        """
        command = [sys.executable, "-m", "cleanerd", "clean", "--live", "--yes", "--force", "--quiet"]
        command += ["--partition", f"{TOPIC.topic}-0"]
        settings = {
            "cleanerd.state.dir": self.state,
            "cleanerd.disk.reserve": 0,
            "cleanerd.agent.socket": self.proxy.path,
        }
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return subprocess.Popen([*command, *map(str, self.broker.log_dirs), *words], stdout=subprocess.DEVNULL)

    def _note(self, request: dict[str, Any]) -> None:
        (group,) = request["groups"]
        directory = Path(request["dir"])
        staged = directory / ".kstage" / request["plan"] / group["files"]["log"]
        if not staged.exists():  # the repeat of a request that was carried out
            return
        old = [r for source in group["sources"] for r in records(directory / f"{source['base']:020d}.log")]
        self.asked = Asked(directory, group["base"], group["end"], old, records(staged))

    def kill_once(self, victims: str, *, at_swap: bool) -> None:
        """One round with a death in it, and what is there afterwards."""
        self.write(500)
        self.asked = None
        process = self.cleanerd()
        struck = threading.Event()

        def strike() -> None:
            if struck.is_set():
                return
            struck.set()
            moment = self._moment()
            if "broker" in victims:
                os.kill(self.broker.pid, signal.SIGKILL)
            if "cleanerd" in victims:
                process.kill()
            self.moments[moment] += 1

        if at_swap:
            delay = self.dice.uniform(0, 0.008)
            self.proxy.after_swap = lambda: (time.sleep(delay), strike())[1]
        else:
            self.proxy.after_swap = lambda: None
            timer = threading.Timer(self.dice.uniform(0.3, 1.2), strike)
            timer.start()
            timer.join()
        if victims == "broker":
            assert struck.wait(PATIENCE_SECONDS)
            self._start_again()
        code = process.wait(PATIENCE_SECONDS)
        assert code == 0 or struck.wait(PATIENCE_SECONDS)
        if "broker" in victims and victims != "broker":
            self._start_again()
        self.outcomes[f"{victims}: {code}"] += 1
        if victims != "broker":
            self._check_group()
        self._check_content()

    def _moment(self) -> str:
        if not self.proxy.asked_at or self.asked is None:
            return "before a request"
        return "after its answer" if self.proxy.answered_at else IN_BETWEEN

    def _start_again(self) -> None:
        self.broker.kill()
        self.broker.start()

    def _check_group(self) -> None:
        """Exactly old or exactly new (K-1 .. K-8); the agent may still be at it when cleanerd alone died."""
        if self.asked is None:
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                found = [
                    record
                    for base, batches in read_segments(self.asked.directory).items()
                    if self.asked.base <= base < self.asked.end
                    for batch in batches
                    for record in ((each.offset, each.key, each.value) for each in batch.records)
                ]
            except FileNotFoundError:
                continue
            if found in (self.asked.old, self.asked.new):
                self.outcomes["new" if found == self.asked.new else "old"] += 1
                return
            assert time.monotonic() < deadline, "a mixture"
            time.sleep(0.05)

    def _check_content(self) -> None:
        self.load.read_all("read_committed")
        assert self.load.ledger.problems == []


def records(path: Path) -> Records:
    """Offset, key and value of every record of a segment."""
    return [(r.offset, r.key, r.value) for batch in batches_of(path.read_bytes()) for r in batch.records]


def leftovers(broker: Broker) -> list[str]:
    """What an interrupted swap could leave."""
    return names_ending(broker.log_dirs, ".kstage", ".swap", ".cleaned")


# A broker's restart takes ten seconds here.
MOSTLY_CLEANERD: Final = ("cleanerd", "cleanerd", "broker", "cleanerd", "cleanerd", "broker and cleanerd")


@contextmanager
def killing_field(profile: str) -> Iterator[Killing]:
    """A broker of that release for as many kills as one likes; what is left in the end is looked at."""
    work = Path(tempfile.mkdtemp(prefix=f"kills-{profile}-"))
    jars = fetch_jars(profile)
    broker = Broker(jars.libs, work / "broker", version=jars.version, jvm_args=with_agent())
    try:
        broker.start()
        create_topics(broker, [TOPIC.topic], segment_bytes=12_000)
        with Proxy(work / "proxy.sock", broker.log_dirs[0] / SOCKET) as proxy:
            killing = Killing(broker, proxy, work / "state", random.Random(0))
            yield killing
            finish(killing)
    finally:
        broker.kill()
        shutil.rmtree(work)


def finish(killing: Killing) -> None:
    """A round that nobody disturbs, and then nothing is left of any swap, and the log is right."""
    broker = killing.broker
    killing.proxy.after_swap = lambda: None
    killing.write(500)
    time.sleep(1)  # file.delete.delay.ms
    assert killing.cleanerd().wait(PATIENCE_SECONDS) == 0
    killing.load.check()
    wait_until("nothing is left", lambda: leftovers(broker) == [])
    broker.stop()
    verified = cleanerd("verify", broker.log_dirs, killing.state)
    assert verified.exit_code == 0, (verified.document, verified.stderr)


def kill(start: StartBroker, tmp_path: Path, kills: int, victims: tuple[str, ...]) -> Killing:
    """``kills`` deaths of ``victims`` in turn, most of them at a swap; then a round that nobody disturbs.

    More of them, on a machine that strikes too late, until half of ``kills`` came between request and answer.
    """
    broker = start(log_dirs=1, jvm_args=with_agent())
    create_topics(broker, [TOPIC.topic], segment_bytes=12_000)
    with Proxy(tmp_path / "proxy.sock", broker.log_dirs[0] / SOCKET) as proxy:
        killing = Killing(broker, proxy, tmp_path / "state", random.Random(kills))
        number = 0
        while number < kills or (2 * killing.moments[IN_BETWEEN] < kills and number < 4 * kills):
            killing.kill_once(victims[number % len(victims)], at_swap=number % 5 != 4)
            number += 1
        finish(killing)
    print("\n", dict(killing.moments), dict(killing.outcomes))  # noqa: T201 - the histogram of moments is the proof
    return killing


@pytest.mark.parametrize("kills", [len(MOSTLY_CLEANERD), pytest.param(10, marks=pytest.mark.long)])
def test_some_kills(broker_43: StartBroker, tmp_path: Path, kills: int) -> None:
    """Each kind of death; half of them at least between request and answer."""
    killing = kill(broker_43, tmp_path, kills, MOSTLY_CLEANERD)
    assert 2 * killing.moments[IN_BETWEEN] >= kills, killing.moments
    assert sum(killing.moments.values()) >= kills - 1


@pytest.mark.long
@pytest.mark.parametrize("release", ["44", "33"])
def test_kills_of_other_releases(request: pytest.FixtureRequest, release: str, tmp_path: Path) -> None:
    """R-2: the newest release and the oldest."""
    start: StartBroker = request.getfixturevalue(f"broker_{release}")
    killing = kill(start, tmp_path, 10, MOSTLY_CLEANERD)
    assert sum(killing.moments.values()) >= 9


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_many_kills(broker_43: StartBroker, tmp_path: Path) -> None:
    """The same for longer."""
    kills = at_length(40)
    killing = kill(broker_43, tmp_path, kills, MOSTLY_CLEANERD)
    assert 2 * killing.moments[IN_BETWEEN] >= kills, killing.moments
