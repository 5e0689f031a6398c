"""Index files (F-6, F-7, F-8)."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    read_offset_index,
    read_time_index,
    read_txn_index,
)
from tests.support.format_bytes import label, refusal, unhex

OFFSET = unhex("00000066 00000000")
TIME = unhex("0000018bcfe56807 00000002")
TXN = unhex("0000 0000000000000fa0 0000000000000122 000000000000012c 000000000000012d")


def offsets(*entries: tuple[int, int]) -> bytes:
    return np.array(list(entries), OFFSET_ENTRY).tobytes()


def times(*entries: tuple[int, int]) -> bytes:
    return np.array(list(entries), TIME_ENTRY).tobytes()


def txns(*entries: tuple[int, int, int, int, int, int]) -> bytes:
    return np.array(list(entries), TXN_ENTRY).tobytes()


def test_entry_sizes() -> None:
    """F-6, F-7, F-8."""
    assert (OFFSET_ENTRY.itemsize, TIME_ENTRY.itemsize, TXN_ENTRY.itemsize) == (8, 12, 34)


def test_worked_examples() -> None:
    """F-13 H."""
    assert read_offset_index(OFFSET).tolist() == [(102, 0)]
    assert read_time_index(TIME).tolist() == [(1700000000007, 2)]
    assert read_txn_index(TXN).tolist() == [(0, 0, 4000, 290, 300, 301)]


@pytest.mark.parametrize("read", [read_offset_index, read_time_index, read_txn_index])
def test_empty(read: Callable[[bytes], np.ndarray]) -> None:
    """F-6/7.1: a small segment has an empty offset index."""
    assert len(read(b"")) == 0


def test_zero_tail_of_a_preallocated_index() -> None:
    """F-6/7.2: the file of an active segment has its maximum size."""
    assert read_offset_index(offsets((5, 100), (9, 256)) + bytes(8000)).tolist() == [(5, 100), (9, 256)]
    assert read_time_index(times((7, 5)) + bytes(12000)).tolist() == [(7, 5)]
    assert len(read_offset_index(bytes(10485760))) == 0
    # low bytes that are zero are not a tail
    assert read_offset_index(offsets((256, 65536)) + bytes(8)).tolist() == [(256, 65536)]


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        (OFFSET[:-1], 0, "7 bytes are not a multiple"),
        (OFFSET + b"\0", 8, "9 bytes are not a multiple"),
        (offsets((5, 100), (5, 200)), 8, "entry 1: the offset does not rise"),
        (offsets((5, 100), (9, 200), (7, 300)), 16, "entry 2: the offset does not rise"),
        (offsets((5, 100), (0, 0), (9, 300)), 8, "entry 1"),  # a hole is not a tail
        (offsets((5, 100), (9, 100)), 8, "entry 1: the position does not rise"),
        (offsets((-1, 100)), 0, "entry 0: a negative offset"),
        (offsets((1, -100)), 0, "entry 0: a negative position"),
    ],
    ids=label,
)
def test_bad_offset_index(data: bytes, position: int, problem: str) -> None:
    """F-6: offsets strictly increase."""
    with pytest.raises(CorruptionError, match=f"^f at byte {position}: {problem}"):
        read_offset_index(data, "f")


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        (TIME[:-1], 0, "11 bytes are not a multiple"),
        (times((7, 5), (7, 6)), 12, "entry 1: the timestamp does not rise"),
        (times((7, 5), (8, 4)), 12, "entry 1: the offset falls"),
        (times((-1, 5)), 0, "entry 0: a negative timestamp"),
        (times((1, -5)), 0, "entry 0: a negative offset"),
    ],
    ids=label,
)
def test_bad_time_index(data: bytes, position: int, problem: str) -> None:
    """F-7: timestamps strictly increase, offsets never decrease."""
    with pytest.raises(CorruptionError, match=f"^f at byte {position}: {problem}"):
        read_time_index(data, "f")


def test_time_index_offsets_may_repeat() -> None:
    """F-7."""
    assert len(read_time_index(times((7, 5), (8, 5)))) == 2


def test_zero_is_a_value() -> None:
    """Offset 0 and time 0 are valid; only an entry of all zeros is padding."""
    assert read_time_index(times((0, 5), (7, 5))).tolist() == [(0, 5), (7, 5)]
    assert read_time_index(times((7, 0))).tolist() == [(7, 0)]
    assert read_offset_index(offsets((0, 9))).tolist() == [(0, 9)]
    assert read_txn_index(txns((0, 0, 0, 0, 1, 0)))["last_offset"].tolist() == [1]


def test_txn_version_is_its_first_byte() -> None:
    """F-8: 0x00nn reads as version 0, because Kafka looks at one byte."""
    assert read_txn_index(b"\x00\x07" + TXN[2:])["producer_id"].tolist() == [4000]


@pytest.mark.parametrize("partial", [1, 33])
def test_txn_partial_entry_at_the_end(partial: int) -> None:
    """F-8: ignored."""
    assert len(read_txn_index(TXN + b"\x01" * partial)) == 1


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        (b"\x01\x00" + TXN[2:], 0, "entry 0: an unknown version"),
        (TXN + TXN, 34, "entry 1: the marker's offset does not rise"),
        (txns((0, 0, 1, 20, 10, 30)), 0, "entry 0: the transaction ends before"),
        (txns((0, 0, 1, -5, 10, 30)), 0, "entry 0: a negative first offset"),
    ],
    ids=label,
)
def test_bad_txn_index(data: bytes, position: int, problem: str) -> None:
    """F-8."""
    with pytest.raises(CorruptionError, match=f"^f at byte {position}: {problem}"):
        read_txn_index(data, "f")


def test_txn_last_stable_offset_is_not_checked() -> None:
    """U-12: followers write values that are too high, and then lower ones."""
    assert len(read_txn_index(txns((0, 0, 1, 10, 20, 900), (0, 0, 1, 30, 40, 41)))) == 2


@given(st.binary(max_size=200))
def test_garbage(data: bytes) -> None:
    for read in (read_offset_index, read_time_index, read_txn_index):
        error = refusal(read, data, "f")
        assert error is None or 0 <= error.position <= len(data)
