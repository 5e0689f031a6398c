"""Where in a segment batches begin, by its offset index: an entry is believed when a whole batch lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, system_error
from cleanerd.format.index import OFFSET_ENTRY, TIME_ENTRY, read_offset_index, read_time_index
from cleanerd.format.names import INDEX_SUFFIX, TIMEINDEX_SUFFIX
from cleanerd.log.batch_file import opened_raw
from cleanerd.verify.listing import bytes_of

if TYPE_CHECKING:
    import io

    from numpy.typing import NDArray

    from cleanerd.verify.listing import SegmentFile

_FIRST_BYTES: Final = 64 * 1024
_MOST_BYTES: Final = 16 * 1024 * 1024
"""A larger batch is not looked at: the entry is left aside."""


def batch_starts(segment: SegmentFile, begin: int, end: int, least_bytes: int) -> list[int]:
    """Ascending positions: where to begin for the offset ``begin``, batches about ``least_bytes`` apart, where to stop.

    Every record of ``begin`` .. ``end`` (exclusive) in the segment lies between the first and the last.
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
    # The batch of an entry may begin below its offset.
    after = int(np.searchsorted(offsets, end, side="left"))
    while after < len(positions) and not is_batch(segment, int(positions[after]), end, int(offsets[after])):
        after += 1
    found = [0 if first < 0 else int(positions[first])]
    stop = size if after >= len(positions) else int(positions[after])
    row = int(np.searchsorted(positions, found[-1] + least_bytes, side="left"))
    while row < len(positions) and positions[row] < stop:
        if is_batch(segment, int(positions[row]), segment.base, int(offsets[row])):
            found.append(int(positions[row]))
            row = int(np.searchsorted(positions, found[-1] + least_bytes, side="left"))
        else:
            row += 1
    return [*found, stop]


def offset_entries(segment: SegmentFile) -> NDArray[np.void]:
    """The offset index, empty where there is none that can be read."""
    path = segment.companion(INDEX_SUFFIX)
    try:
        return read_offset_index(bytes_of(path) or b"", str(path))
    except CleanerdError:
        return np.zeros(0, OFFSET_ENTRY)


def time_entries(segment: SegmentFile) -> NDArray[np.void]:
    """The time index, empty where there is none that can be read."""
    path = segment.companion(TIMEINDEX_SUFFIX)
    try:
        return read_time_index(bytes_of(path) or b"", str(path))
    except CleanerdError:
        return np.zeros(0, TIME_ENTRY)


def is_batch(segment: SegmentFile, position: int, least: int, most: int) -> bool:
    """Whether a whole batch lies at ``position``, by its checksum, whose first offset is one of ``least`` .. ``most``.

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
            if batches is None:
                return False
            if len(batches):
                return least <= int(batches.base_offset[0]) <= most
            if wanted >= _MOST_BYTES or not wanted < batches.needed <= _MOST_BYTES:
                return False
            wanted = batches.needed


def _bytes_at(file: io.RawIOBase, position: int, count: int) -> NDArray[np.uint8]:
    """Fewer where it ends."""
    data = np.empty(count, np.uint8)
    done = 0
    file.seek(position)
    while done < count and (more := file.readinto(data.data[done:])):
        done += more
    return data[:done]


def _first(data: NDArray[np.uint8], position: int) -> _kernel.Batches | None:
    """The first batch of ``data``, if it is there whole; None: none begins there."""
    size = int.from_bytes(data[8:12].tobytes(), "big") + 12 if len(data) >= 12 else 0
    try:
        return _kernel.scan_headers(data[:size] if size <= len(data) else data, position, verify_crc=True)
    except _kernel.CorruptLogError:
        return None
