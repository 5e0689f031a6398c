"""A local session's memory: Java's heap, and the number of parallel tasks.

With ``local[N]`` everything is on one machine: Java, the driver's Python, and a Python worker per running task. If
Spark's default heap and a worker per core do not fit, Java gets the smallest heap that Spark starts with, and only as
many tasks run as fit beside it. The log's size does not matter: workers do not need more for a larger one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from cleanerd.errors import MachineError
from cleanerd.host.memory import MIB, Memory, measure

PYTHONS_BYTES: Final = 180 * MIB
"""The waiting cleanerd process, the driver, and the process that forks the workers."""

JAVA_BYTES: Final = 944 * MIB
"""Java with Spark's default heap of 1 GiB; measured, as are all of these."""

SMALL_JAVA_BYTES: Final = 500 * MIB
"""Java with ``SMALL_HEAP`` and ``SMALL_JAVA``."""

WORKER_BYTES: Final = 224 * MIB
"""A worker, with an offset map of 128 MiB or with the keys of a part of a log."""

RESERVED_SHARE: Final = 20
"""One part in this many of the memory is for the kernel: page tables, pipes."""

SMALL_HEAP: Final = "512m"
"""The smallest heap: Spark requires at least 450 MiB."""

SMALL_JAVA: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms32m -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30 "
    "-Xss512k -XX:MaxDirectMemorySize=96m -XX:ReservedCodeCacheSize=64m"
)
"""Java options that return heap memory and need little else."""


@dataclass(frozen=True, slots=True)
class Room:
    """The budget: ``tasks`` run in parallel. ``is_small``: Java gets the smallest heap."""

    tasks: int
    is_small: bool


def memory_budget(memory: Memory, cores: int) -> Room | None:
    """Pure: the budget in ``memory`` with ``cores``; None: not enough for a session."""
    left = memory.bytes - memory.bytes // RESERVED_SHARE - PYTHONS_BYTES
    if left >= JAVA_BYTES + cores * WORKER_BYTES:
        return Room(cores, is_small=False)
    tasks = (left - SMALL_JAVA_BYTES) // WORKER_BYTES
    return Room(min(cores, tasks), is_small=True) if tasks >= 1 else None


def local_memory_budget() -> Room:
    """The budget for this machine now.

    Raises:
        MachineError: there is not enough for a session.
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
    """Whether there is now enough memory for a session here."""
    return memory_budget(measure(), local_cores()) is not None


def local_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
