"""The working directory of the comparisons."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.seeds import kafkas_checkpoint_counts

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = Path("/dev/shm")  # noqa: S108  # a file system, not a file with a guessable name
ROOM_BYTES = 256 << 20
"""The space for the largest history, several times; containers often have less there."""


@pytest.fixture(autouse=True)
def by_kafkas_rules() -> Iterator[None]:
    """Both sides use Kafka's checkpoint."""
    with kafkas_checkpoint_counts():
        yield


@pytest.fixture
def work() -> Iterator[Path]:
    """A directory in a memory file system, if there is one: Kafka flushes a log dozens of times per cleaning."""
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    path = Path(tempfile.mkdtemp(prefix="differential-", dir=MEMORY if in_memory else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)
