"""How much memory this process may take, and how large a batch it may decompress with that (U-35).

A small batch can decompress to any size, and a process that is killed because of it is killed at every start. So the
limit for one batch is computed first. It is the memory that the cgroup (v2 or v1, and all above it) or the host leaves,
minus Python and the daemon, the offset maps and the read buffers; the threads share the rest.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

MIB: Final = 1024 * 1024
OWN_BYTES: Final = 96 * MIB
"""Python, its modules, and the daemon's state of thousands of partitions."""

RESERVED_SHARE: Final = 8
"""One part in this many is reserved for page tables, free space in the heap, and so on."""

MAP_PART: Final = 3
"""One part in this many of the rest is for the offset maps: a smaller map only costs passes."""

THREAD_BYTES: Final = 12 * MIB
"""Memory of a thread besides its read buffers, however small its batches are."""

COPIES: Final = 6
"""A thread's memory for one batch, in multiples of the limit.

The copies are: stored, decompressed, the decompressor's window, the retained part, compressed again, and the output; or
its columns and results.
"""

LEAST_BATCH_BYTES: Final = 1 * MIB
LEAST_FACTS_BYTES: Final = 8 * MIB

MAX_UNPACKED_BYTES: Final = 1024 * MIB
"""Limit of a decompressed batch if no setting names one and memory suffices."""

READ_BUFFER_BYTES: Final = 4 * MIB
OBJECTS: Final = 8
RESULTS: Final = 3
"""With several threads in a partition, this many finished results per thread wait for their turn."""

LATELY_SECONDS: Final = 1.0

TASKS_VARIABLE: Final = "_CLEANERD_SPARK_TASKS"
"""An environment variable of a local Spark session, or of a process without one: the number of parallel tasks."""

