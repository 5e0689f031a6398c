"""Logs that several tests in this directory read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from tests.segments.pool_log import BATCHES, listed
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.segment import Segment


@pytest.fixture
def partition(tmp_path: Path) -> tuple[str, Segment]:
    """Directory and segment of some 400 KiB in batches of about 130 bytes."""
    data = b"".join(keyed_batch(base, [(f"k{base}", "v" * 60)]) for base in range(BATCHES))
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": Partition({0: data, BATCHES: b""})})
    path = str(log_dir / "orders-0")
    return path, listed(path)


@pytest.fixture
def several(tmp_path: Path) -> tuple[str, list[Segment]]:
    """Directory and segments: large and small ones, some of them empty."""
    counts, segments, base = [900, 0, 3, 1500, 40, 0, 700, 0], {}, 0
    for count in counts:
        segments[base] = b"".join(keyed_batch(base + row, [(f"k{row}", "v" * 60)]) for row in range(count))
        base += max(count, 1)
    log_dir = make_log_dir(tmp_path / "s", {"orders-0": Partition({**segments, base: b""})})
    found = read_log_dir(log_dir)
    return str(log_dir / "orders-0"), list(read_partition(found, found.partitions[0]).segments[: len(counts)])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Directory of a metadata log without any files."""
    made = tmp_path / "__cluster_metadata-0"
    made.mkdir()
    return made
