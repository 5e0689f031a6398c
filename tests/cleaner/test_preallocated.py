"""The end of a log in the proof for tombstone removal: preallocated space, and damage of a torn log (U-1, F-1)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, clean, config
from tests.cleaner.strategy_cases import BY_HEADER, NOW, batches, rec
from tests.kafka.judge import ToLoad
from tests.spark.both_engines import all_dirty, assert_same_staged, stage_inline, stage_locally
from tests.support.log_dirs import Partition, make_log_dir, tree
from tests.support.logs import encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from tests.kafka.judge import Judge, Loaded

TOPIC: Final = config(**BY_HEADER, delete_retention_ms=500)
ROOM_BYTES: Final = 1 << 20
GONE: Final = encode_batch([rec("k", 9, value=None), rec("a", 1)], delete_horizon=NOW)
"""A tombstone that may be removed unless there is another record of its key."""
OTHER: Final = batches(rec("x", 1), first=2)
RIVAL: Final = batches(rec("k", 1), first=2)


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


def write(
    root: Path, segments: dict[int, bytes], room_bytes: int = ROOM_BYTES, *, torn_from: int | None = None
) -> Path:
    """A log whose active segment has free space; ``torn_from``: the recovery point of a broker that was killed."""
    partition = Partition(segments, recovery_point=torn_from)
    path = make_log_dir(root / "logs", {NAME: partition}, clean_shutdown=torn_from is None)
    active = path / NAME / f"{max(segments):020d}.log"
    os.truncate(active, len(segments[max(segments)]) + room_bytes)
    return path


def cleaned(path: Path, *, unclean: bool = False) -> CleaningResult:
    result = clean(path, CleaningOptions(now_ms=NOW, force=True, unclean=unclean), TOPIC)
    assert result.error is None, result.reason
    return result


@pytest.mark.parametrize(("last", "goes"), [(OTHER, True), (RIVAL, False), (b"", True)])
def test_space_behind_the_end(tmp_path: Path, last: bytes, goes: bool) -> None:
    """U-1, F-1: zeros are the end of the active segment, and the records before them count."""
    result = cleaned(write(tmp_path, {0: GONE, 2: last}))
    assert (result.removed.tombstone, result.tombstones_waiting) == ((1, 0) if goes else (0, 1))
    assert not any("cannot be read" in note for note in result.notes)


TORN: Final = {
    "half a batch": OTHER[:-5],
    "half a batch, and room": OTHER[:-5] + b"\x00" * 100,
    "garbage": b"\xff" * 100,
    "a batch of another CRC": damaged(OTHER),
}


@pytest.mark.slow
@pytest.mark.parametrize("end", TORN.values(), ids=TORN)
@pytest.mark.parametrize(("before", "goes"), [(batches(rec("y", 1), first=2), True), (RIVAL, False)])
def test_a_torn_end(tmp_path: Path, end: bytes, before: bytes, goes: bool) -> None:
    """U-1, U-32: the broker will cut the log at the damage, so the records up to there are evidence enough."""
    result = cleaned(write(tmp_path, {0: GONE, 2: before + end}, 0, torn_from=2), unclean=True)
    assert (result.removed.tombstone, result.tombstones_waiting) == ((1, 0) if goes else (0, 1))
    assert not any("cannot be read" in note for note in result.notes)


def test_records_behind_the_damage_hold_tombstones_back(tmp_path: Path) -> None:
    """U-32: records that the broker may truncate can delay a tombstone's removal, never cause it."""
    tail = {2: batches(rec("x", 1), first=2) + b"\xff" * 40, 10: batches(rec("k", 1), first=10), 20: b""}
    result = cleaned(write(tmp_path, {0: GONE, **tail}, torn_from=2), unclean=True)
    assert (result.removed.tombstone, result.tombstones_waiting) == (0, 1)


