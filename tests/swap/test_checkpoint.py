"""Kafka's cleaner-offset-checkpoint: merged, replaced as a whole, never damaged (S-50, F-11, H-23)."""

from __future__ import annotations

import errno
import os
import random
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.format.names import TopicPartition
from cleanerd.swap.checkpoint import (
    CHECKPOINT,
    merge_cleaner_checkpoint,
    merge_into,
    write_cleaner_checkpoint,
)
from tests.crash.volume import RecordingFiles, State, prefixes, windows
from tests.support.failing_files import FailingFiles
from tests.support.root import needs_root

if TYPE_CHECKING:
    from pathlib import Path

OLD = b"0\n2\na 0 10\nb-with-dash 1 20\n"
NEW = b"0\n3\na 0 15\nb-with-dash 1 20\nc 7 5\n"
CHANGE = {TopicPartition("a", 0): 15, TopicPartition("c", 7): 5}


def test_merged_with_the_lines_of_others(tmp_path: Path) -> None:
    """S-50: without its line the broker would clean that partition again from the start."""
    (tmp_path / CHECKPOINT).write_bytes(OLD)
    merge_cleaner_checkpoint(tmp_path, CHANGE)
    assert (tmp_path / CHECKPOINT).read_bytes() == NEW
    write_cleaner_checkpoint(tmp_path, TopicPartition("b-with-dash", 1), 3)
    assert (tmp_path / CHECKPOINT).read_bytes() == NEW.replace(b" 1 20", b" 1 3")
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]


@pytest.mark.parametrize("content", [None, b""])
def test_a_missing_or_empty_file_is_created(tmp_path: Path, content: bytes | None) -> None:
    """F-11: the broker creates an empty file."""
    if content is not None:
        (tmp_path / CHECKPOINT).write_bytes(content)
    write_cleaner_checkpoint(tmp_path, TopicPartition("a", 0), 15)
    assert (tmp_path / CHECKPOINT).read_bytes() == b"0\n1\na 0 15\n"


@pytest.mark.parametrize("damaged", [b"0\n3\na 0 10\n", b"1\n0\n", b"0\n1\na 0\n", b"\xff"])
def test_a_damaged_file_is_refused_and_kept(tmp_path: Path, damaged: bytes) -> None:
    """H-23: overwriting it would lose the unreadable lines for good."""
    (tmp_path / CHECKPOINT).write_bytes(damaged)
    with pytest.raises(CorruptionError) as caught:
        write_cleaner_checkpoint(tmp_path, TopicPartition("a", 0), 15)
    assert caught.value.where == str(tmp_path / CHECKPOINT)
    assert (tmp_path / CHECKPOINT).read_bytes() == damaged
    assert len(list(tmp_path.iterdir())) == 1


@needs_root
@pytest.mark.parametrize("exists", [True, False])
def test_owner_and_mode_are_the_brokers(tmp_path: Path, *, exists: bool) -> None:
    """H-19: a file of root would take the log directory offline when the broker writes it."""
    model = tmp_path / (CHECKPOINT if exists else "recovery-point-offset-checkpoint")
    model.write_bytes(b"0\n0\n")
    model.chmod(0o640)
    os.chown(model, 1234, 2345)
    write_cleaner_checkpoint(tmp_path, TopicPartition("a", 0), 15)
    status = (tmp_path / CHECKPOINT).stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 2345, 0o640)


def test_a_stale_temporary_file_is_overwritten(tmp_path: Path) -> None:
    """A file of the broker or of cleanerd, longer than the new content."""
    (tmp_path / CHECKPOINT).write_bytes(OLD)
    (tmp_path / f"{CHECKPOINT}.tmp").write_bytes(b"x" * 1000)
    merge_cleaner_checkpoint(tmp_path, CHANGE)
    assert (tmp_path / CHECKPOINT).read_bytes() == NEW


def test_nothing_new_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / CHECKPOINT).write_bytes(OLD)
    inode = (tmp_path / CHECKPOINT).stat().st_ino
    merge_cleaner_checkpoint(tmp_path, {TopicPartition("a", 0): 10})
    assert (tmp_path / CHECKPOINT).stat().st_ino == inode


def test_a_crash_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    """X-13: every prefix and every subset of the uncertain writes."""
    (tmp_path / CHECKPOINT).write_bytes(OLD)
    start = State.read(tmp_path)
    with RecordingFiles(tmp_path) as files:
        merge_into(files, CHANGE)
        assert [operation.kind for operation in files.operations] == ["write", "fsync", "rename", "fsync_directory"]
    states = [state for _, state in prefixes(start, files.operations)]
    chance = random.Random(1)
    for _ in range(20):
        for window in windows(start, files.operations):
            states += window.subsets(100, chance)
    assert {state.files[CHECKPOINT] for state in states} == {OLD, NEW}
    torn = [*files.operations[:1], *files.operations[2:]]
    states = [state for window in windows(start, torn) for state in window.subsets(100, chance)]
    assert {state.files[CHECKPOINT] for state in states} - {OLD, NEW}, "without its fsync the file could be torn"


@pytest.mark.parametrize("failing", range(4))
def test_a_failed_step_leaves_the_old_or_the_new_file(tmp_path: Path, failing: int) -> None:
    """OP-10."""
    (tmp_path / CHECKPOINT).write_bytes(OLD)
    with FailingFiles(tmp_path, failing, errno.ENOSPC) as files, pytest.raises(CleanerdError):
        merge_into(files, CHANGE)
    assert (tmp_path / CHECKPOINT).read_bytes() == (OLD if failing < 3 else NEW)
