"""The data source's rows compared with consumers of a real broker, committed and not, during and after its run."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.brokers.ledger import Partition, Record
from tests.brokers.readers import read_with_kafka_python, read_with_librdkafka, times_with_librdkafka
from tests.spark.reading import read_rows
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

LONGEST_TRANSACTION_MS = 900_000
"""The longest that a broker allows: by default it ends the open one after a minute, which a slow machine needs."""

PARTITIONS = [Partition("orders", 0), Partition("orders", 1)]
SETTINGS = {
    "log.segment.bytes": "1048576",
    "log.index.interval.bytes": "512",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.retention.check.interval.ms": "3600000",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(params=["broker_43", pytest.param("broker_39", marks=pytest.mark.long)])
def broker(request: pytest.FixtureRequest) -> Broker:
    start: StartBroker = request.getfixturevalue(request.param)
    broker = start(properties=SETTINGS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(PATIENCE_SECONDS)
    return broker


def produce(broker: Broker, pick: random.Random) -> confluent_kafka.Producer:
    """Some plain, some in transactions that are committed or aborted; the returned producer has one open."""
    plain = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": "gzip", "linger.ms": 1}
    )
    writers = []
    for name in ("a", "b"):
        settings = {"bootstrap.servers": broker.bootstrap, "transaction.timeout.ms": LONGEST_TRANSACTION_MS}
        writer = confluent_kafka.Producer({**settings, "transactional.id": name})
        writer.init_transactions(PATIENCE_SECONDS)
        writers.append(writer)
    for _ in range(60):
        writer = pick.choice(writers)
        writer.begin_transaction()
        for _ in range(pick.randint(1, 8)):
            _send(writer, pick)
            _send(plain, pick)
        if pick.random() < 0.5:
            writer.commit_transaction(PATIENCE_SECONDS)
        else:
            writer.flush(PATIENCE_SECONDS)
            writer.abort_transaction(PATIENCE_SECONDS)
        if pick.random() < 0.2:
            plain.flush(PATIENCE_SECONDS)
    last = writers[0]
    last.begin_transaction()
    _send(last, pick, partition=1)
    last.flush(PATIENCE_SECONDS)
    _send(plain, pick, partition=1)
    plain.flush(PATIENCE_SECONDS)
    return last


def _send(producer: confluent_kafka.Producer, pick: random.Random, partition: int | None = None) -> None:
    headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % pick.randrange(99)), ("null", None)]
    producer.produce(
        "orders",
        key=pick.choice((None, b"k%d" % pick.randrange(20))),
        value=pick.choice((None, b"", pick.randbytes(pick.choice((3, 200, 90_000))))),
        partition=pick.randrange(2) if partition is None else partition,
        headers=headers[: pick.randrange(3)] or None,
    )


def read(paths: list[Path], **options: str) -> dict[Partition, tuple[Record, ...]]:
    rows: dict[Partition, list[Record]] = {partition: [] for partition in PARTITIONS}
    for row in read_rows([str(path) for path in paths], topics="orders", **options):
        record = Record(row["offset"], row["timestamp"], row["key"], row["value"], row["headers"] or ())
        rows[Partition(row["topic"], row["partition"])].append(record)
    return {partition: tuple(found) for partition, found in rows.items()}


def settled(paths: list[Path], expected: dict[Partition, int]) -> None:
    """Wait until the checkpoint has the high watermarks that consumers got."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        text = "".join((path / "replication-offset-checkpoint").read_text() for path in paths)
        if all(f"{p.topic} {p.number} {end}\n" in text for p, end in expected.items()):
            return
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def test_rows_equal_those_of_a_consumer(broker: Broker) -> None:
    """Both views, with the running broker, after a stop and after a kill: record for record."""
    pick = random.Random(4)
    open_writer = produce(broker, pick)
    paths = broker.log_dirs
    committed = read_with_librdkafka(broker.bootstrap, PARTITIONS)
    every = read_with_librdkafka(broker.bootstrap, PARTITIONS, isolation="read_uncommitted")
    second = read_with_kafka_python(broker.bootstrap, PARTITIONS)
    ends = {partition: found.high_watermark for partition, found in every.partitions.items()}
    settled(paths, ends)
    assert len(list(paths[0].glob("orders-*/*.log"))) > 4

    def compare() -> None:
        for split_bytes in ("128m", "100000"):
            found = read(paths, splitBytes=split_bytes)
            assert found == {partition: read.records for partition, read in committed.partitions.items()}
            assert found == {partition: read.records for partition, read in second.partitions.items()}
            uncommitted = read(paths, view="all", splitBytes=split_bytes)
            assert uncommitted == {partition: read.records for partition, read in every.partitions.items()}
            assert sum(map(len, uncommitted.values())) > sum(map(len, found.values())) > 100

    compare()
    times = {p: sorted({r.timestamp_ms + d for r in found.records for d in (-1, 0, 1)})[::17]
             for p, found in every.partitions.items()}  # fmt: skip
    answers = times_with_librdkafka(broker.bootstrap, times, isolation="read_uncommitted")
    for partition, requested in times.items():
        for time_ms, offset in zip(requested, answers[partition], strict=True):
            options = {"partitions": str(partition), "view": "all", "columns": "offset"}
            found = read_rows(
                str(paths[0]), startingTimestamp=str(time_ms), startingOffsetsByTimestampStrategy="latest", **options
            )
            if offset is None:
                assert found == []
            else:
                whole = [r.offset for r in every.partitions[partition].records if r.offset >= offset]
                assert [row["offset"] for row in found] == whole
    broker.kill()
    compare()
    del open_writer
