"""A running broker for a cleaning: its agent, reconnected after a break, and whether it can clean."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from cleanerd.broker.agent_client import PROTOCOL, AgentClient, AgentLostError
from cleanerd.broker.agent_facts import (
    AgentInfo,
    LogFacts,
    fetch_info,
    fetch_log,
    fetch_logs,
    fetch_producers,
    request_roll,
)
from cleanerd.broker.agent_pool import AgentPool
from cleanerd.broker.agent_transport import SOCKET, is_listening, leads_to_agent
from cleanerd.closeable import Closeable
from cleanerd.errors import TOO_MANY, AgentRefusalError, AgentUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from cleanerd.broker.agent_facts import ActiveProducer
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir

UNCERTAIN: Final = frozenset({"io_error", "internal"})
"""Error codes after which the group may have been swapped, so check that."""

T = TypeVar("T")

_SWAP_SECONDS: Final = 60.0
_PRODUCERS_AT_ONCE: Final = 20_000
"""Producers per query: some hundred kilobytes per request and answer."""
_FIRST_WAIT_SECONDS: Final = 0.05
_LONGEST_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a cleaning waits for temporary conditions.

    ``plans``: how often a partition is planned in a cleaning; ``tries``: how often one request is sent. Between two
    tries the wait doubles from ``first_wait_seconds`` to ``longest_wait_seconds``. ``lost_seconds``: how long to
    reconnect to a broker that disappeared. ``deletion_seconds``: how long the deletion of old files may take (D-04).
    ``place_seconds``: how long to wait for a free connection. ``idle_seconds``: a connection without traffic for so
    long is replaced. ``replacement_seconds``: how long files of a replacement may exist before it is treated as
    interrupted (U-34), by the clock ``wall_seconds``. ``locks_seconds``: how long a broker may take from its first lock
    of a log directory to the last. ``start_seconds``: a younger broker may still be starting.
    """

    plans: int = 6
    tries: int = 6
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 3.0
    lost_seconds: float = 30.0
    deletion_seconds: float = 10.0
    place_seconds: float = 60.0
    connect_seconds: float = 5.0
    answer_seconds: float = 30.0
    swap_seconds: float = _SWAP_SECONDS
    idle_seconds: float = 60.0
    replacement_seconds: float = 60.0
    wall_seconds: Callable[[], float] = time.time
    locks_seconds: float = 1.0
    start_seconds: float = 60.0

    def waits(self) -> Iterator[float]:
        """Seconds to wait before each further try of a request."""
        return self._waits(self.tries)

    def waits_to_plan(self) -> Iterator[float]:
        """Seconds to wait before the partition is planned again."""
        return self._waits(self.plans)

    def _waits(self, times: int) -> Iterator[float]:
        wait = self.first_wait_seconds
        for _ in range(times - 1):
            yield wait
            wait = min(2 * wait, self.longest_wait_seconds)


