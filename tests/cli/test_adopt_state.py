"""A log directory that was copied to a new disk keeps its state if the operator confirms it (U-46)."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.main import run
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, LastSegment, PartitionState, StateStore
from cleanerd.state.first_dirty_offset import may_be_about
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.partition import PartitionLog

RULES = "strategy=timestamp;tombstone.mode=null"
SEGMENTS = {0: keyed_batch(0, [("a", "1")] * 5), 5: keyed_batch(5, [("a", "1")] * 5), 10: b""}


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A cleaned log directory with two partitions."""
    partition = Partition(SEGMENTS, topic_id=uuid.UUID(int=77), epochs=((0, 0),))
    path = make_log_dir(tmp_path / "logs", {"orders-0": partition, "orders-1": partition})
    store = StateStore(tmp_path / "state")
    for name in ("orders-0", "orders-1"):
        log = _log(path, name)
        ends = LastSegment.of(log.segments[1]), LastSegment.of(log.segments[0])
        store.save(read_log_dir(path), log, PartitionState(CleanerdCheckpoint(10, 0, RULES, *ends), None, None))
    return path


def _log(path: Path, name: str) -> PartitionLog:
    parsed = parse_topic_partition_dir(name)
    assert parsed is not None
    return read_partition(read_log_dir(path), parsed)


def _state(root: Path, path: Path, name: str) -> PartitionState | None:
    return StateStore(root / "state").load(read_log_dir(path), _log(path, name))


def _adopt(capsys: pytest.CaptureFixture[str], root: Path, *arguments: object) -> tuple[int, str]:
    code = run(["adopt-state", *map(str, arguments), "--set", f"cleanerd.state.dir={root / 'state'}"])
    out = capsys.readouterr()
    return code, out.out + out.err


@pytest.mark.parametrize("named", [True, False])
def test_a_copy_replaces_the_original(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, original: Path, named: bool
) -> None:
    """U-46: how far a partition is clean is adopted, by files with new inodes; the second run finds nothing to do."""
    copied = tmp_path / "new disk"
    shutil.copytree(original, copied)
    shutil.rmtree(original)
    assert _state(tmp_path, copied, "orders-0") is None
    run(["doctor", str(copied), "--set", f"cleanerd.state.dir={tmp_path / 'state'}"])
    assert f"run cleanerd adopt-state {copied}" in capsys.readouterr().out.replace("\n", " ")
    code, message = _adopt(capsys, tmp_path, copied, *(("--from", original) if named else ()))
    assert code == 0, message
    assert "2 partitions stay clean" in message
    for name in ("orders-0", "orders-1"):
        state, log = _state(tmp_path, copied, name), _log(copied, name)
        assert state is not None
        assert state.cleanerd_checkpoint is not None
        assert state.cleanerd_checkpoint.offset == 10
        assert may_be_about(state.cleanerd_checkpoint, log)
        assert state.cleanerd_checkpoint.last_segment.inode == os.stat(copied / name / f"{5:020d}.log").st_ino
        assert state.cleanerd_checkpoint.last_output == LastSegment.of(log.segments[0])
    assert _adopt(capsys, tmp_path, copied)[0] == 4, "it already has its own state"


def test_a_copy_in_the_place_of_the_original(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, original: Path
) -> None:
    """U-46: the new disk is mounted where the old one was."""
    shutil.copytree(original, tmp_path / "copy")
    shutil.rmtree(original)
    for number in range(9):  # so that no inode is used again
        (tmp_path / f"{number}").mkdir()
    shutil.copytree(tmp_path / "copy", original)
    code, message = _adopt(capsys, tmp_path, original, "--json")
    assert (code, json.loads(message)["kept"]) == (0, 2)
    assert _state(tmp_path, original, "orders-1") is not None


def test_a_trial_gets_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path, original: Path) -> None:
    """U-46: while the original exists, both would use the same state."""
    copied = tmp_path / "trial"
    shutil.copytree(original, copied)
    code, message = _adopt(capsys, tmp_path, copied)
    assert code == 4
    assert f"its original is still at {original}" in message
    assert "unmount or rename the original first" in message
    assert _state(tmp_path, copied, "orders-0") is None
    assert _state(tmp_path, original, "orders-0") is not None


def test_another_file_is_not_clean(capsys: pytest.CaptureFixture[str], tmp_path: Path, original: Path) -> None:
    """U-46: a segment without its time may be older than the cleaning; the topic's settings stay known (U-6)."""
    copied = tmp_path / "copy"
    shutil.copytree(original, copied)
    shutil.rmtree(original)
    os.utime(copied / "orders-1" / f"{5:020d}.log", (1, 1))
    (copied / "orders-0" / f"{0:020d}.log").write_bytes(SEGMENTS[0] + b"\0")
    code, message = _adopt(capsys, tmp_path, copied)
    assert code == 0
    assert "2 partitions will be cleaned from the start" in message
    for name in ("orders-0", "orders-1"):
        state = _state(tmp_path, copied, name)
        assert state is not None
        assert (state.cleanerd_checkpoint, state.cleaned_by) == (None, RULES)


def test_nothing_to_adopt(capsys: pytest.CaptureFixture[str], tmp_path: Path, original: Path) -> None:
    """Another directory's id, and several directories that it may be a copy of."""
    stranger = make_log_dir(tmp_path / "stranger", {"orders-0": Partition(SEGMENTS)})
    code, message = _adopt(capsys, tmp_path, stranger, "--from", tmp_path / "nowhere")
    assert code == 4
    assert "knows no log directory that it can be a copy of" in message
    second = tmp_path / "second"
    shutil.copytree(original, second)
    StateStore(tmp_path / "state").save(read_log_dir(second), _log(second, "orders-0"), PartitionState(None, "x", None))
    third = tmp_path / "third"
    shutil.copytree(original, third)
    shutil.rmtree(original)
    shutil.rmtree(second)
    code, message = _adopt(capsys, tmp_path, third)
    assert code == 4
    assert f"it can be a copy of {original}, {second}" in message
    assert _adopt(capsys, tmp_path, third, "--from", original)[0] == 0
