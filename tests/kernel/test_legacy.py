"""Batches of magic 0 and 1: reading, refusals, and conversion (F-3)."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd._kernel import ACTION_COPY, ACTION_DROP, ACTION_EMPTY, ACTION_REBUILD, ACTION_SET_HORIZON, Written
from tests.format.worked_examples import F0, F1, G
from tests.kernel.strategies import array, bitmap
from tests.support.logs import LZ4, Record, encode_batch, encode_legacy, encode_wrapper, keyed_batch

T = 1_600_000_000_000
SET = ACTION_REBUILD | ACTION_SET_HORIZON
CODECS = {1: "gzip", 2: "snappy", 3: "lz4"}


def _rewrite(data: bytes, keep: list[bool], *actions: int, convert: bool = False, horizon: int = -1) -> Written:
    return _kernel.rewrite_chunk(
        array(data), 0, bitmap(keep), 0, np.array(actions, np.uint8), delete_horizon=horizon, convert_legacy=convert
    )


def _rows(data: bytes) -> list[tuple[int, int, int]]:
    """(offset, timestamp, flags) of each record."""
    records = _kernel.decode_chunk(array(data), 0).records
    return list(zip(records.offset.tolist(), records.timestamp.tolist(), records.flags.tolist(), strict=True))


def _three(magic: int, first: int = 0) -> bytes:
    return b"".join(
        encode_legacy(first + row, b"k%d" % row, b"v", magic=magic, timestamp=T + (5, 9, 7)[row]) for row in range(3)
    )


def _v0(codec: int) -> bytes:
    return encode_wrapper(52, _three(0, 50), magic=0, codec=codec)


def _v1(codec: int, **fields: int) -> bytes:
    return encode_wrapper(52, _three(1), codec=codec, timestamp=T + 9, **fields)  # type: ignore[arg-type]


def test_example_f() -> None:
    """F-13 F: a v1 message and a v0 tombstone."""
    assert _rows(F1 + F0) == [(50, T, 3), (51, -1, 1)]


def test_example_g() -> None:
    """F-13 G: relative offsets with a hole."""
    assert [offset for offset, _, _ in _rows(G)] == [60, 62]
    batches = _kernel.decode_chunk(array(G), 0).batches
    assert (batches.base_offset[0], batches.last_offset[0], batches.max_timestamp[0]) == (60, 62, T + 3)


@pytest.mark.parametrize("codec", CODECS, ids=CODECS.values())
def test_wrappers(codec: int) -> None:
    """F-3.1: real offsets inside of magic 0, relative ones inside of magic 1, append time for all."""
    assert _rows(_v0(codec)) == [(50 + row, -1, 3) for row in range(3)]
    assert _rows(_v1(codec)) == [(50, T + 5, 3), (51, T + 9, 3), (52, T + 7, 3)]
    assert _rows(_v1(codec, append_time=True)) == [(50 + row, T + 9, 3) for row in range(3)]


def test_append_time_bit_of_magic_0() -> None:
    """F-3: it has no timestamp type; the other upper bits have no meaning in either magic."""
    wrapper = encode_wrapper(52, _three(1, 50), magic=0, append_time=True)
    assert [timestamp for _, timestamp, _ in _rows(wrapper)] == [T + 5, T + 9, T + 7]
    message = encode_legacy(3, b"k", b"v", attributes=0xF0)
    assert _kernel.decode_chunk(array(message), 0).batches.attributes.tolist() == [0]
    assert _kernel.decode_chunk(array(message), 0).batches.control_type.tolist() == [-1]


def test_wrapper_at_offset_0() -> None:
    """F-3.1: offset 0 means unknown, so offsets inside count from 0."""
    assert _rows(encode_wrapper(0, encode_legacy(0, b"k", b"v"))) == [(0, -1, 3)]


@pytest.mark.parametrize("cut", [1, 11, 12, 20, 35])
def test_a_cut_message_ends_a_wrapper(cut: int) -> None:
    """F-3.1: silently, as in 3.9 and 4.3 (tests/differential)."""
    inner = _three(1) + encode_legacy(3, b"cut", b"off", timestamp=T)[:cut]
    assert len(_rows(encode_wrapper(52, inner))) == 3


def test_lz4_checksum_of_magic_0() -> None:
    """F-4, KAFKA-3160: magic 0 has an unchecked 0x1a; magic 1 has 0x82, which is checked."""
    inner = _three(1)
    packed = _kernel.compress(LZ4, inner)
    old = packed[:6] + b"\x1a" + packed[7:]
    assert len(_rows(encode_legacy(52, None, old, magic=0, attributes=LZ4))) == 3
    assert len(_rows(encode_legacy(52, None, packed, magic=0, attributes=LZ4))) == 3
    assert len(_rows(encode_legacy(52, None, packed, attributes=LZ4))) == 3
    with pytest.raises(_kernel.CorruptLogError, match="descriptor checksum"):
        _rows(encode_legacy(52, None, old, attributes=LZ4))
    rebuilt = _rewrite(_v0(LZ4), [True, False, True], ACTION_REBUILD).data.tobytes()
    assert rebuilt[26 + 6] == 0x1A
    assert _rewrite(_v1(LZ4), [True, False, True], ACTION_REBUILD).data[34 + 6] == 0x82
    assert _rewrite(_v0(LZ4), [True, False, True], ACTION_REBUILD, convert=True).data[61 + 6] == 0x82


def test_rows_of_another_magic() -> None:
    """KAFKA-4298: the rows of wrappers with such messages."""
    mixed = encode_wrapper(61, encode_legacy(0, b"a", b"1", magic=0) + encode_legacy(1, b"b", b"1"))
    data = _v1(1) + mixed + keyed_batch(70, [("k", "v")]) + encode_wrapper(80, encode_legacy(80, b"a", b"1"), magic=0)
    assert _kernel.decode_chunk(array(data), 0).batches.mixed_magic.tolist() == [1, 3]
    assert _kernel.scan_headers(array(data), 0).mixed_magic.tolist() == []


def _inner_patched(at: int, patch: bytes, *, seal: bool = True, magic: int = 1) -> bytes:
    inner = bytearray(_three(magic, 0 if magic else 50))
    inner[at : at + len(patch)] = patch
    if seal:
        (size,) = struct.unpack_from(">i", inner, 8)
        inner[12:16] = struct.pack(">I", zlib.crc32(inner[16 : size + 12]))
    return encode_wrapper(52, bytes(inner), magic=magic)


def _raw_wrapper(value: bytes | None, codec: int = 1, magic: int = 1) -> bytes:
    return encode_legacy(52, None, value, magic=magic, attributes=codec)


@pytest.mark.parametrize(
    ("data", "record", "reason"),
    [
        pytest.param(_raw_wrapper(None), -1, "without a value", id="null value"),
        pytest.param(_raw_wrapper(b""), -1, "gzip", id="empty value"),
        pytest.param(_raw_wrapper(b"", 2), -1, "snappy", id="empty snappy value"),
        pytest.param(_raw_wrapper(b"", 3, 0), -1, "lz4", id="empty lz4 value"),
        pytest.param(_raw_wrapper(_kernel.compress(4, _three(1)), 4), -1, "zstd", id="zstd"),
        pytest.param(_raw_wrapper(b"x", 5), -1, "unknown codec 5", id="codec 5"),
        pytest.param(_raw_wrapper(b"x", 7, 0), -1, "unknown codec 7", id="codec 7"),
        pytest.param(encode_wrapper(52, b""), -1, "without messages", id="nothing in it"),
        pytest.param(encode_wrapper(52, _three(1)[:30]), -1, "without messages", id="a cut message only"),
        pytest.param(encode_wrapper(52, _v1(1)), 0, "inside a wrapper", id="nested"),
        pytest.param(_inner_patched(8, struct.pack(">i", 13), seal=False), 0, "size 13 is below", id="size"),
        pytest.param(_inner_patched(8, struct.pack(">i", 14), seal=False), 0, "size 14 is below", id="size of magic 1"),
        pytest.param(_inner_patched(8, struct.pack(">i", -9), seal=False), 0, "size -9 is below", id="negative size"),
        pytest.param(_inner_patched(12, b"\0\0\0\0", seal=False), 0, "CRC-32", id="inner checksum"),
        pytest.param(_inner_patched(16, b"\2"), 0, "magic 2 inside", id="magic 2 inside"),
        pytest.param(_inner_patched(0, struct.pack(">q", 9)), 0, "above that of the wrapper", id="first offset"),
        pytest.param(_inner_patched(37, struct.pack(">q", 9)), 1, "above that of the wrapper", id="offset too high"),
        pytest.param(_inner_patched(0, struct.pack(">q", -1), magic=0), -1, "negative offset", id="negative offset"),
        pytest.param(_inner_patched(0, struct.pack(">q", -51)), -1, "negative offset", id="below offset 0"),
        pytest.param(_inner_patched(26, struct.pack(">i", -2)), 0, "longer than its message", id="key length -2"),
        pytest.param(_inner_patched(26, struct.pack(">i", 99)), 0, "longer than its message", id="key length"),
        pytest.param(_inner_patched(32, struct.pack(">i", 0)), 0, "after the value", id="value length"),
        pytest.param(
            encode_wrapper(5, encode_legacy(6, b"k", b"v")), -1, "below that of the last message", id="wrapper offset"
        ),
        pytest.param(
            encode_wrapper(2**40, encode_legacy(0, b"k", b"v", magic=0), magic=0), -1, "2\\^31-1", id="far apart"
        ),
        pytest.param(encode_legacy(5, b"k", b"v")[:-1] + b"x", -1, "CRC-32", id="outer checksum"),
    ],
)
def test_refused(data: bytes, record: int, reason: str) -> None:
    """F-3.1, C-54, C-57: the error has the batch's position and the offset in its frame."""
    good = keyed_batch(3, [("k", "v")])
    with pytest.raises(_kernel.CorruptLogError, match=reason) as caught:
        _kernel.decode_chunk(array(good + data), 100)
    (offset,) = struct.unpack_from(">q", data)
    assert (caught.value.position, caught.value.base_offset, caught.value.record) == (100 + len(good), offset, record)


