"""A group whose first source alone grows past the size that a segment can have (U-17, T-28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.rewrite import rewrite_group
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.errors import SegmentGrowsError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.pool import ReaderPool
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import NAME, Silent, config, resources
from tests.cleaner.keyed_log import NOW, batch, lopsided, tail
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray


class Written:
    """The output of a rewrite; counts the bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def lead(self) -> None:
        """No bytes may precede the output."""

    def write(self, block: NDArray[np.uint8], lead_bytes: int = 0) -> None:
        """Write this many bytes more."""
        self.bytes += len(block) - lead_bytes


def test_a_first_source_that_no_segment_can_hold(tmp_path: Path) -> None:
    """It is refused by name, before a byte past 2^31-1 is written, which no index can address."""
    root = tmp_path / "logs"
    make_log_dir(root, {NAME: Partition({0: lopsided(0, "k", 900), 10: tail(10), 20: batch(20, ("z", "1"))})})
    log_dir, options = read_log_dir(root), CleaningOptions(now_ms=NOW, force=True)
    found = survey(log_dir, TopicPartition("orders", 0), config(), StateStore(tmp_path / "state"), options)
    written = Written()
    with ReaderPool(str(root / NAME), workers=1, chunk_bytes=1 << 20) as pool:
        plan = make_plan(log_dir, found, resources(most_segment_bytes=900), options, pool.reader)
        members = Cleaning(plan, pool, Silent()).decide().segments
        assert len(members) == 2
        with pytest.raises(SegmentGrowsError, match="segment 0 grows past 900 bytes"):
            rewrite_group(plan, pool, members, written, lambda _: None)
    assert written.bytes == 0
