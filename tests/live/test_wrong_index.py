"""A wrong transaction index in a running broker; cleaning by the agent corrects it (U-44, A-40)."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import TopicPartition as Name
from tests.brokers.ledger import Partition
from tests.brokers.markers import wait_until_ended
from tests.cleaner.driver import clean, config
from tests.live.load import create_topics
from tests.live.shared_broker import check_broker, directory_of, facts, read, write
from tests.support.log_dirs import CLEAN_SHUTDOWN, batches_of, write_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.live.rounds import Rounds

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

ENTRY_BYTES: Final = 34
SPOILED: Final = {
    "empty": lambda _entries: b"",
    "an entry short": lambda entries: entries[:-ENTRY_BYTES],
    "cut": lambda entries: entries[:-5],
    "out of order": lambda entries: entries[ENTRY_BYTES:] + entries[:ENTRY_BYTES],
    "of another producer": lambda entries: entries[:9] + bytes([entries[9] ^ 1]) + entries[10:],
}


def _transactions(broker: Broker, topic: str) -> dict[bytes, bytes]:
    """``first`` and ``key``: committed, then aborted; returns the last values for read_committed."""
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    writer.init_transactions(PATIENCE_SECONDS)
    for key, value, end in (
        (b"first", b"committed", writer.commit_transaction),
        (b"key", b"committed", writer.commit_transaction),
        (b"first", b"aborted", writer.abort_transaction),
        (b"key", b"aborted", writer.abort_transaction),
    ):
        writer.begin_transaction()
        writer.produce(topic, key=key, value=value, partition=0)
        assert writer.flush(PATIENCE_SECONDS) == 0
        end(PATIENCE_SECONDS)
        wait_until_ended(broker.bootstrap, Partition(topic, 0))
    return write(broker, topic) | {b"first": b"committed", b"key": b"committed"}


def _content(directory: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    logs = sorted(directory.glob("*.log"))[:-1]
    batches = [batch for log in logs for batch in batches_of(log.read_bytes())]
    return [(record.offset, record.key, record.value) for batch in batches for record in batch.records]


def _indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.txnindex") if path.stat().st_size}


def _cleaned_offline(copy: Path, directory: Path, topic: str, end: int) -> Path:
    """The result of an offline cleaning of a copy of the present log."""
    shutil.copytree(directory, copy / directory.name)
    shutil.copy(directory.parent / "meta.properties", copy)
    (copy / CLEAN_SHUTDOWN).touch()
    for file in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        write_checkpoint(copy / file, {directory.name: end})
    options = CleaningOptions(now_ms=time.time_ns() // 1_000_000, force=True, from_start=True)
    result = clean(copy, options, config(topic, segment_bytes=20_000), name=directory.name)
    assert result.outcome == "cleaned", result.reason
    return copy / directory.name


@pytest.mark.parametrize(
    "how",
    [
        "empty",
        "of another producer",
        *(pytest.param(how, marks=pytest.mark.long) for how in ("an entry short", "cut", "out of order")),
    ],
)
def test_live_corrects_the_index(rounds: Rounds, tmp_path: Path, how: str) -> None:
    """A-40, U-44: the result equals an offline cleaning, and the broker's readers use the corrected index at once."""
    broker, topic = rounds.broker, "wrong-" + how.replace(" ", "-")
    create_topics(broker, [topic])
    latest = _transactions(broker, topic)
    directory = directory_of(broker, topic)
    index = directory / f"{0:020d}.txnindex"
    right = index.read_bytes()
    assert len(right) == 2 * ENTRY_BYTES
    wrong = SPOILED[how](right)
    if how == "of another producer":
        with index.open("r+b") as file:  # the file that the broker has open
            file.write(wrong)
        assert read(broker, topic, "read_committed") != latest, "the broker's readers use the index"
    else:
        index.unlink()  # they use the deleted file; after truncation of it they would get an error
        index.write_bytes(wrong)
    copied = _cleaned_offline(tmp_path / "copied", directory, topic, facts(broker, topic).leo)
    (result,) = rounds.clean(Name(topic, 0))
    assert result.outcome == "cleaned", result.reason
    assert any("the markers in the log decide" in note for note in result.notes)
    assert rounds.refused_for_good == []
    assert _content(directory) == _content(copied)
    assert _indexes(directory) == _indexes(copied)
    assert read(broker, topic, "read_committed") == latest
    check_broker(broker)
