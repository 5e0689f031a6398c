"""A transactional producer, open over stop, clean and start; and a transaction that hangs."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cleanerd_lab.demo.broker import STARTED, Broker
from tests.brokers.ledger import History, Partition, Record
from tests.brokers.markers import wait_until_ended
from tests.brokers.node import cleanerd, directory_of, segment_bases
from tests.brokers.readers import read_with_librdkafka
from tests.brokers.traffic import Drafts, Librdkafka, Transactional
from tests.kafka.judge import fetch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.brokers.node import Run

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

ENDED, HANGING = Partition("ended", 0), Partition("hanging", 0)
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",
    "internal.segment.bytes": "4096",
    "index.interval.bytes": "256",
    "file.delete.delay.ms": "500",
}


def read(broker: Broker, isolation: str) -> dict[Partition, list[Record]]:
    found = read_with_librdkafka(broker.bootstrap, (ENDED, HANGING), isolation=isolation)
    assert found.errors == ()
    return {partition: list(each.records) for partition, each in found.partitions.items()}


def clean(broker: Broker, work_dir: Path) -> Run:
    broker.stop()
    run = cleanerd("clean", broker.log_dirs, work_dir / "state", "--yes", "--force")
    assert run.exit_code == 0, run.stderr
    broker.start()
    assert STARTED in broker.log_text(), "U-27"
    return run


def transactions(producer: Transactional, drafts: Drafts, history: History, count: int) -> None:
    """Every third one is aborted."""
    for number in range(count):
        chosen = drafts.make(5, producer.name, hot_keys=15)
        if number % 3 == 2:
            history.aborted += producer.abort(ENDED, chosen)
        else:
            history.add(producer.write(ENDED, chosen))


def test_transactions(tmp_path: Path) -> None:
    """R192-1, R192-3, S-04: the producer continues; readers of both isolation levels are right.

    The hanging transaction stays.
    """
    jars = fetch("4.3")
    broker = Broker(jars.libs, tmp_path / "broker", version=jars.version)
    drafts = Drafts(random.Random(77))
    history = {ENDED: History(), HANGING: History()}
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(p.topic, 1, 1, config=CONFIG) for p in history]).values():
            created.result(PATIENCE_SECONDS)
        producer, hanging = (Transactional(name, broker.bootstrap) for name in ("goes-on", "hangs"))
        plain = Librdkafka("plain", broker.bootstrap)
        transactions(producer, drafts, history[ENDED], 90)
        history[HANGING].add(plain.write(HANGING, drafts.make(150, "plain", hot_keys=9)))
        left_open = hanging.leave_open(HANGING, [drafts.draft(b"key-%d" % key, "hangs") for key in range(4)])
        history[HANGING].add(plain.write(HANGING, drafts.make(150, "plain", hot_keys=9)))

        run = clean(broker, tmp_path)
        directory = directory_of(broker.log_dirs, HANGING)
        bound = run.partitions[HANGING]["end_offset"]
        assert bound <= left_open[0].offset < left_open[-1].offset < segment_bases(directory)[-1], "U-26"
        assert run.partitions[HANGING]["removed"]["superseded"] > 50, "U-26: the log below it is cleaned"
        ended = history[ENDED].clean(run.partitions[ENDED]["end_offset"], tombstones_expire=False)
        hung = history[HANGING].clean(bound, tombstones_expire=False)
        for partition, dropped in ((ENDED, ended), (HANGING, hung)):
            reported = run.partitions[partition]["removed"]
            assert (reported["superseded"], reported["aborted"], reported["marker"]) == (
                dropped.superseded,
                dropped.aborted,
                0,
            )
        assert ended.aborted > 50, "U-26"

        transactions(producer, drafts, history[ENDED], 9)
        committed, uncommitted = (read(broker, kind) for kind in ("read_committed", "read_uncommitted"))
        assert committed[ENDED] == history[ENDED].visible
        assert uncommitted[ENDED] == sorted(history[ENDED].visible + history[ENDED].aborted)
        stable = left_open[0].offset
        assert committed[HANGING] == [record for record in history[HANGING].visible if record.offset < stable]
        assert uncommitted[HANGING] == sorted(history[HANGING].visible + left_open)

        hanging.commit()
        wait_until_ended(broker.bootstrap, HANGING)
        history[HANGING].add(left_open)
        assert read(broker, "read_committed")[HANGING] == history[HANGING].visible

        run = clean(broker, tmp_path)
        for partition, reported in history.items():
            assert run.partitions[partition]["end_offset"] > bound
            reported.clean(run.partitions[partition]["end_offset"], tombstones_expire=False)
        assert run.partitions[HANGING]["removed"]["superseded"] > 50, "U-26"
        transactions(producer, drafts, history[ENDED], 6)
        assert read(broker, "read_committed") == {
            partition: reported.visible for partition, reported in history.items()
        }
        for each in (producer, hanging, plain):
            assert each.problems == []
            each.close()
