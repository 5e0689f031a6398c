"""Kafka's loader, run by the judge, on directories after a crash."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import Batch, Judge, Record, Segment, ToLoad

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.kafka

T = 1_700_000_000_000


@pytest.fixture(params=["judge_43", "judge_39"])
def judge(request: pytest.FixtureRequest) -> Judge:
    found: Judge = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def log(judge: Judge, tmp_path: Path) -> Path:
    path = tmp_path / "made" / "t-0"
    segments = [
        Segment(base, (Batch((Record(base, T, b"k", b"%d" % base), Record(base + 1, T, b"l", b"1"))),))
        for base in (0, 2, 4)
    ]
    judge.make(path, segments, now_ms=T)
    return path


def load(judge: Judge, directory: Path, *, clean: bool = True) -> tuple[list[tuple[int, int]], list[str]]:
    (loaded,) = judge.load([ToLoad(str(directory), clean_shutdown=clean)], now_ms=T, batches=True)
    assert loaded.error is None, loaded.message
    return [(segment, base) for segment, base, _, _ in loaded.batches], sorted(loaded.files)


@pytest.mark.long
def test_in_place_and_from_a_copy(judge: Judge, log: Path, tmp_path: Path) -> None:
    """A load returns the same for a directory and its copy, and the copy's source is unchanged."""
    before = sorted((f.name, f.stat().st_mtime_ns) for f in log.iterdir())
    copies = [ToLoad(str(tmp_path / f"copy{i}" / "t-0"), source=str(log)) for i in range(3)]
    loads = judge.load(copies, now_ms=T, batches=True)
    assert sorted((f.name, f.stat().st_mtime_ns) for f in log.iterdir()) == before
    (in_place,) = judge.load([ToLoad(str(log))], now_ms=T, batches=True)
    assert {loaded.digest for loaded in loads} == {in_place.digest}
    assert {loaded.batches for loaded in loads} == {in_place.batches}
    assert in_place.log_end_offset == 6


def test_unfinished_swap_is_undone(judge: Judge, log: Path) -> None:
    """F-12: with a .cleaned file left, .swap files from its offset on are removed, and the old segments stay."""
    shutil.copy(log / f"{2:020}.log", log / f"{0:020}.log.cleaned")
    shutil.copy(log / f"{2:020}.log", log / f"{2:020}.log.swap")
    batches, files = load(judge, log)
    assert batches == [(0, 0), (2, 2), (4, 4)]
    assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in files)


def test_complete_swap_is_finished(judge: Judge, log: Path, tmp_path: Path) -> None:
    """F-12: a .swap that covers [0, 4) replaces the segments there, snapshots included."""
    merged = tmp_path / "merged" / "t-0"
    judge.make(
        merged,
        [Segment(0, (Batch((Record(1, T, b"l", b"1"),), base=0), Batch((Record(2, T, b"k", b"2"),), last=3)))],
        now_ms=T,
    )
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(merged / f"{0:020}{suffix}", log / f"{0:020}{suffix}.swap")
    batches, files = load(judge, log)
    assert batches == [(0, 0), (0, 2), (4, 4)]
    assert f"{2:020}.snapshot" not in files
    assert f"{2:020}.log" not in files


@pytest.mark.long
def test_unclean_start_cuts_at_the_first_bad_batch(judge: Judge, log: Path) -> None:
    """F-6/7.2: after an unclean shutdown every batch from the recovery point on is checked; a bad one ends the log."""
    path = log / f"{2:020}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert load(judge, log) == ([(0, 0), (2, 2), (4, 4)], sorted(f.name for f in log.iterdir()))
    batches, _ = load(judge, log, clean=False)
    assert batches == [(0, 0)]


def test_producers_are_rebuilt(judge: Judge, tmp_path: Path) -> None:
    """F-10: id, epoch, sequence and offset of every producer, also if only the log itself is left."""
    path = tmp_path / "t-0"
    batches = (
        Batch((Record(0, T, b"a", b"1"), Record(1, T, b"b", b"1")), producer_id=5, producer_epoch=1, base_sequence=8),
        Batch(base=2, last=4, producer_id=6, producer_epoch=0, base_sequence=0, max_timestamp=T),
    )
    judge.make(path, [Segment(0, batches)], now_ms=T)
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    (loaded,) = judge.load([ToLoad(str(path), clean_shutdown=False)], now_ms=T)
    found = [(p.producer_id, p.epoch, p.last_sequence, p.last_offset) for p in loaded.producers]
    assert found == [(5, 1, 9, 1), (6, 0, 2, 4)]


def test_one_bad_directory_does_not_hide_the_others(judge: Judge, log: Path, tmp_path: Path) -> None:
    """The answer for a directory that cannot be loaded is its exception."""
    bad = tmp_path / "not a partition"
    bad.mkdir()
    wrong, right = judge.load([ToLoad(str(bad)), ToLoad(str(log))], now_ms=T)
    assert wrong.error is not None
    assert right.error is None
    assert right.log_end_offset == 6
