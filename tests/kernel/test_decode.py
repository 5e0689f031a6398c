"""decode_chunk and scan_headers compared with their references, and their refusals."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from tests.kernel.strategies import HASH_KEY, array, header_options, log, outcome
from tests.support import reference_kernel as reference
from tests.support.logs import (
    Record,
    encode_batch,
    encode_legacy,
    encode_marker,
    encode_wrapper,
    keyed_batch,
    seal,
    varint,
)
from tests.support.reference_codecs import siphash_1_3_128

if TYPE_CHECKING:
    from cleanerd._kernel import Batches, Chunk

COLUMNS = {
    "position": np.uint32, "size": np.uint32, "base_offset": np.int64, "last_offset": np.int64,
    "base_timestamp": np.int64, "max_timestamp": np.int64, "producer_id": np.int64, "producer_epoch": np.int16,
    "base_sequence": np.int32, "leader_epoch": np.int32, "attributes": np.int16, "magic": np.uint8,
    "crc": np.uint32, "control_type": np.int16, "first_record": np.uint32, "mixed_magic": np.uint32,
    "unordered": np.uint32,
}  # fmt: skip


def assert_same_batches(batches: Batches, expected: reference.Batches) -> None:
    for name, dtype in COLUMNS.items():
        column = getattr(batches, name)
        assert column.dtype == dtype, name
        assert column.tolist() == expected.column(name), name
    assert (batches.consumed, batches.needed, len(batches)) == (
        expected.consumed,
        expected.needed,
        len(expected.headers),
    )


def assert_same_chunk(chunk: Chunk, expected: reference.Chunk) -> None:
    assert_same_batches(chunk.batches, expected.batches)
    assert (chunk.consumed, chunk.needed) == (chunk.batches.consumed, chunk.batches.needed)
    for name in ("offset", "timestamp", "key_hash", "flags", "version"):
        assert getattr(chunk.records, name).tolist() == getattr(expected, name), name
    assert len(chunk.records) == len(expected.flags)


def _check(data: bytes, **options: Any) -> None:
    chunk, error = outcome(lambda: _kernel.decode_chunk(array(data), 1000, **options))
    expected, expected_error = outcome(lambda: reference.decode_chunk(data, 1000, **options))
    assert error == expected_error
    if error is None:
        assert_same_chunk(chunk, expected)


@settings(deadline=None)
@given(log(), st.sampled_from([None, HASH_KEY]), header_options())
def test_decode_equals_the_reference(data: bytes, hash_key: bytes | None, headers: dict[str, Any]) -> None:
    """F-1, F-2, R280-5, R280-6, R87-2, R87-4: every column of every batch and record, with all header options."""
    _check(data, hash_key=hash_key)
    _check(data, hash_key=hash_key, **headers)


@settings(deadline=None)
@given(log(), st.data())
def test_a_cut_ends_the_chunk(data: bytes, draw: st.DataObject) -> None:
    """F-1: whole batches are read, and ``needed`` is the size of the next one."""
    cut = data[: draw.draw(st.integers(0, len(data)))]
    _check(cut)
    table = _kernel.scan_headers(array(cut), 7)
    assert_same_batches(table, reference.scan_headers(cut, 7))
    if table.needed:
        assert table.consumed + table.needed > len(cut)


@settings(deadline=None)
@given(log(), st.data())
def test_one_damaged_byte(data: bytes, draw: st.DataObject) -> None:
    """C-57: the same error as the reference, at the same place, with and without the CRC."""
    if data:
        place = draw.draw(st.integers(0, len(data) - 1))
        damaged = bytearray(data)
        damaged[place] = draw.draw(st.integers(0, 255))
        for verify_crc in (True, False):
            _check(bytes(damaged), verify_crc=verify_crc, max_unpacked=100_000)
        scan, error = outcome(lambda: _kernel.scan_headers(array(bytes(damaged)), 0, verify_crc=True))
        expected, expected_error = outcome(lambda: reference.scan_headers(bytes(damaged), 0, verify_crc=True))
        assert error == expected_error
        if error is None:
            assert_same_batches(scan, expected)


@settings(deadline=None)
@given(log(most=1), header_options(), st.data())
def test_damaged_records_behind_a_good_crc(data: bytes, headers: dict[str, Any], draw: st.DataObject) -> None:
    """F-2.3: the record parser itself, without an earlier check; the same with and without header options."""
    if len(data) > 61 and data[16] == 2:
        damaged = bytearray(data)
        for _ in range(draw.draw(st.integers(1, 3))):
            damaged[draw.draw(st.integers(57, len(data) - 1))] = draw.draw(st.integers(0, 255))
        _check(seal(bytes(damaged)), max_unpacked=100_000)
        _check(seal(bytes(damaged)), max_unpacked=100_000, **headers)


@settings(deadline=None)
@given(st.binary(max_size=150))
def test_garbage(data: bytes) -> None:
    """C-57: any bytes give a table or a CorruptLogError."""
    _check(data)
    _check(struct.pack(">qiibI", 5, len(data) + 5, 0, 2, 0) + data, verify_crc=False)


def _control(key: bytes | None, **settings: Any) -> bytes:
    return encode_batch([Record(key, b"")], control=True, producer_id=5, producer_epoch=0, **settings)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(encode_marker(0, commit=False, producer_id=5), 0, id="abort"),
        pytest.param(encode_marker(0, commit=True, producer_id=5), 1, id="commit"),
        pytest.param(encode_marker(0, commit=True, producer_id=5, delete_horizon=7), 1, id="with a horizon"),
        pytest.param(_control(b"\0\0\0\2"), 2, id="leader change"),
        pytest.param(_control(b"\0\0\1\1"), 257, id="unknown: both bytes count"),
        pytest.param(_control(b"\0\7\0\1more"), 1, id="a higher version, a longer key"),
        pytest.param(encode_batch([], control=True, producer_id=5, producer_epoch=0), -1, id="emptied"),
        pytest.param(encode_batch([Record(b"\0\0\0\1", b"")]), -1, id="data with a marker's key (KAFKA-14055)"),
        pytest.param(encode_legacy(0, b"\0\0\0\1", b"", magic=1), -1, id="v1"),
    ],
)
def test_control_type(data: bytes, expected: int) -> None:
    """F-2.7: the second short of the key, in both tables."""
    for table in (_kernel.scan_headers(array(data), 0), _kernel.decode_chunk(array(data), 0).batches):
        assert table.control_type.tolist() == [expected]


@pytest.mark.parametrize(
    ("data", "record", "message"),
    [
        pytest.param(_control(b"\0\0\1"), 0, "control key is truncated", id="three bytes"),
        pytest.param(_control(None), 0, "control key is truncated", id="no key"),
        pytest.param(_control(b"\xff\xff\0\1"), 0, "negative version", id="negative version"),
        pytest.param(_control(b"\0\0\xff\xff"), 0, "negative control type", id="negative type"),
        pytest.param(_control(b"\0\0\0\1", codec=1), -1, "compressed control batch", id="compressed"),
    ],
)
def test_damaged_control_batches(data: bytes, record: int, message: str) -> None:
    """F-2.7, C-57: refused by both calls, at the right place, after a valid batch."""
    good = keyed_batch(0, [("a", "1")])
    for call in (_kernel.scan_headers, _kernel.decode_chunk):
        with pytest.raises(_kernel.CorruptLogError, match=message) as raised:
            call(array(good + data), 100)
        assert (raised.value.position, raised.value.record) == (100 + len(good), record)


def _batch(payload: bytes, count: int, last_offset_delta: int = 10) -> bytes:
    return encode_batch([], payload=payload, record_count=count, last_offset_delta=last_offset_delta)


def _record(body: bytes) -> bytes:
    return varint(len(body)) + body


GOOD = _record(b"\x00\x00\x00" + varint(-1) + varint(-1) + b"\x00")
AT_ONE = _record(b"\x00\x00\x02" + varint(-1) + varint(-1) + b"\x00")


@pytest.mark.parametrize(
    ("payload", "count", "record", "reason"),
    [
        (GOOD + AT_ONE, 1, -1, "after the last record"),
        (GOOD, 2, -1, "2 records do not fit in 7 bytes"),
        (GOOD * 2, 3, -1, "3 records do not fit in 14 bytes"),
        (GOOD, 0, -1, "after the last record"),
        (_record(b"\x00\x00\x00" + varint(-1) + varint(-1) + b"\x00\x00"), 1, 0, "does not use all"),
        (_record(b"\x00\x00\x00" + varint(40) + b"k" + b"\x00"), 1, 0, "longer than its record"),
        (_record(b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(9)), 1, 0, "more headers"),
        (_record(b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(1) + varint(-1) + varint(-1)), 1, 0, "key is null"),
        (_record(b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(-1)), 1, 0, "negative header count"),
        (varint(-1) + bytes(6), 1, 0, "negative record length"),
        (varint(90) + bytes(6), 1, 0, "longer than the rest"),
        (b"\xff" * 7, 1, 0, "length is truncated"),
        (_record(b"\x00" + b"\x80" * 10 + b"\x00" * 5), 1, 0, "ends inside a field"),
    ],
)
def test_bad_records(payload: bytes, count: int, record: int, reason: str) -> None:
    """F-2.3: which record, and why."""
    good = keyed_batch(3, [("k", "v")])
    with pytest.raises(_kernel.CorruptLogError, match=reason) as caught:
        _kernel.decode_chunk(array(good + _batch(payload, count)), 100)
    error = caught.value
    assert (error.position, error.base_offset, error.record) == (100 + len(good), 0, record)
    assert reason in error.reason


def _at(*deltas: int) -> bytes:
    return b"".join(_record(b"\x00\x00" + varint(delta) + varint(-1) + varint(-1) + b"\x00") for delta in deltas)


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1,), (0, 11), (3, 2, 7), (0, 1, 1)])
def test_record_offsets_that_do_not_rise(deltas: tuple[int, ...]) -> None:
    """U-45: brokers store such batches; this row has the flag, and no other row."""
    good = keyed_batch(3, [("k", "v")])
    chunk = _kernel.decode_chunk(array(good + _batch(_at(*deltas), len(deltas)) + good), 0)
    assert chunk.batches.unordered.tolist() == [1]
    assert chunk.records.offset.tolist() == [3, *deltas, 3]
    assert not len(_kernel.decode_chunk(array(_batch(_at(0, 3, 10), 3)), 0).batches.unordered)


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_a_negative_length_is_null(length: int) -> None:
    """F-2.3: of keys, values and values of headers, as Kafka reads them; kept unchanged in a rebuilt batch."""
    null = varint(length)
    body = b"\x00\x00\x00" + varint(1) + b"k" + null + varint(1) + varint(1) + b"h" + null
    chunk = _kernel.decode_chunk(array(_batch(_record(body) + AT_ONE, 2)), 0, version_header=b"h")
    assert chunk.records.flags.tolist() == [_kernel.FLAG_HAS_KEY | _kernel.FLAG_BAD_VERSION, 0]
    keep, actions = np.array([1], np.uint64), np.array([_kernel.ACTION_REBUILD], np.uint8)
    written = _kernel.rewrite_chunk(array(_batch(_record(body) + AT_ONE, 2)), 0, keep, 0, actions)
    assert body[3:] in written.data.tobytes()


def _patched(at: int, patch: bytes) -> bytes:
    batch = bytearray(keyed_batch(9, [("k", "v")]))
    batch[at : at + len(patch)] = patch
    return seal(bytes(batch)) if at >= 21 else bytes(batch)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (_patched(8, struct.pack(">i", 13)), "size 13 is below"),
        (_patched(8, struct.pack(">i", -1)), "size -1 is below"),
        (_patched(8, struct.pack(">i", 48)), "size 48 is below the smallest batch of magic 2"),
        (_patched(16, b"\x03"), "unknown magic 3"),
        (_patched(16, b"\xff"), "unknown magic 255"),
        (_patched(57, struct.pack(">i", -1)), "negative record count"),
        (_patched(23, struct.pack(">i", -1)), "negative last offset delta"),
        (_patched(17, b"\0\0\0\0"), "CRC-32C"),
        (_patched(21, b"\0\x05"), "unknown codec 5"),
        (_patched(21, b"\0\x07"), "unknown codec 7"),
        (_patched(21, b"\0\x01"), "damaged gzip"),
        (_patched(0, b"\xff"), "negative base offset"),
        (_patched(0, struct.pack(">q", 2**63 - 1))[:23] + b"\0\0\0\1" + _patched(0, b"")[27:], "exceeds 2\\^63-1"),
    ],
)
def test_bad_batches(data: bytes, reason: str) -> None:
    """F-1, C-57: the error has the batch's position and base offset."""
    with pytest.raises(_kernel.CorruptLogError, match=reason) as caught:
        _kernel.decode_chunk(array(bytes(0) + data), 77)
    (base_offset,) = struct.unpack_from(">q", data)
    assert (caught.value.position, caught.value.base_offset, caught.value.record) == (77, base_offset, -1)


