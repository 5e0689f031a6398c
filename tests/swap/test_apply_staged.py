"""Applying a staged plan, with a failure or kill at every step.

Every group is old or new, and the next apply completes the plan or drops it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import StalePlanError
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.round import stage_partition
from tests.cleaner.driver import Silent, config, resources, scratch
from tests.cli.clean_log_dirs import CLEANED, DIRTY, NOW, keys, make
from tests.support.failing_files import Injector, Killed
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint
from tests.swap.offline_round import PARTITION, opened

if TYPE_CHECKING:
    from cleanerd.cleaner.result import CleaningResult


@pytest.mark.slow
@pytest.mark.parametrize("kills", [False, True])
def test_every_step(injector: Injector, kills: bool) -> None:
    """S-28, X-20: a second apply continues after the interruption, or drops a group that it rolled back."""
    applied_later = 0
    for step in range(200):
        with scratch() as root:
            (root / "kept").mkdir()
            path = make(root)
            store = StateStore(root / "state")
            options = CleaningOptions(NOW, force=True)
            staged = stage_partition(read_log_dir(path), store, resources(), PARTITION, config(), options, Silent())
            assert staged.outcome == "staged"
            injector.arm(step, kills=kills)
            with suppress(Killed), opened(root) as locked:
                apply_partition(locked, PARTITION, config(), options)
            injector.disarm()
            if not injector.happened:
                assert step > 20, "every step was tried"
                assert keys(path / "orders-0") == CLEANED
                assert not kills or applied_later
                return
            with opened(root) as locked:
                again: CleaningResult = apply_partition(locked, PARTITION, config(), options)
            assert again.outcome in ("cleaned", "unchanged") or isinstance(again.error, StalePlanError), again.reason
            assert keys(path / "orders-0") in (CLEANED, DIRTY), step
            assert not (path / "orders-0" / ".kstage").exists()
            applied_later += again.outcome == "cleaned"
            if keys(path / "orders-0") == DIRTY:
                assert not read_checkpoint(path / CLEANER_CHECKPOINT)
            elif again.outcome == "cleaned":
                assert read_checkpoint(path / CLEANER_CHECKPOINT) == {"orders-0": 6}
    pytest.fail("apply never ended")
