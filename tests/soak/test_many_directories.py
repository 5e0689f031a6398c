"""Leaks per scan or log directory show if there are many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.soak.many_directories import DIRECTORIES, PARTITIONS, ManyDirectories
from tests.soak.verdict import failing, table

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_grows_beside_many_log_directories(tmp_path: Path) -> None:
    """Threads, descriptors, watches, memory, state files: constant over two minutes of scans and cleanings."""
    soak = ManyDirectories(120.0, tmp_path)
    rows = soak.run()
    lines: list[str] = []
    table(rows, soak.checks, lines.append)
    assert not failing([*rows, *soak.checks]), "\n".join(lines)
    first, last = (soak.samples.series["cleanings"][number][1] for number in (0, -1))
    assert last - first > DIRECTORIES * PARTITIONS, "each of them at least once while it was measured"
