"""The places that may have a log's records besides its partition's directory: all that cleanerd or a broker uses.

The complete list, for the proof that a key has no copy (U-47):

* segments that cleanings replaced (``--keep-replaced``, ``cleanerd.keep.replaced.dir``), from ``trash/`` in the state
  directory and from the configured directories;
* replicas that ``cleanerd move-aside`` moved to ``LOG_DIR.aside`` or to ``--to DIR``, as the state directory records;
* directories that a broker is about to delete, ignores, or moves: ``TOPIC-N.ID-delete``, ``-stray``, ``-future``;
* copies that a killed ``cleanerd spark archive`` left among temporary files.

Staged segments and the files of Spark cleanings are below the partition's own directory (``verify/audit.py:
files_of``). An on-disk offset map (``cleanerd.map.dir``) has no name and contains no key. A place that cannot be
searched is reported, and then nothing is proven.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cleanerd.errors import CleanerdError
from cleanerd.format.names import TopicPartition, parse_topic_partition_dir
from cleanerd.fsio.safe_open import MAX_KEPT_BYTES
from cleanerd.fsio.state_files import DAMAGE, DAMAGED, read_state_file
from cleanerd.segments.remote import RemotePath
from cleanerd.state.moved_aside import FILE_NAME, aside_dirs, default_aside_dir
from cleanerd.verify.listing import names_in

KEPT: Final = "kept"
COPIED: Final = "copied"
MOVED_ASIDE: Final = "moved-aside"
SCRATCH_PREFIX: Final = "cleanerd-archive-"
"""The prefix of directories in which archives are cleaned (``spark/archive/scratch.py``)."""

_TRASH: Final = "trash"
_PLAN: Final = re.compile(r"[0-9]{8}t[0-9]{6}-[0-9a-f]{8}", re.ASCII)
_PASSING: Final = re.compile(r"(.+)\.[0-9a-f]{32}(-delete|-stray|-future)", re.ASCII | re.DOTALL)
_MOVED: Final = re.compile(r"(.+)\.[0-9]{8}T[0-9]{6}Z", re.ASCII | re.DOTALL)
_LINK: Final = "is a symbolic link, and none is followed (move what it leads to in its place)"
_MOST_CHARACTERS: Final = 255
"""In a directory's name. A broker cuts the topic's name to this length when it adds ``.ID-delete`` or ``.ID-stray``."""


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A directory with segments of a partition.

    ``name``: the end of a long topic's name is missing where the directory's name has no room for it. ``state``: why
    they exist, as in :class:`Occurrence`. ``log_dir``: the resolved log directory that they are from, if known.
    """

    path: Path
    name: TopicPartition
    state: str
    log_dir: str | None = None

    def may_be_of(self, names: Collection[TopicPartition]) -> bool:
        """Whether the segments may be of one of the partitions."""
        if self.name in names:
            return True
        return len(self.path.name) == _MOST_CHARACTERS and any(
            each.partition == self.name.partition and each.topic.startswith(self.name.topic) for each in names
        )


@dataclass(frozen=True, slots=True)
class UnsearchedPlace:
    """A place that cannot be searched.

    ``name``: its partition, None: it may be any. ``log_dir``: as in :class:`RecordPlace`.
    """

    name: TopicPartition | None
    what: str
    log_dir: str | None = None


@dataclass(slots=True)
class RecordPlaces:
    """The places found; each directory once."""

    places: list[RecordPlace] = field(default_factory=list)
    unsearched: list[UnsearchedPlace] = field(default_factory=list)

    def of(self, names: Collection[TopicPartition], log_dirs: Collection[str] = ()) -> RecordPlaces:
        """The places of the partitions ``names``, and of all partitions of the resolved ``log_dirs``."""
        return RecordPlaces(
            [each for each in self.places if each.may_be_of(names) or each.log_dir in log_dirs],
            [each for each in self.unsearched if each.name is None or each.name in names or each.log_dir in log_dirs],
        )


def record_places(state_dir: Path, keep_dirs: Sequence[Path], log_dirs: Sequence[Path]) -> RecordPlaces:
    """Every such place on this host. ``keep_dirs``: the directories of ``cleanerd.keep.replaced.dir``."""
    found = RecordPlaces()
    _of_trash(state_dir, found)
    for keep_dir in keep_dirs:
        with _named(found, keep_dir, "mount it, or take it out of cleanerd.keep.replaced.dir"):
            for plan in filter(_PLAN.fullmatch, names_in(keep_dir)):
                _of_partitions(keep_dir / plan, KEPT, found)
    for log_dir in log_dirs:
        if not isinstance(log_dir, RemotePath):
            with _named(found, log_dir, "make it readable"):
                _of_log_dir(log_dir, found)
    _of_moves(state_dir, log_dirs, found)
    for directory in _temporary_directories():
        with _named(found, directory, "make it readable"):
            for name in names_in(directory):
                if name.startswith(SCRATCH_PREFIX):
                    _of_scratch(directory / name, found)
    found.places = list({os.path.realpath(each.path): each for each in reversed(found.places)}.values())[::-1]
    return found