def test_damage_below_the_recovery_point(tmp_path: Path) -> None:
    """U-1: no recovery truncates there; later records are still served. Only the reason for the waiting is reported."""
    tail = {2: batches(rec("x", 1), first=2) + damaged(batches(rec("k", 1), first=3)), 10: b""}
    path = make_log_dir(tmp_path / "logs", {NAME: Partition({0: GONE, **tail}, high_watermark=2)})
    result = cleaned(path)
    assert (result.removed.tombstone, result.tombstones_waiting) == (0, 1)
    assert any("cannot be read" in note for note in result.notes)
    assert not any("another record" in note for note in result.notes)


@pytest.mark.long
@pytest.mark.parametrize("split_bytes", [60, 1 << 20])
@pytest.mark.parametrize("torn_end", [b"", b"\xff" * 50], ids=["whole", "torn"])
@pytest.mark.parametrize(("last", "goes"), [(OTHER, 1), (RIVAL, 0)])
def test_preallocated_segments_by_spark(
    tmp_path: Path, split_bytes: int, torn_end: bytes, last: bytes, goes: int
) -> None:
    """U-1: the same proof over executors, also where the end is read in parts, and where an index misleads."""
    last = batches(rec("y", 1), first=2)[:0] + last + batches(*[rec(f"z{n}", 1) for n in range(9)], first=3)
    torn_from = 2 if torn_end else None
    path = write(tmp_path, {0: GONE, 2: last + torn_end}, 0 if torn_end else ROOM_BYTES, torn_from=torn_from)
    options = all_dirty(NOW, unclean=True)
    local = stage_locally(path, options, TOPIC)
    assert local.result.removed.tombstone == goes, local.result.reason
    assert_same_staged(local, stage_inline(path, options, TOPIC, split_bytes=split_bytes))


@pytest.fixture(params=["judge_43", "judge_39"])
def judge(request: pytest.FixtureRequest) -> Judge:
    found: Judge = request.getfixturevalue(request.param)
    return found


def loaded(judge: Judge, path: Path, *, clean_shutdown: bool, recovery_point: int) -> Loaded:
    log = ToLoad(str(path / NAME), clean_shutdown=clean_shutdown, recovery_point=recovery_point)
    (found,) = judge.load([log], now_ms=NOW, batches=True)
    return found


@pytest.mark.long
@pytest.mark.kafka
def test_kafka_treats_zeros_in_the_active_segment_as_its_end(judge: Judge, tmp_path: Path) -> None:
    """F-1: after a crash; nothing is lost."""
    path = write(tmp_path, {0: GONE, 2: OTHER, 3: batches(rec("x", 2), first=3)}, torn_from=0)
    found = loaded(judge, path, clean_shutdown=False, recovery_point=0)
    assert (found.error, found.log_end_offset) == (None, 4)


@pytest.mark.long
@pytest.mark.kafka
def test_kafka_treats_zeros_in_a_closed_segment_as_damage(judge: Judge, tmp_path: Path) -> None:
    """F-1, U-32: its recovery truncates there and deletes every later segment; so zeros are not an end for us."""
    segments = {0: GONE, 2: OTHER + b"\x00" * 1000, 3: batches(rec("x", 2), first=3), 4: b""}
    path = write(tmp_path, segments, 0, torn_from=0)
    found = loaded(judge, path, clean_shutdown=False, recovery_point=0)
    assert (found.error, found.log_end_offset) == (None, 3)
    assert {segment for segment, *_ in found.batches} == {0, 2}


def test_zeros_in_a_closed_segment_are_refused(tmp_path: Path) -> None:
    """F-1: a closed segment with zeros at its end is damaged, and stays as it is."""
    path = write(tmp_path, {0: GONE, 2: OTHER + b"\x00" * 1000, 3: batches(rec("x", 2), first=3), 4: b""})
    before = tree(path / NAME)
    result = clean(path, CleaningOptions(now_ms=NOW, force=True), TOPIC)
    assert result.outcome == "quarantined"
    assert f"{2:020d}.log" in result.reason
    assert str(len(OTHER)) in result.reason
    assert "1000 zero bytes to the end of a closed segment" in result.reason
    assert f"cut the file to {len(OTHER)} bytes" in str(result.error)
    assert tree(path / NAME) == before
