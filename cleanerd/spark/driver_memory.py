"""A local session's memory: the heap of its Java, and how many tasks run at once.

With ``local[N]`` all is on one machine: Java, the driver's Python, and a Python worker per running task. If Spark's own
heap and a worker per core do not fit, Java gets the least heap that Spark starts with, and only as many tasks run at
once as fit beside it. The log's size does not matter: no worker takes more for a larger one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.errors import MachineError
from cleanerd.host.memory import MIB, measure

if TYPE_CHECKING:
    from cleanerd.host.memory import Memory

PYTHONS_BYTES: Final = 180 * MIB
"""cleanerd that waits, the driver, and what forks the workers."""

JAVA_BYTES: Final = 944 * MIB
"""Java with Spark's default heap of 1 GiB; measured, as all of these."""

SMALL_JAVA_BYTES: Final = 500 * MIB
"""Java with ``SMALL_HEAP`` and ``SMALL_JAVA``."""

WORKER_BYTES: Final = 224 * MIB
"""A worker, with an offset map of 128 MiB or with the keys of a part of a log."""

RESERVED_SHARE: Final = 20
"""Part of the memory for the kernel: page tables, pipes."""

SMALL_HEAP: Final = "512m"
"""Spark starts with no less than 450 MiB of it."""

SMALL_JAVA: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms32m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30 "
    "-Xss512k -XX:MaxDirectMemorySize=96m -XX:ReservedCodeCacheSize=64m"
)
"""A heap that is given back, and little beside it."""


@dataclass(frozen=True, slots=True)
class Room:
    """``tasks``: as many run at once. ``is_small``: Java has to do with the least heap."""

    tasks: int
    is_small: bool


def memory_budget(memory: Memory, cores: int) -> Room | None:
    """Pure: what fits into ``memory`` where there are ``cores``; None: no session does."""
    left = memory.bytes - memory.bytes // RESERVED_SHARE - PYTHONS_BYTES
    if left >= JAVA_BYTES + cores * WORKER_BYTES:
        return Room(cores, is_small=False)
    tasks = (left - SMALL_JAVA_BYTES) // WORKER_BYTES
    return Room(min(cores, tasks), is_small=True) if tasks >= 1 else None


def local_memory_budget() -> Room:
    """The budget for this machine now.

    Raises:
        MachineError: no session does.
    """
    memory = measure()
    room = memory_budget(memory, local_cores())
    if room is None:
        least = (PYTHONS_BYTES + SMALL_JAVA_BYTES + WORKER_BYTES) * RESERVED_SHARE // (RESERVED_SHARE - 1)
        raise MachineError(
            f"a Spark session with one task takes some {least // MIB} MiB, and {memory.bytes // MIB} MiB are left",
            where=memory.origin,
            hint="give it more memory, --master of a cluster, or --conf spark.driver.memory=... to try it nevertheless",
        )
    return room


def a_session_fits() -> bool:
    """Whether there is memory for one, here and now."""
    return memory_budget(measure(), local_cores()) is not None


def local_cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
