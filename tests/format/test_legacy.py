"""Messages of magic 0 and 1 (F-3)."""

import gzip
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.legacy import LegacyMessage, parse_message, records_of_message
from cleanerd.format.record import Record
from tests.format.worked_examples import F0, F1, A, G
from tests.support.format_bytes import label, refusal

LIMIT = 1 << 20


def message(
    offset: int, magic: int, key: bytes | None, value: bytes | None, *, attributes: int = 0, timestamp: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, magic: int, inner: bytes, *, attributes: int = 1, timestamp: int = 0) -> bytes:
    return message(offset, magic, None, gzip.compress(inner), attributes=attributes, timestamp=timestamp)


def records(data: bytes) -> list[Record]:
    return records_of_message(parse_message(data), limit_bytes=LIMIT)


def test_examples_f() -> None:
    """F-13 F."""
    assert parse_message(F1) == LegacyMessage(50, 36, 0x5EAF63DC, 1, 0, 1600000000000, b"k", b"v")
    assert records(F1) == [Record(50, 1600000000000, b"k", b"v", (), 0)]
    assert records(F0) == [Record(51, -1, b"k", None, (), 0)]


def test_example_g_relative_offsets() -> None:
    """F-13 G, F-3.1: magic 1 counts inner offsets back from the wrapper's; the hole at 61 stays."""
    assert [(each.offset, each.timestamp) for each in records(G)] == [(60, 1600000000000), (62, 1600000000003)]


def test_attributes_are_an_unsigned_byte() -> None:
    assert parse_message(message(1, 1, b"k", b"v", attributes=-128)).attributes == 128


def test_inner_offsets_that_are_absolute_already() -> None:
    """F-3.1: the wrapper's offset equals the last inner one."""
    inner = message(5, 1, b"a", b"1") + message(6, 1, b"b", b"2")
    assert [each.offset for each in records(wrapper(6, 1, inner))] == [5, 6]


def test_magic_0_inner_offsets_are_absolute() -> None:
    """F-3.1."""
    inner = message(60, 0, b"a", b"1") + message(62, 0, b"b", b"2")
    assert [each.offset for each in records(wrapper(62, 0, inner))] == [60, 62]


def test_wrapper_offset_zero_means_base_zero() -> None:
    """F-3.1: some producers leave it 0 and the inner offsets count from 0."""
    inner = message(0, 1, b"a", b"1") + message(1, 1, b"b", b"2")
    assert [each.offset for each in records(wrapper(0, 1, inner))] == [0, 1]


def test_append_time_is_the_wrappers() -> None:
    """F-3.1."""
    inner = message(0, 1, b"a", b"1", timestamp=5)
    assert records(wrapper(9, 1, inner, attributes=9, timestamp=777))[0].timestamp == 777
    assert records(wrapper(9, 1, inner, attributes=1, timestamp=777))[0].timestamp == 5


def test_append_time_is_not_that_of_magic_0_inside() -> None:
    """F-3.1, KAFKA-4298: for a consumer such a message has no time, whatever its wrapper."""
    inner = message(0, 1, b"a", b"1", timestamp=5) + message(1, 0, b"b", b"2")
    assert [each.timestamp for each in records(wrapper(9, 1, inner, attributes=9, timestamp=777))] == [777, -1]


def test_a_cut_inner_message_ends_silently() -> None:
    """F-3.1."""
    inner = message(0, 1, b"a", b"1") + message(1, 1, b"b", b"2")[:-1]
    assert [each.key for each in records(wrapper(9, 1, inner))] == [b"a"]


@pytest.mark.parametrize("magic", [3, -1])
def test_of_a_cut_inner_message_only_the_size_is_read(magic: int) -> None:
    """F-3.1: Kafka also stops reading once it knows that it is truncated; a size below the smallest is damage."""
    cut = message(1, 1, b"b", b"2")[:-1]
    cut = cut[:16] + struct.pack(">b", magic) + cut[17:]
    assert [each.key for each in records(wrapper(9, 1, message(0, 1, b"a", b"1") + cut))] == [b"a"]
    with pytest.raises(CorruptionError, match="in a compressed message, byte 36"):
        records(wrapper(9, 1, message(0, 1, b"a", b"1") + struct.pack(">qi", 1, 13)))


@pytest.mark.parametrize("checksum", [0x1A, 0x82])
def test_lz4_of_magic_0_has_a_wrong_header_checksum(checksum: int) -> None:
    """F-4, KAFKA-3160: magic 0 frames have 0x1A instead of the right 0x82; both are read."""
    inner = message(3, 0, b"a", b"1")
    frame = struct.pack("<IBBBI", 0x184D2204, 0x60, 0x40, checksum, len(inner) | 1 << 31) + inner + bytes(4)
    assert records(message(3, 0, None, frame, attributes=3))[0].key == b"a"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (A, "not a whole message of magic 0 or 1"),
        (F1[:-1], "not a whole message"),
        (F1 + b"\0", "not a whole message"),
        (F1[:-1] + b"w", "CRC-32 of the message at offset 50"),
    ],
    ids=label,
)
def test_corrupt_messages(data: bytes, problem: str) -> None:
    """F-3."""
    with pytest.raises(CorruptionError, match=rf"^f at byte 7: .*{problem}"):
        parse_message(data, where="f", position=7)


def test_lengths_that_do_not_fit() -> None:
    broken = bytearray(F1)
    broken[30:34] = struct.pack(">i", 2)
    with pytest.raises(CorruptionError, match=r"^f at byte "):
        parse_message(bytes(broken), where="f", verify_crc=False)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (message(1, 1, None, None, attributes=1), "without a value"),
        (message(1, 1, None, b"", attributes=1), "without a value"),
        (message(1, 1, None, b"junk", attributes=1), "gzip: "),
        (wrapper(1, 1, b""), "without messages in it"),
        (wrapper(1, 1, wrapper(0, 1, message(0, 1, b"a", b"1"))), "inside a compressed message"),
        (wrapper(1, 1, message(5, 1, b"a", b"1")), "inner offset 5 is above the wrapper's 1"),
        (wrapper(1, 1, message(0, 1, b"a", b"1")[:-1] + b"2"), "CRC-32 .*in a compressed message"),
        (message(1, 1, None, b"x", attributes=6), "codec 6 is unknown"),
    ],
    ids=label,
)
def test_corrupt_wrappers(data: bytes, problem: str) -> None:
    """F-3.1."""
    with pytest.raises(CorruptionError, match=rf"^f at byte 7: .*{problem}"):
        records_of_message(parse_message(data), limit_bytes=LIMIT, where="f", position=7)


@given(st.binary(max_size=80), st.sampled_from([0, 1]), st.integers(0, 7))
def test_garbage(value: bytes, magic: int, attributes: int) -> None:
    refusal(records, message(5, magic, None, value, attributes=attributes))
    refusal(parse_message, value)