def test_checksums_are_not_checked_unless_requested() -> None:
    """Outer and inner; a scan checks the outer one on request."""
    bad_inner = _inner_patched(12, b"\0\0\0\0", seal=False)
    bad_outer = bytearray(_v1(1))
    bad_outer[12] ^= 1
    for data in (bad_inner, bytes(bad_outer)):
        assert len(_kernel.decode_chunk(array(data), 0, verify_crc=False).records) == 3
    assert len(_kernel.scan_headers(array(bad_inner), 0, verify_crc=True)) == 1
    with pytest.raises(_kernel.CorruptLogError, match="CRC-32"):
        _kernel.scan_headers(array(bytes(bad_outer)), 0, verify_crc=True)


def test_a_bomb_is_refused() -> None:
    """``max_unpacked`` applies to wrappers too."""
    bomb = encode_wrapper(0, encode_legacy(0, b"k", bytes(1 << 20)))
    with pytest.raises(_kernel.CorruptLogError, match="more than 100000"):
        _kernel.decode_chunk(array(bomb), 0, max_unpacked=100_000)


@pytest.mark.parametrize("codec", CODECS, ids=CODECS.values())
def test_rebuilt_in_its_format(codec: int) -> None:
    """F-3.2: offset of the last kept, largest kept timestamp; inside magic 1 offsets begin at 0."""
    written = _rewrite(_v1(codec) + _v0(codec), [False, False, True, True, False, False], *[ACTION_REBUILD] * 2)
    assert _rows(written.data.tobytes()) == [(52, T + 7, 3), (50, -1, 3)]
    batches = _kernel.decode_chunk(written.data, 0).batches
    assert batches.magic.tolist() == [1, 0]
    assert batches.max_timestamp.tolist() == written.max_timestamp.tolist() == [T + 7, -1]
    assert batches.last_offset.tolist() == written.last_offset.tolist() == [52, 50]
    kept = _rewrite(_v1(codec), [False, True, True], ACTION_REBUILD).data.tobytes()
    inner = _kernel.decompress(codec, kept[34:], 1000)
    assert struct.unpack_from(">q", inner) == (0,)
    assert kept[:8] == struct.pack(">q", 52)


