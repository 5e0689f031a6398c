"""Where batches begin in a segment, from its offset index: an entry is trusted if a whole batch is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, system_error
from cleanerd.format.batch import CODEC_MASK
from cleanerd.format.index import OFFSET_ENTRY, TIME_ENTRY, read_offset_index, read_time_index
from cleanerd.format.names import INDEX_SUFFIX, TIMEINDEX_SUFFIX
from cleanerd.segments.batch_file import opened_raw
from cleanerd.verify.listing import SegmentFile, bytes_of

if TYPE_CHECKING:
    import io
    from collections.abc import Iterable

    from numpy.typing import NDArray


_FIRST_BYTES: Final = 64 * 1024
_MOST_BYTES: Final = 16 * 1024 * 1024
"""A larger batch is not read: its entry is ignored."""


def batch_starts(segment: SegmentFile, begin: int, end: int, least_bytes: int) -> list[int]:
    """Ascending positions: where to begin for the offset ``begin``, batches about ``least_bytes`` apart, where to stop.

    Every record of ``begin`` .. ``end`` (exclusive) in the segment is between the first and the last.
    """
    size = segment.size_bytes
    wants_all = begin <= segment.base and end >= segment.end
    if wants_all and size <= least_bytes:
        return [0, size]
    entries = offset_entries(segment)
    offsets = entries["relative_offset"].astype(np.int64) + segment.base
    positions = entries["position"].astype(np.int64)
    fits = positions < size
    offsets, positions = offsets[fits], positions[fits]
    first = int(np.searchsorted(offsets, begin, side="right")) - 1
    while first >= 0 and not is_batch(segment, int(positions[first]), segment.base, int(offsets[first])):
        first -= 1
    found = [0 if first < 0 else int(positions[first])]
    after = int(np.searchsorted(offsets, end, side="left"))
    stop = _stop(segment, end, zip(offsets[after:].tolist(), positions[after:].tolist(), strict=True))
    row = int(np.searchsorted(positions, found[-1] + least_bytes, side="left"))
    while row < len(positions) and positions[row] < stop:
        if is_batch(segment, int(positions[row]), segment.base, int(offsets[row])):
            found.append(int(positions[row]))
            row = int(np.searchsorted(positions, found[-1] + least_bytes, side="left"))
        else:
            row += 1
    return [*found, stop]


def _stop(segment: SegmentFile, end: int, entries: Iterable[tuple[int, int]]) -> int:
    """The first position in ``entries`` at or after which no batch begins below ``end``.

    The batch of an entry may begin below its offset. A wrapper of an old format has its last record's offset in its
    header. Later batches begin above that.
    """
    passed = False
    for offset, position in entries:
        batch = batch_at(segment, position)
        if batch is None or int(batch.base_offset[0]) > offset:
            continue
        if passed or (int(batch.base_offset[0]) >= end and not _is_wrapper(batch)):
            return position
        passed = int(batch.last_offset[0]) >= end - 1
    return segment.size_bytes


def _is_wrapper(batch: _kernel.Batches) -> bool:
    return bool(batch.magic[0] < 2 and batch.attributes[0] & CODEC_MASK)


def offset_entries(segment: SegmentFile) -> NDArray[np.void]:
    """The offset index; empty if there is no readable one."""
    path = segment.companion(INDEX_SUFFIX)
    try:
        return read_offset_index(bytes_of(path, has_room=True) or b"", str(path))
    except CleanerdError:
        return np.zeros(0, OFFSET_ENTRY)


def time_entries(segment: SegmentFile) -> tuple[NDArray[np.void], bool]:
    """The time index, empty if there is no readable one, and whether its last entry is that of the segment's end.

    The broker adds that entry when it closes the segment, and cuts off unused space. An index with unused space was
    copied before that, and more may have been written after its last entry.
    """
    path = segment.companion(TIMEINDEX_SUFFIX)
    try:
        data = bytes_of(path, has_room=True) or b""
        entries = read_time_index(data, str(path))
    except CleanerdError:
        return np.zeros(0, TIME_ENTRY), False
    return entries, segment.sealed and len(entries) > 0 and len(data) == entries.nbytes


def is_batch(segment: SegmentFile, position: int, least: int, most: int) -> bool:
    """Whether a whole batch is at ``position``, by its checksum, with a first offset in ``least`` .. ``most``.

    Raises:
        CleanerdError: the file cannot be read.
    """
    batch = batch_at(segment, position)
    return batch is not None and least <= int(batch.base_offset[0]) <= most


def batch_at(segment: SegmentFile, position: int) -> _kernel.Batches | None:
    """The header of the whole batch at ``position``, by its checksum, or None.

    Raises:
        CleanerdError: the file cannot be read.
    """
    try:
        file, _ = opened_raw(segment.path)
    except OSError as error:
        raise system_error("cannot be opened", str(segment.path), error) from error
    with file:
        wanted = _FIRST_BYTES
        while True:
            data = _bytes_at(file, position, wanted)
            batches = _first(data, position)
            if batches is None or len(batches):
                return batches
            if wanted >= _MOST_BYTES or not wanted < batches.needed <= _MOST_BYTES:
                return None
            wanted = batches.needed


def _bytes_at(file: io.RawIOBase, position: int, count: int) -> NDArray[np.uint8]:
    """``count`` bytes, or fewer at the end of the file."""
    data = np.empty(count, np.uint8)
    done = 0
    file.seek(position)
    while done < count and (more := file.readinto(data.data[done:])):
        done += more
    return data[:done]


def _first(data: NDArray[np.uint8], position: int) -> _kernel.Batches | None:
    """The first batch of ``data``, if it is complete; None: no batch begins there."""
    size = int.from_bytes(data[8:12].tobytes(), "big") + 12 if len(data) >= 12 else 0
    try:
        return _kernel.scan_headers(data[:size] if size <= len(data) else data, position, verify_crc=True)
    except _kernel.CorruptLogError:
        return None
