"""One partition that the daemon looks after: everything that is known of it between two looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cleanerd.daemon.jobs import Saving
    from cleanerd.daemon.look import FailedLook, Look
    from cleanerd.daemon.schedule import Trigger
    from cleanerd.daemon.view import CleanView, PartitionView
    from cleanerd.format.names import TopicPartition

Key = tuple[str, "TopicPartition"]
"""A log directory and a partition in it."""

FIRST_SHARE: Final = 0.5
"""Of the dirty bytes so much is expected to go, until a cleaning has told."""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Why a partition is left alone, since when, after how many failures, until when. ``by_look``: a look found it."""

    reason: str
    since_ms: int
    failures: int
    retry_at_ms: int
    by_look: bool = False


@dataclass(slots=True)
class Tracked:
    """One compacted partition."""

    name: TopicPartition
    path: str
    look: Look | None = None
    failed: FailedLook | None = None
    failed_in_a_row: int = 0
    excluded: str = ""
    paused: bool = False
    asked: bool = False
    trigger: Trigger | None = None
    queued: bool = False
    waiting_since_ms: int | None = None
    quarantine: Quarantine | None = None
    hold_until_ms: int = 0
    holds: int = 0
    hold_reason: str = ""
    next_purge_ms: int | None = None
    purge_known: bool = False
    done_to: int | None = None
    saving: Saving | None = None
    share: float = FIRST_SHARE
    last_clean: CleanView | None = None
    view: PartitionView | None = None

    @property
    def key(self) -> Key:
        """What it is known by."""
        return self.path, self.name

    def touch(self) -> None:
        """It is to be shown anew."""
        self.view = None
