"""How long the daemon waits for what may hang, and how often it repeats what it does. Tests give shorter times."""

from __future__ import annotations

from dataclasses import dataclass

from cleanerd.resolution.checkpoint_pair import SETTLE_SECONDS


@dataclass(frozen=True, slots=True)
class DaemonLimits:
    """The limits of a daemon that no setting changes."""

    look_seconds: float = 60.0
    """For one scan. A first scan of 10,000 partitions takes a few seconds; a disk that needs longer than this hangs."""

    give_back_seconds: float = 5.0
    """To remove one file takes a busy disk less than this, unless it has begun to hang."""

    probe_seconds: float = 20.0
    """To list one directory takes a disk less than this, unless it hangs."""

    fresh_seconds: float = 1.0
    """A directory that answered this recently is not probed again: during cleanings there are many scans a second."""

    settle_seconds: float = SETTLE_SECONDS
    """Between two readings of a running broker's checkpoints (S-03)."""

    debounce_seconds: float = 1.0
    """A roll creates half a dozen files: one scan is enough."""

    start_check_seconds: float = 600.0
    """Between two checks of what the broker's next start makes of a directory: that reads a file per partition."""

    agent_seconds: float = 5.0
    """For an answer of the agent during a scan: a broker in trouble must not delay it."""

    place_seconds: float = 20.0
    """For a free connection to the agent during a scan."""

    together_seconds: float = 2.0
    """A slower scan is not waited for by the others, and merged when it ends."""

    write_seconds: float = 2.0
    """How long an operator's request waits until the disk has what it changed."""

    estimate_stop_seconds: float = 10.0
    """A stopped estimate ends after the next stretch: one that takes longer waits for a disk that hangs."""

    estimate_share: int = 20
    """A worker without a cleaning estimates in one part in this many of its time."""

    event_seconds: float = 86_400.0
    """A warning of an event is shown for a day, so that an operator who checks every morning sees it once."""


DAEMON_LIMITS = DaemonLimits()
