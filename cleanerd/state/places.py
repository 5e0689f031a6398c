"""Which log directory a state belongs to: a place, not an id that every copy shares (U-46).

A copy of a log directory has the original's ``directory.id`` and topic ids. So cleanerd keeps its state by place:
directory id, path, inode and file system. ``partitions/PLACE/place`` in the state directory describes one.

A directory that was renamed or mounted elsewhere keeps its state: it has the same inode, or a segment that a cleaning
wrote, and its old place has no directory with its id and inode. A copy starts without state, unless an operator
declares that it replaces the original (``cleanerd adopt-state``).
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import CleanerdError
from cleanerd.format.meta import META_PROPERTIES, read_meta_properties
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, file_name, uuid_to_base64
from cleanerd.fsio.directory_time import directory_time
from cleanerd.fsio.safe_open import MAX_FACTS_BYTES, MAX_IDENTITY_BYTES, names_in, plain_name, read_whole
from cleanerd.fsio.small_file import read_small_file
from cleanerd.fsio.state_files import DAMAGE, held, write_state_file
from cleanerd.segments.log_dir import DirectoryPlace
from cleanerd.state.document import Document, validated

PARTITIONS: Final = "partitions"
"""The directory in the state directory that has a directory per place."""

_FILE: Final = "place"
_MAX_BYTES: Final = 64 * 1024
_CLOCK_REALTIME_COARSE: Final = 5
"""The clock from which Linux takes file times: a file that is created later never has an earlier time."""


@dataclass(frozen=True, slots=True)
class KnownPlace:
    """A place in the state directory.

    ``since_ns``: when it got its first state, by the file systems' clock; 0 if that clock was set back later.
    """

    place: DirectoryPlace
    since_ns: int


@dataclass(frozen=True, slots=True)
class _PlaceFile(DirectoryPlace):
    since_ns: int


_DOCUMENT: Final = Document(_FILE, _PlaceFile)


@dataclass(frozen=True, slots=True)
class _Segment:
    base: int
    inode: int
    size: int
    mtime_ns: int

    def is_in(self, partition: Path) -> bool:
        try:
            status = os.lstat(partition / file_name(self.base, SEGMENT_SUFFIX))
        except OSError:
            return False
        return (status.st_ino, status.st_size, status.st_mtime_ns) == (self.inode, self.size, self.mtime_ns)


@dataclass(frozen=True, slots=True)
class _Segments:
    last_segment: _Segment
    last_output: _Segment | None = None


@dataclass(frozen=True, slots=True)
class _SegmentsInState:
    """The fields of a partition's state file, from any release, that show segments written by a cleaning."""

    topic: str
    partition: int
    cleanerd_checkpoint: _Segments | None = None

    def has_one_in(self, log_dir: Path) -> bool:
        partition = log_dir / str(TopicPartition(plain_name(self.topic), self.partition))
        point = self.cleanerd_checkpoint
        left = () if point is None else (point.last_segment, point.last_output)
        return any(each is not None and each.is_in(partition) for each in left)


