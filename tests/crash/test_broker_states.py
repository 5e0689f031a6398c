"""Twenty crash states in a whole broker: every reader sees exactly old or exactly new, and so does the disk.

All states are in one broker's log directories, one partition each: once as after the crash, once after cleanerd's
recovery. One log directory has the file of a clean shutdown, the other one does not.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cleanerd.format import names
from cleanerd.format.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.recover import recover
from tests.brokers.node import wait_until
from tests.crash.scenario import END, GROUPS, digest, new_segments, old_segments
from tests.crash.states import crash_states
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from cleanerd.swap.files import FileOperation
    from cleanerd_lab.demo.broker import Broker
    from tests.crash.classify import Classifier
    from tests.crash.scenario import Scenario
    from tests.crash.volume import State
    from tests.kafka.fixtures import StartBroker
    from tests.kafka.judge import Segment

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

STATES = 20
TOPIC = "crashed"
CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint")
ABORTED = {7, 9, 10}


@pytest.mark.parametrize("release", ["broker_43", pytest.param("broker_39", marks=pytest.mark.long)])
def test_a_broker_starts_on_twenty_states(
    scenario: Scenario,
    operations: list[FileOperation],
    classifier: Classifier,
    request: pytest.FixtureRequest,
    release: str,
) -> None:
    """VERIFY-1: clean and unclean, consumers of both isolation levels, old or new as the loader alone decided."""
    states = interesting(crash_states(scenario.old, operations, 40, seed=6))
    swapped = [verdict.swapped for verdict in classifier.judged(states)]
    assert len(set(swapped)) > 2

    start_broker: StartBroker = request.getfixturevalue(release)
    broker = start_broker(log_dirs=2, properties={"log.cleaner.enable": "false", "log.segment.bytes": "1048576"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"cleanup.policy": "compact", "segment.index.bytes": "65536"}
    admin.create_topics([NewTopic(TOPIC, 2 * STATES, 1, config=config)])[TOPIC].result(PATIENCE_SECONDS)
    wait_until(
        "the partitions are there",
        lambda: len({p.name for each in broker.log_dirs for p in each.glob(f"{TOPIC}-*")}) == 2 * STATES,
    )
    broker.stop()
    places = {number: place_of(broker, number) for number in range(2 * STATES)}
    for number, place in places.items():
        plant(states[number % STATES], place)
        if number >= STATES:
            with PartitionFiles(place) as files:
                assert recover(files).foreign == ()
    for log_dir in broker.log_dirs:
        move_checkpoints(log_dir)
    (broker.log_dirs[1] / ".kafka_cleanshutdown").unlink()
    assert {place.parent for place in places.values()} == set(broker.log_dirs), "both kinds of start are tried"

    broker.start()
    for isolation in ("read_uncommitted", "read_committed"):
        found = consume(broker, isolation)
        for number in places:
            expected = visible(swapped[number % STATES], isolation)
            assert found[number] == expected, f"partition {number}, {isolation}"
    broker.stop()
    for number, place in places.items():
        logs = {path.name: path.read_bytes() for path in place.glob("*.log")}
        assert digest(logs) == digest(scenario.log_files(swapped[number % STATES]))
        assert not [path for path in place.iterdir() if path.suffix in {".swap", ".cleaned", ".deleted"}]


def interesting(states: list[State]) -> list[State]:
    """Random states with an unfinished swap."""
    halfway = [
        state for state in states if any(name.endswith((".swap", ".cleaned", ".deleted")) for name in state.files)
    ]
    return random.Random(7).sample(halfway, STATES)


def place_of(broker: Broker, partition: int) -> Path:
    """The partition's directory, in whichever log directory the broker put it."""
    (place,) = (path for log_dir in broker.log_dirs for path in log_dir.glob(f"{TOPIC}-{partition}"))
    return place


def plant(state: State, place: Path) -> None:
    """Replace the empty partition's files by the state's."""
    for path in place.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for name in sorted(state.directories):
        (place / name).mkdir()
    for name, content in state.files.items():
        (place / name).write_bytes(content)


def move_checkpoints(log_dir: Path) -> None:
    """Everything up to the log's end is flushed and replicated."""
    for name in CHECKPOINTS:
        path = log_dir / name
        offsets = read_offset_checkpoint(path.read_bytes(), str(path))
        found = [names.parse_topic_partition_dir(place.name) for place in log_dir.glob(f"{TOPIC}-*")]
        path.write_bytes(write_offset_checkpoint(offsets | {each: END for each in found if each is not None}))


def consume(broker: Broker, isolation: str) -> dict[int, list[tuple[int, bytes]]]:
    """Offset and value of every record, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(2 * STATES)])
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    waiting = set(range(2 * STATES))
    while waiting:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None, f"nothing more comes from {waiting}"
        error = message.error()
        partition = message.partition() or 0
        if error is None:
            found[partition].append((message.offset() or 0, message.value() or b""))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            assert message.offset() == END
            waiting.discard(partition)
    consumer.close()
    return found


def visible(swapped: tuple[int, ...], isolation: str) -> list[tuple[int, bytes]]:
    """The consumer's view when exactly these groups are new."""
    ends = [(base, GROUPS[base][0]) for base in swapped]

    def is_new(offset: int) -> bool:
        return any(base <= offset < end for base, end in ends)

    old = [record for record in records(old_segments(), isolation) if not is_new(record[0])]
    new = [record for record in records(new_segments(), isolation) if is_new(record[0])]
    return sorted(old + new)


def records(segments: Iterable[Segment], isolation: str) -> list[tuple[int, bytes]]:
    """Offset and value of the records in ``segments`` that the isolation level shows."""
    return [
        (record.offset, record.value or b"")
        for segment in segments
        for batch in segment.batches
        if isolation == "read_uncommitted" or batch.producer_id not in ABORTED
        for record in batch.records
    ]
