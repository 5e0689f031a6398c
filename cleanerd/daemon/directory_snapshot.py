"""The state of a partition's directory at its last scan, which shows whether to scan it again."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.fsio.directory_time import NEVER, directory_time
from cleanerd.policy.replicas import BY_CLOCK, ExpiryBound
from cleanerd.segments.partition import DirectoryListing, PartitionLog, number_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.broker.partition_snapshot import PartitionSnapshot
    from cleanerd.config.load import Settings
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.daemon.partition_scan import PartitionScan

FORCED_SCAN_MS: Final = 1_800_000
"""Every partition is scanned this often, even if its directory is unchanged."""

CONFIG_APPLIED_MS: Final = 30_000
"""A running broker has applied a changed configuration by then."""


@dataclass(slots=True)
class DirectorySnapshot:
    """The state of a partition at its last scan.

    ``files``: the hash of the listing; ``active``: the log's end then, base offset and bytes. ``settled``: only a
    change there, or time (``again_ms``), can change the result. ``settings``: those of the job that scanned it at its
    end; None for other scans. ``since``: the log was not truncated after this moment. ``expiry``: up to which delete
    horizon tombstones could be removed; ``next_purge_ms``: the next horizon, if known.
    """

    mtime_ns: int
    files: int
    config: TopicConfig | None
    mode: str
    settled: bool
    again_ms: int
    active: tuple[int, int] | None
    settings: Settings | None = None
    since: float = field(default_factory=time.monotonic)
    expiry: ExpiryBound = BY_CLOCK
    next_purge_ms: int | None = None

    @classmethod
    def of(
        cls,
        scan: PartitionScan,
        reading: PartitionSnapshot,
        config: TopicConfig | None,
        mode: str,
        listed: DirectoryListing | None,
    ) -> Self:
        """The snapshot of a ``scan``, made from ``reading``; ``listed``: its files; None: it has more files."""
        again_ms = scan.scanned_ms + FORCED_SCAN_MS + hash(scan.name) % (FORCED_SCAN_MS // 4)
        if scan.again_ms is not None:
            again_ms = min(again_ms, scan.again_ms)
        active = reading.log.active
        changed_ns, files = (-1, -1) if listed is None else (listed.changed_ns, listed.number)
        settled = scan.settled and reading.settled and listed is not None
        return cls(
            changed_ns,
            files,
            config,
            mode,
            settled,
            again_ms,
            (active.base, active.size_bytes),
            expiry=scan.expiry,
            next_purge_ms=scan.next_purge_ms,
        )

    def removal_wait_changed(self, partition: int, config: TopicConfig | None, now_ms: int) -> bool:
        """Whether the condition that tombstones wait for has come or changed, by a newer ``config`` (U-73)."""
        if self.expiry.at_ms is None or config is None or config.replicas is None:
            return False
        bound = config.replicas.bound(partition, now_ms, first_dirty_offset=self.expiry.below_offset)
        if (bound.missing, bound.peers) != (self.expiry.missing, self.expiry.peers):
            return True
        # A partition that the next scan would find due, but the last one did not.
        due_ms = self.next_purge_ms
        return due_ms is not None and self.expiry.expiry_ms(now_ms) < due_ms <= bound.expiry_ms(now_ms)

    def inherit_since(self, before: DirectorySnapshot | None) -> None:
        """Keep ``since`` of an earlier snapshot of the same log, if it was not truncated in between."""
        known, now = None if before is None else before.active, self.active
        if before is not None and known is not None and now is not None and known <= now:
            self.since = before.since


def mtime_ns(path: str) -> int:
    """When a name in the directory changed last; -1 if unknown, or if a later change may have that time."""
    try:
        return directory_time(path).to_compare_ns
    except OSError:
        return NEVER


def listed(path: str) -> list[tuple[str, int]] | None:
    """Names and inodes in the directory; None if it cannot be listed."""
    try:
        with os.scandir(path) as entries:
            return [(each.name, each.inode()) for each in entries]
    except OSError:
        return None


def files_in(path: str) -> int:
    """The hash of the directory's names; -1 if it cannot be listed."""
    return -1 if (found := listed(path)) is None else number_of(found)


def matches_listing(found: Sequence[tuple[str, int]], log: PartitionLog) -> bool:
    segments = {(file_name(segment.base, SEGMENT_SUFFIX), segment.inode) for segment in log.segments}
    return segments == {each for each in found if each[0].endswith(SEGMENT_SUFFIX)}
