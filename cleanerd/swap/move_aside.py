"""Moves a partition's directory out of a log directory, so that the broker fetches the replica again (U-77)."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from cleanerd.errors import RefusedError, system_error
from cleanerd.fsio.safe_open import close_quietly, open_trusted_directory
from cleanerd.segments.keep_dir import require_keep_dir
from cleanerd.state.moved_aside import default_aside_dir
from cleanerd.swap.checkpoint import remove_from_checkpoints
from cleanerd.swap.enter import refuse_open
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.signals import signals_wait
from cleanerd.swap.unfinished import refuse_strange_staging

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.format.names import TopicPartition
    from cleanerd.swap.session import LockedDir


def aside_dir(log_dir: Path, wanted: Path | None, log_dirs: Sequence[Path]) -> Path:
    """Where to move directories of ``log_dir``: to ``wanted``, else to ``LOG_DIR.aside`` beside it, which is created.

    Raises:
        ConfigError, RefusedError: it is missing, in a log directory, or on another file system.
        CleanerdError: it cannot be created.
    """
    place = default_aside_dir(log_dir) if wanted is None else wanted
    if wanted is None and not place.exists():
        owner = log_dir.stat()
        try:
            place.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(place, owner.st_uid, owner.st_gid)
        except OSError as error:
            failed = system_error("cannot be created", str(place), error)
            failed.hint = "name a directory on the same file system, outside of every log directory: --to DIR"
            raise failed from error
    require_keep_dir(place, [*log_dirs, log_dir])
    return place


def move_aside(locked: LockedDir, name: TopicPartition, place: Path) -> Path:
    """Move the partition's directory to ``place``, and remove its checkpoint lines. Returns its new path.

    The lines come first: without one Kafka reads the log again. A line without its log would mark a log that is fetched
    again as clean.

    Raises:
        LogDirBusyError: a process has the log open, or another cleanerd works on it.
        CleanerdError: a checkpoint is damaged, or the directory cannot be moved and stays in its place.
    """
    log_dir = locked.log_dir.path
    target = place / f"{name}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    if target.exists():
        raise RefusedError("is there already", where=str(target), hint="try again in a second")
    with PartitionFiles(log_dir / str(name)) as files:
        refuse_strange_staging(files)
        files.claim()
        refuse_open(locked, files)
        locked.lock.check()
        with signals_wait():
            remove_from_checkpoints(log_dir, name)
            _rename(log_dir, str(name), target)
    return target


def _rename(log_dir: Path, name: str, target: Path) -> None:
    opened: list[int] = []
    try:
        opened += [open_trusted_directory(log_dir)]
        opened += [open_trusted_directory(target.parent)]
        os.rename(name, target.name, src_dir_fd=opened[0], dst_dir_fd=opened[1])
        for directory in reversed(opened):
            os.fsync(directory)
    except OSError as error:
        raise system_error(f"cannot be moved to {target}", str(log_dir / name), error) from error
    finally:
        for directory in opened:
            close_quietly(directory)
