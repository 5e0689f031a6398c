"""``--first-dirty`` above what is provably clean: the part left out may hold what its tombstones delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from tests.cleaner.driver import NAME, clean, config
from tests.cleaner.strategy_cases import NOW, batches, offsets, rec
from tests.support.log_dirs import Partition, make_log_dir

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


def test_a_tombstone_in_the_part_left_out(tmp_path: Path) -> None:
    """OP-10, U-10: its old value lies in the same part and nothing supersedes it now."""
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(LOG)})
    cleaned(log_dir, NOW, first_dirty=3)  # the tombstone's batch is written anew, and has a horizon now
    result = cleaned(log_dir, NOW + 1000, first_dirty=3)
    assert (offsets(log_dir / NAME, 5), result.tombstones_waiting) == ([0, 1, 3, 4], 1)
    assert any("--first-dirty skips offsets 0 to 2" in note for note in result.notes)
    result = cleaned(log_dir, NOW + 1000)
    assert (offsets(log_dir / NAME, 5), result.tombstones_waiting) == ([3, 4], 0)


def test_first_dirty_inside_a_segment(tmp_path: Path) -> None:
    """C-45: what is dirty follows the rules, whatever lies in front of it in the same segment."""
    gone = batches(rec("a", value=None), rec("k", value="old"), rec("k", value=None), rec("z", value=None))
    log = {0: gone, 4: batches(rec("y"), first=4), 5: b""}
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=1)})
    cleaned(log_dir, NOW, first_dirty=3)
    result = cleaned(log_dir, NOW + 1000, first_dirty=3)
    assert (offsets(log_dir / NAME, 5), result.dropped.tombstone) == ([1, 2, 4], 2)


def test_the_clean_part_by_kafkas_checkpoint(tmp_path: Path) -> None:
    """C-45.5, C-02: below Kafka's own checkpoint a tombstone that has expired goes, as Kafka does it."""
    log = {**LOG, 0: batches(rec("a", value="old"))}
    log_dir = make_log_dir(tmp_path / "logs", {NAME: Partition(log, cleaner_offset=3)})
    cleaned(log_dir, NOW, first_dirty=3)
    result = cleaned(log_dir, NOW + 1000, first_dirty=3)
    assert (offsets(log_dir / NAME, 5), result.dropped.tombstone) == ([0, 3, 4], 1)
