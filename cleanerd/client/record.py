"""A record as a reader received it, interpreted by the topic's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.policy.version import Rank, rank

if TYPE_CHECKING:
    from cleanerd.client.rules import Headers, TopicRules

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record of a topic. ``flagged``: bit 5 of its attributes, always False from confluent-kafka (U-25).

    ``timestamp_ms``: -1 if it has none. ``magic``: that of its batch; confluent-kafka hides it, so it is 2 there.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    rules: TopicRules
    flagged: bool = False
    magic: int = 2

    def is_tombstone(self) -> bool:
        """Whether it deletes its key, by the topic's ``tombstone.mode`` (R87-7)."""
        return self.rules.is_tombstone(self.value, self.headers, flagged=self.flagged, magic=self.magic)

    @property
    def version(self) -> int | None:
        """The version that the topic's strategy compares; None if the record has none, or the strategy uses none."""
        return self.rules.version(self.timestamp_ms, self.headers)

    @property
    def rank(self) -> Rank:
        """The record of a key with the largest rank is retained (R280-4..6)."""
        return rank(self.version, self.offset)
