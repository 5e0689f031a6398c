"""Helpers for the offline tests: a small log with two groups to swap, and the command's settings."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir
from cleanerd.swap.undo import UndoResult, entries_of, undo_cleaning
from tests.cleaner.driver import Silent, config, resources
from tests.support.log_dirs import (
    Partition,
)
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult


NOW = BASE_TIMESTAMP_MS + 1_000_000
PARTITION = TopicPartition("orders", 0)


def batch(base: int, *entries: tuple[str | None, str | None]) -> bytes:
    return keyed_batch(base, entries, timestamp=NOW - 1000)


def two_groups() -> Partition:
    """Two segments that change, a large unchanged one between them, and the latest value of every key."""
    large = batch(4, ("big", "x" * 3000))
    logs = {
        0: batch(0, ("a", "1"), ("b", "1"), ("c", "1")),
        4: large,
        5: batch(5, ("a", "2"), ("b", "2"), ("a", "3")),
        8: b"",
    }
    return Partition(logs)


TOPIC = config(segment_bytes=3000)


def state_file(root: Path) -> Path:
    (found,) = (root.parent / "state" / "partitions").rglob("*.json")
    return found


def force(now_ms: int = NOW, **options: object) -> CleaningOptions:
    return CleaningOptions(now_ms=now_ms, force=True, **options)  # type: ignore[arg-type]


@contextmanager
def opened(root: Path) -> Iterator[LockedDir]:
    path = root / "logs"
    with LogDirLock.acquire(path, settle_seconds=0) as lock:
        yield LockedDir(read_log_dir(path), lock, StateStore(root / "state"), resources(), keep_replaced=root / "kept")


def clean_and_keep(root: Path) -> CleaningResult:
    with opened(root) as locked:
        return clean_partition(locked, PARTITION, config(), CleaningOptions(NOW, force=True), Silent())


def undo_last(root: Path) -> UndoResult:
    kept_segments = KeptSegments(root / "state")
    with opened(root) as locked:
        return undo_cleaning(locked, kept_segments, entries_of(kept_segments, locked.log_dir)[0])
