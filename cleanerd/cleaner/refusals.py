"""What cannot be done to a log while it is not locked: refused when it is decided what goes, before any is written.

Offline everything can be done: a segment whose offsets no index can hold is split first (C-67).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.errors import RefusedError

if TYPE_CHECKING:
    from cleanerd.cleaner.cleaner import Cleaning


def refuse_live(cleaning: Cleaning) -> None:
    """A running broker takes segments of message format v2 only, and has no swap that splits one.

    Raises:
        RefusedError: such a segment is to be rewritten.
    """
    segments = cleaning.decision.segments
    legacy = [segments[row].source.base for rows in cleaning.groups() for row in rows if segments[row].legacy_batches]
    if legacy:
        raise RefusedError(
            f"segment {legacy[0]} holds message format v0 or v1, and live cleaning writes v2 only",
            where=cleaning.plan.path,
            hint="stage it and apply it on start, or clean it offline",
        )
    refuse_split(cleaning)


def refuse_split(cleaning: Cleaning) -> None:
    """Only who holds the log directory's lock can split a segment.

    Raises:
        RefusedError: one has to be split before it can be cleaned.
    """
    if overflowed := cleaning.overflowed():
        raise RefusedError(
            f"the offsets of segment {overflowed[0].source.base} pass 2^31-1 above its base: it has to be split first",
            where=cleaning.plan.path,
            hint="stop the broker and run cleanerd clean on it",
        )