def test_a_bad_size_shows_before_the_batch_is_whole() -> None:
    """F-1: the error does not depend on where the chunk ends."""
    for data in (_patched(8, struct.pack(">i", 3))[:12], _patched(16, b"\x07")[:17]):
        with pytest.raises(_kernel.CorruptLogError):
            _kernel.scan_headers(array(data), 0)
    assert _kernel.scan_headers(array(_patched(8, struct.pack(">i", 3))[:11]), 0).needed == 0
    assert _kernel.scan_headers(array(_patched(0, b"")[:12]), 0).needed == len(_patched(0, b""))


def test_a_scan_sees_the_frame_of_legacy_batches() -> None:
    """F-1, F-3: magic 0 and 1 beside v2; a scan decompresses nothing, so a wrapper's base offset is its last one."""
    wrapper = encode_wrapper(8, encode_legacy(0, b"a", b"1") + encode_legacy(2, b"b", b"2"), timestamp=77)
    data = encode_legacy(4, b"k", b"v", magic=0, attributes=0xF8) + wrapper + keyed_batch(9, [("k", "v")])
    scan = _kernel.scan_headers(array(data), 0, verify_crc=True)
    assert scan.magic.tolist() == [0, 1, 2]
    assert scan.first_record.tolist() == [0, 0, 0, 1]
    assert scan.base_offset.tolist() == scan.last_offset.tolist() == [4, 8, 9]
    assert scan.attributes.tolist() == [0, 1, 0]
    assert scan.max_timestamp.tolist()[:2] == [-1, 77]
    chunk = _kernel.decode_chunk(array(data), 0, hash_key=HASH_KEY)
    assert chunk.batches.first_record.tolist() == [0, 1, 3, 4]
    assert (chunk.batches.base_offset.tolist(), chunk.batches.last_offset.tolist()) == ([4, 6, 9], [4, 8, 9])
    assert chunk.records.offset.tolist() == [4, 6, 8, 9]


