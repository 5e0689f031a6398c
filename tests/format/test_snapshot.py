"""Producer snapshots (F-10)."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CorruptionError
from cleanerd.format.snapshot import SNAPSHOT_ENTRY, read_snapshot, write_snapshot
from tests.support.format_bytes import crc32c, label, refusal, unhex

EXAMPLE = unhex("""0001 33ad049b 00000001 |
0000000000000fa0 0001 0000000e 00000000000000cc 00000004 0000018bcfe56864 00000007 ffffffffffffffff""")
INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
ENTRY = st.tuples(INT64, st.integers(-(2**15), 2**15 - 1), INT32, INT64, INT32, INT64, INT32, INT64)


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_worked_example() -> None:
    """F-13 H, F-10: 10 bytes plus 46 per producer."""
    entries = read_snapshot(EXAMPLE, "f")
    assert SNAPSHOT_ENTRY.itemsize == 46
    assert entries.tolist() == [(4000, 1, 14, 204, 4, 1700000000100, 7, -1)]
    assert write_snapshot(entries) == EXAMPLE


def test_empty_map() -> None:
    """F-10: 10 bytes."""
    data = write_snapshot(np.empty(0, SNAPSHOT_ENTRY))
    assert len(data) == 10
    assert len(read_snapshot(data, "f")) == 0


@given(st.lists(ENTRY, max_size=5))
def test_round_trip(rows: list[tuple[int, ...]]) -> None:
    data = write_snapshot(np.array(rows, SNAPSHOT_ENTRY))
    assert data == sealed(data[6:])
    assert read_snapshot(data, "f").tolist() == rows


@pytest.mark.parametrize(
    ("data", "position", "problem"),
    [
        (b"", 0, "0 bytes are too short"),
        (EXAMPLE[:9], 9, "9 bytes are too short"),
        (b"\x00\x02" + EXAMPLE[2:], 0, "version 2 is unknown"),
        (b"\x00\x00" + EXAMPLE[2:], 0, "version 0 is unknown"),
        (EXAMPLE[:-1] + b"\x00", 2, "CRC-32C is"),
        (EXAMPLE + b"\x00", 2, "CRC-32C is"),
        (EXAMPLE[:20], 2, "CRC-32C is"),
        (sealed(struct.pack(">i", 2) + EXAMPLE[10:]), 6, "2 producers do not fit 56 bytes"),
        (sealed(struct.pack(">i", -1)), 6, "-1 producers do not fit"),
        (sealed(struct.pack(">i", 2**31 - 1)), 6, "2147483647 producers do not fit"),
        (sealed(EXAMPLE[6:] + b"\x00"), 6, "1 producers do not fit 57 bytes"),
    ],
    ids=label,
)
def test_corrupt(data: bytes, position: int, problem: str) -> None:
    """F-10: other versions, a wrong CRC, a count that does not match."""
    with pytest.raises(CorruptionError, match=f"^f at byte {position}: .*{problem}"):
        read_snapshot(data, "f")


def test_wrong_dtype() -> None:
    with pytest.raises(ValueError, match="dtype"):
        write_snapshot(np.zeros(1, "i8"))


@given(st.binary(max_size=120).map(lambda data: data if len(data) % 2 else sealed(data)))
def test_garbage(data: bytes) -> None:
    error = refusal(read_snapshot, data, "f")
    assert error is None or error.where == "f"