def test_rebuilt_with_append_time() -> None:
    """F-3.2: messages inside get the wrapper's time and bit 3."""
    written = _rewrite(_v1(1, append_time=True), [True, False, True], ACTION_REBUILD).data.tobytes()
    inner = _kernel.decompress(1, written[34:], 1000)
    assert inner[17] == 8
    assert struct.unpack_from(">q", inner, 18) == (T + 9,)
    assert (written[17], struct.unpack_from(">q", written, 18)) == (9, (T + 9,))


@pytest.mark.parametrize("magic", [0, 1])
def test_rebuilt_of_one_magic(magic: int) -> None:
    """KAFKA-4298: all inside get the wrapper's magic, without a timestamp if they had none."""
    data = encode_wrapper(52, _three(1 - magic, 0 if magic else 50), magic=magic, timestamp=T + 9)
    written = _rewrite(data, [True] * 3, ACTION_REBUILD)
    assert _kernel.decode_chunk(written.data, 0).batches.mixed_magic.tolist() == []
    assert _rows(written.data.tobytes()) == [(50 + row, -1, 3) for row in range(3)]
    assert written.max_timestamp.tolist() == [-1], "the batch's columns, which its indexes use"


def test_converted() -> None:
    """F-3.3: from the first kept to the last; no producer, no leader epoch; magic 0 has no timestamps."""
    data = encode_legacy(7, b"k", None, timestamp=T) + _v0(2) + _v1(3, append_time=True)
    keep = [True, False, True, False, True, False, True]
    written = _rewrite(data, keep, SET, ACTION_REBUILD, ACTION_REBUILD, convert=True, horizon=T + 100)
    chunk = _kernel.decode_chunk(written.data, 0)
    table = chunk.batches
    assert table.magic.tolist() == [2, 2, 2]
    assert table.base_offset.tolist() == [7, 51, 50]
    assert table.last_offset.tolist() == written.last_offset.tolist() == [7, 51, 52]
    assert table.attributes.tolist() == [0x40, 2, 3 | 8]
    assert table.base_timestamp.tolist() == [T + 100, -1, T + 9]
    assert table.max_timestamp.tolist() == written.max_timestamp.tolist() == [T, -1, T + 9]
    assert table.leader_epoch.tolist() == table.producer_id.tolist() == table.base_sequence.tolist() == [-1] * 3
    assert chunk.records.timestamp.tolist() == [T, -1, T + 9, T + 9]
    assert chunk.records.flags.tolist() == [1, 3, 3, 3]
    one = encode_legacy(7, b"k", b"v", timestamp=T)
    expected = encode_batch([Record(b"k", b"v", timestamp=T)], base_offset=7, leader_epoch=-1)
    assert _rewrite(one, [True], ACTION_REBUILD, convert=True).data.tobytes() == expected


