"""The effect of more cores, simulated from measured shares: time with and without the interpreter's lock.

``perf`` samples a process that cleans copies of one log with one thread. A sample in the kernel module, or in a system
call that reads, writes or flushes, is without the lock; one in Python or NumPy is with it. For memory (libc, new pages)
this is unknown, so there are two tables: all of it with the lock, and none. The offset map, and writes and flushes, run
in order even if several threads work in one partition.

The tables are for logs of 4 GiB. Bandwidth of memory and disks is left out, so they show what the lock permits.

Usage: ``make profile-cores``. Environment: ``BENCH_SIZE``, ``BENCH_REPEAT``, ``PROFILE_SHAPES`` as for ``make
profile``.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd_lab.bench.generate import SHAPES, LogShape, make_log
from tests.bench.profile import SEGMENTS, SIZE_BYTES, sampled
from tests.bench.samples import phase_of
from tests.bench.threads_model import Work, one_partition, partitions_at_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.profiled import Passes
    from tests.bench.samples import Sample

CORES: Final = (1, 2, 4, 8, 16, 32)
PHASES: Final = ("start", "index", "decide", "rewrite")
HELD: Final = frozenset({"Python", "NumPy"})
UNKNOWN: Final = frozenset({"memory, libc", "fresh pages", "system, the rest"})
IN_ORDER: Final = frozenset({"map", "key hash", "write", "flush", "CRC of the file"})
"""Hashing keys is not, but ``perf`` gives it and the map one name; most of that is the map."""

PIECE_BYTES: Final = 4 * 1024 * 1024
SIMULATED_BYTES: Final = 4 * 1024**3


def main() -> None:
    """Print the shares and the tables of each shape."""
    chosen = os.environ.get("PROFILE_SHAPES", "").split(",")
    sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M')}, load {os.getloadavg()[0]:.1f}\n")
    for shape in SHAPES:
        if chosen == [""] or shape.name in chosen:
            with tempfile.TemporaryDirectory(prefix="cleanerd-cores-") as work_dir:
                sys.stdout.write(reported(shape, Path(work_dir)) + "\n")
                sys.stdout.flush()


def reported(shape: LogShape, work_dir: Path) -> str:
    """The output for one shape."""
    log = make_log(work_dir / "log", shape, unpacked_bytes=SIZE_BYTES, segment_bytes=SIZE_BYTES // SEGMENTS)
    passes, samples = sampled(log, work_dir)
    if not samples:
        raise SystemExit("perf is not installed")
    counts = by_phase(passes, samples)
    seconds = sum(passes.cpu_seconds) / len(passes.cpu_seconds) / sum(c.total() for c in counts.values())
    lines = [f"\n{shape.name}: {shape.label}; CPU ms a pass by phase: with the lock, unknown, in order, parallel"]
    for phase in PHASES:
        parts = [1000 * seconds * _sum(counts[phase], of) for of in ("held", "unknown", "in order", "parallel")]
        lines.append(f"  {phase:8}" + "".join(f"{part:9.1f}" for part in parts))
    pieces = SIMULATED_BYTES // PIECE_BYTES
    for title, unknown_is_held in (("memory without the lock", False), ("memory with the lock", True)):
        works = works_of(counts, seconds, SIMULATED_BYTES / log.log_bytes, unknown_is_held=unknown_is_held)
        held = sum(work.held for work in works) / sum(work.seconds for work in works)
        lines.append(f"  {title}: {100 * held:.1f} % with the lock")
        lines.append(f"    {'cores':36}" + "".join(f"{cores:7}" for cores in CORES))
        for name, speed_up in (("partitions at once", partitions_at_once), ("one partition", one_partition)):
            for lock, one_lock in (("", True), (", free-threaded", False)):
                row = (speed_up(works, cores, pieces=pieces, one_lock=one_lock) for cores in CORES)
                lines.append(f"    {name + lock:36}" + "".join(f"{value:7.2f}" for value in row))
    return "\n".join(lines)


def by_phase(passes: Passes, samples: Iterable[Sample]) -> dict[str, Counter[str]]:
    """Number of samples by phase and kind: the last ones of a pass follow each other up to its end."""
    counts: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
    for sample in samples:
        for (_, end), took in zip(passes.spans, passes.phases, strict=True):
            if sample.seconds <= end:
                rewrite = end - took["rewrite"] - took["swap"]
                decide = rewrite - took["decide"]
                borders = (("rewrite", rewrite), ("decide", decide), ("index", decide - took["index"]))
                phase = next((name for name, begin in borders if sample.seconds >= begin), "start")
                counts[phase][kind_of(phase_of(sample))] += 1
                break
    return counts


def kind_of(what: str) -> str:
    """Whether a moment of ``phase_of`` holds the lock, and if not, whether several threads may be in it."""
    if what in HELD:
        return "held"
    if what in UNKNOWN:
        return "unknown"
    return "in order" if what in IN_ORDER else "parallel"


def works_of(counts: dict[str, Counter[str]], seconds: float, times: float, *, unknown_is_held: bool) -> list[Work]:
    """The work of every phase of a log ``times`` as large. The startup cost is constant and never parallel."""
    works = []
    for phase in PHASES:
        kinds = Counter({kind: seconds * count for kind, count in counts[phase].items()})
        kinds["held" if unknown_is_held else "parallel"] += kinds.pop("unknown", 0)
        if phase == "start":
            works.append(Work(kinds["held"], 0.0, kinds["in order"] + kinds["parallel"]))
        else:
            works.append(Work(times * kinds["held"], times * kinds["parallel"], times * kinds["in order"]))
    return works


def _sum(counts: Counter[str], kind: str) -> int:
    return counts[kind]


if __name__ == "__main__":
    main()
