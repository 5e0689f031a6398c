"""Whether a file is still the one that was listed: checked at every open, in every phase (D-06, U-3).

A broker's own cleaner replaces files under the same names at any time. Thousands of segments cannot stay open from the
listing on (``RLIMIT_NOFILE``), so each is opened when needed, and its descriptor compared with the listing. A decision
about one file is never applied to another.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cleanerd.errors import SegmentChangedError
from cleanerd.format.names import SEGMENT_SUFFIX, TXNINDEX_SUFFIX, file_name
from cleanerd.fsio.small_file import read_small_file, unreadable

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.segment import Segment, StatResult


def require_unchanged(found: StatResult, segment: Segment, where: str) -> None:
    """Refuse a file with the status ``found`` that is not the listed ``.log`` of ``segment``.

    Raises:
        SegmentChangedError: it was replaced, cut or written to.
    """
    change = segment.change(found)
    if change:
        raise changed(change, where)


def changed(what: str, where: str) -> SegmentChangedError:
    return SegmentChangedError(f"the log changed while it was read: {what}", where=where, hint="try again")


def read_companion(path: Path, segment: Segment, suffix: str) -> bytes | None:
    """All of an index of ``segment`` in the directory ``path``; None when the segment has none.

    The broker preallocates 10 MiB for an index of the active segment; these are not read.

    A broker that replaces a segment removes the old ``.log`` before its indexes, and adds the new ``.log`` before its
    indexes. So if the ``.log`` is the listed one, the indexes read before were its own.

    Raises:
        SegmentChangedError: the segment is no longer the listed one.
        CleanerdError: it cannot be read.
    """
    data = read_small_file(f"{path}/{file_name(segment.base, suffix)}", has_room=suffix != TXNINDEX_SUFFIX)
    log = f"{path}/{file_name(segment.base, SEGMENT_SUFFIX)}"
    try:
        change = segment.change(os.stat(log, follow_symlinks=False))
    except FileNotFoundError:
        change = "it is gone"
    except OSError as error:
        raise unreadable("cannot be read", log, error) from error
    if change:
        raise changed(change, log)
    return data
