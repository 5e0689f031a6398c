"""S-03: checkpoints beside a running broker."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import TopicPartition
from cleanerd.resolution.checkpoint_pair import CheckpointPairs, EarlierReading, highest_segments
from cleanerd.segments.log_dir import read_log_dir
from tests.cli.clean_log_dirs import dirty, good
from tests.support.log_dirs import make_log_dir, with_directory_id

if TYPE_CHECKING:
    from pathlib import Path

NAME, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("early", "late", "ends", "expected"),
    [
        (5, 7, ((6, 70), (6, 90)), 5),  # the usual: appended, and the broker wrote its checkpoint
        (7, 5, ((6, 70), (6, 70)), 5),
        (7, 7, ((6, 70), (8, 10)), 7),  # rolled: another segment, smaller
        (7, 7, ((6, 70), (6, 69)), 0),  # truncated
        (7, 7, ((6, 70), (4, 99)), 0),  # truncated to an earlier segment
        (7, 7, ((6, 70), None), 0),  # gone
        (7, 7, (None, (6, 70)), 0),  # new, or not readable before
    ],
)
def test_the_lower_one(
    tmp_path: Path,
    early: int,
    late: int,
    ends: tuple[tuple[int, int] | None, tuple[int, int] | None],
    expected: int,
) -> None:
    """The lower of two offsets; none if the log became shorter in between."""
    log_dir = read_log_dir(make_log_dir(tmp_path / "logs", {"orders-0": dirty()}))
    first = replace(log_dir, high_watermarks={NAME: early, OTHER: 9}, recovery_points={NAME: late})
    second = replace(log_dir, high_watermarks={NAME: late}, recovery_points={NAME: early, OTHER: 9})
    before = {} if ends[0] is None else {NAME: ends[0]}
    earlier = EarlierReading(first, {**before, OTHER: (0, 0)})
    found = earlier.lower_of(second, NAME, ends[1] or (-1, 0))
    assert found.high_watermarks == found.recovery_points == {NAME: expected}
    other = earlier.lower_of(second, OTHER, (0, 0))
    assert other.recovery_points == other.high_watermarks == {OTHER: 0}, "a checkpoint did not have OTHER before"


def test_another_directory_in_its_place(tmp_path: Path) -> None:
    """A reading of a disk that was replaced is not an earlier reading of the new one."""
    path, readings = make_log_dir(tmp_path / "logs", {"orders-0": dirty()}), CheckpointPairs(settle_seconds=0.0)
    ends = {NAME: (0, 0)}
    for _ in range(2):
        readings.add(read_log_dir(path))
    assert readings.earlier(ends).knows(NAME)
    with_directory_id(path, uuid.UUID(int=7))
    readings.add(read_log_dir(path))
    assert not readings.earlier(ends).knows(NAME)
    readings.add(read_log_dir(path))
    assert readings.earlier(ends).knows(NAME)


def test_the_ends_of_logs(tmp_path: Path) -> None:
    """Base and size of the active segment; an unreadable partition is left out."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": dirty(), "good-0": good()})
    (path / "good-0" / "leader-epoch-checkpoint").write_text("x")
    size = (path / "orders-0" / f"{6:020d}.log").stat().st_size
    assert highest_segments(read_log_dir(path)) == {NAME: (6, size)}
