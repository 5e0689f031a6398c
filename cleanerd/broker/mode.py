"""How a log directory can be cleaned now: live, on start, or offline (U-31).

* *live*: a broker runs on it, and its agent swaps segments for us;
* *on-start*: a broker runs on it without such an agent: ``cleanerd stage``, and ``cleanerd apply`` at its next start;
* *offline*: no broker runs on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cleanerd.broker.agent_attach import log_dirs_of_process
from cleanerd.broker.live_broker import LiveBroker, RetryPolicy, find_socket, incompatibility_reason
from cleanerd.broker.lock_file import broker_process, is_held, probe_lock, worker_of
from cleanerd.errors import TOO_MANY, AgentRefusalError, CleanerdError
from cleanerd.segments.log_dir import read_log_dir

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.segments.log_dir import LogDir

Mode = Literal["live", "on-start", "offline"]

SINGLE_TRY: RetryPolicy = RetryPolicy(plans=1, tries=1, place_seconds=20.0, connect_seconds=2.0, answer_seconds=5.0)
"""For queries without waiting: a broker with a fault must not delay a scan."""


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
    seconds at most, but longer if all connections of the agent are in use.

    Raises:
        AgentRefusalError: the agent runs, but no connection became free.
    """
    if not is_held(log_dir.path):
        return ModeChoice("offline", f"no broker runs on it{describe_other_brokers(log_dir, others)}")
    worker = worker_of(log_dir.path)
    if worker is not None:
        return ModeChoice("offline", f"no broker runs on it; {worker} is at work there", worked_on=True)
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


def describe_other_brokers(log_dir: LogDir, others: Sequence[Path]) -> str:
    """A suffix for messages: the broker of an unlocked log directory runs nevertheless; else empty.

    A broker releases a directory whose disk fails, with its lock, and continues. ``others`` may be further directories
    of that broker.
    """
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
            return f", but it runs on {other}: it has given this directory up, or log.dirs does not name it"
    return ""
