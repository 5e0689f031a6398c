"""An apply that stops between two groups, by a time limit or a disk error, continues with the next one (X-20, S-26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import NoSpaceError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap import apply_staged
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.group_swap import swap_group
from cleanerd.swap.journal import Journal
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import stage_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import NAME, Silent, resources
from tests.cli.clean_log_dirs import keys
from tests.support.log_dirs import CLEANER_CHECKPOINT, make_log_dir, read_checkpoint
from tests.swap.offline_round import TOPIC, force, two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult

PARTITION = TopicPartition("orders", 0)
DIRTY = {0: [(0, "a"), (1, "b"), (2, "c")], 4: [(4, "big")], 5: [(5, "a"), (6, "b"), (7, "a")], 8: []}
HALF = {**DIRTY, 0: [(2, "c")]}
CLEANED = {**HALF, 5: [(6, "b"), (7, "a")]}


def staged(root: Path) -> Path:
    path = make_log_dir(root / "logs", {NAME: two_groups()})
    store = StateStore(root / "state")
    result = stage_partition(read_log_dir(path), store, resources(), PARTITION, TOPIC, force(), Silent())
    assert result.outcome == "staged", result.reason
    return path


def applied(path: Path) -> CleaningResult:
    with LogDirLock.acquire(path, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(path), lock, StateStore(path.parent / "state"), resources())
        return apply_partition(locked, PARTITION, TOPIC, force())


def fail_at(monkeypatch: pytest.MonkeyPatch, base: int, how: BaseException) -> None:
    """Run ``how`` just before the group ``base`` is swapped."""

    def swap(files: object, plan: object, group: object, *more: object, **named: object) -> None:
        if group.base == base:  # type: ignore[attr-defined]
            raise how
        swap_group(files, plan, group, *more, **named)  # type: ignore[arg-type]

    # Just before the swap of one group.
    monkeypatch.setattr(apply_staged, "swap_group", swap)


@pytest.mark.parametrize("how", [KeyboardInterrupt(), NoSpaceError("no room")], ids=["a signal", "a full disk"])
def test_apply_continues_with_the_next_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: BaseException
) -> None:
    """After the hook's time limit the rest of the plan is kept, and finally the log is clean."""
    path = staged(tmp_path)
    with monkeypatch.context() as patch:
        fail_at(patch, 5, how)
        if isinstance(how, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                applied(path)
        else:
            assert applied(path).outcome == "failed"
    assert keys(path / NAME) == HALF
    again = applied(path)
    assert (again.outcome, again.reason) == ("cleaned", "")
    assert keys(path / NAME) == CLEANED
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {NAME: 8}
    assert not (path / NAME / ".kstage").exists()


def test_rolling_back_a_group_removes_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its staged files are gone, so the plan can never be applied: it is removed at once."""
    path = staged(tmp_path)
    real = Journal.begin

    def begin(journal: object, group: object) -> None:
        if group.base == 5:  # type: ignore[attr-defined]
            raise NoSpaceError("no room")
        real(journal, group)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        # Just before the commit point of one group.
        patch.setattr(Journal, "begin", begin)
        assert applied(path).outcome == "failed"
    assert keys(path / NAME) == HALF
    assert not (path / NAME / ".kstage").exists()
    assert applied(path).reason == "no staged plan"
