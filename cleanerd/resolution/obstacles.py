"""Obstacles to a cleaning outside of the log: previews check them, since a cleaning would meet them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cleanerd.broker.claim import is_claimed, refused_claim, strange_staging
from cleanerd.broker.lease import require_unopened
from cleanerd.broker.live_broker import RetryPolicy
from cleanerd.broker.lock_file import held_by, worker_of
from cleanerd.cleaner.manifest import STAGING
from cleanerd.cleaner.refusals import refuse_deletions
from cleanerd.cleaner.resources import Resources, disk_reserve_bytes
from cleanerd.cleaner.stage import require_space
from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.fsio.safe_open import close_quietly, open_named

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.cleaner.cleaner import Cleaning
    from cleanerd.cleaner.survey import Survey


def refuse_obstacles(reading: PartitionSnapshot, resources: Resources) -> None:
    """Check what a cleaning of the partition needs besides its log, and change nothing.

    Raises:
        RefusedError: a file that is not cleanerd's has the name of one that it needs (U-33).
        LogDirBusyError: another cleanerd works on it or in its log directory, or a process has its active segment open
            (S-10, S-14). NoSpaceError: the disk has only its reserve free (U-16).
    """
    path = reading.log.path
    _refuse_occupied(path)
    if not reading.running:
        worker = worker_of(reading.log_dir.path)
        if worker is not None:
            raise held_by(worker, reading.log_dir.path)
        active = path / file_name(reading.log.active.base, SEGMENT_SUFFIX)
        require_unopened(active, required=resources.lease_required)
    require_space(os.statvfs(path), 1, disk_reserve_bytes(resources, reading.config, str(path)), str(path))


def refuse_long_deletions(found: Survey, cleaning: Cleaning) -> None:
    """Refuse if ``clean --live`` would not wait long enough for old files (D-04).

    Raises:
        RetryLaterError: the broker deletes old files of a segment to be replaced only later.
    """

    def status_of(name: str) -> os.stat_result | None:
        try:
            return os.stat(found.log.path / name, follow_symlinks=False)
        except FileNotFoundError:
            return None

    refuse_deletions(cleaning, status_of, found.config.file_delete_delay_ms, RetryPolicy().deletion_seconds)


def _refuse_occupied(path: Path) -> None:
    try:
        status = os.lstat(path / STAGING)
    except OSError:
        return  # not used yet
    if not stat.S_ISDIR(status.st_mode):
        raise strange_staging(str(path))
    partition = open_named(path)
    try:
        if is_claimed(partition):
            raise refused_claim(path)
    finally:
        close_quietly(partition)