def test_max_unpacked_is_per_batch() -> None:
    """The limit is for one decompressed batch; uncompressed batches have none."""
    packed = encode_batch([Record(value=bytes(50_000))], codec=4)
    assert len(_kernel.decode_chunk(array(packed * 1), 0, max_unpacked=51_000).records) == 1
    with pytest.raises(_kernel.CorruptLogError, match="more than 50000 bytes"):
        _kernel.decode_chunk(array(packed), 0, max_unpacked=50_000)
    plain = encode_batch([Record(value=bytes(50_000))])
    assert len(_kernel.decode_chunk(array(plain), 0, max_unpacked=0).records) == 1


def _many(batches: int, records: int) -> bytes:
    body = b"".join(_record(b"\x00\x00" + varint(i) + varint(-1) + varint(-1) + b"\x00") for i in range(records))
    one = encode_batch([], payload=_kernel.compress(4, body), attributes=4, record_count=records,
                       last_offset_delta=records)  # fmt: skip
    return one * batches


@pytest.mark.slow
def test_stops_early_when_there_are_many_records() -> None:
    """Between batches; the rest is for the next call, and ``needed`` is 0."""
    data = _many(4, 500_000)
    chunk = _kernel.decode_chunk(array(data), 0, verify_crc=False)
    assert (len(chunk.records), len(chunk.batches), chunk.needed) == (1_500_000, 3, 0)
    rest = _kernel.decode_chunk(array(data[chunk.consumed :]), chunk.consumed)
    assert (len(rest.batches), chunk.consumed + rest.consumed) == (1, len(data))


