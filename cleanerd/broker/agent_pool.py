"""The connections of one process to its agents: scans, jobs and commands share them, and wait for each other (A-37).

An agent serves a limited number of connections. So a connection is leased for one request, not for a whole job, and a
process leaves some places to other processes. Without a free place callers wait; this is not a fault of the agent.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.broker.agent_client import AgentClient, no_place
from cleanerd.closeable import Closeable
from cleanerd.shared_reading import SharedReading

if TYPE_CHECKING:
    from cleanerd.format.names import TopicPartition

PLACES: Final = 8
"""The number of places of an agent that does not report it."""

_CONNECTING: Final = 8
"""Limit of simultaneous connects: over the loopback an agent waits for sixteen proofs, and closes the oldest."""
IDLE_SECONDS: Final = 60.0
"""Idle connections are closed after this time; the agent closes them after five minutes."""


def share_of(places: int) -> int:
    """How many of an agent's ``places`` one process uses, leaving some to other processes."""
    return max(1, places - max(2, places // 8))


@dataclass(slots=True, eq=False)
class _Agent:
    """The agent behind one socket.

    ``free``: its idle connections, by last use. ``compacted``: the partitions that are compacted.
    """

    most: int = share_of(PLACES)
    used: int = 0
    free: list[AgentClient] = field(default_factory=list)
    connecting: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(_CONNECTING))
    compacted: SharedReading[frozenset[TopicPartition]] = field(default_factory=SharedReading)


class AgentPool(Closeable):
    """Connections by socket; thread-safe. ``refused_swaps``: how many swaps agents have refused."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._agents: defaultdict[Path, _Agent] = defaultdict(_Agent)
        self.refused_swaps = 0

    @contextmanager
    def lease(
        self,
        socket: Path,
        *,
        place_seconds: float,
        connect_seconds: float,
        idle_seconds: float = IDLE_SECONDS,
        last: AgentClient | None = None,
    ) -> Iterator[AgentClient]:
        """A connection for the block; ``last`` if that is free, because an agent keeps state per connection.

        A connection without traffic for ``idle_seconds`` is replaced.

        Raises:
            AgentRefusalError: no place became free within ``place_seconds`` (code ``too_many``).
            AgentUnavailableError: no process answers, or it is not the broker.
        """
        client = self._take_idle(socket, time.monotonic() + place_seconds, idle_seconds, last)
        agent = self._agents[socket]
        try:
            if client is None:
                with agent.connecting:
                    client = AgentClient.connect(socket, timeout_seconds=connect_seconds)
            yield client
        finally:
            self._return_client(agent, client)

    def _take_idle(
        self, socket: Path, deadline: float, idle_seconds: float, last: AgentClient | None
    ) -> AgentClient | None:
        """Take a place, and its idle connection if there is one."""
        with self._changed:
            agent = self._agents[socket]
            while agent.used >= agent.most:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise no_place(f"all {agent.most} connections of this process are in use", socket)
            agent.used += 1
            if last is not None and last in agent.free:
                agent.free.remove(last)
                agent.free.append(last)
            _close_idle(agent, idle_seconds)
            return agent.free.pop() if agent.free else None

    def _return_client(self, agent: _Agent, client: AgentClient | None) -> None:
        with self._changed:
            agent.used -= 1
            if client is not None and client.is_closed:
                _close_idle(agent, 0.0)  # the broker may have been restarted: then its other connections are useless
            elif client is not None:
                agent.free.append(client)
            self._changed.notify_all()

    def learn_places(self, socket: Path, places: int) -> None:
        """Store how many connections the agent behind ``socket`` serves."""
        with self._changed:
            self._agents[socket].most = share_of(places)
            self._changed.notify_all()

    def compacted(self, socket: Path) -> SharedReading[frozenset[TopicPartition]]:
        """The compacted partitions of the broker behind ``socket``; all of its log directories need the same answer."""
        with self._changed:
            return self._agents[socket].compacted

    def count_refused_swap(self) -> None:
        """Count a swap that an agent refused."""
        with self._changed:
            self.refused_swaps += 1

    def close_idle(self, seconds: float) -> None:
        """Close connections that were idle for ``seconds``."""
        with self._changed:
            for agent in self._agents.values():
                _close_idle(agent, seconds)

    def forget(self, socket: Path) -> None:
        """Close the idle connections to ``socket``."""
        with self._changed:
            _close_idle(self._agents[socket], 0.0)

    def close(self) -> None:
        """Close all idle connections; more may come afterwards."""
        self.close_idle(0.0)


def _close_idle(agent: _Agent, seconds: float) -> None:
    since = time.monotonic() - seconds
    for client in agent.free:
        if client.used_at <= since:
            client.close()
    agent.free = [client for client in agent.free if not client.is_closed]
