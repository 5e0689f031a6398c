"""The files of a search: identity, size and digest, and whether they stayed the same meanwhile (U-86).

A running broker moves records from file to file, always from existing files. So a search is complete if no listed file
changed and no other one appeared. The active segment may grow: its first bytes count.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import CleanerdError
from cleanerd.segments.batch_file import opened_raw
from cleanerd.verify.audit import LIVE, files_of
from cleanerd.verify.certificate import FileStatement

_CHUNK_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Listed:
    """A file before the search. ``digest``: of an active segment, which may grow; None for the others."""

    path: Path
    state: str
    inode: int
    size_bytes: int
    mtime_ns: int
    digest: str | None


class SearchedFiles:
    """Call :meth:`begin` for each place before it is searched, :meth:`statements` afterwards."""

    def __init__(self) -> None:
        self._listed: dict[Path, list[_Listed] | str] = {}

    def begin(self, place: Path) -> None:
        """List the files of ``place``; :meth:`statements` reports a failure."""
        try:
            self._listed[place] = self._list(place)
        except (CleanerdError, OSError) as error:
            self._listed[place] = str(error)

    @staticmethod
    def _list(place: Path) -> list[_Listed]:
        found = []
        files = files_of(place)
        active = max((path for path, state in files if state == LIVE), default=None)
        for path, state in files:
            status = os.lstat(path)
            digest = _digest(path, status.st_size) if path == active else None
            found.append(_Listed(path, state, status.st_ino, status.st_size, status.st_mtime_ns, digest))
        return found

    def statements(self, place: Path, state: str) -> tuple[tuple[FileStatement, ...], list[str]]:
        """The searched files of ``place``, and the unsearched ones, which changed during the search.

        ``state``: that of the place, for its segments.
        """
        listed = self._listed[place]
        if isinstance(listed, str):
            return (), [listed]
        files, unsearched = [], []
        for each in listed:
            try:
                files.append(_statement(each, place, state))
            except (CleanerdError, OSError) as error:
                unsearched.append(f"{each.path}: changed while it was searched ({_reason(error)})")
        known = {each.path for each in listed}
        try:
            unsearched += [f"{path}: appeared during the search" for path, _ in files_of(place) if path not in known]
        except (CleanerdError, OSError) as error:
            unsearched.append(str(error))
        return tuple(files), unsearched


def _statement(each: _Listed, place: Path, state: str) -> FileStatement:
    """Raises OSError, CleanerdError: it is not the listed file any more, or cannot be read."""
    status = os.lstat(each.path)
    same = status.st_ino == each.inode
    if each.digest is None:
        same = same and (status.st_size, status.st_mtime_ns) == (each.size_bytes, each.mtime_ns)
    digest = _digest(each.path, each.size_bytes)
    if not same or (each.digest is not None and each.digest != digest):
        raise CleanerdError("it was written to, or replaced")
    shown = state if each.state == LIVE else each.state
    return FileStatement(str(each.path.relative_to(place)), shown, each.size_bytes, digest)


def _reason(error: CleanerdError | OSError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else error.message


def _digest(path: Path, size_bytes: int) -> str:
    """SHA-256 of the first ``size_bytes`` of a file. Raises OSError; CleanerdError: it is shorter."""
    digest, left = hashlib.sha256(), size_bytes
    raw, _ = opened_raw(path)
    with raw:
        while left:
            chunk = raw.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise CleanerdError("it is shorter than before")
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
