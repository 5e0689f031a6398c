"""How a log directory can be cleaned now: live, on start, or offline (U-31).

* *live*: a broker runs on it, and its agent swaps segments for us;
* *on-start*: a broker runs on it without such an agent: ``cleanerd stage``, and ``cleanerd apply`` at its next start;
* *offline*: no broker runs on it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from cleanerd.broker.agent_attach import log_dirs_of_process
from cleanerd.broker.live_broker import LiveBroker, RetryPolicy, find_socket, incompatibility_reason
from cleanerd.broker.lock_file import broker_process, probe_lock, worker_of
from cleanerd.errors import TOO_MANY, AgentRefusalError, CleanerdError
from cleanerd.segments.log_dir import LogDir, read_log_dir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.broker.agent_pool import AgentPool

Mode = Literal["live", "on-start", "offline"]

NO_BROKER: Final = "no broker runs on it"

SINGLE_TRY: RetryPolicy = RetryPolicy(plans=1, tries=1, place_seconds=20.0, connect_seconds=2.0, answer_seconds=5.0)
"""For queries without waiting: a broker with a fault must not delay a scan."""

_LOCKS_POLL_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 0.2
"""How long a broker that stops may take to release its locks."""


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """The mode and its reason.

    ``socket``: where an agent was searched; ``info``: its answer, if any. ``worked_on``: a cleanerd command holds the
    directory, so nothing may be started there.
    """

    mode: Mode
    reason: str
    socket: Path | None = None
    info: AgentInfo | None = None
    worked_on: bool = False


def choose_mode(
    log_dir: LogDir,
    others: Sequence[Path],
    configured: Path | None,
    pool: AgentPool | None = None,
    patience: RetryPolicy = SINGLE_TRY,
) -> ModeChoice:
    """The best mode for ``log_dir``. ``others`` are log directories of the same broker, where its socket may be.

    ``configured`` is ``cleanerd.agent.socket``, ``pool`` the connections that this process shares. Waits for a few
    seconds at most (see :func:`free_lock`), but longer if all connections of the agent are in use.

    Raises:
        AgentRefusalError: the agent runs, but no connection became free.
    """
    try:
        other_broker = free_lock(log_dir, others, patience)
    except OSError:
        other_broker = None  # it cannot be queried, so a broker may hold it
    if other_broker is not None:
        return ModeChoice("offline", f"{NO_BROKER}{other_broker}")
    worker = worker_of(log_dir.path)
    if worker is not None:
        return ModeChoice("offline", f"{NO_BROKER}; {worker} is running there", worked_on=True)
    socket = find_socket(configured, [log_dir.path, *others]) or find_socket(None, _of_its_broker(log_dir))
    if socket is None:
        return ModeChoice("on-start", "a broker runs on it without cleanerd's agent")
    try:
        with LiveBroker(socket, patience, pool) as broker:
            info = broker.info()
    except CleanerdError as error:
        if isinstance(error, AgentRefusalError) and error.code == TOO_MANY:
            raise
        return ModeChoice("on-start", str(error), socket)
    against = incompatibility_reason(info, log_dir)
    if against:
        return ModeChoice("on-start", against, socket, info)
    return ModeChoice("live", f"the agent in {info.kafka} (process {info.pid}) swaps segments", socket, info)


def _of_its_broker(log_dir: LogDir) -> list[Path]:
    """The log directories of the broker that runs on ``log_dir``, if its process is visible from here.

    The agent creates its socket in the first of log.dirs, which need not be one of these.
    """
    try:
        return log_dirs_of_process(broker_process(log_dir.path))
    except CleanerdError:
        return []


def free_lock(log_dir: LogDir, others: Sequence[Path], patience: RetryPolicy = SINGLE_TRY) -> str | None:
    """None if ``.lock`` of ``log_dir`` is held. Else a suffix for messages, not empty if the broker runs nevertheless.

    A broker releases a directory whose disk fails, with its lock, and continues. It also takes and releases its locks
    one after the other when it starts and stops, so the lock is tried again for a while, ``patience.locks_seconds``
    at most. ``others`` may be further directories of that broker.

    Raises:
        OSError: the lock cannot be queried.
    """
    began = time.monotonic()
    while not probe_lock(log_dir.path):
        other = _held_by_its_broker(log_dir, others)
        if other is None:
            return ""
        age = _broker_age_seconds(other)
        may_start = age is None or age < patience.start_seconds
        if time.monotonic() - began >= (patience.locks_seconds if may_start else _STOP_SECONDS):
            starting = "it may still be starting, then try again in a minute; otherwise " if may_start else ""
            given_up = f"{starting}it has given this directory up, or log.dirs does not name it"
            return f", but it runs on {other}: {given_up}"
        time.sleep(_LOCKS_POLL_SECONDS)
    return None


def _held_by_its_broker(log_dir: LogDir, others: Sequence[Path]) -> Path | None:
    """The first of ``others`` that the broker of ``log_dir`` holds."""
    for other in others:
        try:
            # Ignore a lock that cannot be queried.
            if not probe_lock(other) or worker_of(other) is not None:
                continue
            meta = read_log_dir(other).meta
        except (CleanerdError, OSError):
            continue
        is_copy = meta.directory_id is not None and meta.directory_id == log_dir.meta.directory_id
        if not is_copy and (meta.cluster_id, meta.node_id) == (log_dir.meta.cluster_id, log_dir.meta.node_id):
            return other
    return None


def _broker_age_seconds(log_dir: Path) -> float | None:
    """How long ago the process that holds ``log_dir`` started; None if it is not visible from here."""
    try:
        fields = Path(f"/proc/{broker_process(log_dir)}/stat").read_text(encoding="ascii", errors="replace")
    except (CleanerdError, OSError):
        return None
    # The command, in parentheses, may contain anything; the start is the 20th field after it, since boot.
    ticks = int(fields.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
