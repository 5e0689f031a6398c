"""The simulation of threads compared with cases computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.bench.cores import kind_of
from tests.bench.threads_model import Work, finished_after, one_partition, partitions_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.threads_model import Step


def program(*steps: Step) -> Iterator[Step]:
    """A thread with these steps."""
    return iter(steps)


def test_the_lock_is_for_one() -> None:
    """Two threads that hold it for a second each take two; without one lock, one."""
    assert finished_after([program(("hold", 1.0)), program(("hold", 1.0))]) == 2.0
    assert finished_after([program(("hold", 1.0)), program(("hold", 1.0))], one_lock=False) == 1.0
    assert finished_after([program(("free", 1.0), ("hold", 1.0)), program(("hold", 0.5))]) == 2.0


def test_a_waiting_thread_is_woken() -> None:
    """If it began to wait before or after the event; several waiting threads all continue."""
    first = program(("free", 3.0), ("signal", 7), ("free", 1.0))
    second = program(("free", 1.0), ("wait", 7), ("free", 2.0))
    third = program(("free", 2.0), ("wait", 7), ("free", 1.5))
    late = program(("free", 4.0), ("wait", 7), ("free", 0.5))
    assert finished_after([first, second, third, late]) == 5.0


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads_scale_without_the_lock(threads: int) -> None:
    """Without the lock n threads do n times as much; with nothing but the lock, as much as one."""
    assert partitions_at_once([Work(0.0, 1.0, 0.0)], threads, pieces=4000) == pytest.approx(threads, rel=0.1)
    assert partitions_at_once([Work(1.0, 0.0, 0.0)], threads, pieces=4000) == pytest.approx(1.0, rel=0.1)


@pytest.mark.long
def test_limits() -> None:
    """At most one over the share that holds the lock, or that runs in order; phases follow each other."""
    held = [Work(0.1, 0.9, 0.0)]
    assert partitions_at_once(held, 32, pieces=4000) == pytest.approx(10, rel=0.1)
    assert partitions_at_once(held, 32, pieces=4000, one_lock=False) == pytest.approx(32, rel=0.1)
    in_order = [Work(0.0, 0.8, 0.2)]
    assert one_partition(in_order, 32, pieces=4000) == pytest.approx(5, rel=0.1)
    assert one_partition([*in_order, Work(0.0, 0.0, 1.0)], 32, pieces=4000) == pytest.approx(2 / 1.2, rel=0.1)


def test_threads_that_share_the_pieces_scale() -> None:
    """Two threads are twice as fast while the ordered part is less than half; beyond that it limits them."""
    assert one_partition([Work(0.0, 1.0, 0.0)], 1, pieces=4000) == pytest.approx(1.0, rel=0.05)
    assert one_partition([Work(0.0, 0.7, 0.3)], 2, pieces=4000) == pytest.approx(2.0, rel=0.1)
    assert one_partition([Work(0.0, 0.3, 0.7)], 2, pieces=4000) == pytest.approx(1 / 0.7, rel=0.1)
    assert one_partition([Work(0.5, 0.5, 0.0)], 2, pieces=4000) == pytest.approx(2.0, rel=0.2)


def test_kinds() -> None:
    """Work with the lock, unknown work, ordered work, and the rest."""
    phases = ("Python", "NumPy", "memory, libc", "map", "flush", "codecs", "read")
    kinds = ["held", "held", "unknown", "in order", "in order", "parallel", "parallel"]
    assert [kind_of(phase) for phase in phases] == kinds
