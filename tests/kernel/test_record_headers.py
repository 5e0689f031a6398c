"""decode_chunk's results from the headers and attributes of a record: versions and tombstones."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd._kernel import (
    FLAG_BAD_VERSION,
    FLAG_HAS_KEY,
    FLAG_HAS_VALUE,
    FLAG_HAS_VERSION,
    FLAG_TOMBSTONE,
    FLAG_TOMBSTONE_HEADER,
)
from tests.kernel.strategies import HASH_KEY, array
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_legacy, encode_wrapper, varint

if TYPE_CHECKING:
    from cleanerd._kernel import Records

Headers = tuple[tuple[bytes, bytes | None], ...]

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def _long(number: int) -> bytes:
    return struct.pack(">q", number)


def _records(data: bytes, **options: Any) -> Records:
    return _kernel.decode_chunk(array(data), 0, **options).records


def _facts(headers: Headers, **options: Any) -> tuple[int, int]:
    """Version and flags of a record with these headers and neither key nor value."""
    records = _records(encode_batch([Record(headers=headers)]), **options)
    return int(records.version[0]), int(records.flags[0])


def test_flags_are_bits_of_their_own() -> None:
    """Policy and tests rely on these values."""
    flags = (
        FLAG_HAS_KEY, FLAG_HAS_VALUE, FLAG_TOMBSTONE, FLAG_HAS_VERSION, FLAG_BAD_VERSION, FLAG_TOMBSTONE_HEADER,
    )  # fmt: skip
    assert flags == (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param((), (0, 0), id="no headers"),
        pytest.param(((b"w", _long(1)),), (0, 0), id="another name"),
        pytest.param(((b"ver", _long(1)),), (0, 0), id="a name that it begins with"),
        pytest.param(((b"versions", _long(1)),), (0, 0), id="a name that begins with it"),
        pytest.param(((b"Version", _long(1)),), (0, 0), id="other letters"),
        pytest.param(((b"", _long(1)),), (0, 0), id="no name"),
        pytest.param(((b"version", _long(0)),), (0, FLAG_HAS_VERSION), id="zero is a version"),
        pytest.param(((b"version", _long(-1)),), (-1, FLAG_HAS_VERSION), id="negative"),
        pytest.param(((b"version", _long(LOWEST)),), (LOWEST, FLAG_HAS_VERSION), id="lowest"),
        pytest.param(((b"version", _long(HIGHEST)),), (HIGHEST, FLAG_HAS_VERSION), id="highest"),
        pytest.param(((b"version", b"\1" + bytes(7)),), (1 << 56, FLAG_HAS_VERSION), id="big-endian"),
        pytest.param(((b"version", None),), (0, FLAG_BAD_VERSION), id="null"),
        pytest.param(((b"version", b""),), (0, FLAG_BAD_VERSION), id="empty"),
        pytest.param(((b"version", bytes(7)),), (0, FLAG_BAD_VERSION), id="7 bytes"),
        pytest.param(((b"version", bytes(9)),), (0, FLAG_BAD_VERSION), id="9 bytes"),
        pytest.param(((b"version", _long(9)), (b"version", _long(1))), (1, FLAG_HAS_VERSION), id="last, not largest"),
        pytest.param(((b"version", _long(9)), (b"version", None)), (0, FLAG_BAD_VERSION), id="last one bad"),
        pytest.param(((b"version", b"x"), (b"version", _long(9))), (9, FLAG_HAS_VERSION), id="last one good"),
        pytest.param(((b"version", _long(9)), (b"w", b"x"), (b"", None)), (9, FLAG_HAS_VERSION), id="others behind"),
    ],
)
def test_versions(headers: Headers, expected: tuple[int, int]) -> None:
    """R280-5, R280-6: the last header of exactly that name, 8 bytes, big-endian; a malformed one never fails."""
    assert _facts(headers, version_header=b"version") == expected


def test_a_blank_name_is_a_name() -> None:
    """The kernel has no policy: R280-7 is decided before the call."""
    assert _facts(((b"", _long(4)), (b"v", _long(5))), version_header=b"") == (4, FLAG_HAS_VERSION)
    assert _facts(((b"v", _long(5)),), version_header=b"") == (0, 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(b"\1", -1, id="zigzag"),
        pytest.param(b"\x80\0", 0, id="longer than need be"),
        pytest.param(b"\xff" * 9 + b"\1", LOWEST, id="lowest"),
        pytest.param(b"\xfe" + b"\xff" * 8 + b"\1", HIGHEST, id="highest"),
        pytest.param(b"\xff" * 9 + b"\x7f", LOWEST, id="bits that do not fit fall off"),
        pytest.param(None, None, id="null"),
        pytest.param(b"", None, id="empty"),
        pytest.param(b"\x80", None, id="cut"),
        pytest.param(b"\2\0", None, id="a byte behind it"),
        pytest.param(b"\x80" * 10 + b"\0", None, id="11 bytes"),
        pytest.param(_long(1), None, id="a long"),
    ],
)
def test_varlong_versions(value: bytes | None, expected: int | None) -> None:
    """The results of Kafka's ByteUtils.readVarlong (run in 3.9.2 and 4.3.1), if no bytes follow."""
    facts = (0, FLAG_BAD_VERSION) if expected is None else (expected, FLAG_HAS_VERSION)
    assert _facts(((b"v", value),), version_header=b"v", version_encoding="varlong") == facts


