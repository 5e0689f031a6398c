"""A topic's compaction settings: which record of a key is retained, what is a tombstone, and when it is removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cleanerd.policy.strategy import STRATEGIES

if TYPE_CHECKING:
    from cleanerd.policy.strategy import Strategy

Encoding = Literal["long", "varlong"]
TombstoneMode = Literal["null", "flag", "header"]
Guard = Literal["horizon", "forever"]
WinnerRetention = Literal["record-time", "write-time"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The topic's settings that decide which records are retained (R280-1, R87-1, U-4).

    ``header`` has the version, written as ``encoding`` says. ``tombstone_header`` makes a record with a value a
    tombstone (R87-4). Unused names are empty. ``winner_retention``: which time retention uses for a record that
    supersedes younger ones: its own, or that of the key's last write (U-65).
    """

    strategy: str = "offset"
    header: str = ""
    encoding: Encoding = "long"
    tombstone_mode: TombstoneMode = "null"
    tombstone_header: str = ""
    tombstone_guard: Guard = "horizon"
    winner_retention: WinnerRetention = "record-time"

    @property
    def keeps_write_time(self) -> bool:
        """Whether a batch takes over the times of the records that it supersedes."""
        return self.versioned and self.winner_retention == "write-time"

    @property
    def ranking(self) -> Strategy:
        """The strategy of that name."""
        return STRATEGIES[self.strategy]

    @property
    def versioned(self) -> bool:
        """Whether the strategy uses more than offsets."""
        return self.ranking.versioned

    @property
    def is_kafkas(self) -> bool:
        """Whether Kafka's cleaner would decide the same (U-8, U-10)."""
        return self.strategy == "offset" and self.tombstone_mode == "null"

    @property
    def version_header(self) -> bytes | None:
        """The header to decode versions from, None when they are not in headers."""
        return self.header.encode() if self.ranking.needs_header else None

    @property
    def flag_header(self) -> bytes | None:
        """The header that makes a record a tombstone; None if headers do not."""
        return self.tombstone_header.encode() if self.tombstone_mode == "header" and self.tombstone_header else None
