"""A log directory that is held, and what a cleaning in it may use."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.apply.lock import LogDirLock
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig


@dataclass(frozen=True, slots=True)
class Means:
    """What a cleaning may use, the same for every partition; from the settings.

    ``convert_legacy``: v0 and v1 batches become v2 (U-18), as ``profile_origin`` says. ``workers`` is how many
    threads read and rewrite inside one partition.
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


@dataclass(frozen=True, slots=True)
class LockedDir:
    """A log directory that is ours for now. ``checkpoint_lock``: partitions cleaned at once share its files.

    ``keep_replaced``: where segments that are replaced are kept for ``undo`` (S-40); None: nowhere.
    """

    log_dir: LogDir
    lock: LogDirLock
    store: StateStore
    means: Means
    checkpoint_lock: threading.Lock = field(default_factory=threading.Lock)
    keep_replaced: Path | None = None


def disk_reserve_bytes(means: Means, config: TopicConfig, path: str) -> int:
    """What stays free: the setting, else the larger of a tenth of the disk and two segments (U-16)."""
    if means.disk_reserve_bytes is not None:
        return means.disk_reserve_bytes
    status = os.statvfs(path)
    return max(status.f_blocks * status.f_frsize // 10, 2 * config.segment_bytes)
