"""A session on this machine takes no more memory than is available."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import MachineError
from cleanerd.host.memory import MIB, Memory
from cleanerd.spark.driver_memory import Room, local_memory_budget, memory_budget
from cleanerd.spark.local_threshold import local_rows

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1024 * MIB


@pytest.mark.parametrize(
    ("size_bytes", "cores", "found"),
    [
        (16 * GIB, 8, Room(8, is_small=False)),
        (3 * GIB, 8, Room(8, is_small=False)),
        (2560 * MIB, 8, Room(7, is_small=True)),
        (2 * GIB, 8, Room(5, is_small=True)),
        (GIB, 8, Room(1, is_small=True)),
        (GIB, 1, Room(1, is_small=True)),
        (2 * GIB, 2, Room(2, is_small=False)),
        (944 * MIB, 1, None),
        (0, 1, None),
    ],
)
def test_the_memory_of_heap_and_workers_fits(size_bytes: int, cores: int, found: Room | None) -> None:
    """Java's heap first, then as many workers as the rest allows; never more than cores."""
    assert memory_budget(Memory(size_bytes, "a test"), cores) == found


def test_too_little(with_memory: Callable[[int], None]) -> None:
    """Reported before anything is started: the needed memory, the available memory, and the source of the limit."""
    with_memory(700 * MIB)
    with pytest.raises(MachineError) as raised:
        local_memory_budget()
    assert "700 MiB are left" in raised.value.message
    assert raised.value.where == "memory.max of the cgroup /c"


@pytest.mark.parametrize(("mib", "rows"), [(8192, 1 << 22), (768, 1 << 20), (100, 1 << 16)])
def test_rows_of_a_process_alone(with_memory: Callable[[int], None], mib: int, rows: int) -> None:
    """Fewer at once with little memory, which costs passes; never so few that it would not come to an end."""
    with_memory(mib * MIB)
    assert local_rows(1 << 22) == rows
    assert local_rows(100) == 100
