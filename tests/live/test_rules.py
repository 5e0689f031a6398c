"""D-01 to D-07, each on a running broker; all live tests read as D-08 says."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from cleanerd.format.names import TopicPartition as Name
from cleanerd.policy.grouping import MAX_SOURCES, MOST_RECORDLESS
from cleanerd.swap.swapping_broker import SwapSources
from tests.brokers.ledger import Partition
from tests.brokers.markers import wait_until_ended
from tests.brokers.node import wait_until
from tests.live.load import create_topics
from tests.live.shared_broker import check_broker, cleaner_checkpoint, directory_of, facts, read, set_topic, write
from tests.support.log_dirs import read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.live.rounds import Rounds


pytestmark = [pytest.mark.kafka, pytest.mark.broker]


def sizes(directory: Path, pattern: str) -> dict[int, int]:
    """Bytes of the files of a kind, by base offset."""
    found = {}
    for path in sorted(directory.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):  # the broker deleted it since the listing
            found[int(path.name[:20])] = path.stat().st_size
    return found


def check_ends(directory: Path) -> None:
    """D-05: each segment begins where the previous one ends, so no reader is ever between two."""
    segments = read_segments(directory)
    bases = list(segments)
    for base, following in pairwise(bases):
        if segments[base]:
            assert segments[base][-1].header.last_offset == following - 1, base


@pytest.mark.long
def test_d01_the_marker_is_segments_away(rounds: Rounds) -> None:
    """D-01, U-12: the index of the segment with the marker shows which records are aborted.

    The index of the data's own segment does not: by it, cleanerd would retain the aborted value and remove the
    committed one.
    """
    broker = rounds.broker
    create_topics(broker, ["d01"])
    writer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "d01"})
    writer.init_transactions(PATIENCE_SECONDS)
    for value, ends in ((b"committed", writer.commit_transaction), (b"aborted", writer.abort_transaction)):
        writer.begin_transaction()
        writer.produce("d01", key=b"key", value=value, partition=0)
        writer.flush(PATIENCE_SECONDS)
        if value == b"aborted":
            write_unflushed(broker, "d01", 600)
        ends(PATIENCE_SECONDS)
        wait_until_ended(broker.bootstrap, Partition("d01", 0))
    latest = write(broker, "d01")
    entries = sizes(directory_of(broker, "d01"), "*.txnindex")
    assert not entries.get(0), "U-26: no entry where the data is"
    assert any(entries.values()), "U-26"
    (result,) = rounds.clean(Name("d01", 0))
    assert result.outcome == "cleaned", result.reason
    assert result.removed.aborted == 1
    assert read(broker, "d01", "read_committed") == latest | {b"key": b"committed"}
    assert read(broker, "d01") == latest | {b"key": b"committed"}


def write_unflushed(broker: Broker, topic: str, count: int) -> None:
    """Records above an open transaction: all of them are above the last stable offset."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.size": 3000})
    for number in range(count):
        producer.produce(topic, key=b"k%d" % (number % 20), value=bytes(100), partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0


def wiped(broker: Broker, topic: str, segments: int) -> dict[bytes, bytes]:
    """A topic of ``count`` closed segments without any retained record, and the expected values after them."""
    create_topics(broker, [topic], segment_bytes=3_500)
    write(broker, topic, 400, keys=3)
    while len(facts(broker, topic).segments) < segments:
        write(broker, topic, 400, keys=3)
    return write(broker, topic, 400, keys=3)


def recordless(directory: Path) -> list[bool]:
    """Whether each segment has no records."""
    return [not any(batch.records for batch in batches) for batches in read_segments(directory).values()]


def test_d02_no_runs_of_empty_segments(rounds: Rounds) -> None:
    """D-02, D-05: dozens of segments without a retained record become one; librdkafka counts record-less fetches.

    At the eleventh its application gets an error.
    """
    rounds.sources = SwapSources(MAX_SOURCES, MAX_SOURCES, MAX_SOURCES)  # this machine may be slow
    broker = rounds.broker
    latest = wiped(broker, "d02", 40)
    before = len(facts(broker, "d02").segments)
    (result,) = rounds.clean(Name("d02", 0))
    assert result.outcome == "cleaned", result.reason
    directory = directory_of(broker, "d02")
    empty = recordless(directory)
    assert not any(one and two for one, two in pairwise(empty)), empty
    assert len(empty) < before / 5
    assert read(broker, "d02") == latest
    check_ends(directory)


@pytest.mark.long
def test_d02_over_u36(rounds: Rounds) -> None:
    """D-02 beats U-36: even on a slow disk, small swaps never leave more record-less segments in a row than allowed."""
    rounds.sources = SwapSources(10, 10, 10)
    broker = rounds.broker
    latest = wiped(broker, "d02s", 150)
    (result,) = rounds.clean(Name("d02s", 0))
    assert result.outcome == "cleaned", result.reason
    directory = directory_of(broker, "d02s")
    runs = "".join(" x"[each] for each in recordless(directory)).split(" ")
    assert 4 < max(map(len, runs)) <= MOST_RECORDLESS, f"U-26: {runs}"
    assert read(broker, "d02s") == latest
    check_ends(directory)


def test_d03_segments_of_no_bytes(rounds: Rounds) -> None:
    """D-03: the broker's own cleaner leaves empty files; they have no last batch, and are merged with a neighbour."""
    broker = rounds.broker
    create_topics(broker, ["d03"])
    write(broker, "d03")
    directory = directory_of(broker, "d03")

    def exists() -> bool:
        return 0 in sizes(directory, "*.log").values()

    def is_done() -> bool:
        return (cleaner_checkpoint(broker, "d03") or 0) >= facts(broker, "d03").active.base

    for _ in range(10):  # the broker's next pass may remove one that an earlier pass left
        set_topic(broker, "d03", "min.cleanable.dirty.ratio", "0.0")
        write(broker, "d03", 800, keys=3)
        wait_until("it left an empty segment, or has ended", lambda: exists() or is_done())
        set_topic(broker, "d03", "min.cleanable.dirty.ratio", "1.0")
        wait_until("the broker's cleaner has ended", lambda: facts(broker, "d03").cleaning == "none")
        if exists():
            break
    latest = write(broker, "d03")
    assert exists(), "U-26"
    (result,) = rounds.clean(Name("d03", 0))
    assert result.outcome == "cleaned", result.reason
    assert read(broker, "d03") == latest
    check_ends(directory)


@pytest.mark.long
def test_d04_not_twice_within_the_delay(rounds: Rounds) -> None:
    """D-04: a base offset is not swapped again while its replaced files still exist."""
    broker = rounds.broker
    create_topics(broker, ["d04"], file_delete_delay_ms="8000")
    write(broker, "d04")
    assert rounds.clean(Name("d04", 0))[0].outcome == "cleaned"
    directory = directory_of(broker, "d04")
    assert sizes(directory, "*.log.deleted"), "U-26"
    latest = write(broker, "d04")

    def scan(request: dict[str, Any]) -> None:
        replaced = {source["base"] for group in request["groups"] for source in group["sources"]}
        assert not replaced & sizes(directory, "*.log.deleted").keys()

    rounds.before_swap = scan
    first = {swap.base for swap in rounds.swaps}
    (result,) = rounds.clean(Name("d04", 0))
    assert result.outcome == "cleaned", result.reason
    assert first & {swap.base for swap in rounds.swaps[len(first) :]}, "U-26"
    assert read(broker, "d04") == latest


@pytest.mark.long
def test_d07_disk_space_is_released(rounds: Rounds) -> None:
    """D-07: the sources stay for file.delete.delay.ms, staged files become the log; then the log is smaller."""
    broker = rounds.broker
    create_topics(broker, ["d07"], file_delete_delay_ms="20000")
    write(broker, "d07")
    directory = directory_of(broker, "d07")
    before = sizes(directory, "*.log")
    (result,) = rounds.clean(Name("d07", 0))
    replaced = sizes(directory, "*.log.deleted")
    assert replaced.items() <= before.items()
    assert len(replaced) == result.segments_rewritten > 0
    wait_until("the replaced segments are deleted", lambda: not sizes(directory, "*.deleted"))
    assert sum(sizes(directory, "*.log").values()) < sum(before.values())
    assert not list(directory.glob(".kstage*"))
    check_broker(broker)


@pytest.mark.long
def test_the_checkpoint_survives_a_sigkill(rounds: Rounds) -> None:
    """U-10, A-25: after the broker's recovery, cleanerd and the broker still know the clean section.

    Not more of it: a checkpoint that is too high would hide duplicates (S-50).
    """
    broker = rounds.broker
    create_topics(broker, ["point"])
    write(broker, "point")
    (first,) = rounds.clean(Name("point", 0))
    assert first.outcome == "cleaned", first.reason
    broker.kill()
    broker.start()
    assert cleaner_checkpoint(broker, "point") == first.end_offset
    latest = write(broker, "point")
    (second,) = rounds.clean(Name("point", 0))
    assert second.outcome == "cleaned", second.reason
    assert second.first_dirty_offset == first.end_offset
    segments = read_segments(directory_of(broker, "point"))
    below = [r.key for b in segments.values() for batch in b for r in batch.records if r.offset < second.end_offset]
    assert len(below) == len(set(below)), "S-50: keys are unique below the checkpoint"
    assert read(broker, "point") == latest
