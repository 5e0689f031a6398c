"""Whether Kafka's cleaner works in the broker of a log directory, from settings and agent (OP-13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.humanize import counted, human_ms

if TYPE_CHECKING:
    from cleanerd.broker.agent_facts import AgentInfo
    from cleanerd.resolution.broker_facts import BrokerFacts

KEY: Final = "log.cleaner.enable"
THREADS: Final = "log.cleaner.threads"
IDLE_MS: Final = 6 * 3_600_000
"""Kafka's cleaner checks for work every 15 s, but not while each of its threads cleans a large partition."""

_NO_CLEANER: Final = (
    "so nothing compacts the topics that cleanerd does not clean, and none while cleanerd only observes"
)
_SET_ASIDE: Final = "so these are compacted only if cleanerd cleans them"
_FIX_OFF: Final = (
    f"set {KEY}=true in server.properties and restart the broker, or let cleanerd clean all compacted topics"
)
_FIX_DEAD: Final = "the broker's log has the error (LogCleaner); remove its cause and restart the broker"
_FIX_SET_ASIDE: Final = "run cleanerd verify on them; the broker's log has the error, and a restart tries them again"


@dataclass(frozen=True, slots=True)
class KafkaCleaner:
    """The state of Kafka's cleaner. ``runs``: None if neither settings nor agent show it.

    ``predicate``: a sentence without its subject. ``consequence`` and ``fix``: empty if all is well.
    """

    runs: bool | None
    predicate: str
    consequence: str = ""
    fix: str = ""

    @property
    def note(self) -> str:
        """A note for the operator of a topic that is not compacted; empty if all is well."""
        return f"Kafka's own cleaner {self.predicate}, {self.consequence}" if self.consequence else ""


def kafka_cleaner(facts: BrokerFacts | None, info: AgentInfo | None) -> KafkaCleaner:
    """OP-13: off by its setting, else as the agent reports it.

    ``facts``, ``info``: None if the configuration is unknown, or no agent answers.
    """
    properties = (None if facts is None else facts.server_properties) or {}
    if properties.get(KEY, "true").strip().lower() == "false":
        return KafkaCleaner(False, f"is off ({KEY} is false)", _NO_CLEANER, _FIX_OFF)
    if info is None or not info.ready:
        return KafkaCleaner(None, "may run: no agent answers, and no setting turns it off")
    if not info.cleaner:
        return KafkaCleaner(False, "is off in this broker, as its agent reports", _NO_CLEANER, _FIX_OFF)
    return _in_broker(info, properties.get(THREADS, "1"))


def _in_broker(info: AgentInfo, threads: str) -> KafkaCleaner:
    """From the broker's own figures. ``threads``: how many it was started with."""
    state = info.kafka_cleaner
    if state is None:
        return KafkaCleaner(True, "was started in this broker")
    if dead := state.dead_threads or 0:
        left = max(int(threads) - dead, 0) if threads.strip().isdecimal() else 0
        return KafkaCleaner(
            left > 0, f"lost {counted(dead, 'thread')} to an error, {left} left", _NO_CLEANER, _FIX_DEAD
        )
    if state.uncleanable:
        names = ", ".join(state.uncleanable_names[:5]) + (", ..." if state.uncleanable > 5 else "")
        predicate = f"set {counted(state.uncleanable, 'partition')} aside after an error: {names}"
        return KafkaCleaner(True, predicate, _SET_ASIDE, _FIX_SET_ASIDE)
    if (idle_ms := state.since_last_run_ms or 0) > IDLE_MS:
        return KafkaCleaner(True, f"has not checked for work for {human_ms(idle_ms)}", _NO_CLEANER, _FIX_DEAD)
    return KafkaCleaner(True, "runs in this broker")