@settings(max_examples=50, deadline=None)
@given(st.integers(LOWEST, HIGHEST))
def test_every_long_both_ways(number: int) -> None:
    """R280-5: all 64 bits count, in both encodings."""
    headers: Headers = ((b"long", _long(number)), (b"varlong", varint(number)))
    for encoding in ("long", "varlong"):
        facts = _facts(headers, version_header=encoding.encode(), version_encoding=encoding)
        assert facts == (number, FLAG_HAS_VERSION)


@pytest.mark.parametrize(
    ("value", "marked"),
    [
        (None, False), (b"", False), (b"0", False), (b"false", False),
        (b"1", True), (b"true", True), (b"00", True), (b"False", True), (b"\0", True), (b"no", True), (bytes(8), True),
    ],
)  # fmt: skip
def test_tombstone_headers(value: bytes | None, marked: bool) -> None:
    """R87-4: any value but empty, ``0`` and ``false``; a null value counts as empty. The last header decides."""
    for before in ((), ((b"del", b"1"),), ((b"del", b"0"),)):
        records = _records(
            encode_batch([Record(b"k", b"v", headers=(*before, (b"del", value), (b"dele", b"0" if marked else b"1")))]),
            tombstone_header=b"del",
        )
        assert records.flags[0] == FLAG_HAS_KEY | FLAG_HAS_VALUE | (FLAG_TOMBSTONE_HEADER if marked else 0)
        assert len(records.version) == 0, "no versions were requested"


def test_one_header_may_be_both() -> None:
    """Version and tombstone of the same name, and of two names in either order."""
    both = FLAG_HAS_VERSION | FLAG_TOMBSTONE_HEADER
    assert _facts(((b"h", _long(3)),), version_header=b"h", tombstone_header=b"h") == (3, both)
    for headers in (((b"t", b"1"), (b"v", _long(3))), ((b"v", _long(3)), (b"t", b"1"))):
        assert _facts(headers, version_header=b"v", tombstone_header=b"t") == (3, both)


def test_nothing_is_read_without_a_request() -> None:
    """No flags and no column of versions without the options; an encoding alone is not enough."""
    data = encode_batch([Record(headers=((b"", _long(1)), (b"v", _long(1))))])
    for options in ({}, {"version_encoding": "varlong"}):
        records = _records(data, **options)
        assert (records.flags.tolist(), len(records.version)) == ([0], 0)
        assert records.version.dtype == np.int64


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize(
    "settings", [{}, {"log_append_time": BASE_TIMESTAMP_MS}, {"delete_horizon": 1}, {"last_offset_delta": 9}]
)
def test_every_kind_of_batch(codec: int, settings: dict[str, Any]) -> None:
    """Rows match their records: compressed, with append time, with a horizon, with offsets missing."""
    content = [
        Record(b"a", b"1", headers=((b"v", _long(7)),)),
        Record(b"b", None, offset_delta=3, attributes=0x20),
        Record(b"c", b"2", headers=((b"v", b"bad"),)),
        Record(b"d", b"3", headers=((b"x", b""), (b"v", _long(-7)))),
    ]
    data = encode_batch(content, codec=codec, **settings) + encode_batch([]) + encode_batch(content[:1], base_offset=50)
    records = _records(data, version_header=b"v", hash_key=HASH_KEY)
    assert records.version.tolist() == [7, 0, 0, -7, 7]
    assert records.flags.tolist() == [3 | 8, 1 | 4, 3 | 16, 3 | 8, 3 | 8]
    assert records.offset.tolist() == [0, 3, 4, 5, 50]


