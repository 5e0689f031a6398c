"""What keeps a cleaning from beginning that is not in the log: who only looks asks here, who cleans meets it anyway."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cleanerd.broker.claim import is_claimed, refused_claim, strange_staging
from cleanerd.broker.lease import require_unopened
from cleanerd.cleaner.manifest import STAGING
from cleanerd.cleaner.resources import disk_reserve_bytes
from cleanerd.cleaner.stage import require_room
from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.log.safe_open import open_named

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.broker.reading import PartitionReading
    from cleanerd.cleaner.resources import Resources


def refuse_obstacles(reading: PartitionReading, resources: Resources) -> None:
    """Look at what a cleaning of the partition needs besides its log, and touch nothing.

    Raises:
        RefusedError: something that is not cleanerd's stands where its files go (U-33).
        LogDirBusyError: another cleanerd works on it, or a process has its active segment open (S-14).
        NoSpaceError: no more is free on the disk than is kept free (U-16).
    """
    path = reading.log.path
    _refuse_occupied(path)
    if not reading.running:
        active = path / file_name(reading.log.active.base, SEGMENT_SUFFIX)
        require_unopened(active, required=resources.lease_required)
    require_room(os.statvfs(path), 1, disk_reserve_bytes(resources, reading.config, str(path)), str(path))


def _refuse_occupied(path: Path) -> None:
    try:
        status = os.lstat(path / STAGING)
    except OSError:
        return  # nobody has been here
    if not stat.S_ISDIR(status.st_mode):
        raise strange_staging(str(path))
    partition = open_named(path)
    try:
        if is_claimed(partition):
            raise refused_claim(path)
    finally:
        os.close(partition)
