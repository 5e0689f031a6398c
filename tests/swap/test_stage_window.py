"""Changes of a log between ``stage`` and ``apply``: all preconditions of the plan must still hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import StalePlanError
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import NAME, clean, config, resources
from tests.cleaner.strategy_cases import BY_HEADER, NOW, batches, offsets, rec
from tests.support.log_dirs import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    write_checkpoint,
    write_segment,
)
from tests.support.logs import encode_batch
from tests.swap.versioned_round import BY_VERSION, PARTITION, apply_versioned, stage_versioned

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.config.topic_config import TopicConfig

BY_OFFSET = config(segment_bytes=100, delete_retention_ms=500)


def log_of(root: Path, segments: dict[int, bytes]) -> Path:
    return make_log_dir(root / "logs", {NAME: Partition(segments)})


def append(log_dir: Path, base: int, data: bytes, end: int) -> None:
    """The broker continues: segment ``base`` appears or grows."""
    write_segment(log_dir / NAME, base, data)
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
        write_checkpoint(log_dir / name, {NAME: end})


def expired(first: int = 0, key: str = "k") -> bytes:
    """A tombstone of version 9 past its horizon, and a record beside it that is removed for other reasons."""
    return encode_batch([rec(key, 9, value=None), rec("a", 1)], base_offset=first, delete_horizon=NOW)


@pytest.mark.parametrize("late", [rec("k", 5), rec("k", 10), rec("k")])
@pytest.mark.parametrize("rolls", [False, True])
def test_a_late_record_of_a_key_whose_tombstone_is_removed(tmp_path: Path, late: object, rolls: bool) -> None:
    """U-1: stage found no other record of the key, but a record that arrived since brings the key back."""
    tail = batches(rec("t", 1), first=3)
    log_dir = log_of(tmp_path, {0: expired(), 2: batches(rec("a", 2), first=2), 3: tail})
    assert stage_versioned(log_dir).removed.tombstone == 1
    if rolls:
        append(log_dir, 4, batches(rec("z", 1), late, first=4), 6)  # type: ignore[arg-type]
    else:
        append(log_dir, 3, tail + batches(rec("z", 1), late, first=4), 6)  # type: ignore[arg-type]
    result = apply_versioned(log_dir)
    assert isinstance(result.error, StalePlanError), "the tombstone of k would go, and its late record stay"
    assert 0 in offsets(log_dir / NAME, 3)


def test_late_records_of_other_keys_change_nothing(tmp_path: Path) -> None:
    """U-1, U-3: only the keys of tombstones to remove matter, so a busy topic can be cleaned on start."""
    log_dir = log_of(tmp_path, {0: expired(), 2: batches(rec("a", 2), first=2), 3: b""})
    stage_versioned(log_dir)
    append(log_dir, 3, batches(rec("a", 1), rec("z", 1), rec(None), first=3), 6)
    assert apply_versioned(log_dir).outcome == "cleaned"
    assert offsets(log_dir / NAME, 3) == [2]


def test_late_records_under_offset_change_nothing(tmp_path: Path) -> None:
    """C-45: by offset a late record wins over every tombstone, so the removal does not matter."""
    log_dir = log_of(tmp_path, {0: expired(), 2: batches(rec("a", 2), first=2), 3: b""})
    stage_versioned(log_dir, BY_OFFSET)
    append(log_dir, 3, batches(rec("k", 1), first=3), 4)
    assert apply_versioned(log_dir, BY_OFFSET).outcome == "cleaned"
    assert offsets(log_dir / NAME, 4) == [2, 3]


@pytest.mark.parametrize("topic", [BY_VERSION, BY_OFFSET], ids=["header", "offset"])
def test_the_uncleanable_offset_fell_below_a_retained_record(tmp_path: Path, topic: TopicConfig) -> None:
    """S-29, U-3, S-01: the retained record is in the last segment, and the broker may still truncate it."""
    segments = {
        0: batches(rec("k", 1), rec("x", 1)),
        2: batches(rec("a", 1), first=2),
        3: batches(rec("k", 9), first=3),
    }
    log_dir = log_of(tmp_path, {**segments, 4: b""})
    stage_versioned(log_dir, topic)
    (manifest,) = (log_dir / NAME).glob(".kstage/*/manifest.json")
    assert [group["base"] for group in json.loads(manifest.read_bytes())["groups"]] == [0]
    write_checkpoint(log_dir / HIGH_WATERMARKS, {NAME: 3})
    result = apply_versioned(log_dir, topic)
    assert isinstance(result.error, StalePlanError), "offset 3 lies above the high watermark"
    assert offsets(log_dir / NAME, 4) == [0, 1, 2, 3]


def test_the_log_start_moved_into_the_head(tmp_path: Path) -> None:
    """U-2, S-29: DeleteRecords between stage and apply deletes a retained record; the superseded one must stay."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 9), rec("x", 1)), 2: batches(rec("k", 1), first=2), 3: b""})
    stage_versioned(log_dir)
    write_checkpoint(log_dir / LOG_STARTS, {NAME: 1})
    assert isinstance(apply_versioned(log_dir).error, StalePlanError)
    assert offsets(log_dir / NAME, 3) == [0, 1, 2]


