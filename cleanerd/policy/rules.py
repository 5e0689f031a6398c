"""A topic's compaction settings: which record of a key is retained, what is a tombstone, and when it is removed.

A strategy gives every record a version, or none. Of two records of a key, the one with the higher (has a version,
version, offset) wins. No version is below every version, -1 included; equal versions compare their offsets. Another
strategy needs a class and a line in the registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, Protocol

import numpy as np

from cleanerd._kernel import FLAG_HAS_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cleanerd import _kernel


class Versions(NamedTuple):
    """The version of each record: ``version`` [n] int64, ignored where ``present`` [n] bool is False."""

    version: NDArray[np.int64]
    present: NDArray[np.bool_]


class Strategy(Protocol):
    """How the records of a key are ranked.

    ``versioned``: by more than their offsets, so that a clean record can win over a dirty one (R280-10).
    ``needs_header``: the versions are in a header that the topic configures.
    """

    name: ClassVar[str]
    versioned: ClassVar[bool]
    needs_header: ClassVar[bool]

    def versions(self, records: _kernel.Records) -> Versions:
        """The versions of ``records``, decoded with the topic's header when the strategy needs one."""


class ByOffset:
    """Kafka's own strategy (R280-3): no record has a version."""

    name: ClassVar[str] = "offset"
    versioned: ClassVar[bool] = False
    needs_header: ClassVar[bool] = False

    def versions(self, records: _kernel.Records) -> Versions:
        return Versions(np.zeros(len(records), dtype=np.int64), np.zeros(len(records), dtype=np.bool_))


class ByTimestamp:
    """By the record's timestamp, or its batch's under LogAppendTime (R280-4).

    Records of format v0 have -1, the lowest.
    """

    name: ClassVar[str] = "timestamp"
    versioned: ClassVar[bool] = True
    needs_header: ClassVar[bool] = False

    def versions(self, records: _kernel.Records) -> Versions:
        """The timestamps as a consumer sees them: a delete horizon in the base timestamp does not change them."""
        return Versions(records.timestamp, np.ones(len(records), dtype=np.bool_))


class ByHeader:
    """A signed long in the last header of the configured name (R280-5), if valid (R280-6)."""

    name: ClassVar[str] = "header"
    versioned: ClassVar[bool] = True
    needs_header: ClassVar[bool] = True

    def versions(self, records: _kernel.Records) -> Versions:
        return Versions(records.version, (records.flags & FLAG_HAS_VERSION) != 0)


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType({
    strategy.name: strategy for strategy in (ByOffset(), ByTimestamp(), ByHeader())
})  # fmt: skip
"""All strategies, by their name in ``compaction.strategy`` (R280-2)."""


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
        return STRATEGIES[self.strategy]

    @property
    def versioned(self) -> bool:
        """Whether the strategy uses more than offsets."""
        return STRATEGIES[self.strategy].versioned

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
