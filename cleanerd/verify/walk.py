"""Reads a segment file from end to end, past damage: reports it, and continues with the next batch."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CorruptionError, system_error
from cleanerd.format.batch import parse_frame
from cleanerd.fsio.plain_file import open_plain
from cleanerd.fsio.safe_open import raw_file
from cleanerd.host.memory import batch_bytes, facts_bytes
from cleanerd.segments.chunks import Consumed
from cleanerd.segments.preallocated import only_zeros
from cleanerd.segments.remote import Ranges, RemotePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.segments.segment import StatResult

CHUNK_BYTES: Final = 4 * 1024 * 1024
_FRAME_WITH_MAGIC: Final = 17
_NOT_CHECKED: Final = "not checked; no error is known (more memory is needed)"


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """``chunk_bytes``: how much of a file is read at once; ``facts_bytes``: limit of facts per segment (U-35).

    None: as much as the memory of this process allows.
    """

    chunk_bytes: int = CHUNK_BYTES
    facts_bytes: int | None = None

    @property
    def kept_bytes(self) -> int:
        """How many bytes of facts are stored per segment."""
        return facts_bytes() if self.facts_bytes is None else self.facts_bytes


READ_LIMITS: Final = ReadLimits()

T = TypeVar("T", bound=Consumed)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are not a batch. ``cut``: the file ends inside it; ``zeros``: only zeros follow.

    ``size_bytes``: 0 if the next batch's start is unknown: the walk ends there.
    """

    position: int
    offset: int
    reason: str
    size_bytes: int = 0
    cut: bool = False
    zeros: bool = False


def walk(
    path: Path,
    size_bytes: int,
    call: Callable[[NDArray[np.uint8], int], T],
    damaged: Callable[[Damage], None],
    *,
    chunk_bytes: int = CHUNK_BYTES,
    start: int = 0,
    check: Callable[[StatResult], None] | None = None,
) -> Iterator[tuple[NDArray[np.uint8], T]]:
    """Feed the first ``size_bytes`` of ``path`` to ``call(data, position)``, chunk by chunk.

    Yields the bytes of the whole batches and the call's result; both are valid until the next step. If the call raises
    CorruptLogError, ``damaged`` is called and the walk continues after the batch. ``start``: where a batch begins;
    ``check`` receives the open file before anything is read.

    Raises:
        CleanerdError: the file cannot be read.
    """
    buffer = np.empty(min(chunk_bytes, max(size_bytes - start, 1)), np.uint8)
    position = start
    data, is_fresh, most = buffer[:0], False, max(batch_bytes(), chunk_bytes)
    with _opened(path, size_bytes, check) as file:
        while position < size_bytes:
            if not len(data):
                room = buffer[: min(len(buffer), size_bytes - position)]
                data, is_fresh = room[: _read(path, file, room, position)], True
                size_bytes = size_bytes if len(data) == len(room) else position + len(data)
                if not len(data):
                    return
            try:
                result = _call(call, data, position)
            except _kernel.CorruptLogError as error:
                if not is_fresh and len(data) < _FRAME_WITH_MAGIC:
                    data = data[:0]
                    continue
                damage = _damage(path, error, data, position, size_bytes, file)
                damaged(damage)
                if not damage.size_bytes:
                    return
                # The rest of the buffer comes next: reading it again for each damaged batch would take too long.
                position, data, is_fresh = position + damage.size_bytes, data[damage.size_bytes :], False
                continue
            if result.consumed:
                yield data[: result.consumed], result
                position, data, is_fresh = position + result.consumed, data[result.consumed :], False
            elif not is_fresh:
                data = data[:0]
            elif (unread := _unread(path, data, position, size_bytes, result.needed, most, file)) is None:
                buffer = np.empty(max(result.needed, 2 * len(buffer)), np.uint8)
                data = buffer[:0]
            else:
                damaged(unread)
                if not unread.size_bytes:
                    return
                position, data = position + unread.size_bytes, data[:0]


def read_batch(path: Path, position: int, size_bytes: int) -> NDArray[np.uint8]:
    """The bytes of one batch, fewer where the file ends.

    Raises:
        CleanerdError: the file cannot be read.
    """
    data = np.empty(size_bytes, np.uint8)
    with _opened(path, 0) as file:
        return data[: _read(path, file, data, position)]