def test_rules_changed(tmp_path: Path) -> None:
    """U-6: decisions by another strategy are not swapped in."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 9), rec("k", 1)), 2: b""})
    stage_versioned(log_dir)
    for other in (BY_OFFSET, config(**{**BY_HEADER, "compaction_strategy_header_encoding": "varlong"})):
        result = apply_versioned(log_dir, other)
        assert isinstance(result.error, StalePlanError)
        assert offsets(log_dir / NAME, 2) == [0, 1]
        stage_versioned(log_dir)


def test_clean_between_stage_and_apply(tmp_path: Path) -> None:
    """recover(): clean drops a staged plan, and apply then has none."""
    log_dir = log_of(tmp_path, {0: expired(), 2: batches(rec("a", 2), first=2), 3: b""})
    stage_versioned(log_dir)
    assert clean(log_dir, CleaningOptions(now_ms=NOW, force=True), BY_VERSION).outcome == "cleaned"
    assert apply_versioned(log_dir).outcome == "unchanged"


@pytest.mark.parametrize("damage", [b"", b"x" * 40, None], ids=["empty", "other bytes", "missing"])
def test_a_plan_without_its_tombstone_keys_is_not_applied(tmp_path: Path, damage: bytes | None) -> None:
    """U-1: a plan that lost its tombstone keys is not applied, whatever has arrived."""
    log_dir = log_of(tmp_path, {0: expired(), 2: batches(rec("a", 2), first=2), 3: b""})
    stage_versioned(log_dir)
    (keys,) = (log_dir / NAME).glob(".kstage/*/removed_tombstones.keys")
    keys.unlink()
    if damage is not None:
        keys.write_bytes(damage)
    assert isinstance(apply_versioned(log_dir).error, StalePlanError)
    assert offsets(log_dir / NAME, 3) == [0, 1, 2]
    assert not (log_dir / NAME / ".kstage").exists()


def test_a_tail_that_cannot_be_read(tmp_path: Path) -> None:
    """U-1: the records behind the damage are unknown."""
    log_dir = log_of(tmp_path, {0: expired(), 2: batches(rec("a", 2), first=2), 3: batches(rec("t"), first=3), 4: b""})
    stage_versioned(log_dir, up_to_offset=3)
    damaged = bytearray((log_dir / NAME / f"{3:020d}.log").read_bytes())
    damaged[-1] ^= 1
    (log_dir / NAME / f"{3:020d}.log").write_bytes(bytes(damaged))
    assert isinstance(apply_versioned(log_dir).error, StalePlanError)


@pytest.mark.parametrize("map_load", [0.85, 0.02, 0.003])
@pytest.mark.parametrize("late", [None, 0, 44, 89])
def test_more_keys_than_a_map_holds(tmp_path: Path, map_load: float, late: int | None) -> None:
    """U-1, OP-2: the keys are split into shards, and each key is found."""
    dead = [rec(f"k{number}", 9, value=None) for number in range(90)]
    log_dir = log_of(tmp_path, {0: encode_batch(dead, delete_horizon=NOW), 90: b""})
    assert stage_versioned(log_dir).removed.tombstone == 90
    if late is not None:
        append(log_dir, 90, batches(rec("z", 1), rec(f"k{late}", 1), first=90), 92)
    small = resources(map_bytes=1, map_load=map_load, chunk_bytes=100)
    with LogDirLock.acquire(log_dir, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(log_dir), lock, StateStore(tmp_path / "state"), small)
        result = apply_partition(locked, PARTITION, BY_VERSION, CleaningOptions(now_ms=NOW, force=True))
    if late is None:
        assert result.outcome == "cleaned"
    else:
        assert isinstance(result.error, StalePlanError)
        assert "offset 91" in result.reason
