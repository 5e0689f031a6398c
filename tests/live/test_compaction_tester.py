"""Kafka's own ``LogCompactionTester`` (test jar of 3.9.2), with cleanerd instead of the broker's cleaner.

It produces updates and deletes, reads all back, and compares the last value of every key. It never checks whether a
cleaning happened. So this test pauses it between writing and reading until records were removed.
"""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cleanerd.cleaner.index import DirtyIndex
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch_jars
from tests.live.rounds import Rounds, with_agent
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(900)]

ROWS: Final = re.compile(r"(\d+) rows of data produced, (\d+) rows of data consumed")
# Since 4.0 a broker refuses segment sizes below 1 MiB.
MESSAGES: Final = {"39": 40_000, "43": 250_000}
TOPICS: Final = 2
SEGMENT_BYTES: Final = {"39": 60_000, "43": 1_048_576}


@dataclass
class RunningTester:
    """The running program; ``output`` collects its output."""

    process: subprocess.Popen[str]
    message: str = ""

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.message += line

    def end(self) -> int:
        """Its exit code, after all of its output was read."""
        code = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        return code


@pytest.fixture
def rounds(request: pytest.FixtureRequest, tmp_path: Path) -> Rounds:
    """A broker without log cleaner, with the agent loaded."""
    start: StartBroker = request.getfixturevalue(f"broker_{request.param}")
    properties = {"log.cleaner.enable": "false", "log.segment.bytes": str(SEGMENT_BYTES[request.param])}
    properties["log.segment.delete.delay.ms"] = "500"  # the time before a replaced segment may be swapped again
    rounds = Rounds(start(jvm_args=with_agent(), properties=properties), tmp_path / "state")
    rounds.note_swaps()
    make_a_group(rounds.broker)
    return rounds


def make_a_group(broker: Broker) -> None:
    """Create the topic of consumer groups in advance: the program allows 20 seconds for its first poll."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "first"})
    try:
        wait_until("groups work", lambda: _answers(consumer), PATIENCE_SECONDS)
    finally:
        consumer.close()


def _answers(consumer: Consumer) -> bool:
    try:
        return bool(consumer.committed([TopicPartition("none", 0)], 5))
    except KafkaException:
        return False


@pytest.fixture
def tester(rounds: Rounds, tmp_path: Path) -> Iterator[RunningTester]:
    """The started program; a tenth of its updates are deletes."""
    process = start_tester(rounds.broker, tmp_path)
    yield RunningTester(process)
    process.kill()
    process.wait()


def start_tester(broker: Broker, scratch: Path) -> subprocess.Popen[str]:
    """Its files, and those of the ``sort`` that it runs, are in ``scratch``."""
    classes = ":".join(f"{fetch_jars(profile).libs}/*" for profile in ("3.9", "3.9-tests"))
    messages = MESSAGES["39" if broker.version.startswith("3.") else "43"]
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={scratch}", "-cp", classes]
    command += ["kafka.tools.LogCompactionTester", "--bootstrap-server", broker.bootstrap, "--topics", str(TOPICS)]
    command += ["--messages", str(messages), "--percent-deletes", "10", "--compression-type", "lz4", "--sleep", "5"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=scratch)


def clean_while_it_waits(rounds: Rounds, tester: RunningTester) -> None:
    """Clean while it writes; pause it when it sleeps until no more records are removed; then clean on."""
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS  # time for all its writes and reads
    while "Sleeping for" not in tester.message:
        assert tester.process.poll() is None, tester.message
        assert time.monotonic() < deadline, tester.message
        rounds.clean()
    tester.process.send_signal(signal.SIGSTOP)
    try:
        known = -1
        while known < len(rounds.dropping) or len({swap.partition for swap in rounds.dropping}) < TOPICS:
            assert time.monotonic() < deadline, [result.reason for result in rounds.results]
            known = len(rounds.dropping)
            time.sleep(1)  # replaced segments are deleted, rolled ones are flushed
            rounds.clean()
    finally:
        tester.process.send_signal(signal.SIGCONT)
    while tester.process.poll() is None:
        assert time.monotonic() < deadline, tester.message
        rounds.clean()
        time.sleep(0.5)


@pytest.mark.parametrize("rounds", ["39", "43"], indirect=True)
def test_passes_with_cleanerd_instead_of_the_brokers_cleaner(rounds: Rounds, tester: RunningTester) -> None:
    """Every key's last value is there, deleted keys are not, and at least a third of the rows were removed."""
    clean_while_it_waits(rounds, tester)
    assert tester.end() == 0, tester.message
    assert "Data verification is completed" in tester.message
    found = ROWS.search(tester.message)
    assert found is not None, tester.message
    produced, consumed = map(int, found.groups())
    assert consumed < produced * 2 / 3, tester.message


@pytest.mark.parametrize("rounds", ["39"], indirect=True)
def test_fails_when_records_are_lost(rounds: Rounds, tester: RunningTester, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with a cleanerd that loses the first retained record of every segment: so the test above can fail."""
    right = DirtyIndex.winners

    def one_less(self: DirtyIndex, row: int) -> Any:
        winners = right(self, row).copy()
        some = np.flatnonzero(winners)
        winners[some[:1]] &= winners[some[:1]] - np.uint64(1)
        return winners

    # the planted fault
    monkeypatch.setattr(DirtyIndex, "winners", one_less)
    clean_while_it_waits(rounds, tester)
    assert tester.end() == 1, tester.message
    assert "Data validation failed" in tester.message
