"""The log directory's ``.lock`` as other processes see it: its owner, and the owner of files beside it (S-10 ..

S-16).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import LogDirBusyError, RefusedError, system_error
from cleanerd.fsio.held_file import COMMAND_LOCK_FILE, Holder, holder_of
from cleanerd.fsio.plain_file import open_plain
from cleanerd.fsio.record_lock import query_holder
from cleanerd.fsio.safe_open import close_quietly

LOCK_FILE: Final = ".lock"

# Files of a log directory that show the broker's user, the most reliable first.
_MODELS: Final = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "meta.properties")


@dataclass(frozen=True, slots=True)
class FileOwner:
    """The owner of a new file, and its mode."""

    uid: int
    gid: int
    mode: int


def is_held(log_dir: Path) -> bool:
    """Whether a process holds ``.lock`` now, without taking it, so that a starting broker is not disturbed.

    False without such a file; True if it cannot be checked.
    """
    try:
        return probe_lock(log_dir)
    except OSError:
        return True


def probe_lock(log_dir: Path) -> bool:
    """As :func:`is_held`, but raises if that cannot be checked.

    Raises:
        OSError: the lock cannot be queried.
    """
    try:
        descriptor = open_plain(log_dir / LOCK_FILE)
    except FileNotFoundError:
        return False
    try:
        return query_holder(descriptor) is not None
    finally:
        close_quietly(descriptor)


def worker_of(log_dir: Path) -> Holder | None:
    """The cleanerd command that holds ``.lock`` now; None if it is free, or another program holds it: a broker."""
    return holder_of(log_dir, COMMAND_LOCK_FILE) if is_held(log_dir) else None


def held_by(worker: Holder, log_dir: Path) -> LogDirBusyError:
    """The refusal of a log directory that another cleanerd command uses."""
    return LogDirBusyError(
        f"is held by {worker}", where=str(log_dir / LOCK_FILE), hint="wait until it ends; one at a time"
    )


def broker_runs(log_dir: Path) -> bool:
    """Whether ``.lock`` is held by another program than cleanerd."""
    return is_held(log_dir) and holder_of(log_dir, COMMAND_LOCK_FILE) is None


def broker_process(log_dir: Path) -> int:
    """The process of the broker that runs on ``log_dir``.

    Raises:
        RefusedError: no broker does, or the kernel does not show which: it is in a container, or the lock is elsewhere.
    """
    if not broker_runs(log_dir):
        raise RefusedError("no broker runs there: its lock is free", where=str(log_dir), hint="start the broker")
    try:
        descriptor = open_plain(log_dir / LOCK_FILE)
        try:
            pid = query_holder(descriptor)
        finally:
            close_quietly(descriptor)
    except OSError as error:
        raise system_error("its holder cannot be queried", str(log_dir / LOCK_FILE), error) from error
    if pid is None or pid <= 0:
        raise RefusedError(
            "a broker runs there whose process cannot be seen from here",
            where=str(log_dir),
            hint="in a container, run cleanerd inside it; otherwise name the process with --pid",
        )
    return pid


def owner_for_new_file(log_dir: Path) -> FileOwner:
    """Owner and mode for a new plain file in ``log_dir``: those of the broker's checkpoints, else the directory's.

    Raises:
        OSError: the directory's ``stat`` fails.
    """
    for name in _MODELS:
        try:
            status = os.stat(log_dir / name, follow_symlinks=False)
        except FileNotFoundError:
            continue
        return FileOwner(status.st_uid, status.st_gid, status.st_mode & 0o777)
    status = os.stat(log_dir)
    return FileOwner(status.st_uid, status.st_gid, 0o644)
