"""Groups records by key, for any number of records, in limited memory.

Rows are distributed to parts by key hash. Parts that exceed the memory go to temporary files, and each part is sorted
on its own. 128 bits of keyed hash replace the key: producers cannot make two keys that collide.
"""

from __future__ import annotations

import tempfile
from typing import IO, TYPE_CHECKING, Final, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

KEY_ROW: Final = np.dtype(
    [("low", "<u8"), ("high", "<u8"), ("offset", "<i8"), ("facts", "<u8"), ("version", "<i8"), ("has_version", "?")]
)
"""One record: the halves of its key's hash, its offset, the caller's facts, its version."""

_MAX_PARTS: Final = 512
"""Limit of open temporary files."""


class KeyTable:
    """Takes rows in any order, returns parts sorted by key and offset.

    Use it as a context manager: it may have files.
    """

    def __init__(self, memory_bytes: int, rows: int) -> None:
        """``rows``: the maximum number, which determines how many are sorted at once."""
        self._waiting: list[NDArray[np.void]] = []
        self._waiting_rows = 0
        # Sorting copies the rows, and needs their order.
        self._room_rows = max(memory_bytes // (4 * KEY_ROW.itemsize), 1)
        self._parts = min(max(-(-rows // self._room_rows), 1), _MAX_PARTS)
        self._files: list[IO[bytes]] = []
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for file in self._files:
            file.close()
        self._files = []
        self._waiting = []

    def add(
        self,
        key_hash: NDArray[np.uint64],
        offset: NDArray[np.int64],
        facts: NDArray[np.uint64],
        versions: tuple[NDArray[np.int64], NDArray[np.bool_]] | None = None,
    ) -> None:
        """Add records: ``key_hash`` [n, 2], ``offset`` [n], ``facts`` [n], ``versions`` with a mask, both [n].

        Raises:
            OSError: a temporary file cannot be written.
        """
        rows = np.empty(len(offset), KEY_ROW)
        rows["low"], rows["high"] = key_hash[:, 0], key_hash[:, 1]
        rows["offset"], rows["facts"] = offset, facts
        rows["version"], rows["has_version"] = (0, False) if versions is None else versions
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        self.rows += len(rows)
        if self._waiting_rows > self._room_rows:
            self._spill()

    def parts(self) -> Iterator[NDArray[np.void]]:
        """All rows, sorted by key, then offset, then facts; all rows of a key are in one part."""
        if not self._files:
            yield _in_order(np.concatenate([np.empty(0, KEY_ROW), *self._waiting]))
            return
        self._spill()
        for file in self._files:
            file.seek(0)
            yield _in_order(np.frombuffer(file.read(), KEY_ROW))

    def _spill(self) -> None:
        if not self._files:
            self._files = [tempfile.TemporaryFile(prefix="cleanerd-keys-") for _ in range(self._parts)]  # noqa: SIM115
        rows = np.concatenate([np.empty(0, KEY_ROW), *self._waiting])
        part = (rows["high"] % np.uint64(self._parts)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        edges = np.searchsorted(part[order], np.arange(self._parts + 1))
        for file, start, end in zip(self._files, edges[:-1], edges[1:], strict=True):
            file.write(rows[order[start:end]].tobytes())
        self._waiting, self._waiting_rows = [], 0


def _in_order(rows: NDArray[np.void]) -> NDArray[np.void]:
    return rows[np.lexsort((rows["facts"], rows["offset"], rows["high"], rows["low"]))]


def first_of_key(rows: NDArray[np.void]) -> NDArray[np.intp]:
    """Where each key's rows begin in a part."""
    if not len(rows):
        return np.zeros(0, np.intp)
    changes = (rows["low"][1:] != rows["low"][:-1]) | (rows["high"][1:] != rows["high"][:-1])
    return np.concatenate([[0], np.flatnonzero(changes) + 1]).astype(np.intp)
