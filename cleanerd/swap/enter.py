"""What comes before anything else under a log directory's lock: nobody has the log open, and nothing is half done."""

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
    """What comes before anything else: nobody has the log open, and nothing in it is half done (S-14, S-28, S-21).

    ``keep_ready``: a plan that ``cleanerd stage`` made stays; else it goes with all others.

    Raises:
        LogDirBusyError: somebody has it open, or another cleanerd stages in it.
        RefusedError: something is half done that is not ours to resolve.
    """
    refuse_strange_staging(files)
    files.claim()
    _probe(locked, files)
    left = recover(files, keep_ready=keep_ready)
    if left.foreign and left.newer:
        raise RefusedError(
            f"a newer cleanerd's plan may be half done: {', '.join(left.foreign[:4])}",
            where=str(files.path),
            hint="run apply of that release, or start the broker once: it resolves unfinished replacements",
        )
    if left.foreign:
        raise RefusedError(
            f"an unfinished replacement that is not cleanerd's is in the way: {', '.join(left.foreign[:4])}",
            where=str(files.path),
            hint="start the broker once, it resolves unfinished replacements while it loads the log",
        )
    refuse_unfinished(files, files.names())
    return left


def _probe(locked: LockedDir, files: PartitionFiles) -> None:
    """S-14, before the first change: nobody has the active segment open.

    Raises:
        LogDirBusyError: somebody has, or it cannot be known and the settings ask for knowing it.
    """
    places = (parse_file_name(name) for name in files.names())
    bases = [place[0] for place in places if place is not None and place[1] == SEGMENT_SUFFIX]
    if not bases:
        return  # whoever reads the partition says that it holds no segment
    name = file_name(max(bases), SEGMENT_SUFFIX)
    require_unopened(files.where(name), required=locked.resources.lease_required)
