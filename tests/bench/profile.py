"""CPU time of a cleaning: ns per record by phase and by function, for the five shapes (``make profile``).

Kafka's warm cleaner thread and cleanerd take turns on copies of the same log; the CPU floor (reading twice and checking
once) and ``cp`` are shown beside them. A process of its own cleans copies while ``perf`` samples it; only the samples
of its measured passes count. Without ``perf`` there is only the total. ``PROFILE_KERNEL`` is the measured kernel: one
with symbols, otherwise its functions have no names.

Environment: ``BENCH_SIZE`` (bytes of every log, uncompressed; default 500MiB), ``BENCH_REPEAT`` (passes, default 4),
``PROFILE_SHAPES`` (default: all), ``PROFILE_KAFKA`` (0: without Kafka).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.config.units import parse_size
from cleanerd_lab.bench.generate import SHAPES, LogShape, MadeLog, make_log
from cleanerd_lab.bench.process import environment_of
from cleanerd_lab.bench.yardstick import copy_seconds, floor_seconds
from tests.bench.kafkas import kafkas_clean
from tests.bench.profiled import Passes, passes_of
from tests.bench.samples import Sample, phase_of, read_samples
from tests.kafka.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE_BYTES: Final = parse_size(os.environ.get("BENCH_SIZE", "500MiB"))
REPEAT: Final = int(os.environ.get("BENCH_REPEAT", "4"))
SEGMENTS: Final = 4
MOST_FUNCTIONS: Final = 20
SAMPLES_A_SECOND: Final = 1999


@dataclass(frozen=True, slots=True)
class Profile:
    """One shape: CPU ns per record of every pass; the samples of the passes."""

    log: MadeLog
    ours: list[float]
    kafka: list[float]
    floor: float
    copy_seconds: float
    moved_bytes: float
    samples: list[Sample]

    def text(self) -> str:
        """Its output."""
        least, median = min(self.ours), statistics.median(self.ours)
        lines = [
            f"\n{self.log.shape.name}: {self.log.shape.label}; {self.log.records} records, {self.log.log_bytes} bytes",
            f"  cleanerd {least:.0f} ns a record (median {median:.0f}), floor {self.floor:.0f}",
            f"  cp {self.copy_seconds * 1e9 / self.log.records:.0f} ns a record on the wall",
            f"  {self.moved_bytes / self.log.log_bytes:.2f} bytes read and written per byte of log",
        ]
        if self.kafka:
            least_k, median_k = min(self.kafka), statistics.median(self.kafka)
            lines.append(
                f"  Kafka's thread {least_k:.0f} ns (median {median_k:.0f}): {least_k / least:.1f} times ours "
                f"by the least, {median_k / median:.1f} by the medians"
            )
        mean = statistics.mean(self.ours)
        lines += _table("phase", Counter(phase_of(sample) for sample in self.samples), mean)
        functions = Counter(f"{sample.function} [{sample.binary}]" for sample in self.samples)
        lines += _table("function", functions, mean)
        return "\n".join(lines)


def _table(title: str, counts: Counter[str], ns: float) -> list[str]:
    """Rows of (ns per record, name), the most expensive first: shares of the samples times ``ns``."""
    total = counts.total()
    rows = [f"    {count / total * ns:7.1f}  {name}" for name, count in counts.most_common(MOST_FUNCTIONS)]
    return [f"  ns a record by {title}", *rows] if total else []


def profile(shape: LogShape, work_dir: Path, judge: Judge | None) -> Profile:
    """Make the log, clean it by both in turns, then sample a process that cleans it."""
    log = make_log(
        work_dir / "log", shape, unpacked_bytes=SIZE_BYTES, segment_bytes=max(SIZE_BYTES // SEGMENTS, 65_536)
    )
    kafka: list[float] = []
    ours: list[float] = []
    if judge is not None:
        kafkas_clean(judge, log, work_dir)  # warms the JVM up
    for _ in range(REPEAT if judge is not None else 0):
        assert judge is not None
        kafka.append(kafkas_clean(judge, log, work_dir).cpu_ns / log.records)
        ours += _passes(log, work_dir, 1).cpu_ns_per_record(log.records)
    passes, samples = sampled(log, work_dir)
    return Profile(
        log=log,
        ours=ours or passes.cpu_ns_per_record(log.records),
        kafka=kafka,
        floor=floor_seconds(log.partition_dir, repeat=REPEAT) * 1e9 / log.records,
        copy_seconds=copy_seconds([log.partition_dir], work_dir, repeat=REPEAT),
        moved_bytes=passes.moved_bytes,
        samples=samples,
    )


def _passes(log: MadeLog, work_dir: Path, count: int, before: Sequence[str] = ()) -> Passes:
    """A process of its own that cleans ``count`` copies after a warm-up; ``before``: the command that starts it."""
    answer = work_dir / "passes.json"
    command = [*before, sys.executable, "-m", "tests.bench.profiled", str(log.log_dir), str(log.segment_bytes)]
    environment = environment_of(work_dir / "bytecode")
    subprocess.run([*command, str(count), str(work_dir), str(answer)], check=True, env=environment)
    return passes_of(answer)


def sampled(log: MadeLog, work_dir: Path) -> tuple[Passes, list[Sample]]:
    perf = shutil.which("perf")
    if perf is None:
        return _passes(log, work_dir, REPEAT), []
    data = work_dir / "perf.data"
    # Call chains distinguish the system calls; the clock is that of the passes. Virtual machines have no cycle counter.
    record = (perf, "record", "-q", "-g", "-e", "cpu-clock", "-k", "CLOCK_MONOTONIC", "-F", str(SAMPLES_A_SECOND))
    passes = _passes(log, work_dir, REPEAT, (*record, "-o", str(data), "--"))
    return passes, [sample for sample in read_samples(perf, data) if passes.has(sample.seconds)]


def main() -> None:
    """Print the profile of each shape as it is made."""
    chosen = os.environ.get("PROFILE_SHAPES", "").split(",")
    shapes = [shape for shape in SHAPES if chosen == [""] or shape.name in chosen]
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    sys.stdout.write(f"{time.strftime('%Y-%m-%d %H:%M')}, load {loads}\n")
    with nullcontext() if os.environ.get("PROFILE_KAFKA") == "0" else Judge("4.3", benchmark=True) as judge:
        for shape in shapes:
            with tempfile.TemporaryDirectory(prefix="cleanerd-profile-") as work_dir:
                sys.stdout.write(profile(shape, Path(work_dir), judge).text() + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
