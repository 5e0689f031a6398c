"""The directory where executors write: ``<partition>/.kstage/spark-<plan id>/``, with unique names per attempt.

Only files reported by a successful task are used. All others are removed with the directory: at the end of the run, or,
if the driver was killed, by the next one. An attempt that outlives its run finds the directory missing and fails.
``cleanerd apply`` ignores this directory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from typing import TYPE_CHECKING, Final

from cleanerd.broker.claim import is_claimed as claimed
from cleanerd.cleaner.manifest import STAGING, WORK
from cleanerd.cleaner.stage import STAGING_MODE, Staging, copy_owner, open_staging
from cleanerd.errors import system_error
from cleanerd.fsio.safe_open import (
    OpenParent,
    close_quietly,
    create,
    new_directory,
    open_directory,
    open_named,
    plain_name,
    read_whole,
    write_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan

MAX_FACTS_BYTES: Final = 1 << 40
"""No limit: the size of the tasks' files depends on the log."""
OLD_SECONDS: Final = 86_400
"""Age of files to sweep if their run may still be active."""


def work_name(plan_id: str) -> str:
    """The directory's name, relative to the partition's."""
    return f"{STAGING}/spark-{plan_id}"


def new_attempt() -> str:
    """A name for one attempt of a task that no other attempt has, however the scheduler works."""
    return secrets.token_hex(8)


class AttemptStaging(Staging):
    """An attempt's own directory to stage a group in; the driver moves the files into the plan's directory."""

    def __init__(self, plan: CleaningPlan, partition: int, *, attempt: str, reserve_bytes: int) -> None:
        super().__init__(plan, partition, reserve_bytes=reserve_bytes, name=f"{work_name(plan.plan_id)}/{attempt}")

    def _make(self) -> None:
        self._make_directory(self._name, self._partition)


class WorkDirectory:
    """The driver's view: creates the directory, sweeps leftovers, moves staged files out of it."""

    def __init__(self, plan: CleaningPlan, partition: int) -> None:
        self._plan = plan
        self._partition = partition
        self.path = f"{plan.path}/{work_name(plan.plan_id)}"

    def make(self) -> None:
        """Create it, with the owner of the partition directory.

        Raises:
            CleanerdError: it cannot be created.
        """
        try:
            close_quietly(open_staging(self._partition))
            work = new_directory(work_name(self._plan.plan_id), dir_fd=self._partition, mode=STAGING_MODE)
            try:
                # The broker's user must be able to remove it with the topic, even if we are killed.
                copy_owner(self._partition, work)
            finally:
                close_quietly(work)
        except OSError as error:
            raise system_error("cannot be made", self.path, error) from error

    def move(self, attempt: str, names: list[str], target: int) -> None:
        """Move staged files to the directory open as ``target``, by renames on the same file system.

        Raises:
            CleanerdError: they do not exist, or cannot be moved.
        """
        try:
            source = open_directory(f"{work_name(self._plan.plan_id)}/{attempt}", dir_fd=self._partition)
            try:
                for name in names:
                    os.rename(plain_name(name), name, src_dir_fd=source, dst_dir_fd=target)
            finally:
                close_quietly(source)
            os.fsync(target)
        except OSError as error:
            raise system_error("cannot be moved", f"{self.path}/{attempt}", error) from error

    def remove(self) -> None:
        """Remove it with its content, and ``.kstage`` if that is empty then. Does not raise.

        An attempt may still write, so this is repeated a few times.
        """
        # By path: the descriptor may be closed by now.
        with contextlib.suppress(OSError), _opened(self._plan.path) as partition:
            with contextlib.suppress(OSError), OpenParent(work_name(self._plan.plan_id), partition) as (place, name):
                for _ in range(5):
                    shutil.rmtree(name, ignore_errors=True, dir_fd=place)
                    if not _is_there(name, place):
                        break
            os.rmdir(STAGING, dir_fd=partition)


def _is_there(name: str, place: int) -> bool:
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def sweep(partition: Path, *, alone: bool) -> list[str]:
    """Remove the work directories of finished runs: all if we are ``alone``, else those older than a day."""
    swept = []
    with (
        contextlib.suppress(OSError),
        _opened(partition) as directory,
        OpenParent(f"{STAGING}/", directory) as (place, _),
    ):
        for name in sorted(os.listdir(place)):
            if WORK.fullmatch(name) is None:
                continue
            age_seconds = time.time() - os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime
            if alone or age_seconds > OLD_SECONDS:
                shutil.rmtree(name, ignore_errors=True, dir_fd=place)
                swept.append(name)
    return swept


def is_claimed(path: str) -> bool:
    """Whether this process's claim on the partition excludes others: some file systems have no such locks."""
    with _opened(path) as partition:
        return claimed(partition)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[int]:
    """The partition directory, open in the block; raises OSError."""
    partition = open_named(path)
    try:
        yield partition
    finally:
        close_quietly(partition)


def write_file(plan: CleaningPlan, name: str, data: bytes) -> str:
    """Write a new file in the plan's work directory; returns its name.

    Raises:
        CleanerdError: it cannot be written, or the run is over and the directory missing.
    """
    place = f"{work_name(plan.plan_id)}/{plain_name(name)}"
    try:
        with _opened(plan.path) as partition:
            descriptor = create(place, dir_fd=partition)
        try:
            write_all(descriptor, data)
        finally:
            close_quietly(descriptor)
    except OSError as error:
        raise system_error("cannot be written", f"{plan.path}/{place}", error) from error
    return name


def read_file(plan: CleaningPlan, name: str) -> bytes:
    """Read a file of the plan's work directory.

    Raises:
        CleanerdError: it cannot be read.
    """
    place = f"{work_name(plan.plan_id)}/{plain_name(name)}"
    try:
        with _opened(plan.path) as partition:
            return read_whole(place, dir_fd=partition, max_bytes=MAX_FACTS_BYTES)
    except OSError as error:
        raise system_error("cannot be read", f"{plan.path}/{place}", error) from error
