"""What the tests of the offline path share: a small log with two groups to swap, and who asks for what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import config
from tests.support.log_dirs import (
    Partition,
)
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

if TYPE_CHECKING:
    from pathlib import Path


NOW = BASE_TIMESTAMP_MS + 1_000_000


def batch(base: int, *entries: tuple[str | None, str | None]) -> bytes:
    return keyed_batch(base, entries, timestamp=NOW - 1000)


def two_groups() -> Partition:
    """Two segments that change, a large one between them that does not, and the newest value of every key."""
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
