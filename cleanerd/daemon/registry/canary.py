"""The canary's state: cleaned and verified logs, and findings (D-18..D-20); ``canary.json`` in the state directory.

Pure. A cleaning is charged before it begins, so a killed daemon has charged too much rather than too little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

from cleanerd.format.names import TopicPartition
from cleanerd.fsio.state_files import UnreadableState
from cleanerd.humanize import human_bytes
from cleanerd.state.document import Document

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.partition_scan import Key
    from cleanerd.policy.canary import CanaryBudget

DAY_MS: Final = 86_400_000
RELEASE: Final = "cleanerd resume --canary"


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """A partition that was cleaned but not verified yet. ``size_bytes``: its log's size when the cleaning began."""

    log_dir: str
    topic: str
    partition: int
    topic_id: str
    size_bytes: int
    began_ms: int

    @property
    def key(self) -> Key:
        return self.log_dir, TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class CanaryHold:
    """Why cleaning is on hold: the ``finding`` and the partition, which is empty if the whole file is unusable."""

    log_dir: str
    partition: str
    finding: str
    since_ms: int

    def __str__(self) -> str:
        where = f"{self.partition} in {self.log_dir}: " if self.partition else ""
        return f"the canary stopped cleaning: {where}{self.finding} (verify again: cleanerd retry; continue: {RELEASE})"


@dataclass(frozen=True, slots=True)
class CanaryState:
    """``spent_bytes``: verified cleanings of the day that began at ``day_ms``.

    ``verified``: the number of all so far.
    """

    unverified: tuple[CleanedLog, ...]
    spent_bytes: int
    day_ms: int
    verified: int
    hold: CanaryHold | None

    def at(self, now_ms: int) -> Self:
        """The state at that time: a new day has spent nothing.

        A clock that was set back delays that by a day at most.
        """
        if now_ms >= self.day_ms + DAY_MS:
            return replace(self, spent_bytes=0, day_ms=now_ms)
        return replace(self, day_ms=min(self.day_ms, now_ms))

    def refusal(self, budget: CanaryBudget, key: Key, size_bytes: int) -> str:
        """Why a cleaning of the log ``key`` does not fit the budget now; empty when it does (D-18)."""
        if self.hold is not None:
            return str(self.hold)
        if reason := too_large(budget, size_bytes):
            return reason
        if any(each.key == key for each in self.unverified):
            return "its last cleaning is verified first (cleanerd.canary)"
        if budget.partitions is not None and len(self.unverified) >= budget.partitions:
            return f"the budget of cleanerd.canary ({budget}) is used up: its cleanings are verified first"
        used_bytes = self.spent_bytes + sum(each.size_bytes for each in self.unverified)
        if budget.day_bytes is not None and used_bytes + size_bytes > budget.day_bytes:
            return f"today's budget of cleanerd.canary ({budget}) is used up"
        return ""

    def charged(self, log: CleanedLog) -> Self:
        """The state when the cleaning of ``log`` begins."""
        return replace(self, unverified=(*self.unverified, log))

    def without(self, key: Key) -> Self:
        """The state without a log that was not changed or does not exist any more."""
        return replace(self, unverified=tuple(each for each in self.unverified if each.key != key))

    def verified_log(self, log: CleanedLog) -> Self:
        """The state after a log was verified: its bytes count for the day."""
        left = self.without(log.key)
        return replace(left, spent_bytes=self.spent_bytes + log.size_bytes, verified=self.verified + 1)


NOTHING_CLEANED: Final = CanaryState((), 0, 0, 0, None)


def _check(state: CanaryState) -> None:
    if min(state.spent_bytes, state.verified, *(each.size_bytes for each in state.unverified)) < 0:
        raise ValueError("a count is negative")


DOCUMENT: Final = Document("canary.json", CanaryState, check=_check)


def too_large(budget: CanaryBudget | None, size_bytes: int) -> str:
    """Why a log does not fit even an unused budget; empty if it does."""
    if budget is None or budget.day_bytes is None or size_bytes <= budget.day_bytes:
        return ""
    return f"its log of {human_bytes(size_bytes)} is larger than cleanerd.canary ({budget})"


def load_canary(state_dir: Path, now_ms: int) -> CanaryState:
    """The stored state. If it cannot be read, cleanings are held: it is unknown what was cleaned and not verified."""
    found = DOCUMENT.read(state_dir)
    if isinstance(found, UnreadableState):
        finding = f"{found}, so it is unknown which cleanings were not verified"
        return replace(NOTHING_CLEANED, hold=CanaryHold("", "", finding, now_ms))
    return found or NOTHING_CLEANED
