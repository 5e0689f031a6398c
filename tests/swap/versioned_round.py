"""A partition whose records are ranked by a version header: staged, or cleaned and applied, without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import stage_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import Silent, config, resources
from tests.cleaner.strategy_cases import BY_HEADER, NOW

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig

PARTITION = TopicPartition("orders", 0)
BY_VERSION = config(**{**BY_HEADER, "segment_bytes": 100, "delete_retention_ms": 500})


def stage_versioned(log_dir: Path, topic: TopicConfig = BY_VERSION, **options: object) -> CleaningResult:
    store = StateStore(log_dir.parent / "state")
    wished = CleaningOptions(now_ms=NOW, force=True, **options)  # type: ignore[arg-type]  # by name
    result = stage_partition(read_log_dir(log_dir), store, resources(), PARTITION, topic, wished, Silent())
    assert result.outcome == "staged", result.reason
    return result


def apply_versioned(log_dir: Path, topic: TopicConfig = BY_VERSION) -> CleaningResult:
    with LogDirLock.acquire(log_dir, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(log_dir), lock, StateStore(log_dir.parent / "state"), resources())
        return apply_partition(locked, PARTITION, topic, CleaningOptions(now_ms=NOW, force=True))
