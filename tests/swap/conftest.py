"""A fresh partition for every test."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.swap.staged_partition import Scene, build

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY = Path("/dev/shm")  # noqa: S108 - hundreds of swaps with all their flushes


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Two groups staged, nothing swapped."""
    return build(tmp_path / "t-0")


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """An empty directory in memory where there is one."""
    directory = Path(tempfile.mkdtemp(prefix="cleanerd-apply-", dir=_MEMORY if _MEMORY.is_dir() else None))
    yield directory
    shutil.rmtree(directory)
