"""kafka-python's codec with the flag of KIP-87: right bytes, and otherwise its own bytes (U-25)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.record.memory_records import MemoryRecordsBuilder

from cleanerd.client.kafka_flag import FlagAccumulator, FlagRecords, FlagRecordsBuilder, TombstoneHeaders
from cleanerd.format.record import records_of
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from kafka.producer.producer_batch import ProducerBatch

PARTITION = TopicPartition("t", 0)
ROOM = 1 << 20
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=70),
        st.none() | st.binary(max_size=200),
        st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=2),
        st.booleans(),
    ),
    min_size=1,
    max_size=20,
)


def built(builder: MemoryRecordsBuilder, records: list[Any], *, flags: bool) -> bytes:
    for timestamp, key, value, headers, flagged in records:
        listed = TombstoneHeaders(headers) if flags and flagged else list(headers)
        assert builder.append(timestamp, key, value, listed) is not None
    builder.close()
    return bytes(builder.buffer())


@pytest.mark.slow
@given(RECORDS, st.sampled_from((0, 1)))
def test_the_flag_is_bit_5_of_the_record(records: list[Any], codec: int) -> None:
    """R87-2: read by our own decoder, which checks the checksum; nothing else differs from kafka-python's bytes."""
    data = built(FlagRecordsBuilder(codec, ROOM), records, flags=True)
    found = records_of(data, limit_bytes=ROOM)
    assert [record.attributes for record in found] == [0x20 if flagged else 0 for *_, flagged in records]
    assert [(r.timestamp, r.key, r.value) for r in found] == [record[:3] for record in records]
    plain = built(FlagRecordsBuilder(codec, ROOM), records, flags=False)
    assert plain == built(MemoryRecordsBuilder(2, codec, ROOM), records, flags=False)


@pytest.mark.slow
@given(RECORDS, st.sampled_from((0, 1)))
def test_records_read_back_with_their_flag(records: list[Any], codec: int) -> None:
    """R87-7: the reader's headers show which records had the flag, and are otherwise unchanged."""
    data = built(FlagRecordsBuilder(codec, ROOM), records, flags=True)
    found = [record for batch in FlagRecords(data) for record in batch]
    assert [isinstance(record.headers, TombstoneHeaders) for record in found] == [flagged for *_, flagged in records]
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in found] == [record[:4] for record in records]


@pytest.mark.parametrize("attributes", [0x00, 0x10, 0x20, 0x21, 0x7F, 0x80, 0xA0, 0xFF])
def test_other_attributes(attributes: int) -> None:
    """Bit 5 and no other; from 0x80 on kafka-python itself fails, because it reads the byte as a varint."""
    data = encode_batch([Record(b"k", b"v", attributes=attributes), Record(b"l", b"w")])
    found = [record for batch in FlagRecords(data) for record in batch]
    assert [(record.key, record.value) for record in found] == [(b"k", b"v"), (b"l", b"w")]
    assert isinstance(found[0].headers, TombstoneHeaders) is bool(attributes & 0x20)
    assert not isinstance(found[1].headers, TombstoneHeaders)


def accumulator(batch_size: int = 16384) -> FlagAccumulator:
    return FlagAccumulator(batch_size=batch_size)


def closed(queue: FlagAccumulator) -> list[bytes]:
    for batch in queue._batches[PARTITION]:
        batch.records.close()
    return [bytes(batch.records.buffer()) for batch in queue._batches[PARTITION]]


def attributes_of(batches: list[bytes]) -> list[list[int]]:
    return [[record.attributes for record in records_of(batch, limit_bytes=ROOM)] for batch in batches]


def test_batches_are_queued_as_kafka_python_does() -> None:
    """A batch continues until it is full.

    One that does not fit begins the next, unless that is turned off (KIP-480).
    """
    queue = accumulator(batch_size=150)
    answers = [queue.append(PARTITION, 1, b"k", b"v" * 30, TombstoneHeaders())]
    assert queue.append(PARTITION, 1, b"k", b"v" * 60, [], abort_on_new_batch=True) == (None, False, False, True)
    answers += [queue.append(PARTITION, 1, b"k", b"v" * size, []) for size in (30, 200)]
    assert [answer[1:] for answer in answers] == [
        (False, True, False),
        (False, False, False),
        (True, True, False),
    ]
    assert len(queue._incomplete.all()) == 2
    assert attributes_of(closed(queue)) == [[0x20, 0], [0]]
    queue.close()
    with pytest.raises(Exception, match="closed"):
        queue.append(PARTITION, 1, b"k", b"v", [])


@pytest.mark.parametrize("count", [2, 5])
def test_a_batch_that_is_too_large_is_split(count: int) -> None:
    """U-25: flags, order and all futures survive; the sequence is the first half's again."""
    queue = accumulator()
    futures = [
        queue.append(PARTITION, 1000 - n, b"k%d" % n, b"v", TombstoneHeaders([("h", b"x")]) if n % 2 else [])[0]
        for n in range(count)
    ]
    batch: ProducerBatch = queue._batches[PARTITION].popleft()
    batch.records.close()
    assert queue.split_and_reenqueue(batch) == 2
    queue.deallocate(batch)
    halves = list(queue._batches[PARTITION])
    assert attributes_of(closed(queue)) == [
        [0x20 * (n % 2) for n in part]
        for part in (range((count + 1) // 2), range((count + 1) // 2, count))
    ]  # fmt: skip
    assert set(queue._incomplete.all()) == set(halves)
    halves[0].complete(100, -1)
    halves[1].complete(200, -1)
    places = [future.get(0).offset for future in futures]
    assert places == [100 + n for n in range((count + 1) // 2)] + [200 + n for n in range(count // 2)]
    assert [future.get(0).timestamp for future in futures] == [1000 - n for n in range(count)]