@contextmanager
def _named(found: RecordPlaces, path: Path, way_out: str) -> Iterator[None]:
    """Report a place that cannot be listed in the block."""
    try:
        yield
    except (CleanerdError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error.message
        found.unsearched.append(UnsearchedPlace(None, f"{path}: {why} ({way_out})"))


def _of_trash(state_dir: Path, found: RecordPlaces) -> None:
    trash = state_dir / _TRASH
    if not _may_be_there(trash):
        return
    with _named(found, trash, "run as a user who may read the state directory"):
        for name in names_in(trash):
            path = trash / name
            if name.endswith(DAMAGED):
                found.unsearched.append(_unknown(path, "is damaged"))
            elif name.endswith(".json"):
                try:
                    _of_entry(path, read_state_file(path, max_bytes=MAX_KEPT_BYTES), found)
                except FileNotFoundError:
                    continue  # undone or deleted meanwhile
                except OSError as error:
                    found.unsearched.append(_unknown(path, f"cannot be read ({error.strerror})"))
                except DAMAGE as error:
                    found.unsearched.append(_unknown(path, f"is damaged ({error})"))


def _of_entry(path: Path, data: bytes, found: RecordPlaces) -> None:
    """Add one cleaning's kept segments; raises one of ``DAMAGE``."""
    entry = json.loads(data.partition(b"\n")[0])["entry"]
    name, kept = parse_topic_partition_dir(f"{entry['topic']}-{entry['partition']}"), Path(entry["kept"])
    if name is None or _PLAN.fullmatch(path.stem) is None or kept.parts[-2:] != (path.stem, str(name)):
        raise ValueError("it does not name a directory of kept segments")
    if kept.is_dir():
        found.places.append(RecordPlace(kept, name, KEPT, str(entry["log_dir"])))
    elif not kept.parent.parent.is_dir():
        what = (
            f"{kept}: cannot be found, and has segments that a cleaning replaced "
            f"(mount its disk; if it was deleted, remove {path})"
        )
        found.unsearched.append(UnsearchedPlace(name, what, str(entry["log_dir"])))


def _unknown(path: Path, why: str) -> UnsearchedPlace:
    what = (
        f"{path}: {why}, so it is unknown where a cleaning kept replaced segments "
        "(name their directories with cleanerd.keep.replaced.dir, then remove this file)"
    )
    return UnsearchedPlace(None, what)


def _of_partitions(directory: Path, state: str, found: RecordPlaces) -> None:
    if _is_directory(directory):
        for each in names_in(directory):
            name = parse_topic_partition_dir(each)
            if name is not None:
                _add(RecordPlace(directory / each, name, state), found)
    elif directory.is_symlink():
        found.unsearched.append(UnsearchedPlace(None, f"{directory}: {_LINK}"))


def _of_log_dir(log_dir: Path, found: RecordPlaces) -> None:
    """Add the directories that a broker renamed, and the links that it follows and cleanerd does not (U-33)."""
    for each in names_in(log_dir):
        match = _PASSING.fullmatch(each)
        name = parse_topic_partition_dir(each if match is None else match[1])
        if name is not None and match is not None:
            _add(RecordPlace(log_dir / each, name, match[2]), found)
        elif name is not None and (log_dir / each).is_symlink():
            place = os.path.realpath(log_dir)
            found.unsearched.append(UnsearchedPlace(name, f"{log_dir / each}: {_LINK}", place))


def _add(place: RecordPlace, found: RecordPlaces) -> None:
    """Add a directory; a link is reported, also one to a disk that is not mounted."""
    if _is_directory(place.path):
        found.places.append(place)
    elif place.path.is_symlink():
        found.unsearched.append(UnsearchedPlace(place.name, f"{place.path}: {_LINK}", place.log_dir))


def _of_moves(state_dir: Path, log_dirs: Sequence[Path], found: RecordPlaces) -> None:
    """Add the replicas that ``move-aside`` moved out of ``log_dirs``, and those below recorded directories."""
    recorded = aside_dirs(state_dir)
    if not isinstance(recorded, list):
        way_out = f"replicas may have been moved aside: find them, then remove {state_dir / FILE_NAME}"
        found.unsearched.append(UnsearchedPlace(None, f"{recorded.warning} ({way_out})"))
        recorded = []
    defaults = [default_aside_dir(each) for each in log_dirs if not isinstance(each, RemotePath)]
    for place in dict.fromkeys([*(each for each in defaults if _may_be_there(each)), *recorded]):
        with _named(found, place, f"mount it; if it was deleted, remove it from {state_dir / FILE_NAME}"):
            for name in names_in(place):
                match = _MOVED.fullmatch(name)
                partition = None if match is None else parse_topic_partition_dir(match[1])
                if partition is not None:
                    _add(RecordPlace(place / name, partition, MOVED_ASIDE), found)


def _of_scratch(directory: Path, found: RecordPlaces) -> None:
    if not _is_directory(directory):
        return

    def fail(error: OSError) -> None:
        raise error

    with _named(found, directory, "a killed cleanerd spark archive left it: remove it, or make it readable"):
        for place, _, _ in os.walk(directory, onerror=fail):
            _of_partitions(Path(place), COPIED, found)


def _temporary_directories() -> list[Path]:
    local = [Path(each) for each in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if each]
    return [each for each in dict.fromkeys([*local, Path(tempfile.gettempdir())]) if each.is_dir()]


def _is_directory(path: Path) -> bool:
    """Whether it is a directory, and not a link to one. Raises OSError."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _may_be_there(path: Path) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # listing it reports why not
    return True