@pytest.mark.parametrize(
    ("attributes", "flag"),
    [(0, 0), (0x20, FLAG_TOMBSTONE), (0xFF, FLAG_TOMBSTONE), (0xDF, 0), (0x10, 0), (0x40, 0)],
)
def test_the_tombstone_bit(attributes: int, flag: int) -> None:
    """R87-2: only bit 5 of the record's attributes, whatever the value, requested or not."""
    for value in (None, b"", b"v"):
        data = encode_batch([Record(b"k", value, attributes=attributes)])
        expected = FLAG_HAS_KEY | (0 if value is None else FLAG_HAS_VALUE) | flag
        assert _records(data).flags.tolist() == [expected]
        assert _records(data, version_header=b"v").flags.tolist() == [expected]


def test_the_control_bit_of_the_batch_is_not_a_tombstone() -> None:
    """R87-2: bit 5 of the batch's attributes means control batch; it does not make its records tombstones."""
    data = encode_batch([Record(b"\0\0\0\1", b"")], control=True, producer_id=5, producer_epoch=0)
    assert _records(data).flags.tolist() == [FLAG_HAS_KEY | FLAG_HAS_VALUE]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_have_neither(magic: int) -> None:
    """R87-2, R192-4: magic 0 and 1 have no headers, and their attributes no such bit; rows match their records."""
    message = encode_legacy(4, b"k", None, magic=magic, attributes=0x20)
    inner = encode_legacy(0, b"a", b"1", magic=magic, attributes=0x20) + encode_legacy(1, b"b", b"2", magic=magic)
    data = (
        message
        + encode_wrapper(9 if magic else 1, inner, magic=magic)
        + encode_batch([Record(b"c", b"3", headers=((b"v", _long(5)),))], base_offset=20)
    )
    records = _records(data, version_header=b"v", tombstone_header=b"v")
    assert records.flags.tolist() == [1, 3, 3, 3 | FLAG_HAS_VERSION | FLAG_TOMBSTONE_HEADER]
    assert records.version.tolist() == [0, 0, 0, 5]


def _with_headers(headers: bytes) -> bytes:
    body = b"\0\0\0" + varint(-1) + varint(-1) + headers
    return encode_batch([], payload=varint(len(body)) + body, record_count=1, last_offset_delta=0)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (varint(-1), "negative header count"),
        (varint(9), "more headers"),
        (varint(1) + varint(-1) + varint(-1), "key is null"),
        (varint(1) + varint(1) + b"v" + varint(9) + bytes(8), "longer than its record"),
        (varint(1) + varint(9) + b"v" + varint(-1), "longer than its record"),
        (varint(1) + varint(1) + b"v", "ends inside a field"),
        (varint(1) + varint(1) + b"v" + varint(7) + bytes(8), "does not use all"),
        (varint(0) + b"v", "does not use all"),
    ],
)
def test_damage_is_damage(headers: bytes, reason: str) -> None:
    """F-2.3: a length beyond the record is damage, not a malformed version, with all options."""
    for options in ({}, {"version_header": b"v"}, {"tombstone_header": b"v"}, {"version_header": b"other"}):
        with pytest.raises(_kernel.CorruptLogError, match=reason) as caught:
            _records(_with_headers(headers), **options)
        assert caught.value.record == 0


def test_an_unknown_encoding_is_the_callers_mistake() -> None:
    """Even if no header is requested."""
    for options in ({"version_header": b"v"}, {}):
        with pytest.raises(ValueError, match=r'"int" is neither long nor varlong'):
            _records(b"", version_encoding="int", **options)
