"""Cleaning a log that is not in the page cache: cleanerd, Kafka's cleaner, and what stays cached of another file.

Both clean copies of the same log in turn, in a cgroup with little memory. Before each turn another file, the *hot* one,
is read into the page cache, and the log is dropped from it (or not, for comparison). The output has CPU, elapsed time,
bytes read from and written to the disk, and the share of the hot file that is still cached afterwards. The reference
for the elapsed time is ``dd`` with direct I/O of the same bytes.

Usage: ``python -m tests.bench.cold [DIRECTORY]``, a directory on the disk to measure. Environment: ``BENCH_SIZE``
(default 4GiB), ``BENCH_HOT`` (2GiB), ``BENCH_MEMORY`` (4GiB), ``BENCH_REPEAT`` (3).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.config.units import parse_size
from cleanerd.humanize import human_bytes
from cleanerd_lab.bench.generate import SHAPES, MadeLog, make_log
from cleanerd_lab.bench.process import environment_of
from cleanerd_lab.bench.whole import clean_arguments, flush
from cleanerd_lab.bench.yardstick import segments
from tests.bench.kafkas import kafkas_clean
from tests.daemon.little_memory import Cgroup, cgroup
from tests.kafka.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Iterable

SIZE_BYTES: Final = parse_size(os.environ.get("BENCH_SIZE", "4GiB"))
HOT_BYTES: Final = parse_size(os.environ.get("BENCH_HOT", "2GiB"))
MEMORY_BYTES: Final = parse_size(os.environ.get("BENCH_MEMORY", "4GiB"))
REPEAT: Final = int(os.environ.get("BENCH_REPEAT", "3"))
SEGMENT_BYTES: Final = 256 << 20
MAP_BYTES: Final = 512 << 20
"""For both: all keys fit."""
BLOCK_BYTES: Final = 4 << 20
DD: Final = (f"bs={BLOCK_BYTES}", "status=none")


@dataclass(frozen=True, slots=True)
class Turn:
    """One cleaning. ``hot_share``: the share of the hot file's bytes that are cached afterwards."""

    cpu_seconds: float
    wall_seconds: float
    read_bytes: int
    written_bytes: int
    hot_share: float


def main(directory: Path) -> None:
    """Measure, and print a table."""
    shape = next(shape for shape in SHAPES if shape.name == "a80")
    with tempfile.TemporaryDirectory(prefix="cleanerd-cold-", dir=directory) as name, cgroup(MEMORY_BYTES) as group:
        work = Path(name)
        log = make_log(work / "log", shape, unpacked_bytes=SIZE_BYTES, segment_bytes=SEGMENT_BYTES)
        flush(log.log_dir)
        hot = work / "hot"
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={hot}", f"count={HOT_BYTES // BLOCK_BYTES}", "conv=fsync", *DD], check=True
        )
        sizes = (
            f"log {human_bytes(log.log_bytes)}, hot file {human_bytes(HOT_BYTES)}, memory {human_bytes(MEMORY_BYTES)}"
        )
        sys.stdout.write(f"{log.records} records; {sizes}; load {os.getloadavg()[0]:.1f}\n")
        with Judge("4.3", benchmark=True) as judge:
            if group.version:
                (group.path / "cgroup.procs").write_text(str(judge.pid))
            for cached in (True, False):
                kafka, ours = [], []
                for _ in range(REPEAT):
                    kafka.append(kafkas_turn(judge, log, fresh_copy(log, work, hot, group, cached=cached), hot))
                    ours.append(our_turn(log, fresh_copy(log, work, hot, group, cached=cached), hot, group))
                state = "cached" if cached else "cold"
                report(f"{state}, Kafka's thread", log, kafka)
                report(f"{state}, cleanerd", log, ours)
        direct = min(direct_seconds(log, work, ours[0].written_bytes) for _ in range(REPEAT))
        wall = statistics.median(turn.wall_seconds for turn in ours)
        sys.stdout.write(
            f"dd with direct I/O of the same bytes: {direct:.1f} s; cleanerd took {wall / direct:.2f} times that\n"
        )