def test_stops_early_when_there_is_much_to_unpack() -> None:
    """A small chunk of bombs does not become a large table: at least one batch, and little more than 64 MiB."""
    bomb = encode_batch([Record(value=bytes(40 << 20))], codec=4)
    chunk = _kernel.decode_chunk(array(bomb * 5), 0)
    assert len(chunk.batches) == 2


def test_hashes_are_siphash_of_the_key() -> None:
    """SipHash-1-3-128 with the plan's key; null keys hash to (0, 0), empty keys do not."""
    keys = [b"", b"a", b"x" * 7, b"x" * 8, b"x" * 300, None]
    data = encode_batch([Record(key=key) for key in keys])
    hashes = _kernel.decode_chunk(array(data), 0, hash_key=HASH_KEY).records.key_hash.tolist()
    expected = [(0, 0) if key is None else siphash_1_3_128(HASH_KEY, key) for key in keys]
    assert list(zip(hashes[::2], hashes[1::2], strict=True)) == expected
    assert len(_kernel.decode_chunk(array(data), 0).records.key_hash) == 0


@settings(max_examples=20, deadline=None)
@given(st.integers(-3, 2**33))
def test_positions_have_32_bits(position: int) -> None:
    """Columns of positions are u32; a larger position is a wrong call."""
    data = keyed_batch(0, [("k", "v")])
    if 0 <= position <= 2**32 - 1 - len(data):
        assert _kernel.scan_headers(array(data), position).position.tolist() == [position]
    else:
        with pytest.raises(ValueError, match="position"):
            _kernel.scan_headers(array(data), position)