class DirectoryPlaces:
    """The places of one state directory. Reading does not raise: unreadable places are unknown."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._path = root / PARTITIONS
        self._names: dict[DirectoryPlace, str] = {}
        self._elsewhere: dict[DirectoryPlace, tuple[int, tuple[list[str], dict[str, KnownPlace]]]] = {}
        self._described: dict[DirectoryPlace, tuple[int, int]] = {}
        self._registering = threading.Lock()

    def name_of(self, place: DirectoryPlace) -> str:
        """The name of the directory for the state of ``place``, even if it does not exist."""
        found = self._names.get(place)
        if found is None:  # every scan uses this
            try:
                found = self._names[place] = self._find(place, self._all())
            except OSError:
                return place.name
        return found

    def other_places(self, place: DirectoryPlace) -> tuple[list[str], dict[str, KnownPlace]]:
        """The other places that may know a topic's rules: those of other directories, and those of the same id.

        A place of the same id is a copy of this one, or its original. Of several places with another id only existing
        ones count. A place without a description counts.
        """
        try:
            changed_ns = directory_time(self._path)
            known = self._elsewhere.get(place)
            if known is not None and known[0] == changed_ns.changed_ns:
                return known[1]
            places = self._all()
        except OSError:
            return [], {}
        own = self.name_of(place)
        found = _others(place, {name: each for name, each in places.items() if name != own})
        if None not in places.values():  # one that is being created has no description yet
            self._elsewhere[place] = changed_ns.to_compare_ns, found
        return found

    def _all(self) -> dict[str, KnownPlace | None]:
        """Every place by its directory's name; None: its description is missing, damaged or of another format.

        Raises OSError.
        """
        try:
            with held(self._path, self._root) as directory:
                names = sorted(names_in(".", directory))
        except FileNotFoundError:
            return {}
        return {name: self._read(name) for name in names}

    def register(self, place: DirectoryPlace, owner: os.stat_result) -> None:
        """Describe ``place`` in its directory, which exists, unless that is done. Raises OSError.

        Each cleaning calls it: a description that was read once is read again when it is another file.
        """
        name = self.name_of(place)
        file = self._file_of(name)
        if file is not None and self._described.get(place) == file:
            return
        with self._registering:  # the first cleanings of a directory call it at once
            known = self._read(name)
            if known is None or known.place != place:
                since_ns = _now_ns() if known is None else known.since_ns
                described = _PlaceFile(place.directory_id, place.path, place.inode, place.file_system, since_ns)
                write_state_file(self._path / name / _FILE, _DOCUMENT.to_bytes(described), owner, self._root)
            elif file is not None:
                self._described[place] = file

    def _file_of(self, name: str) -> tuple[int, int] | None:
        """Inode and change time of the description in the directory ``name``; None if that cannot be read."""
        try:
            status = os.lstat(f"{self._path}/{name}/{_FILE}")
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns

    def gone_to(self, place: DirectoryPlace, path: str | None) -> dict[str, KnownPlace]:
        """The places whose state ``place`` may adopt: other ones with compatible ids; ``path``: only that one.

        Raises:
            OSError: the state directory cannot be read.
        """
        own = self.name_of(place)
        return {
            name: known
            for name, known in self._all().items()
            if known is not None
            and name != own
            and (_same_id(known.place, place) if path is None else known.place.path == path)
            and place.may_have_been(known.place)
        }

    def adopt(self, name: str, place: DirectoryPlace, owner: os.stat_result) -> None:
        """Give ``place`` the state of the directory ``name``. Raises OSError."""
        self._names[place] = name
        self._elsewhere.clear()
        self.register(place, owner)

    def _find(self, place: DirectoryPlace, places: dict[str, KnownPlace | None]) -> str:
        known = {name: found.place for name, found in places.items() if found is not None}
        exact = next((name for name, found in known.items() if found == place), None)
        if exact is not None:
            return exact
        for name, found in known.items():
            if place.may_have_been(found) and self._was_moved(name, found, place):
                return name
        name = place.name
        while name in known:  # a directory that was moved keeps its name, and this one took its path
            name += "-again"
        return name

    def _was_moved(self, name: str, before: DirectoryPlace, now: DirectoryPlace) -> bool:
        """Whether the directory ``before`` is now ``now``: its old path does not have it, and inodes prove it."""
        if is_there(before, now):
            return False
        is_same = (before.inode, before.file_system) == (now.inode, now.file_system)
        return is_same or self._has_segment_in(name, Path(now.path))

    def _has_segment_in(self, name: str, log_dir: Path) -> bool:
        """Whether ``log_dir`` has a segment that a cleaning wrote: the same file, not a copy."""
        try:
            with held(self._path / name, self._root) as directory:
                files = [each for each in names_in(".", directory) if each.endswith(".json")]
                return any(_has_segment(each, directory, log_dir) for each in files)
        except OSError:
            return False

    def _read(self, name: str) -> KnownPlace | None:
        try:
            with held(self._path / name, self._root) as directory:
                found = _DOCUMENT.parse(read_whole(_FILE, dir_fd=directory, max_bytes=_MAX_BYTES))
        except (OSError, *DAMAGE):
            return None
        place = DirectoryPlace(found.directory_id, found.path, found.inode, found.file_system)
        return KnownPlace(place, found.since_ns if found.since_ns <= _now_ns() else 0)


def _has_segment(file: str, directory: int, log_dir: Path) -> bool:
    try:
        data = read_whole(file, dir_fd=directory, max_bytes=MAX_FACTS_BYTES)
        return validated(_SegmentsInState, data).has_one_in(log_dir)
    except (OSError, *DAMAGE):
        return False


def _now_ns() -> int:
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


def _others(place: DirectoryPlace, others: dict[str, KnownPlace | None]) -> tuple[list[str], dict[str, KnownPlace]]:
    same = {name: known for name, known in others.items() if known is not None and _same_id(known.place, place)}
    beside = {name: known for name, known in others.items() if name not in same}
    ids = [known.place.directory_id for known in beside.values() if known is not None]
    return [
        name
        for name, known in beside.items()
        if known is None or ids.count(known.place.directory_id) == 1 or is_there(known.place, None)
    ], same


def _same_id(one: DirectoryPlace, other: DirectoryPlace) -> bool:
    return one.directory_id is not None and one.directory_id == other.directory_id


def is_there(before: DirectoryPlace, now: DirectoryPlace | None) -> bool:
    """Whether the directory ``before`` still exists in its place and is not ``now``.

    A disk that does not answer may have it. A bind mount shows one directory at two paths, which are the same place.
    """
    try:
        found = os.stat(before.path)
        if now is not None and os.path.samestat(found, os.stat(now.path)):
            return False
        if found.st_ino != before.inode:
            return False
        path = Path(before.path) / META_PROPERTIES
        data = read_small_file(path, max_bytes=MAX_IDENTITY_BYTES)
        if data is None:
            return False
        directory_id = read_meta_properties(data, str(path)).directory_id
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, CleanerdError):
        return True
    return before.directory_id in {None, directory_id and uuid_to_base64(directory_id)}
