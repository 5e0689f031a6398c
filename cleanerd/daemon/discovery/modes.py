"""The daemon's mode in a log directory: from its settings, and from the broker's state.

The daemon never takes a log directory's lock. A broker cannot start while another process holds it ("Failed to acquire
lock"), and the daemon cannot know when a broker starts. So in a directory without a broker it stages, as beside one
without the agent. ``cleanerd apply``, which runs just before the broker when the lock is free, swaps. To clean a
stopped broker's directory at once, run ``cleanerd clean``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from cleanerd.broker.mode import ModeChoice
    from cleanerd.daemon.view import PartitionMode

Work = Literal["live", "stage", "observe"]
Configured = Literal["auto", "live", "on-start", "observe"]

OFFLINE_GRACE_MS: Final = 60_000
"""How long a broker has to be stopped before anything is staged: a restarting broker needs the disk."""


@dataclass(frozen=True, slots=True)
class DirMode:
    """The mode of a log directory, its reason, and what a worker does there; None: it waits."""

    mode: PartitionMode
    reason: str
    work: Work | None


def dir_mode(configured: Configured, choice: ModeChoice, away_ms: int) -> DirMode:
    """The mode to use. ``away_ms``: how long no broker has run on the directory."""
    if choice.worked_on:
        return DirMode("observe" if configured == "observe" else "offline", choice.reason, None)
    if configured == "observe":
        return DirMode("observe", f"cleanerd.mode is observe; {choice.reason}", "observe")
    if choice.mode == "live" and configured != "on-start":
        return DirMode("live", choice.reason, "live")
    if configured == "live":
        return DirMode("live", f"waits, because cleanerd.mode is live: {choice.reason}", None)
    if choice.mode == "offline" and away_ms < OFFLINE_GRACE_MS:
        return DirMode("offline", f"{choice.reason}; it may be about to start", None)
    why = choice.reason if choice.mode != "live" else "cleanerd.mode is on-start"
    mode: PartitionMode = "offline" if choice.mode == "offline" else "on-start"
    return DirMode(mode, f"{why}: what is to be cleaned is staged for its next start (cleanerd apply)", "stage")
