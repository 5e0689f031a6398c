"""A running broker as a cleaning sees it: its agent, found again after a break, and whether it can work with it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.broker.agent_client import PROTOCOL, AgentClient, AgentLostError
from cleanerd.broker.agent_facts import AgentInfo, LogFacts, ask_info, ask_log, ask_logs
from cleanerd.broker.agent_transport import SOCKET, leads_to_agent
from cleanerd.closing import Closing
from cleanerd.errors import AgentUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.broker.agent_facts import ListedLog
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir

UNCERTAIN: Final = frozenset({"io_error", "internal"})
"""Whether the group was swapped has to be looked up."""

_SWAP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a round waits for things that pass.

    ``tries`` is how often a partition is planned in a round and how often one request is sent; between two tries the
    wait doubles from ``first_wait_seconds`` to ``longest_wait_seconds``. ``lost_seconds``: how long a broker that went
    away in the middle is looked for. ``idle_seconds``: a connection on which nothing was said for so long is made anew.
    ``replacement_seconds``: how long files of a replacement may be there before it counts as cut short (U-34).
    """

    tries: int = 6
    first_wait_seconds: float = 0.2
    longest_wait_seconds: float = 3.0
    lost_seconds: float = 30.0
    deletion_seconds: float = 10.0
    connect_seconds: float = 5.0
    answer_seconds: float = 30.0
    swap_seconds: float = _SWAP_SECONDS
    idle_seconds: float = 60.0
    replacement_seconds: float = 60.0

    def waits(self) -> Iterator[float]:
        """Seconds to wait before each further try."""
        wait = self.first_wait_seconds
        for _ in range(self.tries - 1):
            yield wait
            wait = min(2 * wait, self.longest_wait_seconds)


class LiveBroker(Closing):
    """The agent behind one socket; a connection that broke is made anew. Not for two threads at once."""

    def __init__(self, socket: Path, patience: Patience | None = None) -> None:
        self.socket = socket
        self.patience = patience or Patience()
        self._client: AgentClient | None = None
        self._gone = False

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, and none that broke."""
        return self._client is not None and not self._client.is_closed and not self._gone

    def info(self) -> AgentInfo:
        """Who is there.

        Raises:
            AgentUnavailableError: nobody, or nobody that makes sense.
        """
        return ask_info(self.connected())

    def logs(self) -> list[ListedLog]:
        """The broker's partitions.

        Raises:
            AgentUnavailableError, AgentRefusalError: it does not say.
        """
        return ask_logs(self.connected())

    def log(self, name: TopicPartition) -> LogFacts:
        """One partition as the broker holds it now. A broken connection is made anew once.

        Raises:
            AgentUnavailableError, AgentRefusalError: it does not say.
        """
        try:
            return ask_log(self.connected(), name)
        except AgentLostError:
            return ask_log(self.connected(), name)

    def find_again(self) -> None:
        """Wait until a broker that has finished its start answers; once in vain, later calls look once and do not wait.

        Raises:
            AgentUnavailableError: none did.
        """
        self.close()
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

    def connected(self) -> AgentClient:
        """The connection; made anew when it broke or lay idle.

        Raises:
            AgentUnavailableError: nobody answers.
        """
        # Deciding can take long, and the agent hangs up on who says nothing.
        if self._client is not None and time.monotonic() - self._client.used_at > self.patience.idle_seconds:
            self._client.close()
        if self._client is None or self._client.is_closed:
            self._client = AgentClient.connect(
                self.socket,
                timeout_seconds=self.patience.connect_seconds,
                answer_seconds=self.patience.answer_seconds,
            )
        return self._client


def find_socket(configured: Path | None, log_dirs: Sequence[Path]) -> Path | None:
    """What leads to the agent: as configured, else in the first log directory that has something such (U-31)."""
    if configured is not None:
        return configured
    candidates = [path / SOCKET for path in log_dirs]
    return next((path for path in candidates if leads_to_agent(path)), None)


def why_not(info: AgentInfo, log_dir: LogDir) -> str:
    """What keeps this agent from cleaning ``log_dir`` live; empty when nothing does."""
    reasons = {
        f"the agent speaks protocol {info.protocol}, not {PROTOCOL}": info.protocol != PROTOCOL,
        "the broker has not finished its start": not info.ready,
        info.incapable: info.ready and not info.capable,
        "the agent takes no more swaps after an error: see cleanerd agent info, and restart the broker":
            not info.accepting_swaps,
        "the agent belongs to another broker": not _serves(info, log_dir),
    }  # fmt: skip
    return next((reason for reason, holds in reasons.items() if holds), "")


def has_given_up(info: AgentInfo, facts: LogFacts) -> bool:
    """Whether the partition lies in none of the log directories that the broker uses: it lets go of one that fails."""
    return info.ready and os.path.dirname(facts.dir) not in info.log_dirs


def _serves(info: AgentInfo, log_dir: LogDir) -> bool:
    """By path where broker and cleanerd see the same ones, else by node; inodes are compared later in any case.

    By name first: another log directory of it may lie on a disk that hangs.
    """
    if os.fspath(log_dir.path) in map(os.fspath, info.log_dirs):
        return True
    for path in info.log_dirs:
        try:
            if os.path.samefile(path, log_dir.path):
                return True
        except OSError:
            continue  # in the broker's mount namespace only
    return info.node_id is not None and info.node_id == log_dir.meta.node_id
