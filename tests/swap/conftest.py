"""A new partition for every test."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.swap.staged_partition import StagedPartition, build

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = Path("/dev/shm")  # noqa: S108 - hundreds of swaps with all their flushes


@pytest.fixture
def partition(tmp_path: Path) -> StagedPartition:
    """Two staged groups, none swapped."""
    return build(tmp_path / "t-0")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """An empty directory in a memory file system, if there is one."""
    directory = Path(tempfile.mkdtemp(prefix="cleanerd-apply-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield directory
    shutil.rmtree(directory)
