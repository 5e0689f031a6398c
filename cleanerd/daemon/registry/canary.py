"""What the canary has cleaned, verified and found (D-18..D-20): ``canary.json`` in the state directory. Pure.

A cleaning is charged before it begins, so a daemon that is killed has charged too much rather than too little.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from cleanerd.format.names import TopicPartition
from cleanerd.fsio.json_text import document_bytes
from cleanerd.fsio.state_files import UnreadableState, read_entries, require_format
from cleanerd.humanize import human_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.partition_scan import Key
    from cleanerd.policy.canary import CanaryBudget

FILE_NAME: Final = "canary.json"
DAY_MS: Final = 86_400_000
_FORMAT: Final = 1
RELEASE: Final = "cleanerd resume --canary"


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """A partition that was cleaned and not verified yet. ``size_bytes``: of its log when the cleaning began."""

    log_dir: str
    topic: str
    partition: int
    topic_id: str
    size_bytes: int
    began_ms: int

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        """Raises one of ``DAMAGE``: it is not such an entry."""
        return cls(
            str(entry["log_dir"]),
            str(entry["topic"]),
            _count(entry["partition"]),
            str(entry["topic_id"]),
            _count(entry["size_bytes"]),
            int(entry["began_ms"]),
        )

    @property
    def key(self) -> Key:
        return self.log_dir, TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class CanaryHold:
    """Why nothing more is cleaned: the ``finding``, and the partition; empty where the whole file is meant."""

    log_dir: str
    partition: str
    finding: str
    since_ms: int

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        """Raises one of ``DAMAGE``: it is not such an entry."""
        return cls(str(entry["log_dir"]), str(entry["partition"]), str(entry["finding"]), int(entry["since_ms"]))

    def __str__(self) -> str:
        where = f"{self.partition} in {self.log_dir}: " if self.partition else ""
        return f"the canary holds: {where}{self.finding} (verify again: cleanerd retry; go on: {RELEASE})"


@dataclass(frozen=True, slots=True)
class CanaryState:
    """``spent_bytes``: verified cleanings of the day that began at ``day_ms``. ``verified``: how many ever."""

    unverified: tuple[CleanedLog, ...] = ()
    spent_bytes: int = 0
    day_ms: int = 0
    verified: int = 0
    hold: CanaryHold | None = None

    def at(self, now_ms: int) -> Self:
        """On a new day nothing is spent. A clock that was set back delays the next day by one day at most."""
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
        """Its cleaning begins."""
        return replace(self, unverified=(*self.unverified, log))

    def without(self, key: Key) -> Self:
        """That log was not changed, or does not exist any more."""
        return replace(self, unverified=tuple(each for each in self.unverified if each.key != key))

    def verified_log(self, log: CleanedLog) -> Self:
        """Nothing is wrong with it: its bytes count for the day."""
        left = self.without(log.key)
        return replace(left, spent_bytes=self.spent_bytes + log.size_bytes, verified=self.verified + 1)

    def to_bytes(self) -> bytes:
        """The document."""
        return document_bytes({"format": _FORMAT, **asdict(self)})

    @classmethod
    def of_bytes(cls, data: bytes) -> Self:
        """The state in a document.

        Raises:
            One of ``DAMAGE``: it is not such a document.
        """
        document = json.loads(data)
        require_format(document, _FORMAT)
        logs = (CleanedLog.of(each) for each in document["unverified"])
        hold = None if document["hold"] is None else CanaryHold.of(document["hold"])
        spent_bytes, verified = _count(document["spent_bytes"]), _count(document["verified"])
        return cls(tuple(logs), spent_bytes, int(document["day_ms"]), verified, hold)


def too_large(budget: CanaryBudget | None, size_bytes: int) -> str:
    """Why a log does not fit even an unused budget; empty when it does."""
    if budget is None or budget.day_bytes is None or size_bytes <= budget.day_bytes:
        return ""
    return f"its log of {human_bytes(size_bytes)} is larger than cleanerd.canary ({budget})"


def load_canary(state_dir: Path, now_ms: int) -> CanaryState:
    """The stored state. One that cannot be read holds: how much was cleaned since is unknown."""
    found = read_entries(state_dir / FILE_NAME, lambda data: [CanaryState.of_bytes(data)])
    if isinstance(found, UnreadableState):
        finding = f"{found}, so it is unknown what was cleaned and not verified"
        return CanaryState(hold=CanaryHold("", "", finding, now_ms))
    return found[0] if found else CanaryState()


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("is not a count")
    return value
