"""Batches of keyed records for the tests of segment groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cleaner.driver import NAME
from tests.support.log_dirs import read_segments
from tests.support.logs import BASE_TIMESTAMP_MS, keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

NOW = BASE_TIMESTAMP_MS + 1_000_000


def batch(base: int, *entries: tuple[str | None, str | None], codec: int = 0) -> bytes:
    return keyed_batch(base, entries, codec=codec, timestamp=NOW - 1000)


def keys(root: Path) -> dict[int, list[tuple[int, str]]]:
    return {
        base: [(record.offset, (record.key or b"").decode()) for stored in batches for record in stored.records]
        for base, batches in read_segments(root / NAME).items()
    }


def lopsided(base: int, key: str, size: int, *, codec: int = 0) -> bytes:
    """Ten records of one batch: ``tail`` supersedes nine small ones, the large one stays and is estimated a tenth."""
    small = [(f"s{number}", "x") for number in range(9)]
    return batch(base, *small, (key, "y" * size), codec=codec)


def tail(base: int) -> bytes:
    return batch(base, *[(f"s{number}", "last") for number in range(9)], ("end", "1"))
