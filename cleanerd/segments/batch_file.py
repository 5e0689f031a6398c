"""Reads a file's batches one by one, in plain Python: for the metadata log and for commands that show data.

The cleaner reads through the kernel, see reading.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Final

from cleanerd.errors import CorruptionError
from cleanerd.format.batch import MAGIC_AT, Frame, parse_frame
from cleanerd.fsio.plain_file import open_plain
from cleanerd.fsio.safe_open import ClosedOnError, raw_file
from cleanerd.segments.remote import RemotePath

_FRAME_WITH_MAGIC: Final = MAGIC_AT + 1
_BUFFER_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A whole batch of any magic, with its file and position."""

    frame: Frame
    data: bytes
    position: int
    where: str

    @property
    def end(self) -> int:
        return self.position + self.frame.size_bytes

    def error(self, message: str) -> CorruptionError:
        return CorruptionError(message, where=self.where, position=self.position)


def opened_raw(path: Path) -> tuple[RawIOBase, int]:
    """Open the file, local or in a store; returns its size too.

    Raises:
        CleanerdError: an object in a store cannot be opened.
        OSError: a file cannot be.
    """
    if isinstance(path, RemotePath):
        ranges = path.opened()
        return ranges, ranges.listed.st_size
    file = raw_file(open_plain(path), "rb")
    with ClosedOnError(file.fileno()):
        return file, os.fstat(file.fileno()).st_size


def read_batches(path: Path, *, start: int = 0, cut_tail_ends: bool, limit_bytes: int) -> Iterator[StoredBatch]:
    """Whole batches of the file from position ``start`` on, as many bytes as it has now.

    With ``cut_tail_ends`` a batch that the end of the file cuts off is the end (a broker may be writing it), otherwise
    an error. The same applies to a tail of zeros, which a preallocated active segment has (F-1). No batch above
    ``limit_bytes`` is read.

    Raises:
        CorruptionError: an impossible size or magic, a batch above the limit, a cut tail that is not the log's end.
        OSError: the file cannot be read.
    """
    where = str(path)
    raw, size = opened_raw(path)
    with BufferedReader(raw, _BUFFER_BYTES) as file:
        position = start
        file.seek(start)
        while size - position >= _FRAME_WITH_MAGIC:
            head = file.read(_FRAME_WITH_MAGIC)
            if len(head) < _FRAME_WITH_MAGIC or (cut_tail_ends and not any(head)):
                break
            frame = parse_frame(head, where=where, origin=position)
            if frame is None or frame.size_bytes > size - position:
                break
            if frame.size_bytes > limit_bytes:
                raise CorruptionError(
                    f"batch of {frame.size_bytes} bytes, at most {limit_bytes} are read",
                    where=where,
                    position=position + 8,
                )
            data = head + file.read(frame.size_bytes - _FRAME_WITH_MAGIC)
            if len(data) < frame.size_bytes:
                break
            yield StoredBatch(frame, data, position, where)
            position += frame.size_bytes
    if position < size and not cut_tail_ends:
        raise CorruptionError(
            f"the file ends inside a batch, {size - position} bytes in", where=where, position=position
        )
