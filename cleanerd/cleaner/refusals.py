"""Operations that need the lock of the log directory: refused after the decision, before anything is written.

Offline all of them are possible: a segment whose offsets do not fit an index is split first (C-67).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cleanerd.errors import RefusedError, RetryLaterError
from cleanerd.format.names import DELETED_SUFFIX, SEGMENT_SUFFIX, file_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from cleanerd.cleaner.cleaner import Cleaning


def refuse_live(cleaning: Cleaning, *, proves_by_markers: bool = True) -> None:
    """Refuse what a running broker cannot do: it accepts segments of format v2 only, and cannot split one.

    ``proves_by_markers``: its agent accepts a transaction index that the log's markers corrected (A-40).

    Raises:
        RefusedError: such a segment is to be rewritten, or an older agent refuses the corrected index.
    """
    if cleaning.decision.index_note and not proves_by_markers:
        raise RefusedError(
            f"the broker's agent is older and refuses a corrected transaction index: {cleaning.decision.index_note}",
            where=cleaning.plan.path,
            hint="load this release with cleanerd agent attach, or clean it with cleanerd stage or offline",
        )
    segments = cleaning.decision.segments
    legacy = [segments[row].source.base for rows in cleaning.groups() for row in rows if segments[row].legacy_batches]
    if legacy:
        raise RefusedError(
            f"segment {legacy[0]} has message format v0 or v1, but live cleaning writes only v2",
            where=cleaning.plan.path,
            hint="stage it and apply it on start, or clean it offline",
        )
    refuse_split(cleaning)


def refuse_split(cleaning: Cleaning) -> None:
    """Splitting a segment needs the log directory's lock.

    Raises:
        RefusedError: one has to be split before it can be cleaned.
    """
    if overflowed := cleaning.overflowed():
        raise RefusedError(
            f"the offsets of segment {overflowed[0].source.base} pass 2^31-1 above its base: it has to be split first",
            where=cleaning.plan.path,
            hint="stop the broker and run cleanerd clean on it",
        )


def refuse_deletions(
    cleaning: Cleaning, stat: Callable[[str], os.stat_result | None], delay_ms: int, wait_seconds: float
) -> bool:
    """D-04: wait before replacing a segment while the files of its last replacement are being deleted.

    ``stat``: of a file of the partition, None if it does not exist; ``delay_ms``: the topic's file.delete.delay.ms.
    Returns whether such files exist and are all deleted within ``wait_seconds``.

    Raises:
        RetryLaterError: some stay for longer.
    """
    segments = cleaning.decision.segments
    going = []
    for base in (segments[row].source.base for rows in cleaning.groups() for row in rows):
        status = stat(file_name(base, SEGMENT_SUFFIX + DELETED_SUFFIX))
        if status is not None:
            # At most the delay: the wall clock may have been set back, and the broker does not use it to wait.
            age_seconds = max(time.time() - status.st_ctime, 0.0)
            going.append((max(delay_ms / 1000 - age_seconds, 0.1), base))
    if not going:
        return False
    seconds, base = max(going)
    if seconds > wait_seconds:
        raise RetryLaterError(
            f"segment {base} was replaced less than file.delete.delay.ms={delay_ms} ago",
            where=cleaning.plan.path,
            seconds=seconds,
        )
    return True
