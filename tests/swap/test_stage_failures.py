"""Remembered failures of staging, and changes by the broker that are not failures (D-06, OP-10)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CorruptionError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.deferred_swap import has_changed
from cleanerd.swap.record_outcome import not_cleaned
from tests.support.log_dirs import make_log_dir
from tests.swap.offline_round import two_groups
from tests.swap.versioned_round import stage_versioned

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})


def test_a_rolled_segment_is_not_a_change(path: Path) -> None:
    """D-06: damage in a listed segment is damage, however often the broker rolls meanwhile."""
    log_dir = read_log_dir(path)
    before = read_partition(log_dir, ORDERS)
    (path / "orders-0" / f"{before.active.base + 100:020d}.log").touch()
    assert len(read_partition(log_dir, ORDERS).segments) == len(before.segments) + 1
    assert not has_changed(log_dir, ORDERS, before)
    first = path / "orders-0" / f"{before.segments[0].base:020d}.log"
    first.write_bytes(first.read_bytes()[:-1])
    assert has_changed(log_dir, ORDERS, before)


@pytest.mark.parametrize(("number", "outcome"), [(errno.EIO, "quarantined"), (errno.ENOENT, "refused")], ids=str)
def test_a_disk_that_does_not_answer(path: Path, monkeypatch: pytest.MonkeyPatch, number: int, outcome: str) -> None:
    """OP-10: only this partition fails; only a missing directory is reported as missing."""
    log_dir, store = read_log_dir(path), StateStore(path.parent / "state")
    real = os.stat

    def stat(name: object, *rest: object, **options: object) -> os.stat_result:
        if str(name).endswith("orders-0"):
            raise OSError(number, os.strerror(number), str(name))
        return real(name, *rest, **options)  # type: ignore[call-overload, no-any-return]

    with monkeypatch.context() as patch:
        # a failing disk is not available to the test
        patch.setattr(os, "stat", stat)
        result = not_cleaned(store, log_dir, ORDERS, CorruptionError("damaged"))
    assert result.outcome == outcome


def test_a_quarantine_ends_when_it_is_staged(path: Path) -> None:
    """OP-10: a fixed fault is not reported any longer."""
    log_dir, store = read_log_dir(path), StateStore(path.parent / "state")
    assert not_cleaned(store, log_dir, ORDERS, CorruptionError("damaged")).outcome == "quarantined"
    log = read_partition(log_dir, ORDERS)
    state = store.load(log_dir, log)
    assert state is not None
    assert state.quarantine is not None
    assert stage_versioned(path).outcome == "staged"
    state = store.load(log_dir, read_partition(log_dir, ORDERS))
    assert state is None or state.quarantine is None
