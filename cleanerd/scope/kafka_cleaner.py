"""Whether Kafka's own cleaner works in the broker of a log directory, by settings and agent (OP-13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.scope.broker_facts import BrokerFacts

KEY: Final = "log.cleaner.enable"
CONSEQUENCE: Final = (
    "so nothing compacts the topics that cleanerd does not clean, and none while cleanerd only observes"
)
FIX: Final = f"set {KEY}=true in server.properties and restart the broker, or let cleanerd clean all compacted topics"


@dataclass(frozen=True, slots=True)
class KafkaCleaner:
    """``runs``: None where neither settings nor agent say so. ``told``: a sentence without its subject."""

    runs: bool | None
    told: str

    @property
    def note(self) -> str:
        """What an operator who asks why a topic is not compacted has to know; empty where nothing is wrong."""
        return f"Kafka's own cleaner {self.told}, {CONSEQUENCE}" if self.runs is False else ""


def kafka_cleaner(facts: BrokerFacts | None, info: AgentInfo | None) -> KafkaCleaner:
    """OP-13: off by its setting, else what the agent sees in the broker.

    ``facts``, ``info``: None where the configuration is not known, or no agent answers.
    """
    properties = None if facts is None else facts.server_properties
    if properties is not None and properties.get(KEY, "true").strip().lower() == "false":
        return KafkaCleaner(runs=False, told=f"is off ({KEY} is false)")
    if info is not None and info.ready:
        if info.cleaner:
            return KafkaCleaner(runs=True, told="was started in this broker")
        return KafkaCleaner(runs=False, told="is off in this broker, as its agent reports")
    return KafkaCleaner(runs=None, told="is not known to run: no agent answers, and no setting switches it off")
