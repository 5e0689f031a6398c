"""Brokers and clients on the result: they start, read, seek by time, and produce."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import STARTED
from tests.brokers import topics

if TYPE_CHECKING:
    from tests.brokers.accounts import Seen
    from tests.brokers.lifecycle import Lifecycle

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

STEPS = (
    "restarted",
    "continued",
    "recovered",
    "after_kafka",
    pytest.param("restarted_again", marks=pytest.mark.long),
)
OPEN_PRODUCERS = ("rd-none", "rd-gzip", "rd-snappy", "rd-lz4", "rd-zstd", "rd-idle", "py-idempotent")


@pytest.fixture(params=STEPS)
def seen(lifecycle: Lifecycle, request: pytest.FixtureRequest) -> Seen:
    """Observations after a start."""
    found: Seen = getattr(lifecycle, request.param)
    return found


@pytest.mark.long
def test_the_broker_has_nothing_to_complain_about(lifecycle: Lifecycle, seen: Seen) -> None:
    """U-27: it reports its start, and warns of nothing that it would not warn of without a cleaning."""
    assert STARTED in seen.log_text
    assert seen.complaints - lifecycle.control.complaints == set()


def test_before_cleaning_readers_see_all_acknowledged_records(lifecycle: Lifecycle) -> None:
    """U-26: the histories, the reference of all comparisons, are right before the first cleaning."""
    for partition, read in lifecycle.written.reading.partitions.items():
        assert list(read.records) == list(lifecycle.written.expected[partition]), partition
        assert len(read.records) > 100


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_readers_see_exactly_the_retained_records(seen: Seen, client: str) -> None:
    """Offsets, times, keys, values and headers; and no error, not even after dozens of empty segments (D-02)."""
    reading = seen.readings[client]
    assert reading.errors == ()
    assert set(reading.partitions) == set(topics.PARTITIONS if client == "librdkafka" else topics.READ_BY_BOTH)
    for partition, read in reading.partitions.items():
        assert list(read.records) == list(seen.expected[partition]), partition


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_positions_reach_the_end(seen: Seen, client: str) -> None:
    """VERIFY-13: a consumer gets past all emptied batches; no lag is left."""
    for partition, read in seen.readings[client].partitions.items():
        assert read.end == read.high_watermark, partition
        # a transaction's marker is the last entry of its log: librdkafka's position is that of the last record
        if client == "kafka-python" or partition.topic != topics.TRANSACTIONAL.name:
            assert read.position == read.high_watermark, partition


@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_offsets_for_times(seen: Seen, client: str) -> None:
    """The first record with that timestamp or a later one.

    Or none, as after Kafka's own cleaner: the broker stops its search at a segment whose largest timestamp is that of a
    batch without records.
    """
    answered = 0
    for partition, answers in seen.times[client].items():
        expected = seen.expected_times[partition]
        searched = seen.searched.get(partition, expected)
        for time_ms, answer, right, explained in zip(
            seen.requested[partition], answers, expected, searched, strict=True
        ):
            if answer is None and explained is None:
                continue
            assert answer == right, (partition, time_ms)
            answered += answer is not None
    assert answered > 0.7 * sum(len(requested) for requested in seen.requested.values()), "U-26"


@pytest.mark.parametrize("step", ["restarted", "continued", "recovered"])
def test_times_beyond_wiped_segments(lifecycle: Lifecycle, step: str) -> None:
    """Kafka's cleaner leaves dozens of segments that end the search; cleanerd leaves one with the answer."""
    partition = topics.WIPED.names[0]
    seen: Seen = getattr(lifecycle, step)
    assert sum(offset is not None for offset in seen.expected_times[partition]) > 20, "U-26"
    for answers in seen.times.values():
        assert answers[partition] == seen.expected_times[partition]


def test_open_producers_continue(lifecycle: Lifecycle, seen: Seen) -> None:
    """VERIFY-18: same id, same epoch, no error, over clean stops, a crash, cleanings and lost snapshots."""
    assert all(problems == () for problems in seen.problems.values()), seen.problems
    for producer in OPEN_PRODUCERS:
        assert len(seen.producer_ids[producer]) == 1, producer
        assert seen.producer_ids[producer] == lifecycle.restarted.producer_ids[producer], producer
    assert seen.producer_ids["py-plain"] == {(-1, -1)}
    ids = {(producer_id, epoch) for producer_id, epoch, _, _ in seen.sequences}
    assert ids == seen.producer_ids["rd-idle"]
    ascending = [sequence for _, _, sequence, _ in seen.sequences]
    assert ascending == sorted(set(ascending)), "a sequence was begun again"


def test_the_silent_producer_continued(lifecycle: Lifecycle) -> None:
    """C-39.1, U-26: it wrote again after the cleaning and after the crash, each time with the next sequence."""
    assert [s for _, _, s, _ in lifecycle.continued.sequences] == [0, 1, 2, 3]
    assert [s for _, _, s, _ in lifecycle.recovered.sequences] == [0, 2, 3, 4, 5]


def test_kafkas_own_cleaner_continues_from_cleanerds_checkpoint(lifecycle: Lifecycle) -> None:
    """VERIFY-9, U-10: it starts at cleanerd's checkpoint, for every partition, and the result is right."""
    taken = lifecycle.taken_over
    assert taken.started_at == {**taken.started_at, **lifecycle.crashed.cleaning.ends}
    for partition, start in taken.started_at.items():
        if partition not in topics.CLEANED:
            continue
        end = taken.ended_at[partition]
        assert end > start, "U-26"
        assert f"dirty section = [{start}, {end}]" in taken.log_text, partition
    assert "Cleaner 0: Beginning cleaning of log wiped-0" in taken.log_text
