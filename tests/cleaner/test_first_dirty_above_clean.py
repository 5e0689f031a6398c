"""A range that only --first-dirty or Kafka's checkpoint calls clean may hold the values that its tombstones delete."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.state.first_dirty_offset import unproven_after
from tests.cleaner.driver import NAME, clean, config, resources, scratch
from tests.cleaner.strategy_cases import NOW, batches, offsets, rec
from tests.cleaner.strategy_script import Clean, Script, Shape, Write
from tests.cleaner.strategy_world import World, seen
from tests.support.log_dirs import CLEANER_CHECKPOINT, Partition, make_log_dir, write_checkpoint
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult

TOPIC = config(segment_bytes=100, delete_retention_ms=500, tombstone_guard="forever")
"""The guard is about versions (U-4)."""
LOG = {
    0: batches(rec("k", value="old")),
    1: batches(rec("k", value=None), rec("x"), first=1),
    3: batches(rec("x"), rec("y"), first=3),
    5: b"",
}


def cleaned(log_dir: Path, now_ms: int, first_dirty: int | None = None) -> CleaningResult:
    result = clean(log_dir, CleaningOptions(now_ms=now_ms, force=True, first_dirty_offset=first_dirty), TOPIC)
    assert result.error is None, result.reason
    return result


def test_a_tombstone_in_the_skipped_range(tmp_path: Path) -> None:
    """OP-10, U-10: its old value is in the same range and nothing supersedes it now."""
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(LOG)})
    cleaned(log_dir, NOW, first_dirty=3)  # the tombstone's batch is written again, and has a horizon now
    result = cleaned(log_dir, NOW + 1000, first_dirty=3)
    assert (offsets(log_dir / NAME, 5), result.tombstones_waiting) == ([0, 1, 3, 4], 1)
    assert any("--first-dirty skips offsets 0 to 2" in note for note in result.notes)
    result = cleaned(log_dir, NOW + 1000)
    assert (offsets(log_dir / NAME, 5), result.tombstones_waiting) == ([3, 4], 0)


def test_first_dirty_inside_a_segment(tmp_path: Path) -> None:
    """C-45: the dirty section follows the rules, whatever precedes it in the same segment."""
    gone = batches(rec("a", value=None), rec("k", value="old"), rec("k", value=None), rec("z", value=None))
    log = {0: gone, 4: batches(rec("y"), first=4), 5: b""}
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=1)})
    cleaned(log_dir, NOW, first_dirty=3)
    result = cleaned(log_dir, NOW + 1000, first_dirty=3)
    assert (offsets(log_dir / NAME, 5), result.removed.tombstone) == ([1, 2, 4], 2)


def test_the_clean_section_by_kafkas_checkpoint(tmp_path: Path) -> None:
    """C-45.5, C-02: below Kafka's own checkpoint an expired tombstone is removed, as Kafka does it."""
    log = {**LOG, 0: batches(rec("a", value="old"))}
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=3)})
    cleaned(log_dir, NOW, first_dirty=3)
    result = cleaned(log_dir, NOW + 1000, first_dirty=3)
    assert (offsets(log_dir / NAME, 5), result.removed.tombstone) == ([0, 3, 4], 1)


TWICE = {
    0: batches(rec("k", value="old"), rec("y", value="1")),
    2: encode_batch(
        [Record(b"k", None, NOW), Record(b"z", None, NOW, offset_delta=1)], base_offset=2, delete_horizon=NOW
    ),
    4: batches(rec("x"), first=4),
    5: b"",
}
"""Two records of k, as Kafka 4.3.1 leaves them when its dirty section begins behind an ABORT marker.

Z is deleted, too.
"""


def state_of(log_dir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next((log_dir.parent / "state" / "partitions").rglob("*.json")).read_bytes())
    return found


@pytest.mark.parametrize("first", ["dirty", "tombstone removal"])
@pytest.mark.parametrize("forgets", [None, "all", "unproven_below"])
def test_two_records_of_a_key_below_kafkas_checkpoint(tmp_path: Path, first: str, forgets: str | None) -> None:
    """U-50: its tombstone stays in every cleaning, whatever the stored state.

    One without an older record is removed.
    """
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(TWICE, cleaner_offset=4 if first == "dirty" else 5)})
    topic = config(segment_bytes=100)
    for row in range(3):
        result = clean(log_dir, CleaningOptions(NOW + row, tombstone_removal=True), topic)
        assert result.error is None, result.reason
        assert offsets(log_dir / NAME, 5) == [0, 1, 2, 4]
        assert result.tombstones_waiting == 1
        assert any("another record of their key there" in note for note in result.notes)
        if forgets == "all":
            shutil.rmtree(tmp_path / "state")
        elif forgets is not None:
            path = next((tmp_path / "state" / "partitions").rglob("*.json"))
            document = state_of(log_dir)
            assert document["cleanerd_checkpoint"].pop(forgets) in (4, 5)
            path.write_text(json.dumps(document))


