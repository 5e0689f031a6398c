"""A cleaning by versions, killed at every step: a reader by the strategy always sees the same (U-1)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import CleanerdError
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.recover import recover
from tests.cleaner.driver import NAME, clean, scratch
from tests.cleaner.strategy_cases import NOW, batches, offsets, rec
from tests.support.failing_files import Injector, Killed
from tests.support.log_dirs import LOG_STARTS, Partition, make_log_dir, write_checkpoint
from tests.support.logs import encode_batch
from tests.support.stored_records import partition_records
from tests.swap.versioned_round import BY_VERSION, apply_versioned, stage_versioned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.long

DIRTY = 8
END = 20


def make(root: Path) -> Path:
    """Retained records below, between and above superseded ones.

    Tombstones past their horizon, with and without superseded records above.

    The first two segments are clean, every segment is a group of its own.
    """
    head = [
        encode_batch([rec("up", 9), rec("gone", 9, value=None)], delete_horizon=NOW),
        encode_batch([rec("alone", 9, value=None), rec("down", 1)], base_offset=2, delete_horizon=NOW),
        encode_batch([rec("late", 9, value=None), rec("quiet", 1)], base_offset=4, delete_horizon=NOW),
    ]
    segments = {
        0: head[0],
        2: head[1],
        4: head[2] + batches(rec("same", 5), rec("x", 1), first=6),
        8: batches(rec("up", 1), rec("down", 2), rec("y", 1), first=8),
        11: batches(rec("gone", 1), rec("same", 5), rec("y", 2), first=11),
        14: batches(rec("up", 8), rec("down", 9), rec("gone", 8), rec("y", 0), first=14),
        18: batches(rec("late", 1), rec("up", 10), first=18),  # the tail
    }
    log_dir = make_log_dir(root / "logs", {NAME: Partition(segments)})
    options = CleaningOptions(now_ms=NOW - 1, force=True, up_to_offset=DIRTY)
    assert clean(log_dir, options, BY_VERSION).outcome in ("cleaned", "unchanged")
    assert offsets(log_dir / NAME, DIRTY) == list(range(DIRTY))
    return log_dir


def view(log_dir: Path, start: int = 0) -> dict[bytes, int]:
    """The view of a reader by the strategy: offset by key, without deleted keys."""
    best: dict[bytes, tuple[int, int, bool]] = {}
    for stored in partition_records(log_dir / NAME):
        record = stored.record
        if record.offset < start or record.key is None:
            continue
        version = int.from_bytes(dict(record.headers)[b"version"] or b"", "big", signed=True)
        rank = (version, record.offset, record.value is None)
        best[record.key] = max(best.get(record.key, rank), rank)
    return {key: offset for key, (_, offset, deleted) in best.items() if not deleted}


def cleaned(log_dir: Path) -> None:
    result = clean(log_dir, CleaningOptions(now_ms=NOW, force=True), BY_VERSION)
    assert result.error is None or isinstance(result.error, CleanerdError)


@pytest.mark.parametrize(
    ("way", "start"),
    [
        (cleaned, 0),
        (apply_versioned, 9),
        pytest.param(cleaned, 9, marks=pytest.mark.long),
        pytest.param(apply_versioned, 0, marks=pytest.mark.long),
    ],
)
def test_killed_at_every_step(injector: Injector, way: Callable[[Path], object], start: int) -> None:
    """U-1, U-2, S-30, U-16: whatever groups are new, no key comes back or is lost; the next cleaning completes it.

    ``start``: DeleteRecords into the clean and into the dirty section, before the cleaning.
    """
    for step in range(400):
        with scratch() as root:
            log_dir = make(root)
            write_checkpoint(log_dir / LOG_STARTS, {NAME: start})
            before = view(log_dir, start)
            if way is apply_versioned:
                stage_versioned(log_dir)
            injector.arm(step, kills=True)
            with suppress(Killed):
                way(log_dir)
            injector.disarm()
            with PartitionFiles(log_dir / NAME) as files:
                recover(files)
            assert view(log_dir, start) == before, step
            cleaned(log_dir)
            assert view(log_dir, start) == before, step
            left = [one.record.key for one in partition_records(log_dir / NAME) if start <= one.record.offset < 18]
            assert len(left) == len(set(left)), step
            assert b"late" in left or start > 4, "its superseded record is in the tail"
            assert b"alone" not in left, "no other record has its key"
            if not injector.happened:
                assert step > 60, "every step was tried"
                break
    else:
        pytest.fail("the cleaning never ended")