_NO_LIMIT: Final = 2**60
_V2, _V1 = "cgroup2", "cgroup"


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory that the process may use in total. ``origin``: the source of the limit, for operators."""

    bytes: int
    origin: str


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """The shares of memory. ``map_bytes``: all offset maps together; ``batch_bytes``: one decompressed batch.

    ``facts_bytes``: the facts about one log's batches and records, which use the memory for large batches.
    ``fits``: the limit can be kept.
    """

    map_bytes: int
    batch_bytes: int
    facts_bytes: int
    fits: bool


def share_of(
    memory: Memory,
    *,
    threads: int,
    map_bytes: int,
    read_buffer_bytes: int,
    max_unpacked_bytes: int,
    inside: bool = True,
) -> MemoryShare:
    """Pure: the shares for these settings and this memory, with ``threads`` at once.

    ``inside``: several of them may work in one partition, where as many results wait for their turn.
    """
    left = memory.bytes - memory.bytes // RESERVED_SHARE - OWN_BYTES
    maps = min(map_bytes, max(left // MAP_PART, 0))
    slots = RESULTS * threads if inside and threads > 1 else threads
    each = (left - maps) // slots - 2 * read_buffer_bytes - THREAD_BYTES
    batch = each // COPIES
    return MemoryShare(
        map_bytes=max(maps, threads * MIB),
        batch_bytes=min(max(batch, LEAST_BATCH_BYTES), max_unpacked_bytes),
        facts_bytes=max((left - maps) // threads - 2 * read_buffer_bytes - THREAD_BYTES, LEAST_FACTS_BYTES),
        fits=batch >= LEAST_BATCH_BYTES,
    )


@functools.cache
def batch_bytes(memory: Memory | None = None) -> int:
    """Limit of a decompressed batch for a program with one reading thread and no map: ``verify``, ``inspect``.

    ``memory``: None: what this process may take.
    """
    return _reader_share(memory or measure(), threads=1).batch_bytes


@functools.cache
def facts_bytes(memory: Memory | None = None) -> int:
    """Limit of a segment's batch metadata for such a program: half of the memory, because one batch may be large too.

    ``memory``: None: what this process may take.
    """
    return _reader_share(memory or measure(), threads=1).facts_bytes // 2


def batch_bytes_of_objects() -> int:
    """The limit of a batch if each record becomes a Python object, which takes many times its bytes."""
    return batch_bytes() // OBJECTS


@functools.cache
def worker_share(map_bytes: int = 0) -> MemoryShare:
    """A Spark worker's share; ``TASKS_VARIABLE`` gives the number of parallel workers, otherwise the number of cores.

    If Spark limits its workers (``spark.executor.pyspark.memory``), each gets that limit. ``map_bytes``: the offset map
    of each.
    """
    configured = os.environ.get("PYSPARK_EXECUTOR_MEMORY_MB", "")
    if configured.isdecimal():
        return _reader_share(Memory(int(configured) * MIB, "spark.executor.pyspark.memory"), 1, map_bytes)
    tasks = os.environ.get(TASKS_VARIABLE, "")
    at_once = int(tasks) if re.fullmatch(r"[1-9][0-9]{0,5}", tasks) else len(os.sched_getaffinity(0))
    return _reader_share(measure(), at_once, at_once * map_bytes)


def worker_batch_bytes() -> int:
    """Limit of a decompressed batch in a Spark worker."""
    return worker_share().batch_bytes


@contextlib.contextmanager
def local_mode() -> Iterator[None]:
    """In the block this process runs tasks one after the other, instead of in parallel."""
    before = os.environ.get(TASKS_VARIABLE)
    os.environ[TASKS_VARIABLE] = "1"
    worker_share.cache_clear()
    try:
        yield
    finally:
        os.environ.pop(TASKS_VARIABLE, None)
        if before is not None:
            os.environ[TASKS_VARIABLE] = before
        worker_share.cache_clear()


def _reader_share(memory: Memory, threads: int, map_bytes: int = 0) -> MemoryShare:
    return share_of(
        memory,
        threads=threads,
        map_bytes=map_bytes,
        read_buffer_bytes=READ_BUFFER_BYTES,
        max_unpacked_bytes=MAX_UNPACKED_BYTES,
        inside=False,
    )


def measure(proc: Path = Path("/proc")) -> Memory:
    """Memory that the system leaves to this process now, including what it already uses.

    If nothing can be read (no ``/proc``), half of the machine's memory.
    """
    own = _fields(proc / "self" / "status").get("RssAnon", 0)
    found = list(_limits(proc, own))
    available = _fields(proc / "meminfo").get("MemAvailable")
    if available is not None:
        found.append(Memory(available + own, "the memory that this machine has available"))
    if not found or available is None:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found.append(Memory(pages // 2, "half of this machine's memory"))
    return min(found, key=lambda each: each.bytes)


class RecentMeasurement:
    """The result of ``measure`` of the last second: thousands of small partitions use it many times per second."""

    def __init__(
        self, measure: Callable[[], Memory] = measure, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._measure, self._monotonic = measure, monotonic
        self._found: tuple[float, Memory] | None = None

    def __call__(self) -> Memory:
        """Measure again when the last result is older than `LATELY_SECONDS`."""
        now = self._monotonic()
        if self._found is None or now - self._found[0] > LATELY_SECONDS:
            self._found = now, self._measure()
        return self._found[1]


measured_lately: Final = RecentMeasurement()


def _limits(proc: Path, own: int) -> Iterator[Memory]:
    """What each cgroup of this process leaves, from its own up to the highest visible one."""
    try:
        mounts = (proc / "self" / "mountinfo").read_text()
        groups = (proc / "self" / "cgroup").read_text()
    except (OSError, UnicodeDecodeError):
        return
    for kind, root, place in _mounts(mounts):
        group = _group(groups, kind)
        if group is None:
            continue
        names = ("memory.max", "memory.high") if kind == _V2 else ("memory.limit_in_bytes",)
        for directory in _upwards(Path(place), root, group):
            for name in names:
                limit = _number(directory / name)
                if limit is not None and limit < _NO_LIMIT:
                    yield Memory(max(limit - _others(directory, kind, own), 0), f"{name} of the cgroup {directory}")


def _others(directory: Path, kind: str, own: int) -> int:
    """Memory of other processes in the cgroup that the kernel cannot reclaim."""
    stat = _fields(directory / "memory.stat")
    prefix = "" if kind == _V2 else "total_"
    used = _number(directory / ("memory.current" if kind == _V2 else "memory.usage_in_bytes")) or 0
    given_back = ("inactive_file", "active_file", "slab_reclaimable")
    return max(used - own - sum(stat.get(prefix + name, 0) for name in given_back), 0)


def _mounts(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, root and path of the mounts that can have a memory controller."""
    for line in text.splitlines():
        head, _, tail = line.partition(" - ")
        words, what = head.split(" "), tail.split(" ")
        if len(words) < 5 or len(what) < 3:
            continue
        if what[0] == _V2 or (what[0] == _V1 and "memory" in what[2].split(",")):
            yield what[0], _unescaped(words[3]), _unescaped(words[4])


def _group(text: str, kind: str) -> str | None:
    """The process's cgroup in that hierarchy."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (number == "0" and not controllers) if kind == _V2 else "memory" in controllers.split(","):
            return path
    return None


def _upwards(place: Path, root: str, group: str) -> Iterator[Path]:
    """The cgroup's directory and the visible ones above it."""
    path = PurePosixPath(group)
    try:
        inside = path.relative_to(root)
    except ValueError:
        inside = PurePosixPath()  # in a container: its own cgroup is mounted there
    parts = [part for part in inside.parts if part not in {"/", ".."}]
    directory = place.joinpath(*parts)
    if not directory.is_dir():
        parts = []
    for count in range(len(parts), -1, -1):
        yield place.joinpath(*parts[:count])


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # "max", or the file does not exist


def _fields(path: Path) -> Mapping[str, int]:
    """Values by name; those in kB are converted to bytes."""
    found: dict[str, int] = {}
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return found
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if len(words) >= 2 and words[1].isdecimal():
            found[words[0]] = int(words[1]) * (1024 if words[2:] == ["kB"] else 1)
    return found
