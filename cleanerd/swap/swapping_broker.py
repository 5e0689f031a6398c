"""A cleaning's requests to a running broker: swap segments, and store how far the log is clean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cleanerd.broker.agent_facts import BrokerSegment, LogFacts, SwapDone, request_swap
from cleanerd.broker.live_broker import LiveBroker, RetryPolicy
from cleanerd.errors import NO_EVIDENCE, TOO_MANY, AgentRefusalError

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.format.names import TopicPartition

_BYTES_PER_SECOND: Final = 20_000_000
"""Slow disks: before a swap the agent checks the staged files and the headers of all sources (A-23.3)."""

_NOT_REFUSED: Final = frozenset({NO_EVIDENCE, TOO_MANY})
"""After these errors a swap is sent again at once, because the agent has not checked it."""


@dataclass(frozen=True, slots=True)
class SwapSources:
    """How many segments one swap replaces (U-36): ``first`` at the beginning, then as many as the disk allows.

    The broker fsyncs the directory once per swap, under its lock: fewer sources only mean more fsyncs.
    """

    first: int = 40
    fewest: int = 25
    most: int = 60


SWAP_SOURCES: Final = SwapSources()


class SwappingBroker(LiveBroker):
    """A running broker whose agent can also swap segments."""

    def __init__(
        self,
        socket: Path,
        patience: RetryPolicy | None = None,
        sources: SwapSources = SWAP_SOURCES,
        *,
        pool: AgentPool | None = None,
    ) -> None:
        super().__init__(socket, patience, pool)
        self.sources = sources

    def swap(self, request: dict[str, Any], staged_bytes: int) -> SwapDone:
        """Send one swap request, once.

        Raises:
            AgentRefusalError: refused; ``done`` lists groups that were swapped anyway. AgentLostError: the result is
                unknown.
            AgentUnavailableError: it was not sent.
        """
        read_bytes = staged_bytes + sum(source["size"] for group in request["groups"] for source in group["sources"])
        limit = self.patience.swap_seconds + read_bytes / _BYTES_PER_SECOND
        try:
            return self.query(lambda client: request_swap(client, request, timeout_seconds=limit))
        except AgentRefusalError as error:
            if error.code not in _NOT_REFUSED:
                self.pool.count_refused_swap()
            raise

    def checkpoint(self, name: TopicPartition, facts: LogFacts, offset: int, clean: BrokerSegment) -> None:
        """Report to the broker's cleaner that the log is clean up to ``offset`` (A-20, S-50).

        ``clean``: the last cleaned segment below it, because the log may have been truncated and written to since.

        Raises:
            AgentUnavailableError, AgentRefusalError: the broker did not accept it, or that is unknown.
        """
        fields: dict[str, Any] = {
            "topic": name.topic,
            "partition": name.partition,
            "topic_id": facts.topic_id,
            "dir": facts.dir,
        }
        if facts.compares_clean:
            fields["clean"] = clean.to_json()
        self.query(lambda client: client.call("checkpoint", offset=offset, **fields))
