"""The frozen plan of one cleaning: everything that the decision depends on, and nothing else.

The same plan gives the same bytes.
"""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from cleanerd.format.names import MAX_OFFSET, TopicPartition
from cleanerd.policy import legacy
from cleanerd.policy.rules import Encoding, Guard, Rules, TombstoneMode, WinnerRetention

if TYPE_CHECKING:
    from uuid import UUID

    from numpy.typing import NDArray

    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.policy.grouping import GroupLimits
    from cleanerd.policy.producer import LastRecords
    from cleanerd.policy.transaction import AbortedTransactions
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.segment import Segment

HASH_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Source:
    """One source segment; ``end`` is the base offset of the segment after it."""

    segment: Segment
    end: int

    @property
    def base(self) -> int:
        return self.segment.base


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What to clean, and by which compaction settings.

    ``sources``: all segments from the beginning of the log to the one with ``end_offset - 1`` (C-31). ``uncleanable``:
    the later ones, with the active one: markers in them end transactions of the sources (U-44), and a non-default
    strategy searches records there (U-1). Markers at or above ``decided_offset`` end none (U-32). ``torn_from``: the
    broker's recovery will cut the log at the first damage in the segment of this offset or after it; None: no recovery
    will follow, or a running broker reported the log's end. Up to ``proven_offset`` the log is known to be clean, below
    ``unproven_below`` by Kafka's checkpoint alone (U-50); ``first_dirty_offset`` is above it if the operator says so.
    From ``lasting_start_offset`` on, at most the log start offset, records return after a broker's crash. Records from
    ``first_dirty_offset`` to ``end_offset`` are indexed; later ones are always retained (C-45.1). Horizons up to
    ``expiry_ms`` have passed; it is below ``now_ms`` while tombstones wait for a replica (U-70). From the offset
    ``expires_below`` on none has passed; None: no such offset (U-79). ``waits``: more than the clock decides.
    ``last_records``: the batches with active producers' state; at ``producers_expired_ms`` they have expired unless
    they write again. ``aborted``: the aborted transactions up to the end of the log, by its indexes.
    ``legacy_horizon_ms``: segment files older than that may lose their v0 and v1 tombstones (C-30). ``passes_bytes``:
    how much all passes of the index may read together, None for no limit (D-11). ``map_dir``, ``map_file_bytes``,
    ``map_reserve_bytes``: the directory for keys that do not fit the map, "" for none, the largest file there, and the
    free space to leave, None for a tenth of that disk. ``convert_legacy``: retained batches in these formats become v2
    (U-18). ``hash_key`` makes the key hash of this plan unpredictable for producers.
    """

    plan_id: str
    name: TopicPartition
    path: str
    topic_id: UUID | None
    directory_id: UUID | None
    sources: tuple[Source, ...]
    uncleanable: tuple[Source, ...]
    torn_from: int | None
    log_start_offset: int
    lasting_start_offset: int
    proven_offset: int
    unproven_below: int
    first_dirty_offset: int
    end_offset: int
    first_uncleanable_offset: int
    decided_offset: int
    rules: Rules
    fingerprint: str
    now_ms: int
    expiry_ms: int
    expires_below: int | None
    waits: bool
    delete_retention_ms: int
    last_records: LastRecords
    producers_expired_ms: int
    aborted: AbortedTransactions
    legacy_horizon_ms: int
    convert_legacy: bool
    max_message_bytes: int
    limits: GroupLimits
    hash_key: bytes
    map_bytes: int
    map_load: float
    passes_bytes: int | None
    map_dir: str
    map_file_bytes: int
    map_reserve_bytes: int | None
    chunk_bytes: int
    max_unpacked_bytes: int
    facts_bytes: int
    origins: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    def expiry_of(self, last_offset: NDArray[np.int64]) -> int | NDArray[np.int64]:
        """Up to which delete horizon batches with these last offsets have expired: one value, or [b] int64."""
        if self.expires_below is None:
            return self.expiry_ms
        return np.where(last_offset < self.expires_below, self.expiry_ms, -1)

    @property
    def judged_span(self) -> tuple[int, int]:
        """The offsets between which a record's transaction matters: from the log start to the bound (U-44)."""
        return self.lasting_start_offset, self.first_uncleanable_offset

    def may_be_torn(self, source: Source) -> bool:
        """Whether damage in an uncleanable segment is treated as the end of the log."""
        return self.torn_from is not None and source.end > self.torn_from

    @property
    def guarding_sources(self) -> tuple[Source, ...]:
        """The segments after the sources whose records keep expired tombstones (U-1).

        None under ``offset`` (U-50): a tombstone deletes records below it only.
        """
        return self.uncleanable if self.rules.versioned else ()


def rules_of(config: TopicConfig) -> Rules:
    """The topic's validated compaction settings."""
    by_header = config.compaction_strategy == "header"
    return Rules(
        strategy=config.compaction_strategy,
        header=config.compaction_strategy_header if by_header else "",
        encoding=cast("Encoding", config.compaction_strategy_header_encoding),
        tombstone_mode=cast("TombstoneMode", config.tombstone_mode),
        tombstone_header=config.tombstone_header if config.tombstone_mode == "header" else "",
        tombstone_guard=cast("Guard", config.tombstone_guard),
        winner_retention=cast("WinnerRetention", config.compaction_winner_retention),
    )


def uncleanable_sources(log: PartitionLog, first: int) -> tuple[Source, ...]:
    """The segments from row ``first`` on; the active one has no end yet."""
    ends = [segment.base for segment in log.segments[1:]] + [MAX_OFFSET]
    return tuple(Source(segment, ends[row]) for row, segment in enumerate(log.segments) if row >= first)


def legacy_horizon_ms(
    sources: tuple[Source, ...], first_dirty_offset: int, delete_retention_ms: int, bound_ms: int | None
) -> int:
    """The plan's legacy horizon, from the segments that begin in the clean section (C-30).

    Formats v0 and v1 have no horizon, so the segment's last write, the retention and ``bound_ms`` (U-70; None: no
    bound) determine it.
    """
    clean = [source for source in sources if source.base < first_dirty_offset]
    times_ms = [source.segment.mtime_ns // 1_000_000 for source in clean]
    return legacy.horizon_ms(times_ms, delete_retention_ms, bound_ms)


def new_plan_id() -> str:
    """``YYYYMMDDThhmmss-`` in UTC and 8 random hex digits, lower case."""
    return f"{time.strftime('%Y%m%dt%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def new_hash_key() -> bytes:
    """A random key for the key hash of one plan."""
    return os.urandom(HASH_KEY_BYTES)
