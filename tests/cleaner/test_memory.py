"""A cleaning's memory does not grow with the number of keys, only with map, read buffers and a few bits.

Measured as the peak resident memory of the process (VmHWM, which an ``exec`` resets; ru_maxrss is at least that of the
parent process), minus that of a start on an empty log directory.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.bench.generate import PARTITION, LogShape, make_log, write_broker_files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

MIB = 1024 * 1024
BATCH_RECORDS = 16
AMPLE_MAP_BYTES = 128 * MIB
NOW_MS = 1_800_000_000_000
MOST_MORE_BYTES = 200_000_000

_PROGRAM = """
import sys
from cleanerd.cli.main import run
code = run(sys.argv[2:])
with open("/proc/self/status") as status, open(sys.argv[1], "w") as peak:
    peak.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A process's output, and its peak memory."""

    partition: dict[str, object]
    peak_bytes: int


def _clean(log_dir: Path, map_bytes: int, segment_bytes: int) -> Cleaned:
    """``cleanerd clean`` in a new process."""
    peak = log_dir.with_suffix(".peak")
    given = [
        f"cleanerd.state.dir={log_dir.with_suffix('.state')}",
        f"log.cleaner.dedupe.buffer.size={map_bytes}",
        f"topics.{PARTITION.topic}.cleanup.policy=compact",
        f"topics.{PARTITION.topic}.segment.bytes={segment_bytes}",
    ]
    options = [part for assignment in given for part in ("--set", assignment)]
    options += ["--yes", "--quiet", "--json", "--now-ms", str(NOW_MS)]
    command = [sys.executable, "-c", _PROGRAM, str(peak), "clean", *options, str(log_dir)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=240)
    (partition,) = json.loads(done.stdout)["partitions"] or ({},)
    return Cleaned(partition, int(peak.read_text()) * 1024)


def _check(tmp_path: Path, size: int, superseded: float, map_bytes: int, *, least_keys: int) -> None:
    """Clean a log in several shards and in one: the same files, within the memory limit."""
    shape = LogShape("wide", "1 KiB records, 16 KiB batches", 1024, BATCH_RECORDS, superseded)
    log = make_log(tmp_path / "log", shape, unpacked_bytes=size, segment_bytes=size // 8)
    # Segments are never written to, only replaced: links are copies enough.
    shutil.copytree(log.log_dir, tmp_path / "small", copy_function=os.link)
    empty = tmp_path / "empty"
    empty.mkdir()
    write_broker_files(empty, {})
    start = _clean(empty, map_bytes, log.segment_bytes)
    small = _clean(tmp_path / "small", map_bytes, log.segment_bytes)
    ample = _clean(log.log_dir, AMPLE_MAP_BYTES, log.segment_bytes)
    more = small.peak_bytes - start.peak_bytes - map_bytes
    sys.stdout.write(
        f"\n{log.records} records, {small.partition['records_kept']} kept, {small.partition['passes']} passes with "
        f"{map_bytes / MIB:.1f} MiB: {start.peak_bytes / 1e6:.0f} MB to start, {small.peak_bytes / 1e6:.0f} MB at "
        f"most, {ample.peak_bytes / 1e6:.0f} MB with one shard of {AMPLE_MAP_BYTES / MIB:.0f} MiB\n"
    )
    assert small.partition["outcome"] == ample.partition["outcome"] == "cleaned"
    assert int(str(small.partition["records_kept"])) >= least_keys
    on_disk = "the keys were written to disk" in str(small.partition["notes"])
    assert int(str(small.partition["passes"])) > 1 or on_disk
    assert ample.partition["passes"] == 1
    assert more < MOST_MORE_BYTES, "read buffers included"
    for name in ("records_read", "records_kept", "bytes_after", "removed"):
        assert small.partition[name] == ample.partition[name]
    names = sorted(path.name for path in log.partition_dir.iterdir() if path.suffix != ".deleted")
    others = tmp_path / "small" / str(PARTITION)
    assert names == sorted(path.name for path in others.iterdir() if path.suffix != ".deleted")
    same, *different = filecmp.cmpfiles(log.partition_dir, others, names, shallow=False)
    assert (sorted(same), different) == (names, [[], []])


def test_more_keys_than_the_map_holds(tmp_path: Path) -> None:
    """OP-2, U-20: the smallest map that Kafka allows."""
    _check(tmp_path, 96 * MIB, 0.2, MIB + 1, least_keys=75_000)


def test_many_keys_in_a_small_map(tmp_path: Path) -> None:
    """Two GiB and 800 000 keys with a map of 4 MiB: less than 200 MB besides it."""
    try:
        _check(tmp_path, 2048 * MIB, 0.55, 4 * MIB, least_keys=800_000)
    finally:
        shutil.rmtree(tmp_path)
