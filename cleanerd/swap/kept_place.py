"""The place of ``--keep-replaced``: ``DIR/PLAN/TOPIC-N/``, and its check (S-40, U-33).

``trash/PLAN.json`` names that directory for a later ``undo``. The broker's user may write that file, and it may be
damaged, so its path alone is not trusted. Therefore the place itself names the log directory of its segments: an empty
file in ``DIR/PLAN``, named after the log directory. Only a user with write access there can have created it.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.broker.lock_file import FileOwner
from cleanerd.cleaner.manifest import KINDS, PLAN_ID
from cleanerd.errors import RefusedError
from cleanerd.format.names import parse_file_name
from cleanerd.fsio.small_file import unreadable
from cleanerd.humanize import user_name
from cleanerd.swap.files import HERE, PartitionFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.swap.kept_segments import KeptEntry

_NOTE: Final = ".cleanerd-keeps-"
_SUFFIXES: Final = frozenset(f".{kind}" for kind in KINDS)


def note_name(log_dir: Path) -> str:
    """The name of the file that allows backups of ``log_dir`` here."""
    return _note_of(str(log_dir.resolve()))


def _note_of(resolved: str) -> str:
    return _NOTE + hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16]


def agree(place: PartitionFiles, plan_id: str, log_dir: Path) -> None:
    """Create the directory of a plan in ``place``, with a note that it is for ``log_dir``; on the disk afterwards.

    Raises:
        CleanerdError: it cannot be created.
    """
    if not place.is_directory(plan_id):
        place.mkdir(plan_id)
        place.fsync_directory()
    name = f"{plan_id}/{note_name(log_dir)}"
    if _is_plain(place, name):
        return
    status = place.stat(HERE)
    place.write(
        name, b"", FileOwner(-1, -1, 0o644) if status is None else FileOwner(status.st_uid, status.st_gid, 0o644)
    )
    place.fsync(name)
    place.fsync_directory(plan_id)


def _require_agreed(place: PartitionFiles, plan_id: str, log_dir: Path) -> None:
    """Refuse a directory that an entry of ``trash/`` names if it has no note that it is for ``log_dir``.

    Raises:
        RefusedError: it does not.
        CleanerdError: it cannot be read.
    """
    name = f"{plan_id}/{note_name(log_dir)}"
    if not place.is_directory(plan_id) or not _is_plain(place, name):
        raise RefusedError(
            f"trash/ names this directory, but has no entry for kept segments of {log_dir}",
            where=str(place.path / plan_id),
            hint="if they are, name the directory yourself: --keep-replaced DIR",
        )


def _is_plain(place: PartitionFiles, name: str) -> bool:
    status = place.stat(name)
    return status is not None and stat.S_ISREG(status.st_mode)


@contextmanager
def open_kept(entry: KeptEntry, log_dir: Path, named: Path | None) -> Iterator[PartitionFiles | None]:
    """The directory that contains the plan's directory; None if that does not exist.

    ``named``: the operator's path, which replaces the entry's.

    Raises:
        RefusedError: the entry names another place than that of ``log_dir``'s backup.
        CleanerdError: it cannot be opened.
    """
    kept = Path(entry.kept) if named is None else named.resolve() / entry.plan / str(entry.name)
    if PLAN_ID.fullmatch(entry.plan) is None or kept.parts[-2:] != (entry.plan, str(entry.name)):
        raise RefusedError(
            f"trash/ does not lead to what was kept of {str(entry.name)[:300]}, but to {entry.kept[:300]!r}",
            where=str(log_dir),
            hint="it is damaged; name the directory yourself: --keep-replaced DIR",
        )
    if _is_gone(kept.parent):
        yield None
        return
    with PartitionFiles(kept.parent.parent) as place:
        if place.is_directory(entry.plan) and not place.names(entry.plan):
            place.rmdir(entry.plan)  # all segments were restored before the process was killed
            yield None
            return
        if named is None:
            _require_agreed(place, entry.plan, log_dir)
        yield place


def _is_gone(path: Path) -> bool:
    """Whether ``path`` does not exist.

    Raises:
        CleanerdError: that is unknown.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error
    return False


def require_removable(place: PartitionFiles, entry: KeptEntry) -> None:
    """Before the restore, check that the backup can be removed afterwards; the next undo would find it again.

    Raises:
        RefusedError: it belongs to another user, such as root, who created the directory.
    """
    for name in (f"{entry.plan}/{entry.name}", entry.plan, HERE):
        status = place.stat(name)
        if status is not None and not os.access(place.path / name, os.W_OK | os.X_OK):
            whose = user_name(status.st_uid)
            raise RefusedError(
                f"belongs to {whose}: the kept segments could not be removed, so nothing is restored",
                where=str(place.path / name),
                hint=f"chown -R {place.path} to the broker's user, or run cleanerd undo as root",
            )


def delete_kept(place: PartitionFiles, entry: KeptEntry, log_dir: Path) -> None:
    """Remove the backup of a partition: segments' files, and directories that become empty.

    Raises:
        CleanerdError: the system refused a step.
    """
    partition = f"{entry.plan}/{entry.name}"
    for name in sorted(place.names(partition)):
        parsed = parse_file_name(name)
        if parsed is not None and parsed[1] in _SUFFIXES:
            place.unlink(f"{partition}/{name}")
    if place.is_directory(partition) and not place.names(partition):
        place.rmdir(partition)
    _remove_if_empty(place, entry, log_dir)


def _remove_if_empty(place: PartitionFiles, entry: KeptEntry, log_dir: Path) -> None:
    """Remove the plan's directory with its note, whose log directory may have had another path then."""
    plan_id = entry.plan
    names = place.names(plan_id)
    if names <= {note_name(log_dir), _note_of(entry.log_dir)} and place.is_directory(plan_id):
        for name in names:
            place.unlink(f"{plan_id}/{name}")
        place.rmdir(plan_id)
