"""Limits of age and size for segments that the daemon's cleanings replaced (S-40): the oldest are deleted first.

Only segments' files in the operator's directory are ever removed; other places in an entry are ignored (U-33). A
partition in progress, for example in an ``undo``, waits.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError, LogDirBusyError
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.kept_place import delete_kept, open_kept

if TYPE_CHECKING:
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.swap.kept_segments import KeptEntry, KeptSegments, KeptSize


@dataclass(frozen=True, slots=True)
class KeepLimits:
    """The limits for one log directory."""

    retention_ms: int
    retention_bytes: int


@dataclass(frozen=True, slots=True)
class ClockReadings:
    """The time by the clock for deletions (U-42), and by the monotonic one."""

    believed_ms: int
    steady_ms: int


@dataclass(slots=True)
class BackupSweep:
    """The backups of one log directory after a sweep; ``problems``: what could not be removed, and why."""

    size_bytes: int
    forgotten: int
    problems: tuple[str, ...]


def prune_kept(
    kept_segments: KeptSegments,
    log_dir: LogDir,
    place: Path,
    limits: KeepLimits,
    now: ClockReadings,
    *,
    room_bytes: int = 0,
    known: dict[str, KeptSize] | None = None,
) -> BackupSweep:
    """Delete backups that are too old, and the oldest until ``room_bytes`` more are within the limits.

    ``known``: see :meth:`KeptSegments.sizes`; for repeated calls. A backup with a time in the future expires after it
    has existed for the whole period.

    Raises:
        CleanerdError: the backups cannot be listed.
    """
    place = place.resolve()
    left_bytes, forgotten, problems = limits.retention_bytes - room_bytes, 0, []
    size_bytes, is_full = 0, False
    sizes = kept_segments.sizes({} if known is None else known, now.steady_ms)
    for one in reversed(sizes):  # newest first: without a later backup, earlier ones cannot be restored
        entry = one.entry
        if not kept_segments.is_of(entry, log_dir) or Path(entry.kept).parent.parent != place:
            continue
        is_full = is_full or size_bytes + one.size_bytes > left_bytes
        age_ms = max(now.believed_ms - entry.cleaned_ms, now.steady_ms - one.seen_ms)
        is_old = age_ms > limits.retention_ms
        try:
            if (is_full or is_old) and _forget(kept_segments, log_dir, place, entry):
                forgotten += 1
                continue
        except CleanerdError as error:
            problems.append(str(error))
        size_bytes += one.size_bytes
    return BackupSweep(size_bytes, forgotten, tuple(problems))


def _forget(kept_segments: KeptSegments, log_dir: LogDir, place: Path, entry: KeptEntry) -> bool:
    """Delete the files, then the entry; False: the partition is in progress.

    After a kill the next sweep deletes the rest.
    """
    with ExitStack() as stack:
        try:
            if entry.name in log_dir.partitions:
                stack.enter_context(PartitionFiles(log_dir.path / str(entry.name))).claim()
        except LogDirBusyError:
            return False
        kept = stack.enter_context(open_kept(entry, log_dir.path, place))
        if kept is not None:
            delete_kept(kept, entry, log_dir.path)
        kept_segments.remove(entry)
    return True
