"""Reads a segment file from end to end, past damage: what is wrong is told, and the batch after it comes next."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import numpy as np

from cleanerd import _kernel
from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.batch import parse_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import FileIO
    from pathlib import Path

    from numpy.typing import NDArray

CHUNK_BYTES: Final = 4 * 1024 * 1024
_FRAME_WITH_MAGIC: Final = 17


class Consumed(Protocol):
    """What a call that is fed with chunks returns at least."""

    @property
    def consumed(self) -> int:
        """Bytes of whole batches that were used."""

    @property
    def needed(self) -> int:
        """Size of the batch that did not fit, 0 when unknown."""


T = TypeVar("T", bound=Consumed)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no batch. ``cut``: the file ends inside it; ``zeros``: nothing but zeros follows.

    ``size_bytes`` is 0 when nothing says where the next batch begins: the walk ends there.
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
) -> Iterator[tuple[NDArray[np.uint8], T]]:
    """Feed the first ``size_bytes`` of ``path`` to ``call(data, position)``, chunk by chunk.

    Yields the bytes of the whole batches and what the call said of them; both are gone with the next step. Where the
    call raises CorruptLogError, ``damaged`` is told and the walk goes on after the batch.

    Raises:
        CleanerdError: the file cannot be read.
    """
    buffer = np.empty(min(chunk_bytes, max(size_bytes, 1)), np.uint8)
    position = 0
    with _opened(path) as file:
        while position < size_bytes:
            data = buffer[: min(len(buffer), size_bytes - position)]
            read = _read(path, file.fileno(), data, position)
            if read < len(data):
                size_bytes = position + read
                data = data[:read]
            if not read:
                return
            try:
                result = _call(call, data, position)
            except _kernel.CorruptLogError as error:
                damage = _damage(error, data, position, size_bytes, file.fileno())
                damaged(damage)
                if not damage.size_bytes:
                    return
                position += damage.size_bytes
                continue
            if result.consumed:
                yield data[: result.consumed], result
                position += result.consumed
            elif len(data) == size_bytes - position or result.needed > size_bytes - position:
                of = f" of a batch of {result.needed}" if result.needed else ""
                reason = f"the file ends inside a batch: {size_bytes - position} bytes are left{of}"
                damaged(Damage(position, _offset_at(data), reason, cut=True))
                return
            else:
                buffer = np.empty(max(result.needed, 2 * len(buffer)), np.uint8)


def _call(call: Callable[[NDArray[np.uint8], int], T], data: NDArray[np.uint8], position: int) -> T:
    """The call on what lies before the first bad batch, if something does."""
    try:
        return call(data, position)
    except _kernel.CorruptLogError as error:
        good = error.position - position
        if not 0 < good < len(data):
            raise
        return call(data[:good], position)


def _damage(
    error: _kernel.CorruptLogError, data: NDArray[np.uint8], position: int, size_bytes: int, file: int
) -> Damage:
    record = f" (record {error.record})" if error.record >= 0 else ""
    try:
        frame = parse_frame(data[:_FRAME_WITH_MAGIC].tobytes())
    except CorruptionError:
        frame = None
    if frame is None or frame.size_bytes >= size_bytes - position:
        zeros = not data.any() and _zeros_follow(file, position + len(data), size_bytes)
        # The last batch of the file, or no way to know where the next one begins.
        size = 0 if frame is None or frame.size_bytes > size_bytes - position else frame.size_bytes
        return Damage(position, _offset_at(data), error.reason + record, size, zeros=zeros)
    return Damage(position, frame.offset, error.reason + record, frame.size_bytes)


def _zeros_follow(file: int, position: int, size_bytes: int) -> bool:
    while position < size_bytes:
        part = os.pread(file, min(CHUNK_BYTES, size_bytes - position), position)
        if not part or np.frombuffer(part, np.uint8).any():
            return not part
        position += len(part)
    return True


def _offset_at(data: NDArray[np.uint8]) -> int:
    return int.from_bytes(data[:8].tobytes(), "big", signed=True) if len(data) >= 8 else -1


def _opened(path: Path) -> FileIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise CleanerdError(f"cannot be opened: {error.strerror}", where=str(path)) from error


def _read(path: Path, file: int, data: NDArray[np.uint8], position: int) -> int:
    """Fill ``data`` from ``position`` on; fewer bytes only at the end of the file."""
    done = 0
    while done < len(data):
        try:
            count = os.preadv(file, [data.data[done:]], position + done)
        except OSError as error:
            raise CleanerdError(f"cannot be read: {error.strerror}", where=str(path)) from error
        if not count:
            break
        done += count
    return done
