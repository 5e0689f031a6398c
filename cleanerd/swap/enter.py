"""The first checks under a log directory's lock: no process has the log open, and no swap is half done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.broker.lease import require_unopened
from cleanerd.errors import RefusedError
from cleanerd.format.names import SEGMENT_SUFFIX, file_name, parse_file_name
from cleanerd.swap.recover import RecoveryReport, recover
from cleanerd.swap.unfinished import refuse_strange_staging, refuse_unfinished

if TYPE_CHECKING:
    from cleanerd.swap.files import PartitionFiles
    from cleanerd.swap.session import LockedDir


def enter_partition(locked: LockedDir, files: PartitionFiles, *, keep_ready: bool = False) -> RecoveryReport:
    """Check that no process has the log open, and finish or undo half-done swaps (S-14, S-28, S-21).

    ``keep_ready``: keep a plan of ``cleanerd stage``; otherwise all plans are discarded.

    Raises:
        LogDirBusyError: another process has it open, or another cleanerd stages in it.
        RefusedError: something is half done that cleanerd must not resolve.
    """
    refuse_strange_staging(files)
    files.claim()
    refuse_open(locked, files)
    left = recover(files, keep_ready=keep_ready)
    if left.foreign and left.newer:
        raise RefusedError(
            f"a swap by a newer cleanerd may be unfinished: {', '.join(left.foreign[:4])}",
            where=str(files.path),
            hint="run apply of that release, or start the broker once: it resolves unfinished swaps",
        )
    if left.foreign:
        raise RefusedError(
            f"an unfinished swap that is not cleanerd's: {', '.join(left.foreign[:4])}",
            where=str(files.path),
            hint="start the broker once: it resolves unfinished swaps while it loads the log",
        )
    refuse_unfinished(files, files.names())
    return left


def refuse_open(locked: LockedDir, files: PartitionFiles) -> None:
    """S-14, before the first change: no process has the active segment open.

    Raises:
        LogDirBusyError: a process has it open, or that is unknown and the settings require to know it.
    """
    places = [parse_file_name(name) for name in files.names() if name.endswith(SEGMENT_SUFFIX)]
    bases = [place[0] for place in places if place is not None]
    if not bases:
        return  # reading the partition reports that it has no segment
    name = file_name(max(bases), SEGMENT_SUFFIX)
    require_unopened(files.where(name), required=locked.resources.lease_required)
