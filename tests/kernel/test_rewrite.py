"""rewrite_chunk compared with its reference, and rule by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd._kernel import (
    ACTION_COPY,
    ACTION_DROP,
    ACTION_EMPTY,
    ACTION_REBUILD,
    ACTION_SET_HORIZON,
    ACTION_TIME_ZERO,
    ACTION_TIMELESS,
    Written,
)
from tests.kernel.strategies import HASH_KEY, array, bitmap, log, outcome
from tests.support import reference_kernel as reference
from tests.support.logs import Record, encode_batch, encode_legacy, keyed_batch, seal

T = 1_700_000_000_000
SET = ACTION_REBUILD | ACTION_SET_HORIZON
CLOSE = ACTION_EMPTY | ACTION_TIMELESS
CLOSE_ALONE = ACTION_EMPTY | ACTION_TIME_ZERO
EMPTIED = (ACTION_EMPTY, CLOSE, CLOSE_ALONE)
ROWS = ("position", "size", "last_offset", "max_timestamp", "record_count")


def _rewrite(data: bytes, keep: list[bool], actions: list[int], first_bit: int = 0, **options: Any) -> Written:
    return _kernel.rewrite_chunk(array(data), 0, bitmap(keep), first_bit, np.array(actions, np.uint8), **options)


def _check(data: bytes, keep: list[bool], first_bit: int, actions: list[int], **options: Any) -> None:
    padded = keep + [False] * (-len(keep) % 64)
    written, error = outcome(lambda: _rewrite(data, keep, actions, first_bit, **options))
    expected, expected_error = outcome(lambda: reference.rewrite_chunk(data, 0, padded, first_bit, actions, **options))
    assert error == expected_error
    if error is None:
        assert written.data.tobytes() == expected.data
        for name in ROWS:
            assert getattr(written, name).tolist() == getattr(expected, name), name
        for name in ("consumed", "needed", "batches_read", "records_read"):
            assert getattr(written, name) == getattr(expected, name), name
        assert len(written) == len(expected.size)


_ACTIONS = st.sampled_from([ACTION_DROP, ACTION_COPY, ACTION_COPY, ACTION_REBUILD, SET, *EMPTIED])
_HORIZONS = st.sampled_from([-1, -(2**63), 0, T, 2**63 - 1])


def _plan(draw: st.DrawFn | Any, data: bytes, *, convert: bool = False) -> tuple[list[bool], int, list[int]]:
    """Keep bits and actions, mostly like those of a sensible planner."""
    table = _kernel.decode_chunk(array(data), 0).batches
    first_bit = draw(st.sampled_from([0, 3, 64, 100]))
    records = int(table.first_record[-1])
    keep = [False] * first_bit + draw(st.lists(st.booleans(), min_size=records, max_size=records))
    actions = []
    for index in range(len(table)):
        start, end = (first_bit + int(table.first_record[index + i]) for i in (0, 1))
        kept = any(keep[start:end])
        choice = draw(_ACTIONS)
        if choice & ACTION_REBUILD and choice not in EMPTIED and not kept:
            choice = draw(st.sampled_from([ACTION_DROP, ACTION_COPY]))
        if table.magic[index] < 2 and convert and choice == ACTION_COPY:
            choice = ACTION_REBUILD if kept else ACTION_EMPTY
        if table.magic[index] < 2 and not convert and choice == SET:
            choice = ACTION_REBUILD
        actions.append(choice)
    return keep, first_bit, actions


@pytest.mark.slow
@settings(deadline=None)
@given(log(), _HORIZONS, st.booleans(), st.data())
def test_rewrite_equals_the_reference(data: bytes, horizon: int, convert: bool, draw: st.DataObject) -> None:
    """F-2.2, F-2.3, F-2.5, F-2.6, F-3.2, F-3.3, C-52: the same bytes, in every codec."""
    keep, first_bit, actions = _plan(draw.draw, data, convert=convert)
    _check(data, keep, first_bit, actions, delete_horizon=horizon, convert_legacy=convert)


@settings(deadline=None)
@given(log(), st.data())
def test_damage(data: bytes, draw: st.DataObject) -> None:
    """C-57: the same error as the reference on damaged input, with the CRC fixed or unchecked."""
    assume(data)
    convert = draw.draw(st.booleans())
    keep, first_bit, actions = _plan(draw.draw, data, convert=convert)
    damaged = bytearray(data)
    damaged[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    keep += [True] * 500
    for verify_crc in (True, False):
        options = {"verify_crc": verify_crc, "max_unpacked": 100_000, "convert_legacy": convert}
        _check(bytes(damaged), keep, first_bit, actions, **options)


def test_damage_in_a_removed_record() -> None:
    """F-2.3: only its length is read, also by the reference; the caller has decoded it already.

    A retained one is read.
    """
    data = bytearray(encode_batch([Record(b"%d" % at, b"value") for at in range(4)]))
    at = data.index(b"\x022\x0avalue")  # the third record's key, its length before it
    data[at] = 0x70
    for keep in ([True, True, False, True], [False, False, True, False]):
        _check(bytes(data), keep, 0, [ACTION_REBUILD], verify_crc=False)
    assert len(_rewrite(bytes(data), [True, True, False, True], [ACTION_REBUILD], verify_crc=False)) == 1
    with pytest.raises(_kernel.CorruptLogError, match=r"field is longer than its record .* record 2"):
        _rewrite(bytes(data), [False, False, True, False], [ACTION_REBUILD], verify_crc=False)


@settings(deadline=None)
@given(log(most=2), st.lists(st.integers(0, 255), max_size=3), st.integers(0, 12), st.integers(0, 9))
def test_callers_mistakes(data: bytes, actions: list[int], bits: int, first_bit: int) -> None:
    """Too few actions or bits, unknown actions, a rebuild without a retained record: ValueError, like the reference."""
    _check(data, [True] * bits, first_bit, actions)


@settings(deadline=None)
@given(log(), st.booleans(), st.data())
def test_exactly_the_kept_records_are_written(data: bytes, convert: bool, draw: st.DataObject) -> None:
    """C-52: offsets, timestamps, keys of exactly the kept records; decoded, not compared with the reference."""
    keep, first_bit, actions = _plan(draw.draw, data, convert=convert)
    source = _kernel.decode_chunk(array(data), 0, hash_key=bytes(16))
    written, error = outcome(lambda: _rewrite(data, keep, actions, first_bit, convert_legacy=convert))
    assume(error is None)
    result = _kernel.decode_chunk(written.data, 0, hash_key=bytes(16)).records
    survives = []
    for index, action in enumerate(actions):
        first, end = source.batches.first_record[index : index + 2].tolist()
        kept = keep[first_bit + first : first_bit + end]
        all_or_none = {ACTION_COPY: [True]} | {action: [False] for action in (ACTION_DROP, *EMPTIED)}
        survives += all_or_none.get(action, []) * len(kept) or kept
    rows = np.flatnonzero(np.array(survives, bool))
    # Messages in a wrapper of another magic lose their timestamp, or get the wrapper's (KAFKA-4298).
    names = ("offset", "flags") if len(source.batches.mixed_magic) else ("offset", "timestamp", "flags")
    for name in names:
        assert getattr(result, name).tolist() == getattr(source.records, name)[rows].tolist(), name
    hashes = source.records.key_hash.reshape(-1, 2)[rows]
    assert result.key_hash.reshape(-1, 2).tolist() == hashes.tolist()


def _header(data: bytes) -> dict[str, int]:
    table = _kernel.scan_headers(array(data), 0, verify_crc=True)
    names = ("attributes", "base_timestamp", "max_timestamp", "last_offset", "producer_id", "base_sequence")
    return {name: int(getattr(table, name)[0]) for name in names}


def test_max_timestamp_shrinks_with_create_time() -> None:
    """C-52: the maximum of the retained records.

    With LogAppendTime the original stays, and all deltas are 0 (F-2.6).
    """
    records = [Record(timestamp=T + 9), Record(timestamp=T + 4), Record(timestamp=T + 6)]
    created = _rewrite(encode_batch(records), [False, True, True], [ACTION_REBUILD])
    assert created.max_timestamp.tolist() == [T + 6]
    assert _header(created.data.tobytes())["base_timestamp"] == T + 4
    appended = _rewrite(encode_batch(records, log_append_time=T + 50), [False, True, True], [ACTION_REBUILD])
    assert appended.max_timestamp.tolist() == [T + 50]
    assert _header(appended.data.tobytes())["base_timestamp"] == T + 50
    assert appended.data[61:].tobytes() == bytes.fromhex("0c 00 00 02 01 01 00 0c 00 00 04 01 01 00")


def test_append_time_under_a_horizon() -> None:
    """F-2.2: deltas are written against the horizon although no reader uses them."""
    data = encode_batch([Record()], log_append_time=T)
    written = _rewrite(data, [True], [SET], delete_horizon=T + 1).data.tobytes()
    assert written[61:] == bytes.fromhex("0c 00 01 00 01 01 00")
    assert _header(written)["base_timestamp"] == T + 1
    assert _kernel.decode_chunk(array(written), 0).records.timestamp.tolist() == [T]


def test_a_negative_horizon_sets_no_bit() -> None:
    """C-50: a sum that overflowed; the batch is rebuilt as without a horizon."""
    data = keyed_batch(5, [("a", "1"), ("b", None)])
    written = _rewrite(data, [False, True], [SET], delete_horizon=-(2**63) + 5)
    assert written.data.tobytes() == _rewrite(data, [False, True], [ACTION_REBUILD]).data.tobytes()
    assert _header(written.data.tobytes())["attributes"] == 0


def test_upper_attribute_bits_are_cleared_and_record_attributes_stay() -> None:
    """F-2.1 and U-14: a rebuilt batch has 0 in bits 7-15, records keep their byte (KIP-87)."""
    data = encode_batch([Record(attributes=0x20), Record(attributes=0xFF)], attributes=0x7F80)
    written = _rewrite(data, [False, True], [ACTION_REBUILD]).data.tobytes()
    assert _header(written)["attributes"] == 0
    assert written[62] == 0xFF
    assert _header(_rewrite(data, [True, True], [ACTION_COPY]).data.tobytes())["attributes"] == 0x7F80


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_tombstone_bit_survives_a_rewrite(codec: int) -> None:
    """U-14, R87-5, R87-6: record by record, with or without a value, whatever the codec; Kafka would clear it."""
    content = [
        Record(b"gone", b"v"),
        Record(b"a", b"v", attributes=0x20, headers=((b"v", bytes(8)),)),
        Record(b"b", b"v"),
        Record(b"c", None, attributes=0x20),
        Record(b"d", None),
    ]
    data = encode_batch(content, codec=codec)
    for action in (ACTION_REBUILD, SET):
        written = _rewrite(data, [False, True, True, True, True], [action], delete_horizon=T).data
        flags = _kernel.decode_chunk(written, 0, version_header=b"v").records.flags.tolist()
        assert flags == [1 | 2 | 4 | 8, 1 | 2, 1 | 4, 1]


def test_malformed_header_keys_are_kept() -> None:
    """T-37, F-2.3: raw header bytes, not a string that was decoded and encoded."""
    data = encode_batch([Record(), Record(headers=((b"\xff\xfe", b"x"), (b"", None)))])
    written = _rewrite(data, [False, True], [ACTION_REBUILD]).data.tobytes()
    assert b"\x04\xff\xfe\x02x\x00\x01" in written


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"transactional": True}, "transactional batch without producer id"),
        ({"producer_id": 5, "base_sequence": 0}, "without producer epoch"),
        ({"producer_id": 5, "producer_epoch": 0}, "without base sequence"),
    ],
)
def test_producers_that_cannot_be_rebuilt(fields: dict[str, Any], reason: str) -> None:
    """C-54: refused when rebuilt, not when copied; a control batch may have no sequence."""
    data = encode_batch([Record(), Record()], **fields)
    with pytest.raises(_kernel.CorruptLogError, match=reason):
        _rewrite(data, [True, False], [ACTION_REBUILD])
    assert _rewrite(data, [True, True], [ACTION_COPY]).data.tobytes() == data
    marker = encode_batch([Record(b"\0\0\0\1"), Record()], control=True, producer_id=5, producer_epoch=0)
    assert len(_rewrite(marker, [True, False], [ACTION_REBUILD])) == 1


def test_a_negative_timestamp_is_kept() -> None:
    """U-52: below -1 in a retained record, and never the largest of a batch."""
    data = encode_batch([Record(timestamp=T), Record(timestamp=-1), Record(timestamp=-2)])
    assert len(_rewrite(data, [False, True, False], [ACTION_REBUILD])) == 1
    for keep, times, largest in (([True, False, True], [T, -2], T), ([False, False, True], [-2], -1)):
        written = _rewrite(data, keep, [ACTION_REBUILD])
        assert written.max_timestamp.tolist() == [largest]
        assert _kernel.decode_chunk(written.data, 0).records.timestamp.tolist() == times


def test_dropped_batches_are_not_read() -> None:
    """Neither CRC nor records; their count still advances the keep bits."""
    bad = bytearray(keyed_batch(0, [("a", "1"), ("b", "2")]))
    bad[-1] ^= 1
    good = keyed_batch(2, [("c", "3"), ("d", "4")])
    written = _rewrite(bytes(bad) + good, [True, True, False, True], [ACTION_DROP, ACTION_REBUILD])
    assert _kernel.decode_chunk(written.data, 0).records.offset.tolist() == [3]
    assert (written.batches_read, written.records_read) == (2, 4)
    for action in (ACTION_COPY, ACTION_REBUILD, ACTION_EMPTY):
        with pytest.raises(_kernel.CorruptLogError, match="CRC"):
            _rewrite(bytes(bad), [True, True], [action])


def test_copies_side_by_side() -> None:
    """C-51: unchanged, with a row for each batch, legacy ones included."""
    pieces = [keyed_batch(0, [("a", "1")]), encode_legacy(1, b"k", b"v"), keyed_batch(2, [("b", "2")], codec=2)]
    written = _rewrite(b"".join(pieces), [True, True, True], [ACTION_COPY] * 3)
    assert written.data.tobytes() == b"".join(pieces)
    assert written.size.tolist() == [len(piece) for piece in pieces]
    assert written.position.tolist() == [0, len(pieces[0]), len(pieces[0]) + len(pieces[1])]
    assert written.last_offset.tolist() == [0, 1, 2]
    assert written.record_count.tolist() == [1, 1, 1]


def test_offsets_and_sequences_are_kept() -> None:
    """F-2.4: last offset and base sequence are the original ones, whichever records are retained."""
    data = encode_batch(
        [Record(offset_delta=5), Record(offset_delta=8), Record(offset_delta=10)],
        base_offset=100,
        last_offset_delta=12,
        producer_id=9,
        producer_epoch=2,
        base_sequence=2**31 - 3,
    )
    written = _rewrite(data, [False, True, False], [ACTION_REBUILD])
    header = _header(written.data.tobytes())
    assert (header["last_offset"], header["base_sequence"], header["producer_id"]) == (112, 2**31 - 3, 9)
    assert written.last_offset.tolist() == [112]
    assert _kernel.decode_chunk(written.data, 0).records.offset.tolist() == [108]


def test_stops_early_when_the_output_is_large() -> None:
    """Between batches, when 64 MiB are reached."""
    one = seal(encode_batch([Record(value=bytes(30 << 20))]))
    written = _rewrite(one * 4, [True] * 4, [ACTION_COPY] * 4)
    assert (written.batches_read, written.consumed, written.needed) == (3, 3 * len(one), 0)


def _rewriter(data: bytes, keep: np.ndarray, actions: np.ndarray, **options: Any) -> _kernel.ChunkRewriter:
    return _kernel.ChunkRewriter(len(data), keep, 0, actions, **options)


@pytest.mark.parametrize("lead_bytes", [0, 1, 4095])
@pytest.mark.parametrize("action", [ACTION_COPY, ACTION_REBUILD, ACTION_EMPTY])
def test_output_after_a_lead(lead_bytes: int, action: int) -> None:
    """The same output and the same positions, with the lead before it at the start of a page."""
    data = keyed_batch(5, [("k", "v"), ("l", "w")]) + keyed_batch(7, [("m", "x")])
    keep, actions = np.array([7], np.uint64), np.full(2, action, np.uint8)
    lead = np.arange(lead_bytes, dtype=np.uint16).astype(np.uint8)
    plain = _kernel.rewrite_chunk(array(data), 0, keep, 0, actions)
    rewriter = _rewriter(data, keep, actions, lead=lead)
    assert rewriter.feed(array(data), 0) == (len(data), 0)
    led = rewriter.finish()
    assert led.data.tobytes() == plain.data.tobytes()
    assert led.position.tolist() == plain.position.tolist() == [0, int(plain.size[0])]
    assert led.with_lead.tobytes() == lead.tobytes() + plain.data.tobytes()
    assert led.with_lead.ctypes.data % 4096 == 0
    assert plain.with_lead.tobytes() == plain.data.tobytes()


def test_a_lead_is_less_than_a_page() -> None:
    data = keyed_batch(5, [("k", "v")])
    keep, actions = np.array([1], np.uint64), np.array([ACTION_COPY], np.uint8)
    with pytest.raises(ValueError, match="a lead of 4096 bytes"):
        _rewriter(data, keep, actions, lead=np.zeros(4096, np.uint8)).feed(array(data), 0)


@pytest.mark.long
@given(log(), st.data())
def test_pieces_make_the_chunk(data: bytes, draw: st.DataObject) -> None:
    """Called in pieces with arbitrary borders, each from the previous one's end: the rows and bytes of one call."""
    chunk = _kernel.decode_chunk(array(data), 0, hash_key=HASH_KEY)
    counts = np.diff(chunk.batches.first_record)
    keep = bitmap(draw.draw(st.lists(st.booleans(), min_size=len(chunk.records), max_size=len(chunk.records))))
    kept = _kernel.popcount_by_batch(keep, chunk.batches.first_record)
    actions = np.where(kept == 0, ACTION_EMPTY, np.where(kept == counts, ACTION_COPY, ACTION_REBUILD)).astype(np.uint8)
    try:
        written = _kernel.rewrite_chunk(array(data), 0, keep, 0, actions, delete_horizon=77)
    except _kernel.CorruptLogError:
        reject()  # C-54: input that every rewrite refuses
    decoder = _kernel.ChunkDecoder(len(data), hash_key=HASH_KEY)
    rewriter = _rewriter(data, keep, actions, delete_horizon=77)
    for gathering in (decoder, rewriter):
        position, most = 0, 1
        while position < len(data):
            size = draw.draw(st.integers(1, most))
            consumed, needed = gathering.feed(array(data[position : position + size]), position)
            position += consumed
            most = max(2 * size, needed) if consumed == 0 else max(most // 2, 1)
    _same(decoder.finish(), chunk)
    _same(rewriter.finish(), written)
    for gathering in (decoder, rewriter):
        with pytest.raises(ValueError, match="finished"):
            gathering.finish()


def _same(found: Any, expected: Any) -> None:
    for name in (name for name in dir(expected) if not name.startswith("_")):
        one, other = getattr(found, name), getattr(expected, name)
        if isinstance(other, np.ndarray):
            assert one.tolist() == other.tolist(), name
        elif isinstance(other, int):
            assert name == "needed" or one == other, name
        else:
            _same(one, other)
