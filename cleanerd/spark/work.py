"""Where executors write: ``<partition>/.kstage/spark-<plan id>/``, under names that no other attempt uses.

Only what the driver was told by a task that ended well counts. All the rest goes with the directory: at the end of the
run, or, when the driver was killed, at the next one. An attempt that outlives its run finds the directory gone and
fails. Nothing in here is looked at by ``cleanerd apply``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from typing import TYPE_CHECKING, Final

from cleanerd.cleaner.manifest import STAGING
from cleanerd.cleaner.stage import Staging
from cleanerd.errors import CleanerdError

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan

WORK: Final = re.compile(r"spark-[0-9]{8}t[0-9]{6}-[0-9a-f]{8}", re.ASCII)
OLD_SECONDS: Final = 86_400
"""What nobody is known to have given up is swept after so long (formats.md section 2)."""


def work_name(plan_id: str) -> str:
    """The directory's name, relative to the partition's."""
    return f"{STAGING}/spark-{plan_id}"


def new_attempt() -> str:
    """A name for one attempt of a task that no other attempt has, whatever the scheduler does."""
    return secrets.token_hex(8)


class AttemptStaging(Staging):
    """A directory of one attempt's own to stage a group in; the driver moves the files into the plan's directory."""

    def __init__(self, plan: CleaningPlan, partition: int, *, attempt: str, reserve_bytes: int) -> None:
        super().__init__(plan, partition, reserve_bytes=reserve_bytes, name=f"{work_name(plan.plan_id)}/{attempt}")

    def _make(self) -> None:
        self._make_directory()


class WorkDirectory:
    """The driver's side: makes the directory, sweeps what others left, moves staged files out of it."""

    def __init__(self, plan: CleaningPlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self.path = f"{plan.path}/{work_name(plan.plan_id)}"

    def make(self) -> None:
        """Make it, as the partition directory is owned.

        Raises:
            CleanerdError: it cannot be made.
        """
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(STAGING, 0o755, dir_fd=self._partition)
            os.mkdir(work_name(self._plan.plan_id), 0o755, dir_fd=self._partition)
            self._give(STAGING)
            self._give(work_name(self._plan.plan_id))
        except OSError as error:
            raise CleanerdError(f"cannot be made: {error.strerror}", where=self.path) from error

    def _give(self, name: str) -> None:
        """The broker's user must be able to remove it with the topic, also when we were killed."""
        owner = os.fstat(self._partition)
        found = os.stat(name, dir_fd=self._partition, follow_symlinks=False)
        if (found.st_uid, found.st_gid) != (owner.st_uid, owner.st_gid):
            os.chown(name, owner.st_uid, owner.st_gid, dir_fd=self._partition, follow_symlinks=False)

    def move(self, attempt: str, names: list[str], target: int) -> None:
        """Move staged files into the directory open as ``target``; on the same file system, so a rename each.

        Raises:
            CleanerdError: they are not there, or cannot be moved.
        """
        try:
            for name in names:
                source = f"{work_name(self._plan.plan_id)}/{attempt}/{name}"
                os.rename(source, name, src_dir_fd=self._partition, dst_dir_fd=target)
            os.fsync(target)
        except OSError as error:
            raise CleanerdError(f"cannot be moved: {error.strerror}", where=f"{self.path}/{attempt}") from error

    def remove(self) -> None:
        """Remove it with all that is in it, and ``.kstage`` if that is empty then. Never fails.

        An attempt may still write: it comes back for what appears meanwhile, a few times.
        """
        for _ in range(5):
            shutil.rmtree(self.path, ignore_errors=True)
            if not os.path.lexists(self.path):
                break
        # By path: the descriptor may be closed by now.
        with contextlib.suppress(OSError):
            os.rmdir(f"{self._plan.path}/{STAGING}")


def sweep(partition: Path, *, alone: bool) -> list[str]:
    """Remove the work directories of runs that are over: any when we are ``alone``, else those that are a day old."""
    swept = []
    place = partition / STAGING
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(place)):
            if WORK.fullmatch(name) is None:
                continue
            age_seconds = time.time() - os.stat(place / name).st_mtime
            if alone or age_seconds > OLD_SECONDS:
                shutil.rmtree(place / name, ignore_errors=True)
                swept.append(name)
    return swept


def is_claimed(path: str) -> bool:
    """Whether this process's claim on the partition keeps others out: not every file system has such locks."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(directory)
    return False


def write_file(plan: CleaningPlan, name: str, data: bytes) -> str:
    """A new file in the plan's work directory; returns its name.

    Raises:
        CleanerdError: it cannot be written; also when the run is over and the directory gone.
    """
    path = f"{plan.path}/{work_name(plan.plan_id)}/{name}"
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        raise CleanerdError(f"cannot be written: {error.strerror}", where=path) from error
    return name


def read_file(plan: CleaningPlan, name: str) -> bytes:
    """A file of the plan's work directory.

    Raises:
        CleanerdError: it cannot be read.
    """
    path = f"{plan.path}/{work_name(plan.plan_id)}/{name}"
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CleanerdError(f"cannot be read: {error.strerror}", where=path) from error
