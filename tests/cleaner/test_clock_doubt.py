"""A clock that may be wrong: Wishes.clock_doubt_ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cleaner.driver import NAME, clean_all, config, scratch
from tests.support.log_dirs import Partition, make_log_dir, read_segments
from tests.swap.offline_round import NOW, batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_MS = 86_400_000


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def test_by_either_time_no_tombstone_is_removed_early(root: Path) -> None:
    """R534-2: a new horizon uses the later time, and an existing one is compared with the earlier."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1"), ("a", None)), 2: batch(2, ("b", "1")), 3: b""})})
    topic = config(delete_retention_ms=1000)
    clean_all(root, NOW, topic, clock_doubt_ms=DAY_MS)
    assert read_segments(root / NAME)[0][0].header.delete_horizon_ms == NOW + DAY_MS + 1000
    assert clean_all(root, NOW + DAY_MS + 999, topic, clock_doubt_ms=DAY_MS).removed.tombstone == 0
    assert clean_all(root, NOW + DAY_MS + 1000, topic, clock_doubt_ms=DAY_MS).removed.tombstone == 1
