"""A directory for copies, on this machine's disk. A later process removes the leftovers of a killed one.

On an executor it is among Spark's own directories, which Spark removes with the application.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cleanerd.errors import system_error
from cleanerd.fsio.safe_open import close_quietly
from cleanerd.verify.record_places import SCRATCH_PREFIX

_LOCK: Final = "lock"
_YOUNG_SECONDS: Final = 60.0
"""A directory without a lock counts as left behind only after this time: its creator may be about to lock it."""


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new directory that only this user can read; removed after the block.

    Raises:
        CleanerdError: it cannot be created.
    """
    top = _top()
    _sweep(top, os.getpid())
    try:
        path = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=top))
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise system_error("no directory for copies can be made", str(top), error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        close_quietly(lock)


def _top() -> Path:
    """Spark's first local directory on an executor, else that of temporary files."""
    for place in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        if place and os.path.isdir(place):
            return Path(place)
    return Path(tempfile.gettempdir())


@functools.lru_cache(maxsize=8)
def _sweep(top: Path, _process: int) -> None:
    """Once per process: remove cleanerd's directories that no process has locked."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(top):
            if entry.name.startswith(SCRATCH_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    _sweep_one(Path(entry.path), entry.stat(follow_symlinks=False))


def _sweep_one(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        return
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        if time.time() - status.st_mtime > _YOUNG_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
        return
    try:
        if time.time() - status.st_mtime > _YOUNG_SECONDS:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
    finally:
        close_quietly(lock)
