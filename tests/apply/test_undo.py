"""An undo that fails or is killed at any step: the log is one or the other, and the next try finishes it (S-40)."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from cleanerd.apply.kept_segments import KeptSegments
from cleanerd.apply.lock import LogDirLock
from cleanerd.apply.round import clean_partition
from cleanerd.apply.session import LockedDir
from cleanerd.apply.undo import UndoResult, entries_of, undo_cleaning
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.format.names import TopicPartition
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import read_log_dir
from tests.cleaner.driver import Silent, config, resources, scratch
from tests.cli.clean_log_dirs import CLEANED, NOW, keys, make
from tests.cli.test_undo import DIRTY
from tests.support.failing_files import Injector, Killed
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint, tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult

NAME = TopicPartition("orders", 0)


@contextmanager
def opened(root: Path) -> Iterator[LockedDir]:
    path = root / "logs"
    with LogDirLock.acquire(path, settle_seconds=0) as lock:
        yield LockedDir(read_log_dir(path), lock, StateStore(root / "state"), resources(), keep_replaced=root / "kept")


def clean(root: Path) -> CleaningResult:
    with opened(root) as locked:
        return clean_partition(locked, NAME, config(), CleaningOptions(NOW, force=True), Silent())


def undo(root: Path) -> UndoResult:
    kept_segments = KeptSegments(root / "state")
    with opened(root) as locked:
        return undo_cleaning(locked, kept_segments, entries_of(kept_segments, locked.log_dir)[0])


@pytest.mark.parametrize("kills", [False, True])
def test_every_step_of_an_undo(injector: Injector, kills: bool) -> None:
    """Failed or killed: cleaned or undone, never between; another undo gets to the end of it, to the byte."""
    for step in range(200):
        with scratch() as root:
            (root / "kept").mkdir()
            make(root)
            before = tree(root / "logs" / "orders-0", without=())
            assert clean(root).outcome == "cleaned"
            injector.arm(step, kills=kills)
            with suppress(Killed):
                undo(root)
            injector.disarm()
            if not injector.happened:
                assert step > 40, "every step was tried"
                assert keys(root / "logs" / "orders-0") == DIRTY
                return
            if not kills:
                assert keys(root / "logs" / "orders-0") in (CLEANED, DIRTY), step
            # Killed while the entry was being forgotten, or before: there is still something to undo, or nothing.
            kept_segments = KeptSegments(root / "state")
            assert kept_segments.entries(), "the entry goes last"
            assert undo(root).outcome in ("undone", "unchanged"), step
            assert tree(root / "logs" / "orders-0", without=()) == before
            assert read_checkpoint(root / "logs" / CLEANER_CHECKPOINT) == {"orders-0": 0}
            assert list((root / "kept").iterdir()) == []
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("kills", [False, True])
def test_every_step_of_a_cleaning_that_keeps(injector: Injector, kills: bool) -> None:
    """Whatever became of the cleaning, an entry that is there tells the truth: undo leads back to the beginning."""
    for step in range(200):
        with scratch() as root:
            (root / "kept").mkdir()
            make(root)
            before = {p.name: p.read_bytes() for p in (root / "logs" / "orders-0").glob("*.log")}
            injector.arm(step, kills=kills)
            with suppress(Killed):
                clean(root)
            injector.disarm()
            if not injector.happened:
                assert step > 30, "every step was tried"
                return
            if KeptSegments(root / "state").entries():
                assert undo(root).outcome in ("undone", "unchanged"), step
                after = {p.name: p.read_bytes() for p in (root / "logs" / "orders-0").glob("*.log")}
                assert after == before, step
    pytest.fail("it never came to an end")
