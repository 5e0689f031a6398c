"""Batch framing and headers (F-1, F-2)."""

import dataclasses
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import HEADER, HEADER_BYTES, BatchHeader, check_crc, parse_frame, parse_header
from tests.format.worked_examples import EXAMPLES, A, B, D, E, G
from tests.support.format_bytes import batch, label, record, refusal


def with_field(data: bytes, at: int, layout: str, value: int) -> bytes:
    packed = struct.pack(layout, value)
    return data[:at] + packed + data[at + len(packed) :]


def test_example_a() -> None:
    """F-13 A, field by field."""
    assert parse_header(A) == BatchHeader(
        base_offset=100,
        batch_length=84,
        partition_leader_epoch=3,
        magic=2,
        crc=0x14BD4A44,
        attributes=0,
        last_offset_delta=2,
        base_timestamp=1700000000000,
        max_timestamp=1700000000007,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=3,
    )


def test_structured_dtype_agrees() -> None:
    """F-2: 61 bytes, one table, two ways to read it."""
    assert HEADER.itemsize == HEADER_BYTES == 61
    for example in (A, B, D, E):
        row = np.frombuffer(example, HEADER, count=1)[0]
        assert row.tolist() == dataclasses.astuple(parse_header(example))


def test_example_b_has_a_horizon() -> None:
    """F-2.2: bit 6 makes the base timestamp a horizon; A has none."""
    assert parse_header(B).delete_horizon_ms == 1700086400000
    assert parse_header(A).delete_horizon_ms is None


def test_example_d_is_empty_and_keeps_its_sequences() -> None:
    """F-2.5."""
    header = parse_header(D)
    assert (header.size_bytes, header.record_count, header.base_timestamp) == (61, 0, -1)
    assert (header.last_offset, header.base_sequence, header.last_sequence) == (204, 10, 14)


def test_example_e_is_a_marker() -> None:
    """F-2.7."""
    header = parse_header(E)
    assert header.is_control
    assert header.is_transactional
    assert not header.is_log_append_time
    assert header.last_sequence == -1


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (-1, 5, -1), (0, 3, 3)]
)
def test_sequences_wrap_to_zero(base: int, delta: int, last: int) -> None:
    """F-2.4."""
    assert parse_header(batch(0, [], last_offset_delta=delta, base_sequence=base)).last_sequence == last


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_frames(example: bytes) -> None:
    """F-1: size on disk is the size field + 12, for every magic."""
    frame = parse_frame(example)
    assert frame is not None
    assert frame.size_bytes == len(example)


def test_frame_needs_seventeen_bytes() -> None:
    """F-1: 12 for the size, 17 for the magic."""
    assert parse_frame(A[:16]) is None
    assert parse_frame(A, len(A) - 16) is None
    assert parse_frame(A[:17]) is not None


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        (with_field(A, 16, ">b", 3), 1016, "magic 3 is unknown"),
        (with_field(A, 16, ">b", -1), 1016, "magic -1 is unknown"),
        (with_field(A, 8, ">i", 48), 1008, "size 48 is below 49"),
        (with_field(A, 8, ">i", -1), 1008, "size -1 is below 49"),
        (with_field(G, 8, ">i", 21), 1008, "size 21 is below 22"),
        (with_field(with_field(G, 16, ">b", 0), 8, ">i", 13), 1008, "size 13 is below 14"),
        (bytes(20), 1008, "size 0 is below 14"),
    ],
    ids=label,
)
def test_bad_frames(data: bytes, position: int, problem: str) -> None:
    """F-1."""
    with pytest.raises(CorruptionError, match=rf"^f at byte {position}: .*{problem}"):
        parse_frame(data, where="f", origin=1000)


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        (A[:60], 1000, "60 bytes left"),
        (b"", 1000, "0 bytes left"),
        (G, 1016, "magic 1, not 2"),
        (with_field(A, 8, ">i", 48), 1008, "size 48 is below 49"),
        (with_field(A, 23, ">i", -1), 1023, "last offset delta -1"),
        (with_field(A, 57, ">i", -1), 1057, "record count -1"),
    ],
    ids=label,
)
def test_bad_headers(data: bytes, position: int, problem: str) -> None:
    """F-2."""
    with pytest.raises(CorruptionError, match=rf"^f at byte {position}: .*{problem}"):
        parse_header(data, where="f", origin=1000)


def test_position_inside_a_buffer() -> None:
    """The position in an error is that in the file: origin plus position in the buffer."""
    data = A + with_field(E, 57, ">i", -1)
    assert parse_header(data, 0, origin=5000).base_offset == 100
    with pytest.raises(CorruptionError, match=f"at byte {5000 + 96 + 57}:"):
        parse_header(data, 96, origin=5000)
    with pytest.raises(CorruptionError, match=f"at byte {5000 + 96 + 16}:"):
        parse_frame(A + with_field(E, 16, ">b", 3), 96, origin=5000)
    with pytest.raises(CorruptionError, match=f"at byte {5000 + 96 + 8}:"):
        parse_frame(A + with_field(E, 8, ">i", 3), 96, origin=5000)


@pytest.mark.parametrize("example", [A, B, D, E])
def test_crc_of_the_examples(example: bytes) -> None:
    """F-2: CRC-32C from byte 21 on."""
    check_crc(example, parse_header(example))


def test_crc_covers_attributes_to_the_end_only() -> None:
    """F-2: offset, leader epoch and magic can change without it, no other field can."""
    moved = with_field(with_field(A, 0, ">q", 7), 12, ">i", 99)
    check_crc(moved, parse_header(moved))
    for at in (21, len(A) - 1):
        damaged = with_field(A, at, ">b", 0x11)
        with pytest.raises(CorruptionError, match=r"^f at byte 42: CRC-32C of the batch at offset 100 is"):
            check_crc(damaged, parse_header(damaged), where="f", position=42)


@given(st.binary(max_size=100), st.integers(0, 40))
def test_garbage(data: bytes, position: int) -> None:
    for parse in (parse_frame, parse_header):
        error = refusal(parse, data, position)
        assert error is None or error.position >= 0


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**63), 2**63 - 1),
)
def test_round_trip(offset: int, delta: int, attributes: int, timestamp: int) -> None:
    """Extreme values of the fields survive."""
    data = batch(
        offset,
        [record(0, None, None)],
        last_offset_delta=delta,
        attributes=attributes & ~7,
        base_timestamp=timestamp,
        max_timestamp=-timestamp - 1,
    )
    header = parse_header(data)
    assert (header.base_offset, header.last_offset_delta, header.attributes) == (offset, delta, attributes & ~7)
    assert (header.base_timestamp, header.max_timestamp) == (timestamp, -timestamp - 1)
