"""The three index files of a segment (F-6, F-7, F-8): bytes to structured arrays, views wherever possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import CorruptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
"""8 bytes. ``relative_offset``: last offset of an append or batch minus the base; ``position``: where it starts."""

TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
"""12 bytes. ``timestamp``: largest so far (ms); ``relative_offset``: last offset of the batch that has it."""

TXN_ENTRY: Final = np.dtype(
    [
        ("version", "i1"),  # Kafka checks the first byte of the int16 only
        ("version_low", "u1"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
"""34 bytes. An aborted transaction; ``last_offset`` is that of its marker."""

Bytes = bytes | bytearray | memoryview
"""Input of the readers; the returned arrays are views of it."""


def read_offset_index(data: Bytes, where: str = "offset index") -> NDArray[np.void]:
    """Entries of a ``.index`` file, dtype ``OFFSET_ENTRY``; the zero tail of a preallocated file is left out (F-6/7.2).

    Raises:
        CorruptionError: the length is not a multiple of 8, offsets do not rise, positions are negative or fall.
    """
    entries = _entries(data, OFFSET_ENTRY, where)
    _check(entries["relative_offset"][:1] >= 0, OFFSET_ENTRY, where, "a negative offset")
    _check(rises(entries["relative_offset"]), OFFSET_ENTRY, where, "the offset does not rise", first=1)
    _check(entries["position"][:1] >= 0, OFFSET_ENTRY, where, "a negative position")
    _check(rises(entries["position"]), OFFSET_ENTRY, where, "the position does not rise", first=1)
    return entries


def read_time_index(data: Bytes, where: str = "time index") -> NDArray[np.void]:
    """Entries of a ``.timeindex`` file, dtype ``TIME_ENTRY``; the zero tail of a preallocated file is left out.

    An all-zero entry (time 0 at the base offset) looks like padding; a lookup without it has the same result.

    Raises:
        CorruptionError: the length is not a multiple of 12, timestamps do not rise, offsets fall, a value is negative.
    """
    entries = _entries(data, TIME_ENTRY, where)
    offsets = entries["relative_offset"]
    _check(entries["timestamp"][:1] >= 0, TIME_ENTRY, where, "a negative timestamp")
    _check(rises(entries["timestamp"]), TIME_ENTRY, where, "the timestamp does not rise", first=1)
    _check(offsets[:1] >= 0, TIME_ENTRY, where, "a negative offset")
    _check(offsets[1:] >= offsets[:-1], TIME_ENTRY, where, "the offset falls", first=1)
    return entries


def read_txn_index(data: Bytes, where: str = "transaction index", *, in_any_order: bool = False) -> NDArray[np.void]:
    """Entries of a ``.txnindex`` file, dtype ``TXN_ENTRY``; a partial entry at the end is left out (F-8).

    Raises:
        CorruptionError: another version than 0 (only the first byte counts), marker offsets that do not rise (unless
            ``in_any_order``), a transaction that ends before it starts, a negative offset.
    """
    whole = len(data) // TXN_ENTRY.itemsize * TXN_ENTRY.itemsize
    entries = np.frombuffer(data, TXN_ENTRY, count=whole // TXN_ENTRY.itemsize)
    _check(entries["version"] == 0, TXN_ENTRY, where, "an unknown version")
    _check(entries["first_offset"] >= 0, TXN_ENTRY, where, "a negative first offset")
    _check(
        entries["last_offset"] >= entries["first_offset"],
        TXN_ENTRY,
        where,
        "the transaction ends before its first offset",
    )
    if not in_any_order:
        _check(rises(entries["last_offset"]), TXN_ENTRY, where, "the marker's offset does not rise", first=1)
    return entries


def _entries(data: Bytes, entry: np.dtype[np.void], where: str) -> NDArray[np.void]:
    """All entries up to the last one that is not zero."""
    if len(data) % entry.itemsize:
        raise CorruptionError(
            f"{len(data)} bytes are not a multiple of the entry size {entry.itemsize}",
            where=where,
            position=len(data) // entry.itemsize * entry.itemsize,
        )
    entries = np.frombuffer(data, entry)
    used = np.flatnonzero(np.frombuffer(data, np.uint8))
    return entries[: used[-1] // entry.itemsize + 1] if used.size else entries[:0]


def rises(column: NDArray[np.signedinteger]) -> NDArray[np.bool_]:
    """[n - 1] bool: each element is above the one before it."""
    return column[1:] > column[:-1]


def _check(good: NDArray[np.bool_], entry: np.dtype[np.void], where: str, problem: str, *, first: int = 0) -> None:
    """Raise for the first false element of ``good``; ``first``: the index entry of element 0."""
    if good.all():
        return
    bad = int(np.argmin(good)) + first
    raise CorruptionError(f"entry {bad}: {problem}", where=where, position=bad * entry.itemsize)
