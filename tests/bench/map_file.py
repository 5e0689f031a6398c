"""The offset map in a file against shards, where ten times more keys are there than fit its memory (U-43).

Whole cleanings of one log, in turns: in shards, and with ``cleanerd.map.dir``; once where memory is free, and once in
a memory cgroup that leaves only a part of the file in memory; there also with a file that is kept though it is slow.

Usage, as root where cgroup v1 or v2 can be written: ``python -m tests.bench.map_file [DIRECTORY]``, a directory on the
disk that is to be measured. Environment: ``BENCH_KEYS`` (default 4000000), ``BENCH_REPEAT`` (default 1),
``BENCH_LIMIT_MIB`` (default 128), ``BENCH_STUBBORN`` (default 1; 0 leaves out the slowest row).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.cleaner.map_size import MAP_ENTRY_BYTES
from cleanerd.humanize import human_bytes
from cleanerd_lab.bench.generate import PARTITION, LogShape, MadeLog, make_log
from cleanerd_lab.bench.whole import clean_arguments, flush

KEYS: Final = int(os.environ.get("BENCH_KEYS", "4000000"))
REPEAT: Final = int(os.environ.get("BENCH_REPEAT", "1"))
LIMIT_BYTES: Final = int(os.environ.get("BENCH_LIMIT_MIB", "128")) << 20
STUBBORN: Final = os.environ.get("BENCH_STUBBORN", "1") != "0"
TOO_MANY: Final = 10
LOAD: Final = 0.85
SUPERSEDED: Final = 0.1
RECORD_BYTES: Final = 128
SEGMENTS: Final = 8

_CGROUPS: Final = (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup"))
_CHILD: Final = """
import json, os, resource, sys
group, stubborn, told = sys.argv[1:4]
if group:
    open(os.path.join(group, "cgroup.procs"), "w").write(str(os.getpid()))
if stubborn:
    from cleanerd.cleaner.map_file import MapFilePace
    MapFilePace.count = lambda *_: None
from cleanerd.cli.main import run
code = run(sys.argv[4:])
used = resource.getrusage(resource.RUSAGE_SELF)
cpu = used.ru_utime + used.ru_stime
peak = 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
json.dump([cpu, used.ru_majflt, 512 * used.ru_oublock, peak], open(told, "w"))
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class Way:
    """How a log is cleaned: with a file, in a cgroup of so many bytes (0: none), whatever it takes."""

    name: str
    in_file: bool
    limit_bytes: int = 0
    stubborn: bool = False


WAYS: Final = (
    Way("shards, memory free", in_file=False),
    Way("file, memory free", in_file=True),
    Way("shards, memory scarce", in_file=False, limit_bytes=LIMIT_BYTES),
    Way("file, memory scarce", in_file=True, limit_bytes=LIMIT_BYTES),
    Way("file, memory scarce, not given up", in_file=True, limit_bytes=LIMIT_BYTES, stubborn=True),
)


def main(directory: Path) -> None:
    """Measure, and print a table."""
    buffer_bytes = int(KEYS / TOO_MANY * MAP_ENTRY_BYTES / LOAD)
    shape = LogShape("keys", "many keys", RECORD_BYTES, 64, SUPERSEDED)
    with tempfile.TemporaryDirectory(prefix="cleanerd-map-", dir=directory) as work:
        size = int(KEYS / (1 - SUPERSEDED)) * shape.unpacked_batch_bytes // shape.batch_records
        log = make_log(Path(work) / "log", shape, unpacked_bytes=size, segment_bytes=size // SEGMENTS)
        flush(log.log_dir)
        sys.stdout.write(
            f"{log.records} records, {human_bytes(log.log_bytes)}; map {human_bytes(buffer_bytes)}; "
            f"scarce: {human_bytes(LIMIT_BYTES)} for the process and its files' pages; load {os.getloadavg()[0]:.1f}\n"
            f"{'way':36} {'passes':>6} {'wall s':>8} {'index s':>8} {'CPU s':>7} {'major faults':>13} {'written':>10} "
            f"{'RSS':>10}\n"
        )
        for _ in range(REPEAT):
            for way in WAYS:
                if STUBBORN or not way.stubborn:
                    _print(way, log, Path(work), buffer_bytes)


def _print(way: Way, log: MadeLog, work: Path, buffer_bytes: int) -> None:
    copy = work / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(log.log_dir, copy, copy_function=os.link)  # segments are only replaced
    given = [
        f"topics.{PARTITION.topic}.segment.bytes={log.segment_bytes}",
        f"log.cleaner.dedupe.buffer.size={buffer_bytes}",
        "cleanerd.disk.reserve=0",
    ]
    if way.in_file:
        given.append(f"cleanerd.map.dir={work}")
    group = _group(way.limit_bytes) if way.limit_bytes else None
    told = work / "told.json"
    command = [sys.executable, "-c", _CHILD, str(group or ""), "1" if way.stubborn else "", str(told)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *clean_arguments(copy, str(work / "state"), given)],
            capture_output=True,
            check=False,
            timeout=3600,
        )
    finally:
        if group is not None:
            group.rmdir()
    wall = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{way.name}: {done.stderr.decode()}")
    cpu, faults, written, resident = json.loads(told.read_text())
    (partition,) = json.loads(done.stdout)["partitions"]
    sys.stdout.write(
        f"{way.name:36} {partition['shards']:6} {wall:8.1f} {partition['seconds']['index']:8.1f} {cpu:7.1f} "
        f"{faults:13} {human_bytes(written):>10} {human_bytes(resident):>10}\n"
    )
    for note in partition["notes"]:
        if "offset map" in note:
            sys.stdout.write(f"    {note.replace(str(work), 'DIR')}\n")
    sys.stdout.flush()
    shutil.rmtree(work / "state", ignore_errors=True)


def _group(limit_bytes: int) -> Path:
    """A memory cgroup with that limit; whoever is in it has its pages of files counted too."""
    for root, name in zip(_CGROUPS, ("memory.limit_in_bytes", "memory.max"), strict=True):
        if (root / "cgroup.procs").exists():
            group = root / f"cleanerd-bench-{os.getpid()}"
            group.mkdir(exist_ok=True)
            (group / name).write_text(str(limit_bytes))
            return group
    raise SystemExit("no memory cgroup can be made here")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir()))
