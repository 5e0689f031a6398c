"""The inputs of an audit: the segments of each partition before and after the cleaning.

``before`` is a copy of a log directory, or a directory of ``--keep-replaced``: ``PLAN/TOPIC-N/`` in it, or one of its
plans. From replaced segments alone, the earlier log is completed with the segments that were not replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import ConfigError
from cleanerd.format.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SEGMENT_SUFFIX,
    SWAP_SUFFIX,
    TopicPartition,
    parse_file_name,
)
from cleanerd.segments.log_dir import LOG_START_CHECKPOINT
from cleanerd.segments.remote import RemotePath
from cleanerd.spark.listed import list_complete, surroundings_of
from cleanerd.verify.audit import KEY_HASHES
from cleanerd.verify.listing import STAGING, SegmentFile, dirs_in, in_order, list_partition
from cleanerd.verify.log_dir import partitions_in

_PLAN: Final = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{8}", re.ASCII | re.IGNORECASE)
_SECOND: Final = len("20251121T063143")
_METADATA: Final = "__cluster_metadata"
_STATES: Final = {
    SEGMENT_SUFFIX: "live",
    SEGMENT_SUFFIX + DELETED_SUFFIX: "deleted",
    SEGMENT_SUFFIX + CLEANED_SUFFIX: "cleaned",
    SEGMENT_SUFFIX + SWAP_SUFFIX: "swap",
}


@dataclass(frozen=True, slots=True)
class AuditInputs:
    """One partition. ``copied``: the kept or copied segments; ``before``: the whole earlier log.

    ``before`` includes unreplaced segments of ``after``, which belong to both sides.
    """

    name: TopicPartition
    copied: tuple[SegmentFile, ...]
    before: tuple[SegmentFile, ...]
    after: tuple[SegmentFile, ...]
    log_start: int

    @property
    def size_bytes(self) -> int:
        """Bytes to read, shared segments once."""
        return sum({file.path: file.size_bytes for file in (*self.before, *self.after)}.values())


def partition_dirs(directory: Path) -> dict[TopicPartition, Path]:
    """The partitions in a log directory or a copy of one, without the metadata log.

    Raises:
        CleanerdError: it cannot be listed.
    """
    found = {}
    for path in partitions_in(directory):
        topic, _, number = path.name.rpartition("-")
        if topic != _METADATA:
            found[TopicPartition(topic, int(number))] = path
    return found


def plans_in(directory: Path) -> list[Path]:
    """Directories of ``--keep-replaced`` in or at ``directory``: one per cleaning, the oldest first.

    Raises:
        CleanerdError: it cannot be listed.
    """
    if _PLAN.fullmatch(directory.resolve().name):
        return [directory]
    found = [each for each in dirs_in(directory) if _PLAN.fullmatch(each.name)]
    # By the second in the name, and then by the time they were filled: the rest of a plan's id is random.
    return sorted(found, key=lambda path: (path.name[:_SECOND], _filled_ns(path)))


def _filled_ns(path: Path) -> int:
    """When a directory was filled; 0 in a store."""
    return 0 if isinstance(path, RemotePath) else path.stat().st_mtime_ns


def sides_of(before: Path, after: Path, wanted: Sequence[TopicPartition] = ()) -> tuple[list[AuditInputs], list[str]]:
    """The partitions to compare, and why others cannot be.

    A partition that only ``before`` has is completely lost.

    Raises:
        ConfigError: nothing to compare, or a wanted partition is in neither directory.
        CleanerdError: a directory cannot be listed.
    """
    now = partition_dirs(after)
    plans = plans_in(before)
    then = _kept_segments(plans) if plans else {name: [path] for name, path in partition_dirs(before).items()}
    names = sorted(name for name in then if not wanted or name in wanted)
    for name in wanted:
        if name not in then and name not in now:
            raise ConfigError("no such partition", where=str(name), hint=f"in {before} and {after}")
    if not names:
        raise ConfigError("has no partition to compare", where=str(before), hint="a copy, or a --keep-replaced DIR")
    # A partition without replaced segments is unchanged; one that is not in a copy cannot be compared.
    missing = [] if plans else [name for name in sorted(now) if name not in then and (not wanted or name in wanted)]
    starts = [surroundings_of(path) for path in (before, after)]
    found = []
    for name in names:
        start = max(around.of(LOG_START_CHECKPOINT, name) or 0 for around in starts)
        live = list_complete(now[name]).segments if name in now else ()
        found.append(_sides(name, then[name], live, start, is_whole=not plans))
    return found, [f"{after / str(name)}: not in {before}, so it is compared with nothing" for name in missing]


def _kept_segments(plans: Sequence[Path]) -> dict[TopicPartition, list[Path]]:
    found: dict[TopicPartition, list[Path]] = {}
    for plan in plans:
        for name, path in partition_dirs(plan).items():
            found.setdefault(name, []).append(path)
    return found


def _sides(
    name: TopicPartition, dirs: Sequence[Path], live: tuple[SegmentFile, ...], log_start: int, *, is_whole: bool
) -> AuditInputs:
    if is_whole:
        (copy,) = dirs
        copied = list_complete(copy).segments
        return AuditInputs(name, copied, copied, live, log_start)
    # Backwards in time: each cleaning's replaced segments replace its outputs.
    files = {file.base: file.path for file in live}
    kept: set[Path] = set()
    for place in reversed(dirs):
        replaced = {file.base: file.path for file in list_partition(place, deleted_too=True).segments}
        kept |= set(replaced.values())
        files |= replaced
    view = in_order(files)
    return AuditInputs(name, tuple(file for file in view if file.path in kept), view, live, log_start)


def without_outputs(sides: AuditInputs, ends: Mapping[Path, int]) -> AuditInputs:
    """The inputs without segments of ``after`` in ``before`` that are within a replaced one: a split made them (C-67).

    ``ends``: one past the last offset of each copied segment.
    """
    copied = {file.path for file in sides.copied}
    left: dict[int, Path] = {}
    covered = -1
    for file in sides.before:
        if file.path in copied:
            covered = max(covered, ends.get(file.path, file.base))
        elif file.base < covered:
            continue
        left[file.base] = file.path
    return AuditInputs(sides.name, sides.copied, in_order(left), sides.after, sides.log_start)


@dataclass(frozen=True, slots=True)
class AuditedFile:
    """A file with records. ``state``: live, or why it exists. ``partition``: the directory it belongs to."""

    path: Path
    state: str
    partition: Path


def files_below(directory: Path) -> list[AuditedFile]:
    """Every file with records anywhere below ``directory``: live, replaced, kept, staged, waiting for deletion (F-12).

    Includes the file with key hashes of a staged cleaning (U-47).

    Raises:
        CleanerdError, OSError: a directory cannot be listed.
    """
    found = []
    for path in _all_below(directory):
        parsed = parse_file_name(path.name)
        suffix = SEGMENT_SUFFIX if path.name == KEY_HASHES else "" if parsed is None else parsed[1]
        if suffix in _STATES:
            place = path.parent
            # In its plan's directory or, during a Spark cleaning, in an attempt's directory below that.
            staging = next((each for each in (place.parent, place.parent.parent) if each.name == STAGING), None)
            state = "staged" if staging is not None else _state(place, _STATES[suffix])
            found.append(AuditedFile(path, state, place if staging is None else staging.parent))
    return found


def _all_below(directory: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise error

    if isinstance(directory, RemotePath):
        yield from directory.files_below(complete=True)
        return
    for root, dirs, names in os.walk(directory, onerror=fail):
        dirs.sort()
        yield from (type(directory)(root, name) for name in sorted(names))


def _state(place: Path, state: str) -> str:
    """The state of files in a directory that a broker does not serve, from its name."""
    if state != "live":
        return state
    if any(_PLAN.fullmatch(part) for part in place.parts[-2:]):
        return "kept"
    for suffix in ("delete", "stray", "future"):
        if place.name.endswith(f"-{suffix}"):
            return f"-{suffix}"
    return state