def kafkas_turn(judge: Judge, log: MadeLog, copy: Path, hot: Path) -> Turn:
    """Kafka's cleaner on a copy of the log."""
    before = disk_bytes(judge.pid)
    answer = kafkas_clean(judge, log, copy, copied=True, map_bytes=MAP_BYTES)
    read, written = (after - start for after, start in zip(disk_bytes(judge.pid), before, strict=True))
    return Turn(answer.cpu_ns / 1e9, answer.wall_ns / 1e9, read, written, cached_share(hot))


def our_turn(log: MadeLog, copy: Path, hot: Path, group: Cgroup) -> Turn:
    """The whole command on a copy of the log."""
    work = copy.parent
    settings = [
        f"topics.bench.segment.bytes={log.segment_bytes}",
        "cleanerd.disk.reserve=0",
        f"log.cleaner.dedupe.buffer.size={MAP_BYTES}",
    ]
    command = [*group.prefix, sys.executable, "-m", "cleanerd", *clean_arguments(copy, str(work / "state"), settings)]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment_of(work / "bytecode"))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - started
    if process.returncode:
        raise SystemExit(f"cleanerd ended with exit code {process.returncode}")
    shutil.rmtree(work / "state")
    return Turn(
        usage.ru_utime + usage.ru_stime, wall, usage.ru_inblock * 512, usage.ru_oublock * 512, cached_share(hot)
    )


def fresh_copy(log: MadeLog, work: Path, hot: Path, group: Cgroup, *, cached: bool) -> Path:
    """A copy of the log, read into the page cache or not, and the hot file in the cache."""
    copy = work / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(log.log_dir, copy)
    flush(copy)
    drop([hot, *(path for path in log.log_dir.rglob("*") if path.is_file())])
    if not cached:
        drop(path for path in copy.rglob("*") if path.is_file())
    for _ in range(2):  # the kernel counts pages that are read twice as active
        subprocess.run([*group.prefix, "dd", f"if={hot}", "of=/dev/null", *DD], check=True)
    return copy


def drop(paths: Iterable[Path]) -> None:
    """Take flushed files out of the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(path: Path) -> float:
    """The share of the file's bytes that the page cache has."""
    done = subprocess.run(["fincore", "-b", "-n", "-o", "RES", str(path)], check=True, capture_output=True, text=True)
    return int(done.stdout) / path.stat().st_size


def disk_bytes(pid: int) -> tuple[int, int]:
    """The bytes that a process has read from disks and written to them."""
    rows = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(rows["read_bytes"]), int(rows["write_bytes"])


def direct_seconds(log: MadeLog, work: Path, written_bytes: int) -> float:
    """The elapsed time to read the segments twice and to write a cleaning's output, without the page cache."""
    files = segments(log.partition_dir)
    started = time.monotonic()
    for path in (*files, *files):
        subprocess.run(["dd", f"if={path}", "of=/dev/null", "iflag=direct", *DD], check=True)
    subprocess.run(
        [
            "dd",
            "if=/dev/zero",
            f"of={work / 'direct'}",
            f"count={written_bytes // BLOCK_BYTES}",
            "oflag=direct",
            "conv=fsync",
            *DD,
        ],
        check=True,
    )
    return time.monotonic() - started


def report(name: str, log: MadeLog, turns: list[Turn]) -> None:
    """One line: medians, and the spread of the CPU time."""
    cpu = [turn.cpu_seconds * 1e9 / log.records for turn in turns]
    wall = statistics.median(turn.wall_seconds for turn in turns)
    read, written = turns[0].read_bytes, turns[0].written_bytes
    hot = statistics.median(turn.hot_share for turn in turns)
    sys.stdout.write(
        f"{name:22} {statistics.median(cpu):6.0f} ns/record ({min(cpu):.0f} to {max(cpu):.0f}) {wall:7.1f} s  "
        f"read {human_bytes(read):>9}  written {human_bytes(written):>9}  hot file {hot:4.0%} cached\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/var/tmp"))  # noqa: S108
