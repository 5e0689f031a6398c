"""Where the duels take place."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.differential.seeds import kafkas_checkpoint_is_believed

if TYPE_CHECKING:
    from collections.abc import Iterator

MEMORY = Path("/dev/shm")  # noqa: S108  # a file system, not a file with a guessable name
ROOM_BYTES = 256 << 20
"""What the largest history takes, several times; containers often have less there."""


@pytest.fixture(autouse=True)
def by_kafkas_rules() -> Iterator[None]:
    """Both sides believe Kafka's checkpoint."""
    with kafkas_checkpoint_is_believed():
        yield


@pytest.fixture
def work() -> Iterator[Path]:
    """A directory in memory where there is such a file system: Kafka flushes a log dozens of times a round."""
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM_BYTES
    path = Path(tempfile.mkdtemp(prefix="differential-", dir=MEMORY if in_memory else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)