def test_a_negative_horizon_sets_no_bit() -> None:
    """C-50, for converted batches too."""
    written = _rewrite(encode_legacy(7, b"k", None, timestamp=T), [True], SET, convert=True, horizon=-5)
    assert _kernel.scan_headers(written.data, 0).attributes.tolist() == [0]


@pytest.mark.parametrize("convert", [False, True])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_emptied(packed: bool, magic: int, convert: bool) -> None:
    """U-13: an empty v2 batch replaces it, whatever the profile."""
    message = encode_legacy(52, b"k", b"v", magic=magic, timestamp=T + 9)
    data = (_v1(1) if magic else _v0(1)) if packed else message
    written = _rewrite(data, [False] * 3, ACTION_EMPTY, convert=convert)
    expected = encode_batch(
        [], base_offset=50 if packed else 52, last_offset_delta=2 if packed else 0, leader_epoch=-1,
        max_timestamp=T + 9 if magic else -1,
    )  # fmt: skip
    assert written.data.tobytes() == expected
    assert written.records_read == (3 if packed else 1)


def test_emptied_without_its_time() -> None:
    """U-13: a batch that only closes its group has no time, alone in it time 0."""
    for flag, time_ms in ((_kernel.ACTION_TIMELESS, -1), (_kernel.ACTION_TIME_ZERO, 0)):
        written = _rewrite(_v1(1, append_time=True), [False] * 3, ACTION_EMPTY | flag)
        assert written.max_timestamp.tolist() == [time_ms]
        assert _kernel.scan_headers(written.data, 0).attributes.tolist() == [8]


def test_counting_removed_records() -> None:
    """The bits of the batch after a dropped or copied wrapper are the right ones."""
    data = _v1(2) + _v0(3)[:0] + encode_legacy(60, b"x", b"y") + keyed_batch(61, [("a", "1"), ("b", "2")])
    for first in (ACTION_DROP, ACTION_COPY):
        keep = [True] * 4 + [False, True]
        written = _rewrite(data, keep, first, ACTION_DROP, ACTION_REBUILD)
        assert written.records_read == 6
        assert _rows(written.data.tobytes())[-1][0] == 62
        assert len(_rows(written.data.tobytes())) == (1 if first == ACTION_DROP else 4)


def test_actions_that_do_not_fit() -> None:
    """COPY is wrong if everything becomes v2, a horizon if the format stays."""
    for data in (_v1(1), encode_legacy(1, b"k", b"v")):
        with pytest.raises(ValueError, match="action 0x1 "):
            _rewrite(data, [True] * 3, ACTION_COPY, convert=True)
        with pytest.raises(ValueError, match="action 0x12 "):
            _rewrite(data, [True] * 3, SET)
        with pytest.raises(ValueError, match="unknown action 0x4"):
            _rewrite(data, [True] * 3, 4)
        with pytest.raises(ValueError, match="retains no record"):
            _rewrite(data, [False] * 3, ACTION_REBUILD)
        with pytest.raises(ValueError, match="too few keep bits"):
            _rewrite(data, [], ACTION_REBUILD)
        with pytest.raises(ValueError, match="too few keep bits"):
            _rewrite(data, [], ACTION_DROP)


@pytest.mark.parametrize("convert", [False, True])
def test_a_negative_timestamp_is_kept(convert: bool) -> None:
    """U-52: below -1 in a retained message, and never the largest of a batch."""
    inner = encode_legacy(0, b"a", b"1", timestamp=T) + encode_legacy(1, b"b", b"1", timestamp=-2)
    assert len(_rewrite(encode_wrapper(52, inner), [True, False], ACTION_REBUILD, convert=convert)) == 1
    for keep, times, largest in (([True, True], [T, -2], T), ([False, True], [-2], -1)):
        written = _rewrite(encode_wrapper(52, inner), keep, ACTION_REBUILD, convert=convert)
        assert written.max_timestamp.tolist() == [largest]
        assert _kernel.decode_chunk(written.data, 0).records.timestamp.tolist() == times
