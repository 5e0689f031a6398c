"""An undo that fails or is killed at any step: the log is cleaned or restored, and the next undo finishes it (S-40)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.swap import undo as undo_module
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.round import clean_partition
from tests.cleaner.driver import Silent, config, scratch
from tests.cli.clean_log_dirs import CLEANED, DIRTY, NOW, keys, make
from tests.support.failing_files import Injector, Killed
from tests.support.log_dirs import CLEANER_CHECKPOINT, Partition, make_log_dir, read_checkpoint, tree
from tests.support.logs import keyed_batch
from tests.support.root import OTHER_UID, as_other_user, needs_root
from tests.swap.offline_round import PARTITION, clean_and_keep, opened, undo_last

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.long
@pytest.mark.parametrize("kills", [False, True])
def test_every_step_of_an_undo(injector: Injector, kills: bool) -> None:
    """Failed or killed: cleaned or restored, never between; another undo completes it, to the byte."""
    for step in range(200):
        with scratch() as root:
            (root / "kept").mkdir()
            make(root)
            before = tree(root / "logs" / "orders-0", without=())
            assert clean_and_keep(root).outcome == "cleaned"
            injector.arm(step, kills=kills)
            with suppress(Killed):
                undo_last(root)
            injector.disarm()
            if not injector.happened:
                assert step > 40, "every step was tried"
                assert keys(root / "logs" / "orders-0") == DIRTY
                return
            if not kills:
                assert keys(root / "logs" / "orders-0") in (CLEANED, DIRTY), step
            # killed while the entry was being removed, or before: undo still has work, or none
            kept_segments = KeptSegments(root / "state")
            assert kept_segments.entries(), "the entry is removed last"
            assert undo_last(root).outcome in ("undone", "unchanged"), step
            assert tree(root / "logs" / "orders-0", without=()) == before
            assert read_checkpoint(root / "logs" / CLEANER_CHECKPOINT) == {"orders-0": 0}
            assert list((root / "kept").iterdir()) == []
    pytest.fail("the undo never ended")


@pytest.mark.long
@pytest.mark.parametrize("kills", [False, True])
def test_every_step_of_a_cleaning_that_keeps(injector: Injector, kills: bool) -> None:
    """Whatever the result of the cleaning, an existing entry is right: undo restores the original."""
    for step in range(200):
        with scratch() as root:
            (root / "kept").mkdir()
            make(root)
            before = {p.name: p.read_bytes() for p in (root / "logs" / "orders-0").glob("*.log")}
            injector.arm(step, kills=kills)
            with suppress(Killed):
                clean_and_keep(root)
            injector.disarm()
            if not injector.happened:
                assert step > 30, "every step was tried"
                return
            if KeptSegments(root / "state").entries():
                assert undo_last(root).outcome in ("undone", "unchanged"), step
                after = {p.name: p.read_bytes() for p in (root / "logs" / "orders-0").glob("*.log")}
                assert after == before, step
    pytest.fail("the undo never ended")


def test_undo_stops_at_an_unfinished_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    """U-34: an unfinished swap of any segment appeared while the undo was staged; no segment was touched."""
    with scratch() as root:
        (root / "kept").mkdir()
        make(root)
        assert clean_and_keep(root).outcome == "cleaned"
        log = root / "logs" / "orders-0"
        real = undo_module.write_restore

        def comes(files: PartitionFiles, plan: Any) -> None:
            real(files, plan)
            (log / f"{99:020d}.log.swap").write_bytes(b"")

        # between the staging of an undo and its first swap
        monkeypatch.setattr(undo_module, "write_restore", comes)
        done = undo_last(root)
        assert done.outcome == "refused"
        assert "an unfinished swap: " in done.reason
        assert keys(log) == CLEANED
        (log / f"{99:020d}.log.swap").unlink()
        monkeypatch.undo()
        assert undo_last(root).outcome == "undone"


@pytest.mark.parametrize("groups", [10, 30])
def test_a_group_is_restored_without_reading_the_others(monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    """U-34, S-32: a few directory listings whatever its size; one byte of the journal is read."""
    logs = {2 * at: keyed_batch(2 * at, [("k", "x"), (f"u{at}", "y")]) for at in range(groups)}
    with scratch() as root:
        (root / "kept").mkdir()
        last = keyed_batch(2 * groups, [("k", "z")])
        make_log_dir(root / "logs", {str(PARTITION): Partition({**logs, 2 * groups: last,
                                                           2 * groups + 1: b""})})  # fmt: skip
        with opened(root) as locked:
            small = config(**{"segment.bytes": 100})
            assert (
                clean_partition(locked, PARTITION, small, CleaningOptions(NOW, force=True), Silent()).outcome
                == "cleaned"
            )
        scans: list[str] = []
        for name in ("names", "read"):
            # the number of listings is visible only in the time
            monkeypatch.setattr(PartitionFiles, name, counted(getattr(PartitionFiles, name), scans))
        done = undo_last(root)
        assert (done.outcome, done.segments_before) == ("undone", groups)
        assert len(scans) < 20, "3 more for each group: with 6,500 of them hours"


def counted(real: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        calls.append(str(args[1:]))
        return real(*args)

    return call


def undo_as_another_user(root: Path) -> tuple[str, str]:
    """Outcome and reason of an undo by a user other than root."""

    def reported() -> tuple[str, str]:
        result = undo_last(root)
        return result.outcome, result.reason

    outcome, reason = as_other_user(reported)
    return outcome, reason


@needs_root
def test_kept_segments_of_root_are_not_undone_by_another_user() -> None:
    """Root created the directory: the broker's user changes nothing and gets the remedy; then it works."""
    with scratch() as root:
        root.chmod(0o755)
        (root / "kept").mkdir()
        make(root)
        for path in (root / "logs", *(root / "logs").rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID)
        assert clean_and_keep(root).outcome == "cleaned"
        cleaned, state = tree(root / "logs"), tree(root / "state")
        outcome, reason = undo_as_another_user(root)
        assert outcome == "refused"
        assert "belongs to root" in reason
        assert f"chown -R {root / 'kept'} to the broker's user" in reason
        assert (tree(root / "logs"), tree(root / "state")) == (cleaned, state), "no segment was restored"
        for path in (root / "kept", *(root / "kept").rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID)
        assert undo_as_another_user(root) == ("undone", "")
        assert list((root / "kept").iterdir()) == []
