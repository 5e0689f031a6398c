"""Records of v2 batches (F-2.2, F-2.3, F-2.6)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.record import Record, records_of
from tests.format.worked_examples import EXAMPLES, A, B, C, D, E
from tests.support.format_bytes import batch, label, record, refusal, varint

LIMIT = 1 << 20
H = ((b"h", b"x"),)


def test_example_a() -> None:
    """F-13 A."""
    assert records_of(A, limit_bytes=LIMIT) == [
        Record(100, 1700000000000, b"k1", b"v1", (), 0),
        Record(101, 1700000000005, b"k2", None, (), 0),
        Record(102, 1700000000007, b"k1", b"v2", H, 0),
    ]


def test_example_b_timestamps_survive_the_horizon() -> None:
    """F-2.2: deltas against the horizon give the old timestamps."""
    assert records_of(B, limit_bytes=LIMIT) == [
        Record(101, 1700000000005, b"k2", None, (), 0),
        Record(102, 1700000000007, b"k1", b"v2", H, 0),
    ]


def test_example_c_first_record_is_not_at_the_base_offset() -> None:
    """F-2.4."""
    assert [each.offset for each in records_of(C, limit_bytes=LIMIT)] == [102]


def test_example_d_is_empty() -> None:
    """F-2.5."""
    assert records_of(D, limit_bytes=LIMIT) == []


def test_empty_batch_with_a_codec() -> None:
    """There is nothing to decompress."""
    assert records_of(batch(0, [], attributes=0)[:], limit_bytes=0) == []
    data = batch(5, [])
    header_only = data[:21] + struct.pack(">h", 4) + data[23:]
    assert records_of(header_only, limit_bytes=0, verify_crc=False) == []


def test_log_append_time() -> None:
    """F-2.6: the deltas are ignored, every record has the batch's max timestamp."""
    data = batch(0, [record(0, b"k", b"v", timestamp_delta=5)], attributes=8, base_timestamp=100, max_timestamp=999)
    assert records_of(data, limit_bytes=LIMIT)[0].timestamp == 999


def test_timestamps_wrap_like_a_long() -> None:
    """C-50: a horizon can make a delta overflow."""
    data = batch(0, [record(0, b"k", b"v", timestamp_delta=2**63 - 1)], base_timestamp=1)
    assert records_of(data, limit_bytes=LIMIT)[0].timestamp == -(2**63)


def test_gzip() -> None:
    """F-2: the records are one compressed stream, without the count."""
    rows = [record(at, b"k%d" % at, b"v" * 100) for at in range(50)]
    plain, packed = batch(7, rows), batch(7, rows, attributes=1)
    assert len(packed) < len(plain) / 4
    assert records_of(packed, limit_bytes=LIMIT) == records_of(plain, limit_bytes=LIMIT)


def test_null_empty_and_raw_header_keys() -> None:
    """F-2.3: null is not empty; header keys that are not UTF-8 keep their bytes."""
    headers = ((b"\xff\xfe", None), (b"", b""))
    data = batch(0, [record(0, None, b"", headers=headers, attributes=0x20)])
    assert records_of(data, limit_bytes=LIMIT) == [Record(0, 0, None, b"", headers, 0x20)]


RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=10),
        st.none() | st.binary(max_size=10),
        st.integers(-(2**40), 2**40),
        st.lists(st.tuples(st.binary(max_size=4), st.none() | st.binary(max_size=4)), max_size=3),
        st.integers(0, 255),
    ),
    max_size=6,
)


@given(RECORDS, st.sampled_from([0, 1]), st.integers(0, 2**62))
def test_round_trip(
    rows: list[tuple[bytes | None, bytes | None, int, list[tuple[bytes, bytes | None]], int]], codec: int, base: int
) -> None:
    data = batch(
        base,
        [
            record(2 * at, row[0], row[1], timestamp_delta=row[2], headers=row[3], attributes=row[4])
            for at, row in enumerate(rows)
        ],
        attributes=codec,
        base_timestamp=1000,
    )
    assert records_of(data, limit_bytes=LIMIT) == [
        Record(base + 2 * at, 1000 + row[2], row[0], row[1], tuple(row[3]), row[4]) for at, row in enumerate(rows)
    ]