class LiveBroker(Closeable):
    """The agent behind one socket; a broken connection is replaced. Not thread-safe.

    ``pool``: the connections that this process shares; None: connections of its own.
    """

    def __init__(self, socket: Path, patience: RetryPolicy | None = None, pool: AgentPool | None = None) -> None:
        self.socket = socket
        self.patience = patience or RetryPolicy()
        self.pool = AgentPool() if pool is None else pool
        self._owns_pool = pool is None
        self._last: AgentClient | None = None
        self._gone = False

    def close(self) -> None:
        """Close the connections, unless they are shared."""
        if self._owns_pool:
            self.pool.close()

    def info(self) -> AgentInfo:
        """The agent's ``info``.

        Raises:
            AgentUnavailableError: no agent answers, or its answer is malformed.
            AgentRefusalError: it has no free connection.
        """
        info = self.query(fetch_info)
        self.pool.learn_places(self.socket, info.places)
        return info

    def compacted(self, since: float = math.inf) -> frozenset[TopicPartition]:
        """The partitions of the broker that are compacted.

        ``since``: an answer that another thread requested since then serves as well, in monotonic seconds.

        Raises:
            AgentUnavailableError, AgentRefusalError: it does not answer.
        """
        shared = self.pool.compacted(self.socket)
        return shared.get(self._fetch_compacted, since=since, patience_seconds=self.patience.answer_seconds)

    def _fetch_compacted(self) -> frozenset[TopicPartition]:
        return frozenset(log.name for log in self.query(fetch_logs) if "compact" in log.policy)

    def log(self, name: TopicPartition) -> LogFacts:
        """The broker's current facts about one partition. A broken connection is replaced once.

        Raises:
            AgentUnavailableError, AgentRefusalError: it does not answer.
        """
        try:
            return self.query(lambda client: fetch_log(client, name))
        except AgentLostError:
            return self.query(lambda client: fetch_log(client, name))

    def producers(self, name: TopicPartition, ids: NDArray[np.int64]) -> Iterator[ActiveProducer]:
        """The producers in ``ids`` that the broker counts as active, queried in parts (A-36).

        Raises:
            AgentUnavailableError, AgentRefusalError: it does not answer.
        """
        for start in range(0, len(ids), _PRODUCERS_AT_ONCE):
            some = ids[start : start + _PRODUCERS_AT_ONCE].tolist()
            yield from self.query(partial(fetch_producers, name=name, ids=some))

    def roll(self, name: TopicPartition, facts: LogFacts) -> int:
        """Have the broker begin a new active segment after the one in ``facts`` (A-41); its base offset.

        Raises:
            AgentUnavailableError, AgentRefusalError: it did not, or its answer was lost.
        """
        return self.query(lambda client: request_roll(client, name, facts))

    def reconnect(self) -> None:
        """Wait until a started broker answers; after one timeout, later calls check once without waiting.

        Raises:
            AgentUnavailableError: none did.
        """
        self.pool.forget(self.socket)
        deadline = time.monotonic() + (0 if self._gone else self.patience.lost_seconds)
        while True:
            problem = AgentUnavailableError("the broker has not finished its start", where=str(self.socket))
            try:
                if self.info().ready:
                    return
            except AgentUnavailableError as error:
                problem = error
            if time.monotonic() >= deadline:
                self._gone = True
                raise problem
            time.sleep(min(0.5, self.patience.longest_wait_seconds))

    def query(self, question: Callable[[AgentClient], T]) -> T:
        """Call ``question`` with a connection of its own, waiting for a free one; returns its result.

        Raises:
            AgentUnavailableError: no agent answers.
            AgentRefusalError: no connection became free within ``place_seconds``, or the agent refused.
        """
        patience, wait = self.patience, _FIRST_WAIT_SECONDS
        deadline = time.monotonic() + patience.place_seconds
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            try:
                with self.pool.lease(
                    self.socket,
                    place_seconds=left,
                    connect_seconds=patience.connect_seconds,
                    last=self._last,
                    idle_seconds=patience.idle_seconds,
                ) as client:
                    self._last = client
                    client.answer_seconds = patience.answer_seconds
                    return question(client)
            except AgentRefusalError as error:
                # Other processes use all places; nothing was requested yet.
                if error.code != TOO_MANY or time.monotonic() + wait >= deadline:
                    raise
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


def find_socket(configured: Path | None, log_dirs: Sequence[Path]) -> Path | None:
    """The path to the agent: as configured, else in the first log directory with a listener (U-31).

    A socket's file remains when a broker is killed, or no longer uses the directory, so the first one that answers is
    used. If none does, the first is returned: connecting to it reports the reason.
    """
    if configured is not None:
        return configured
    found = [path / SOCKET for path in log_dirs if leads_to_agent(path / SOCKET)]
    if len(found) > 1:
        return next((path for path in found if is_listening(path)), found[0])
    return found[0] if found else None


def incompatibility_reason(info: AgentInfo, log_dir: LogDir) -> str:
    """Why this agent cannot clean ``log_dir`` live; empty if it can."""
    reasons = {
        f"the agent speaks protocol {info.protocol}, not {PROTOCOL}": info.protocol != PROTOCOL,
        "the broker has not finished its start": not info.ready,
        info.incapable: info.ready and not info.capable,
        "the agent takes no more swaps after an error: see cleanerd agent info, and restart the broker":
            not info.accepting_swaps,
        "the agent belongs to another broker": not _serves(info, log_dir),
    }  # fmt: skip
    return next((reason for reason, holds in reasons.items() if holds), "")


def is_offline_log_dir(info: AgentInfo, facts: LogFacts) -> bool:
    """Whether the partition is in a log directory that the broker has taken offline after a fault."""
    return info.ready and os.path.dirname(facts.dir) not in info.log_dirs


def _serves(info: AgentInfo, log_dir: LogDir) -> bool:
    """Whether the broker uses ``log_dir``: by path if both see the same paths, else by node. Inodes are compared later.

    Names come first: another of its log directories may be on a disk that hangs.
    """
    if os.fspath(log_dir.path) in map(os.fspath, info.log_dirs):
        return True
    for path in info.log_dirs:
        try:
            if os.path.samefile(path, log_dir.path):
                return True
        except OSError:
            continue  # it exists in the broker's mount namespace only
    return info.node_id is not None and info.node_id == log_dir.meta.node_id
