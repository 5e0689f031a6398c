"""A cleaning's limits: memory, threads, disk space."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.policy.grouping import MAX_SEGMENT_BYTES
from cleanerd.segments.pool import ReaderPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.config.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class Resources:
    """A cleaning's limits, the same for every partition; from the settings.

    ``convert_legacy``: v0 and v1 batches become v2 (U-18), as ``profile_origin`` says. ``workers``: threads that read
    and rewrite inside one partition. ``facts_bytes``: memory for a log's batches and records. ``most_segment_bytes``:
    the largest segment to write, whatever the topic says (U-55). ``passes_bytes``: how much all passes of a cleaning
    may read together (D-11); None for no limit. ``map_dir``: the directory for keys that do not fit the offset map, ""
    for none; ``map_file_bytes``: the largest file there per cleaning. ``new_plan_id`` and ``new_hash_key`` replace a
    plan's random values; None: random ones.
    """

    map_bytes: int
    map_load: float
    chunk_bytes: int
    max_unpacked_bytes: int
    disk_reserve_bytes: int | None
    producer_id_expiration_ms: int
    lease_required: bool
    convert_legacy: bool = True
    profile_origin: str = "default"
    plan_max_age_ms: int = 7 * 86_400_000
    workers: int = 1
    facts_bytes: int = 1 << 60
    map_dir: str = ""
    map_file_bytes: int = 1 << 60
    passes_bytes: int | None = None
    most_segment_bytes: int = MAX_SEGMENT_BYTES
    new_plan_id: Callable[[], str] | None = None
    new_hash_key: Callable[[], bytes] | None = None

    def readers(self, path: str) -> ReaderPool:
        """Opens the partition's directory ``path`` to read it."""
        return ReaderPool(
            path,
            workers=self.workers,
            chunk_bytes=self.chunk_bytes,
            largest_batch_bytes=self.max_unpacked_bytes,
        )


def disk_reserve_bytes(resources: Resources, config: TopicConfig, path: str) -> int:
    """Bytes to leave free: the setting, else the larger of a tenth of the disk and two segments (U-16)."""
    if resources.disk_reserve_bytes is not None:
        return resources.disk_reserve_bytes
    status = os.statvfs(path)
    return max(status.f_blocks * status.f_frsize // 10, 2 * config.segment_bytes)
