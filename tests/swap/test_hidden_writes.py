"""Later records that an undo would hide (S-52)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import RefusedError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir
from cleanerd.swap.undo import UndoResult, entries_of, undo_cleaning
from tests.cleaner.driver import NAME, Silent, config, resources
from tests.cleaner.strategy_cases import BY_HEADER, MARKED, NOW, batches, offsets, rec
from tests.support.log_dirs import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    write_checkpoint,
    write_segment,
)
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

MANY = 300
BY_VERSION: dict[str, Any] = {**BY_HEADER, "segment_bytes": 150}


class LogWithUndo:
    """A log whose expired tombstones of version 10 go in a cleaning that can be undone; later records follow."""

    def __init__(self, root: Path, topic: dict[str, Any], dead: list[Record], load: float = 0.85) -> None:
        self.root, self.load = root, load
        self.path = root / "logs"
        end = len(dead) + 1
        segments = {0: encode_batch(dead, delete_horizon=NOW - 1), len(dead): batches(rec("z", 1), first=len(dead))}
        make_log_dir(self.path, {NAME: Partition({**segments, end: b""})})
        self.end = end
        (root / "kept").mkdir()
        with LogDirLock.acquire(self.path, settle_seconds=0) as lock:
            locked = self._locked(lock)
            options = CleaningOptions(NOW, force=True, from_start=True)
            result = clean_partition(locked, TopicPartition("orders", 0), config(**topic), options, Silent())
        self.removed_count = result.removed.tombstone
        assert self.removed_count, result.reason

    def _locked(self, lock: LogDirLock) -> LockedDir:
        return LockedDir(
            read_log_dir(self.path),
            lock,
            StateStore(self.root / "state"),
            resources(map_bytes=1, map_load=self.load),
            keep_replaced=self.root / "kept",
        )

    def write(self, *records: Record) -> None:
        write_segment(self.path / NAME, self.end, batches(*records, first=self.end))
        for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
            write_checkpoint(self.path / name, {NAME: self.end + len(records)})

    def undo(self, *, hide_later: bool = False) -> UndoResult:
        kept = KeptSegments(self.root / "state")
        with LogDirLock.acquire(self.path, settle_seconds=0) as lock:
            locked = self._locked(lock)
            return undo_cleaning(locked, kept, entries_of(kept, locked.log_dir)[0], hide_later=hide_later)


@pytest.mark.parametrize(
    ("topic", "dead"),
    [
        (BY_VERSION, rec("k", 10, value=None)),
        ({**BY_VERSION, **MARKED}, rec("k", 10, marker=b"true")),
    ],
    ids=["null", "header"],
)
def test_an_undo_that_hides_a_later_record_is_refused(tmp_path: Path, topic: dict[str, Any], dead: Record) -> None:
    """S-52: undo refuses before it restores a file. Otherwise the next cleaning would lose the record."""
    log = LogWithUndo(tmp_path, topic, [dead])
    log.write(rec("other", 1), rec("k", 5))
    before = offsets(log.path / NAME, 100)
    result = log.undo()
    assert result.outcome == "refused"
    assert isinstance(result.error, RefusedError)
    assert "hide 1 record written since, the first at offset 3" in result.reason
    assert "--hide-later" in str(result.error)
    assert offsets(log.path / NAME, 100) == before
    assert log.undo(hide_later=True).outcome == "undone"
    assert offsets(log.path / NAME, 100) == [0, *before]


def test_an_undo_that_hides_no_record_is_done(tmp_path: Path) -> None:
    """S-52: a later record of a higher or equal version wins anyway; others have other keys."""
    for number, later in enumerate(
        ([rec("k", 11)], [rec("k", 10)], [rec("k", 5), rec("k", 12)], [rec("other", 1)], [])
    ):
        root = tmp_path / str(number)
        root.mkdir()
        log = LogWithUndo(root, BY_VERSION, [rec("k", 10, value=None)])
        log.write(*later)
        assert log.undo().outcome == "undone", number


def test_by_offset_later_records_always_win(tmp_path: Path) -> None:
    """S-52: without versions, undo hides no record."""
    log = LogWithUndo(tmp_path, {"segment_bytes": 150}, [rec("k", 10, value=None)])
    log.write(rec("k", 5))
    assert log.undo().outcome == "undone"


def test_keys_that_do_not_fit_the_map_are_read_in_shards(tmp_path: Path) -> None:
    """S-52: in whichever shard its key is. Records that a tombstone in the log hides already do not count."""
    log = LogWithUndo(tmp_path, BY_VERSION, [rec(f"k{n}", 10, value=None) for n in range(MANY)], load=0.001)
    log.write(*(rec(f"k{n}", 5) for n in range(MANY)))
    assert 100 < log.removed_count < MANY, "some stayed, as their keys did not fit the cleaning's map"
    assert f"hide {log.removed_count} records written since" in log.undo().reason
