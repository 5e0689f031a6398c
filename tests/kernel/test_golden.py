"""The worked examples of F-13, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

from cleanerd import _kernel
from tests.kernel.strategies import array, bitmap
from tests.support.logs import Record, encode_batch, keyed_batch

T = 1_700_000_000_000


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("|", " "))


A = _bytes(
    "0000000000000064 | 00000054 | 00000003 | 02 | 14bd4a44 | 0000 | 00000002 | 0000018bcfe56800 | 0000018bcfe56807"
    "ffffffffffffffff | ffff | ffffffff | 00000003"
    "14 00 00 00 04 6b31 04 7631 00  10 00 0a 02 04 6b32 01 00  1c 00 0e 04 04 6b31 04 7632 02 02 68 02 78"
)
B = _bytes(
    "0000000000000064 | 0000004f | 00000003 | 02 | 9dffca71 | 0040 | 00000002 | 0000018bd50bc400 | 0000018bcfe56807"
    "ffffffffffffffff | ffff | ffffffff | 00000002"
    "16 00 f5efb252 02 04 6b32 01 00  22 00 f1efb252 04 04 6b31 04 7632 02 02 68 02 78"
)
C = _bytes(
    "0000000000000064 | 00000040 | 00000003 | 02 | 492ba817 | 0000 | 00000002 | 0000018bcfe56807 | 0000018bcfe56807"
    "ffffffffffffffff | ffff | ffffffff | 00000001 | 1c 00 00 04 04 6b31 04 7632 02 02 68 02 78"
)
D = _bytes(
    "00000000000000c8 | 00000031 | 00000003 | 02 | 5d732532 | 0000 | 00000004 | ffffffffffffffff | 0000018bcfe56864"
    "0000000000000fa0 | 0001 | 0000000a | 00000000"
)
E = _bytes(
    "000000000000012c | 00000042 | 00000003 | 02 | f5fa61a7 | 0030 | 00000000 | 0000018bcfe568c8 | 0000018bcfe568c8"
    "0000000000000fa0 | 0001 | ffffffff | 00000001 | 20 00 00 00 08 00000001 0c 000000000007 00"
)


def _rewrite(data: bytes, keep: list[bool], actions: list[int], delete_horizon: int = -1) -> bytes:
    written = _kernel.rewrite_chunk(
        array(data), 0, bitmap(keep), 0, np.array(actions, np.uint8), delete_horizon=delete_horizon
    )
    assert written.consumed == len(data)
    return written.data.tobytes()


def test_example_a_decodes() -> None:
    """F-13 A: three records, one of them a tombstone."""
    chunk = _kernel.decode_chunk(array(A), 5000)
    batches, records = chunk.batches, chunk.records
    assert (len(batches), len(records), chunk.consumed, chunk.needed) == (1, 3, 96, 0)
    assert records.offset.tolist() == [100, 101, 102]
    assert records.timestamp.tolist() == [T, T + 5, T + 7]
    has_both = _kernel.FLAG_HAS_KEY | _kernel.FLAG_HAS_VALUE
    assert records.flags.tolist() == [has_both, _kernel.FLAG_HAS_KEY, has_both]
    assert (batches.position[0], batches.size[0], batches.crc[0], batches.leader_epoch[0]) == (5000, 96, 0x14BD4A44, 3)
    assert (batches.base_offset[0], batches.last_offset[0], batches.magic[0]) == (100, 102, 2)
    assert (batches.base_timestamp[0], batches.max_timestamp[0]) == (T, T + 7)


def test_example_b_sets_a_horizon() -> None:
    """F-13 B, F-2.2: the horizon replaces the base timestamp, and every delta follows."""
    assert _rewrite(A, [False, True, True], [_kernel.ACTION_REBUILD | _kernel.ACTION_SET_HORIZON], T + 86_400_000) == B


def test_example_b_still_has_its_timestamps() -> None:
    """F-2.2: timestamps stay right under a horizon."""
    assert _kernel.decode_chunk(array(B), 0).records.timestamp.tolist() == [T + 5, T + 7]


def test_example_c_moves_the_base_timestamp() -> None:
    """F-13 C, C-52: to the first retained record."""
    assert _rewrite(A, [False, False, True], [_kernel.ACTION_REBUILD]) == C


def test_example_d_is_an_emptied_batch() -> None:
    """F-13 D, F-2.5: base timestamp -1, the maximum kept, no record."""
    full = encode_batch(
        [Record(key=b"k", value=b"v", timestamp=T + 20 * i) for i in range(5)],
        base_offset=200,
        max_timestamp=T + 100,
        producer_id=4000,
        producer_epoch=1,
        base_sequence=10,
        leader_epoch=3,
        codec=3,
    )
    assert _rewrite(full, [False] * 5, [_kernel.ACTION_EMPTY]) == D
    assert _rewrite(D, [], [_kernel.ACTION_EMPTY]) == D
    assert len(_kernel.decode_chunk(array(D), 0).records) == 0
    for flag, time_ms in ((_kernel.ACTION_TIMELESS, -1), (_kernel.ACTION_TIME_ZERO, 0)):
        closing = _rewrite(full, [False] * 5, [_kernel.ACTION_EMPTY | flag])
        assert _kernel.scan_headers(array(closing), 0, verify_crc=True).max_timestamp.tolist() == [time_ms], "U-13"
        assert closing[21:35] + closing[43:] == D[21:35] + D[43:]


def test_example_e_is_copied() -> None:
    """F-13 E, C-51: a commit marker is copied unchanged."""
    assert _rewrite(E, [True], [_kernel.ACTION_COPY]) == E
    assert _rewrite(E, [True], [_kernel.ACTION_REBUILD]) == E


def test_a_set_horizon_stays() -> None:
    """C-49, F-2.2: a horizon once set stays, also if a new one is given, and disappears with the records (F-2.5)."""
    only_k1 = _rewrite(B, [False, True], [_kernel.ACTION_REBUILD | _kernel.ACTION_SET_HORIZON], T)
    header = _kernel.scan_headers(array(only_k1), 0)
    assert (header.attributes[0], header.base_timestamp[0]) == (0x40, T + 86_400_000)
    emptied = _kernel.scan_headers(array(_rewrite(B, [False, False], [_kernel.ACTION_EMPTY])), 0)
    assert (emptied.attributes[0], emptied.base_timestamp[0], emptied.max_timestamp[0]) == (0, -1, T + 7)


def test_crc() -> None:
    """F-2: CRC-32C of the nine digits; the seed continues."""
    assert _kernel.crc32c(array(b"123456789")) == 0xE3069283
    assert _kernel.crc32c(array(b"56789"), _kernel.crc32c(array(b"1234"))) == 0xE3069283
    with pytest.raises(ValueError, match="seed"):
        _kernel.crc32c(array(b""), -1)


def test_crc_of_batches_is_the_crc_of_their_bytes() -> None:
    """Large batches use their stored CRC, small ones and the truncated end their bytes: the same value."""
    batches = [keyed_batch(10 * row, [("k", "v" * size)]) for row, size in enumerate((5, 3_000, 1, 70_000))]
    data = b"".join(batches) + batches[1][:-7]
    for seed in (0, 1, 0xFFFFFFFF):
        assert _kernel.crc32c_of_batches(array(data), seed) == _kernel.crc32c(array(data), seed)
    front = bytearray(data)
    front[len(batches[0]) + 3] ^= 1  # the base offset, which no batch's CRC covers
    assert _kernel.crc32c_of_batches(array(bytes(front))) == _kernel.crc32c(array(bytes(front)))
