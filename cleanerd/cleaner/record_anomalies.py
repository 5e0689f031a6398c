"""Records that do not fit the topic's settings: handled, counted and reported (R280-6, R87-3).

Each record counts once: in the cleaning in which it is dirty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd._kernel import FLAG_BAD_VERSION, FLAG_HAS_VERSION
from cleanerd.cleaner.evidence import legacy_rows
from cleanerd.policy.tombstone import nulls_without_flag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cleanerd import _kernel
    from cleanerd.policy.rules import Rules

MAX_LISTED: Final = 5
"""How many malformed headers a cleaning lists with offsets; further ones are only counted."""


COUNTS: Final = ("records", "malformed_versions", "without_version", "nulls_without_flag", "far_future")

FAR_FUTURE_MS: Final = 3_600_000
"""How far a producer's clock may be ahead by Kafka's default (``message.timestamp.after.max.ms`` since 4.0)."""


class RecordAnomalies:
    """Counts over the dirty records with a key that consumers see; ``records``: their number.

    ``malformed_versions``: the header exists but has no valid version. ``without_version``: the header is absent or
    malformed. ``nulls_without_flag``: null values under ``tombstone.mode=flag``. ``far_future``: timestamps more than
    an hour after the plan's time, if timestamps decide: such a record wins until then.
    """

    def __init__(self, rules: Rules, now_ms: int) -> None:
        self._latest_ms = now_ms + FAR_FUTURE_MS if rules.strategy == "timestamp" else None
        self._by_header = rules.ranking.needs_header
        self._by_flag = rules.tombstone_mode == "flag"
        self.malformed_versions = 0
        self.without_version = 0
        self.nulls_without_flag = 0
        self.far_future = 0
        self.records = 0
        self.malformed_at: list[int] = []

    def add(self, chunk: _kernel.Chunk, mask: NDArray[np.bool_]) -> None:
        """Count the rows of ``mask`` [n]."""
        flags = chunk.records.flags
        self.records += int(np.count_nonzero(mask))
        if self._latest_ms is not None:
            self.far_future += int(np.count_nonzero(mask & (chunk.records.timestamp > self._latest_ms)))
        if self._by_header:
            malformed = mask & ((flags & FLAG_BAD_VERSION) != 0)
            count = int(np.count_nonzero(malformed))
            if count and len(self.malformed_at) < MAX_LISTED:
                self.malformed_at += chunk.records.offset[malformed][: MAX_LISTED - len(self.malformed_at)].tolist()
            self.malformed_versions += count
            self.without_version += int(np.count_nonzero(mask & ((flags & FLAG_HAS_VERSION) == 0)))
        if self._by_flag:
            bare = mask & nulls_without_flag(flags, legacy_rows(chunk.batches))
            self.nulls_without_flag += int(np.count_nonzero(bare))

    def merge(self, later: RecordAnomalies) -> None:
        """Add the counts of a later part of the log."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.malformed_at = (self.malformed_at + later.malformed_at)[:MAX_LISTED]

    def to_json(self) -> dict[str, Any]:
        """The counts, for :meth:`load`."""
        return {name: getattr(self, name) for name in (*COUNTS, "malformed_at")}

    def load(self, counts: Mapping[str, Any]) -> None:
        """Replace all counts by those of :meth:`to_json`."""
        for name in (*COUNTS, "malformed_at"):
            setattr(self, name, counts[name])

    def describe_malformed(self) -> str:
        """How many malformed headers, and the offsets of the first few (R280-6)."""
        shown = ", ".join(str(offset) for offset in self.malformed_at)
        more = ", ..." if self.malformed_versions > len(self.malformed_at) else ""
        return f"{self.malformed_versions} of them with a malformed one (at offsets {shown}{more})"
