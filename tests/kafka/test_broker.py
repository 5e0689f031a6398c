"""The broker that tests and demo start is a real one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd_lab.demo.broker import STARTED, Broker, BrokerError
from cleanerd_lab.demo.class_archive import make_archive
from tests.kafka.fixtures import produce
from tests.kafka.judge import fetch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


@pytest.fixture(params=["broker_43", pytest.param("broker_39", marks=pytest.mark.long)])
def start_broker(request: pytest.FixtureRequest) -> StartBroker:
    found: StartBroker = request.getfixturevalue(request.param)
    return found


def consume(broker: Broker, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None, f"only {values} came"
        if message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.mark.long
def test_start_produce_stop_restart_kill(start_broker: StartBroker) -> None:
    """Data survives a clean restart and a kill; each start logs ``Kafka Server started`` (U-27).

    The classes come from the archive made at setup.
    """
    archive = make_archive(start_broker.jars.libs)
    broker = start_broker(log_dirs=2, properties={"log.segment.bytes": "1048576"})
    assert STARTED in broker.log_text()
    assert "log.segment.bytes=1048576\n" in broker.properties_file.read_text()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_SECONDS)
    produce(broker, [b"1", b"2"])
    pid = broker.pid
    assert os.fspath(archive) in Path(f"/proc/{pid}/maps").read_text()

    broker.stop()
    assert not broker.running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert all((log_dir / ".kafka_cleanshutdown").exists() for log_dir in broker.log_dirs)
    assert sum((log_dir / "t-0").is_dir() for log_dir in broker.log_dirs) == 1

    broker.start()
    assert consume(broker, 2) == [b"1", b"2"]
    produce(broker, [b"3"])

    broker.kill()
    assert not any((log_dir / ".kafka_cleanshutdown").exists() for log_dir in broker.log_dirs)
    broker.start()
    assert STARTED in broker.log_text()
    assert consume(broker, 3) == [b"1", b"2", b"3"]


def test_a_broker_that_cannot_start_reports_its_log(broker_43: StartBroker) -> None:
    """The end of its log is in the message, and no process is left."""
    with pytest.raises(BrokerError, match=r"num\.io\.threads"):
        broker_43(properties={"num.io.threads": "0"})
    assert not broker_43.brokers[0].running


@pytest.mark.parametrize("release", ["4.3", pytest.param("4.4", marks=pytest.mark.long)])
def test_formatted_again_as_by_kafkas_tool(tmp_path: Path, release: str) -> None:
    """The tool runs once; the next broker's files differ only in ids: no two directories share one."""
    jars = fetch(release)

    def formatted(node: str, *, by_kafka: bool) -> tuple[list[dict[str, int]], list[dict[str, str]]]:
        own = {"node.id": node, "controller.quorum.voters": f"{node}@127.0.0.1:1"}
        broker = Broker(jars.libs, tmp_path / node, version=jars.version, log_dirs=2, properties=own)
        broker.work_dir.mkdir()
        broker.properties_file.write_text("".join(f"{key}={value}\n" for key, value in broker.properties().items()))
        if by_kafka:
            broker._format_by_kafka()
        else:
            broker._format()
        files = [[path for path in each.rglob("*") if path.is_file()] for each in broker.log_dirs]
        sizes = [{path.name: path.stat().st_size for path in each} for each in files]
        texts = [(path / "meta.properties").read_text() for path in broker.log_dirs]
        return sizes, [dict(row.split("=", 1) for row in text.splitlines() if "=" in row) for text in texts]

    made = [formatted("7", by_kafka=True), formatted("8", by_kafka=False), formatted("9", by_kafka=False)]
    ids = [each.pop("directory.id") for _, facts in made for each in facts]
    assert len(set(ids)) == 6
    assert {len(each) for each in ids} == {22}
    assert [[each.pop("node.id") for each in facts] for _, facts in made] == [["7"] * 2, ["8"] * 2, ["9"] * 2]
    assert made[0] == made[1] == made[2]


def test_missing_jars(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="cannot be formatted"):
        Broker(tmp_path / "nothing", tmp_path / "work", version="4.3.1").start()
