"""How long the daemon waits for operations that may hang, and its intervals. Tests use shorter times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cleanerd.resolution.checkpoint_pair import SETTLE_SECONDS

OF_THE_LOOP: Final = 200
"""The event loop spends at most one part in this many of its time on passes over all partitions."""

OF_A_VIEW: Final = 400
"""The same share for views of all partitions."""


def pause_seconds(took_seconds: float, share: int) -> float:
    """The pause after work that took ``took_seconds``, so that it takes one part in ``share`` of the time."""
    return share * took_seconds


@dataclass(frozen=True, slots=True)
class DaemonLimits:
    """Limits of a daemon that no setting changes."""

    scan_seconds: float = 60.0
    """For one scan. A first scan of 10,000 partitions takes a few seconds; a disk that needs longer than this hangs."""

    give_back_seconds: float = 5.0
    """For removing one file: a disk that needs longer than this hangs."""

    probe_seconds: float = 20.0
    """For listing one directory: a disk that needs longer than this hangs."""

    fresh_seconds: float = 1.0
    """A directory that answered this recently is not probed again: during cleanings there are many scans a second."""

    settle_seconds: float = SETTLE_SECONDS
    """Between two readings of a running broker's checkpoints (S-03)."""

    debounce_seconds: float = 1.0
    """A roll creates half a dozen files: one scan is enough."""

    start_check_seconds: float = 600.0
    """Between two checks of what the broker's next start does with a directory: each reads a file per partition."""

    agent_seconds: float = 5.0
    """How long a scan waits for the agent's answer: a broker with a fault must not delay it."""

    place_seconds: float = 20.0
    """How long a scan waits for a free connection to the agent."""

    one_by_one_seconds: float = 0.05
    """A directory's scan begins when the scan of the previous directory has ended, or after this time."""

    together_seconds: float = 2.0
    """The others do not wait for a slower scan, which is merged when it ends."""

    write_seconds: float = 2.0
    """How long an operator's request waits until its change is on the disk."""

    estimate_stop_seconds: float = 10.0
    """A stopped estimate ends after the next range; if it takes longer, it waits for a disk that hangs."""

    estimate_share: int = 20
    """An idle worker spends one part in this many of its time on estimates."""

    event_seconds: float = 86_400.0
    """A warning about an event is shown for a day, so that an operator who checks every morning sees it once."""


DAEMON_LIMITS = DaemonLimits()
