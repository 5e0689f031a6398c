"""Check a staged segment against the decision: read it back from disk, before the swap.

Independent of the rewrite: it checks headers and checksums of the file itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError
from cleanerd.format.index import OFFSET_ENTRY, TIME_ENTRY
from cleanerd.segments.chunks import ChunkResult
from cleanerd.segments.reading import by_chunk

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd.cleaner.rewrite import WrittenSegment
    from cleanerd.segments.pool import PartReader
    from cleanerd.segments.segment import Segment


PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one thread reads at a time when there are several."""


@dataclass(frozen=True, slots=True)
class _Scanned(ChunkResult):
    """The batches of some bytes, and the CRC-32C of these."""

    chunk: _kernel.Batches
    crc: int


def verify_staged(
    readers: PartReader,
    staged: Segment,
    written: WrittenSegment,
    *,
    records: int,
    last_offset: int,
    ordered: bool = True,
) -> None:
    """Check a staged ``.log`` and its indexes against the decision.

    Every batch's CRC and the file's; ascending offsets if the sources' are ``ordered``; ``records`` as the keep bits
    have; the ``last_offset`` of the group's last batch (U-13); each index entry points at a batch with its offset.

    Raises:
        CleanerdError: they differ; nothing of the group may be used.
        CorruptionError: the staged bytes do not parse.
    """
    seen = _Seen(f"{readers.path}/{staged.base:020d}.log", written.max_unpacked_bytes, ordered=ordered)
    # If the new index is wrong, a part does not begin at a batch and is reported as damage.
    positions = np.frombuffer(written.offset_index, dtype=OFFSET_ENTRY)["position"].astype(np.int64)
    part_bytes = min(PART_BYTES, readers.chunk_bytes)
    parts = readers.shared_out(positions, staged.size_bytes, part_bytes, part_bytes)
    for scanned in readers.chunks(staged, parts, lambda _: by_chunk(seen.scan)):
        seen.add_chunk(scanned)
    expectations = (
        ("bytes", seen.position, written.log_bytes),
        ("CRC-32C of the file", seen.crc, written.log_crc32c),
        ("records", seen.records, records),
        ("last offset", seen.last_offset, last_offset),
    )
    for what, found, expected in expectations:
        if found != expected:
            raise CleanerdError(f"staged segment is wrong: {what} {found}, expected {expected}", where=seen.where)
    seen.check_indexes(staged.base, written)


class _Seen:
    """Facts from the pass over the staged file."""

    def __init__(self, where: str, max_unpacked_bytes: int, *, ordered: bool) -> None:
        self.where = where
        self._ordered = ordered
        self._max_unpacked_bytes = max_unpacked_bytes
        self.crc = 0
        self.records = 0
        self.last_offset = -1
        self.position = 0
        self._positions = [np.zeros(0, np.uint32)]
        self._last_offsets = [np.zeros(0, np.int64)]
        self._max_timestamps = [np.zeros(0, np.int64)]

    def scan(self, data: NDArray[np.uint8], position: int) -> _Scanned:
        """Called by several threads, so it does not change this object."""
        batches = _kernel.scan_headers(data, position, verify_crc=True)
        if (batches.magic < 2).any():
            # How many messages a v0 or v1 wrapper has, and from which offset on, is known only after decompressing it.
            batches = _kernel.decode_chunk(data, position, max_unpacked=self._max_unpacked_bytes).batches
        return _Scanned(batches, _kernel.crc32c_of_batches(data[: batches.consumed]))

    def add_chunk(self, scanned: _Scanned) -> None:
        batches = scanned.chunk
        self.crc = _kernel.crc32c_combine(self.crc, scanned.crc, batches.consumed)
        previous = np.concatenate([[self.last_offset], batches.last_offset[:-1]])
        if self._ordered and (batches.base_offset <= previous).any():
            raise CleanerdError("staged segment is wrong: offsets do not ascend", where=self.where)
        self.records += int(batches.first_record[-1])
        self.last_offset = int(batches.last_offset[-1])
        self.position += batches.consumed
        self._positions.append(batches.position)
        self._last_offsets.append(batches.last_offset)
        self._max_timestamps.append(batches.max_timestamp)

    def check_indexes(self, base: int, written: WrittenSegment) -> None:
        positions = np.concatenate(self._positions)
        # If offsets descend, an entry has the largest so far.
        last_offsets = np.maximum.accumulate(np.concatenate(self._last_offsets))
        offset_entries = np.frombuffer(written.offset_index, dtype=OFFSET_ENTRY)
        rows = np.searchsorted(last_offsets, offset_entries["relative_offset"].astype(np.int64) + base)
        if (rows >= len(positions)).any() or (positions[rows] != offset_entries["position"]).any():
            raise CleanerdError("staged segment is wrong: an offset index entry points at no batch", where=self.where)
        time_entries = np.frombuffer(written.time_index, dtype=TIME_ENTRY)
        largest = np.maximum.accumulate(np.concatenate(self._max_timestamps))
        offsets = time_entries["relative_offset"].astype(np.int64) + base
        rows = np.searchsorted(last_offsets, offsets)
        ends = np.searchsorted(last_offsets, offsets, side="right") - 1
        times = time_entries["timestamp"]
        if (rows >= len(largest)).any() or ((largest[rows] > times) | (largest[ends] < times)).any():
            raise CleanerdError(
                "staged segment is wrong: a time index entry is not the largest so far", where=self.where
            )
        highest = int(largest[-1]) if len(largest) else -1
        room = written.time_entries_max > len(time_entries)
        if highest >= 0 and room and (len(time_entries) == 0 or int(time_entries["timestamp"][-1]) != highest):
            raise CleanerdError("staged segment is wrong: the time index lacks the largest timestamp", where=self.where)