def _unread(
    path: Path, data: NDArray[np.uint8], position: int, size_bytes: int, needed: int, most: int, file: FileIO | Ranges
) -> Damage | None:
    """Why a batch of ``needed`` bytes that begins with ``data`` is not read; None: it can be."""
    left = size_bytes - position
    if len(data) == left or needed > left:
        of = f" of a batch of {needed}" if needed else ""
        reason = f"the file ends inside a batch: {left} bytes are left{of}"
        return Damage(position, _offset_at(data), reason, cut=True, zeros=_zeros(path, file, position, size_bytes))
    if needed > most:
        reason = f"a batch of {needed} bytes is more than may be read at once: {_NOT_CHECKED}"
        return Damage(position, _offset_at(data), reason, needed)
    return None


def _call(call: Callable[[NDArray[np.uint8], int], T], data: NDArray[np.uint8], position: int) -> T:
    """Call it on the bytes before the first damaged batch, if there are any."""
    try:
        return call(data, position)
    except _kernel.CorruptLogError as error:
        good = error.position - position
        if not 0 < good < len(data):
            raise
        return call(data[:good], position)


def _damage(
    path: Path,
    error: _kernel.CorruptLogError,
    data: NDArray[np.uint8],
    position: int,
    size_bytes: int,
    file: FileIO | Ranges,
) -> Damage:
    reason = f"{error.reason} (record {error.record})" if error.record >= 0 else error.reason
    if isinstance(error, _kernel.BatchTooLargeError):
        reason = f"{reason}: {_NOT_CHECKED}"
    try:
        frame = parse_frame(data[:_FRAME_WITH_MAGIC].tobytes())
    except CorruptionError:
        frame = None
    if frame is None or frame.size_bytes >= size_bytes - position:
        zeros = _zeros(path, file, position, size_bytes)
        # The last batch of the file, or the next one's start is unknown.
        size = 0 if frame is None or frame.size_bytes > size_bytes - position else frame.size_bytes
        return Damage(position, _offset_at(data), reason, size, zeros=zeros)
    return Damage(position, frame.offset, reason, frame.size_bytes)


def _offset_at(data: NDArray[np.uint8]) -> int:
    return int.from_bytes(data[:8].tobytes(), "big", signed=True) if len(data) >= 8 else -1


@contextmanager
def _opened(path: Path, upto: int, check: Callable[[StatResult], None] | None = None) -> Iterator[FileIO | Ranges]:
    """Open the file for the block.

    A file in a store must still be the same at its end, because each range is a separate request.

    Raises:
        CleanerdError: it cannot be opened, or was replaced meanwhile.
    """
    with _file(path, upto) as file:
        if check is not None:
            check(_status(path, file))
        try:
            yield file
        except CorruptionError:
            if isinstance(file, Ranges):
                file.require_unchanged()  # bytes of two objects are not damage of either
            raise
        if upto and isinstance(file, Ranges):
            file.require_unchanged()


def _file(path: Path, upto: int) -> FileIO | Ranges:
    try:
        if isinstance(path, RemotePath):
            return path.opened(upto)
        return raw_file(open_plain(path), "rb")
    except OSError as error:
        raise system_error("cannot be opened", str(path), error) from error


def _status(path: Path, file: FileIO | Ranges) -> StatResult:
    if isinstance(file, Ranges):
        return file.listed
    try:
        return os.fstat(file.fileno())
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error


def _zeros(path: Path, file: FileIO | Ranges, start: int, end: int) -> bool:
    if isinstance(file, Ranges):
        return file.only_zeros(start, end)
    try:
        return only_zeros(file.fileno(), start, end)
    except OSError as error:
        raise system_error("cannot be read", str(path), error) from error


def _read(path: Path, file: FileIO | Ranges, data: NDArray[np.uint8], position: int) -> int:
    """Fill ``data`` from ``position`` on; fewer bytes only at the end of the file."""
    if isinstance(file, Ranges):
        return file.read_into(data.data, position)
    done = 0
    while done < len(data):
        try:
            count = os.preadv(file.fileno(), [data.data[done:]], position + done)
        except OSError as error:
            raise system_error("cannot be read", str(path), error) from error
        if not count:
            break
        done += count
    return done
