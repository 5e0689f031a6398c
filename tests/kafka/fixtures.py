"""Fixtures for all tests: the judges and brokers. Missing jars are fetched, never a reason to skip."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from cleanerd_lab.demo.broker import Broker
from tests.kafka.judge import Judge, fetch_jars
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@pytest.fixture(scope="session")
def judge_43() -> Iterator[Judge]:
    """Kafka 4.3 as a judge, one JVM for the whole session."""
    with Judge("4.3") as judge:
        yield judge


@pytest.fixture(scope="session")
def judge_39() -> Iterator[Judge]:
    """Kafka 3.9 as a judge, one JVM for the whole session."""
    with Judge("3.9") as judge:
        yield judge


@pytest.fixture(scope="session")
def judge_36() -> Iterator[Judge]:
    """Kafka 3.6 as a judge: its log classes are Scala throughout."""
    with Judge("3.6") as judge:
        yield judge


@pytest.fixture(scope="session")
def judge_44() -> Iterator[Judge]:
    """Kafka 4.4 as a judge: the newest release."""
    with Judge("4.4") as judge:
        yield judge


@pytest.fixture
def broker_43() -> Iterator[StartBroker]:
    """Brokers of Kafka 4.3 on demand; see StartBroker."""
    yield from brokers("4.3")


@pytest.fixture
def broker_39() -> Iterator[StartBroker]:
    """Brokers of Kafka 3.9 on demand; see StartBroker."""
    yield from brokers("3.9")


@pytest.fixture
def broker_44() -> Iterator[StartBroker]:
    """Brokers of Kafka 4.4 on demand; see StartBroker."""
    yield from brokers("4.4")


@pytest.fixture
def broker_33() -> Iterator[StartBroker]:
    """Brokers of Kafka 3.3 on demand; see StartBroker."""
    yield from brokers("3.3")


class StartBroker:
    """Call it with the keywords of ``Broker`` for a started one. All are killed and their files removed afterwards."""

    def __init__(self, profile: str, work_dir: Path) -> None:
        self.jars = fetch_jars(profile)
        self.brokers: list[Broker] = []
        self._work_dir = work_dir

    def __call__(
        self,
        *,
        log_dirs: int = 1,
        properties: Mapping[str, str] | None = None,
        jvm_args: Sequence[str] = (),
    ) -> Broker:
        broker = Broker(
            self.jars.libs,
            self._work_dir / f"broker{len(self.brokers)}",
            version=self.jars.version,
            log_dirs=log_dirs,
            properties=properties,
            jvm_args=jvm_args,
        )
        self.brokers.append(broker)
        broker.start()
        return broker


def brokers(profile: str) -> Iterator[StartBroker]:
    work_dir = Path(tempfile.mkdtemp(prefix=f"broker-{profile}-"))
    start = StartBroker(profile, work_dir)
    try:
        yield start
    finally:
        for broker in start.brokers:
            broker.kill()
        shutil.rmtree(work_dir)


def produce(broker: Broker, values: Sequence[bytes]) -> None:
    """Write records of one key to partition 0 of the topic ``t``."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce("t", key=b"k", value=value, partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