GOOD = record(0, b"k", b"v")


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        (A + b"\0", 1008, "97 bytes of a batch of 96"),
        (A[:-1], 1008, "95 bytes of a batch of 96"),
        (A[:-1] + b"y", 1000, "CRC-32C"),
        (batch(0, [GOOD], count=2), 1070, "2 records announced, the bytes end after 1"),
        (batch(0, [GOOD], count=0), 1061, "9 bytes left after the last of 0"),
        (batch(0, [GOOD], count=2**31 - 1), 1070, "2147483647 records announced"),
        (batch(0, [GOOD + b"\x00"], count=1), 1070, "1 bytes left after the last of 1"),
        (batch(0, [b"\x16" + GOOD[1:] + b"\x00\x00\x00\x00"]), 1070, "3 bytes left at the end of a record"),
        (batch(0, [varint(-1)]), 1062, "-1 bytes announced"),
        (batch(0, [varint(50) + GOOD]), 1062, "50 bytes announced, 9 left"),
        (batch(0, [varint(2) + b"\x00\x00"]), 1064, "cut off"),
        (batch(0, [varint(6) + b"\x00\x00\x00\x03\x01\x00"]), 1066, "-2 bytes announced"),  # only -1 is null
        (batch(0, [varint(6) + b"\x00\x00\x00\x01\x01\x01"]), 1068, "-1 headers announced"),
        (batch(0, [varint(6) + b"\x00\x00\x00\x01\x01\x7e"]), 1068, "63 headers announced, 0 bytes left"),
        (batch(0, [varint(8) + b"\x00\x00\x00\x01\x01\x02\x01\x01"]), 1069, "-1 bytes announced"),  # a null header key
        (batch(0, [varint(8) + b"\x00\xff\xff\xff\xff\xff\xff\xff"]), 1063, "cut off"),
        (batch(0, [varint(13) + b"\x00" + b"\xff" * 10 + b"\x01\x00"]), 1063, "more than 64 bits"),
        (batch(0, [b"\xff\xff\xff\xff\x7f"]), 1061, "more than 32 bits"),
        (batch(0, [b"\x80\x80\x80\x80\x80\x00"]), 1061, "more than 32 bits"),
        (batch(5, [record(-1, b"k", b"v")]), 1064, "record offset 4 is below"),
        (batch(2**63 - 1, [record(1, b"k", b"v")]), 1064, "or too large"),
        (batch(0, [], attributes=5, count=1), 1000, "codec 5 is unknown"),
        (batch(0, [b"not gzip"], attributes=0)[:21], 1000, "21 bytes left"),
    ],
    ids=label,
)
def test_corrupt(data: bytes, position: int, problem: str) -> None:
    """F-2.3: exact use of every record's length and of the payload; every error has its byte."""
    with pytest.raises(CorruptionError, match=rf"^f at byte {position}: .*{problem}"):
        records_of(data, limit_bytes=LIMIT, where="f", position=1000)


def test_corrupt_inside_compressed_data() -> None:
    """The message has the byte in the decompressed records, the error's position is the batch."""
    data = batch(0, [GOOD, varint(50)], attributes=1)
    with pytest.raises(CorruptionError, match=r"^f at byte 1000: 50 bytes announced, 0 left \(byte 10 of the unpacked"):
        records_of(data, limit_bytes=LIMIT, where="f", position=1000)


def test_damaged_compressed_data() -> None:
    data = batch(0, [GOOD], attributes=1)
    with pytest.raises(CorruptionError, match=r"^f at byte 9: gzip: "):
        records_of(data[:-12] + bytes(12), limit_bytes=LIMIT, where="f", position=9, verify_crc=False)


def test_limit() -> None:
    """A small batch must not decompress to more than the caller allows."""
    data = batch(0, [record(0, None, bytes(1_000_000))], attributes=1)
    assert len(data) < 2000
    assert len(records_of(data, limit_bytes=1_000_100)) == 1
    with pytest.raises(CorruptionError, match=r"^f at byte 9: gzip: "):
        records_of(data, limit_bytes=999_999, where="f", position=9)


def test_largest_offset() -> None:
    data = batch(2**63 - 1, [record(0, b"k", b"v")])
    assert records_of(data, limit_bytes=LIMIT)[0].offset == 2**63 - 1


@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_damaged_examples(name: str, data: st.DataObject) -> None:
    """One changed byte: a result or a CorruptionError, CRC checked or not."""
    example = EXAMPLES[name]
    at = data.draw(st.integers(0, len(example) - 1))
    damaged = example[:at] + bytes([data.draw(st.integers(0, 255))]) + example[at + 1 :]
    for verify_crc in (True, False):
        refusal(lambda crc: records_of(damaged, limit_bytes=LIMIT, verify_crc=crc), verify_crc)


@given(st.binary(max_size=60), st.integers(0, 255), st.integers(-1, 2**31 - 1))
def test_garbage_payload(payload: bytes, attributes: int, count: int) -> None:
    """Any bytes after a valid header."""
    data = batch(0, [], attributes=attributes & ~7, count=count)
    data = (
        data[:8]
        + struct.pack(">i", 49 + len(payload))
        + data[12:21]
        + struct.pack(">h", attributes)
        + data[23:]
        + payload
    )
    refusal(lambda: records_of(data, limit_bytes=LIMIT, verify_crc=False))


def test_example_e_is_one_record() -> None:
    """F-13 E."""
    (marker,) = records_of(E, limit_bytes=LIMIT)
    assert (marker.offset, marker.key, marker.value) == (300, b"\0\0\0\1", b"\0\0\0\0\0\7")