def test_newer_records_hold_no_tombstone_back(tmp_path: Path) -> None:
    """U-50: the deleted values are below it.

    A newer record in the range that --first-dirty skips is not one of them.
    """
    gone = encode_batch([Record(b"k", None, NOW)], delete_horizon=NOW)
    log = {0: gone + batches(rec("k", value="new"), first=1), 2: batches(rec("x"), first=2), 3: b""}
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=1)})
    result = cleaned(log_dir, NOW, first_dirty=2)
    assert (offsets(log_dir / NAME, 3), result.tombstones_waiting) == ([1, 2], 0)


def test_a_newer_record_in_the_active_segment_holds_no_tombstone_back(tmp_path: Path) -> None:
    """U-50: the active segment is above every tombstone, so no tombstone of an offset topic deletes its records."""
    gone = encode_batch([Record(b"k", None, NOW)], delete_horizon=NOW)
    log = {0: gone + batches(rec("y"), first=1), 2: batches(rec("x"), first=2), 3: batches(rec("k"), first=3)}
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=2)})
    result = cleaned(log_dir, NOW)
    assert (offsets(log_dir / NAME, 4), result.tombstones_waiting) == ([1, 2, 3], 0)


def test_a_range_that_cleanerd_cleaned_needs_no_proof(tmp_path: Path) -> None:
    """U-50: --from-start removes both records, and the clean section is cleanerd's own from then on."""
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(TWICE, cleaner_offset=4)})
    topic = config(segment_bytes=100)
    assert clean(log_dir, CleaningOptions(NOW, force=True), topic).tombstones_waiting == 1
    assert state_of(log_dir)["cleanerd_checkpoint"]["unproven_below"] == 4
    result = clean(log_dir, CleaningOptions(NOW, force=True, from_start=True), topic)
    assert (offsets(log_dir / NAME, 5), result.tombstones_waiting) == ([1, 4], 0)
    assert state_of(log_dir)["cleanerd_checkpoint"]["unproven_below"] == 0


@pytest.mark.parametrize(
    ("before", "first_dirty", "end", "after"),
    [(10, 0, 20, 0), (10, 0, 5, 10), (10, 10, 20, 10), (10, 15, 20, 10), (10, 4, 10, 4), (0, 10, 20, 0)],
)
def test_the_proof_of_a_cleaning(before: int, first_dirty: int, end: int, after: int) -> None:
    """U-50: all of the unproven range must have been dirty, or nothing is known of its end."""
    assert unproven_after(before, first_dirty, end) == after


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), mode=st.sampled_from(["null", "header"]))
def test_no_deleted_key_comes_back_with_any_checkpoint(seed: int, mode: str) -> None:
    """U-50, U-1: a checkpoint at any offset, with and without cleanerd's state; compared with a dictionary."""
    dice, shape = random.Random(seed), Shape("offset", mode=mode, expires=True)
    with scratch() as root:
        world = World(root, shape)
        now_ms = 0
        for step in Script(shape, seed, 4, stops=False, moves=False, changes=False, upsets=False).steps():
            if isinstance(step, Write):
                world.write(step)
                continue
            if not isinstance(step, Clean):
                continue
            if dice.random() < 0.5:
                active = max(int(log.stem) for log in world.partition.glob("*.log"))
                write_checkpoint(world.path / CLEANER_CHECKPOINT, {NAME: dice.randint(0, active)})
            if dice.random() < 0.3:
                shutil.rmtree(root / "state", ignore_errors=True)
            now_ms = max(now_ms, step.now_ms) + dice.choice((0, 1000))
            view = seen(world.written[offset] for offset in world.read())
            options = CleaningOptions(now_ms, force=True, tombstone_removal=True, from_start=dice.random() < 0.2)
            result = clean(world.path, options, world.topic(step), resources(expiration_ms=1), state=root / "state")
            assert result.error is None, result.reason
            assert seen(world.written[offset] for offset in world.read()) == view
