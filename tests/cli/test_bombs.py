"""Batches that decompress to a very large size, on the command line: refused and named, others are cleaned (U-35)."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.bombs import crowded_batch, zeros_batch
from tests.support.log_dirs import Partition, make_log_dir, tree
from tests.support.logs import keyed_batch
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

MIB = 1024 * 1024
LIMIT = 16 * MIB
MOST = {"zeros": LIMIT - 100, "crowd": LIMIT // 32}

_PEAK = """
import sys
from cleanerd.cli.main import run
code = run(sys.argv[2:])
with open("/proc/self/status") as status, open(sys.argv[1], "w") as peak:
    peak.write(next(line.split()[1] for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""

_LITTLE = """
from cleanerd.host import memory
memory.measure = lambda: memory.Memory(256 * 1024 * 1024, "a test")
memory.measured_lately = memory.RecentMeasurement(memory.measure)
"""

_KILLS = """
import os, signal, sys
from cleanerd.cli import clean
inner = clean.clean_partition
def killed(locked, name, *rest):
    if str(name) == "orders-1":
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(locked, name, *rest)
clean.clean_partition = killed
from cleanerd.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def _clean(log_dir: Path, *more: str, program: str = _PEAK, **settings: object) -> subprocess.CompletedProcess[str]:
    given = {
        "cleanerd.state.dir": log_dir.parent / "state",
        "topics.orders.cleanup.policy": "compact",
        "log.cleaner.dedupe.buffer.size": "2MiB",
        "cleanerd.disk.reserve": 0,
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    options = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    first = [str(log_dir.parent / "peak")] if _PEAK in program else []
    words = [*first, "clean", *options, "--yes", "--quiet", "--json", "--force", *more, str(log_dir)]
    return _run(program, words)


def _run(program: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def _outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    found: list[dict[str, Any]] = json.loads(done.stdout)["partitions"]
    return {f"{each['topic']}-{each['partition']}": each["outcome"] for each in found}


def _log_of(kind: str, batches: int, much: int) -> Partition:
    batch, offsets = (zeros_batch(0, much), 2) if kind == "zeros" else (crowded_batch(0, much), much)
    end = batches * offsets
    data = b"".join(base.to_bytes(8, "big") + batch[8:] for base in range(0, end, offsets))
    return Partition({0: data, end: keyed_batch(end, [("a", "3")]), end + 1: b""}, indexes=False)


@pytest.mark.parametrize(
    ("kind", "threads"),
    [
        ("zeros", 1),
        *(pytest.param(*each, marks=pytest.mark.long) for each in (("zeros", 2), ("crowd", 1))),
        ("crowd", 2),
    ],
)
def test_batches_below_the_limit_take_no_more_than_their_share(tmp_path: Path, kind: str, threads: int) -> None:
    """Twelve batches that each just fit: cleaned within the memory that `share_of` plans for them."""
    empty = make_log_dir(tmp_path / "empty" / "logs", {})
    assert _clean(empty).returncode == 0
    start = int((tmp_path / "empty" / "peak").read_text()) * 1024
    log_dir = make_log_dir(tmp_path / "logs", {"orders-0": _log_of(kind, 12, MOST[kind])})
    done = _clean(log_dir, cleanerd_max_unpacked_bytes=LIMIT, log_cleaner_threads=threads)
    assert _outcomes(done) == {"orders-0": "cleaned"}, done.stderr
    more = int((tmp_path / "peak").read_text()) * 1024 - start
    slots = 1 if threads == 1 else 3 * threads
    sys.stdout.write(
        f"\n{kind}, {threads} threads: {more / MIB:.0f} MiB beside the start, limit {LIMIT / MIB:.0f} MiB\n"
    )
    assert more < 2 * MIB + slots * (6 * LIMIT + 20 * MIB)


@pytest.mark.parametrize("kind", ["zeros", "crowd"])
def test_one_too_large_is_refused_and_named(tmp_path: Path, kind: str) -> None:
    """Just above the limit: exit code 6, an unchanged log; the reason names file and action; others are cleaned."""
    bad = _log_of(kind, 1, MOST[kind] + 200)
    log_dir = make_log_dir(tmp_path / "logs", {"orders-0": two_groups(), "orders-1": bad, "orders-2": two_groups()})
    before = tree(log_dir / "orders-1")
    done = _clean(log_dir, cleanerd_max_unpacked_bytes=LIMIT)
    assert done.returncode == 6
    assert _outcomes(done) == {"orders-0": "cleaned", "orders-1": "quarantined", "orders-2": "cleaned"}
    assert tree(log_dir / "orders-1") == before
    size = (log_dir / "orders-1" / f"{0:020d}.log").stat().st_size
    reported = " ".join(done.stderr.split())
    assert f"orders-1/{0:020d}.log at byte 0: a batch of {size} bytes decompresses to " in reported
    assert str(LIMIT) in reported
    assert "raise the lower of them" in reported
    again = _clean(log_dir, "--partition", "orders-1", cleanerd_max_unpacked_bytes=2 * LIMIT)
    assert _outcomes(again) == {"orders-1": "cleaned"}, again.stderr


def test_a_false_size_takes_no_memory(tmp_path: Path) -> None:
    """A frame claims 300 MB, and the file has so many bytes of zeros: they are not read in one piece."""
    log_dir = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    segment = log_dir / "orders-0" / f"{0:020d}.log"
    with segment.open("r+b") as file:
        file.seek(8)
        file.write((300_000_000).to_bytes(4, "big"))
        file.truncate(300_001_000)
    done = _clean(log_dir, program=_LITTLE + _PEAK)
    assert _outcomes(done) == {"orders-0": "quarantined"}
    assert "a batch of 300000012 bytes" in done.stderr
    assert int((tmp_path / "peak").read_text()) * 1024 < 150 * MIB


def test_more_records_than_the_map_can_hold_are_refused(tmp_path: Path) -> None:
    """10 MB of batches that each just fit, with 20 million records: refused within the limit, others are clean."""
    much = 50_000
    batch = crowded_batch(0, much)
    data = b"".join((number * much).to_bytes(8, "big") + batch[8:] for number in range(400))
    end = 400 * much
    many = Partition({0: data, end: keyed_batch(end, [("a", "3")]), end + 1: b""}, indexes=False)
    log_dir = make_log_dir(tmp_path / "logs", {"orders-0": two_groups(), "orders-1": many, "orders-2": two_groups()})
    little = _LITTLE.replace("256", "160")
    done = _clean(log_dir, program=little + _PEAK)
    assert done.returncode == 6
    assert _outcomes(done) == {"orders-0": "cleaned", "orders-1": "quarantined", "orders-2": "cleaned"}
    reported = " ".join(done.stderr.split())
    assert "batches and" in reported
    assert "raise the memory limit of cleanerd" in reported
    assert int((tmp_path / "peak").read_text()) * 1024 < 160 * MIB
    again = _clean(log_dir, "--partition", "orders-1", program=_PEAK)
    assert _outcomes(again) == {"orders-1": "cleaned"}, again.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["inspect", "--records"],
        *(["spark", command] for command in ("profile", "audit", "divergence", "snapshot")),
    ],
    ids=" ".join,
)
def test_reading_commands_limit_a_batch_to_the_free_memory(tmp_path: Path, words: list[str]) -> None:
    """Of the available memory, whatever the settings are: reported with its position, not decompressed; exit code 5."""
    log_dir = make_log_dir(tmp_path / "logs", {"orders-0": _log_of("zeros", 1, 600 * MIB)})
    segment = log_dir / "orders-0" / f"{0:020d}.log"
    copy = tmp_path / "copy"
    shutil.copytree(log_dir, copy)
    two = [str(log_dir), str(copy)]
    places = {
        "inspect": [str(segment)], "audit": two, "divergence": two, "snapshot": [str(log_dir), "--out", f"{copy}.new"]
    }.get(words[words[0] == "spark"], [str(log_dir)])  # fmt: skip
    done = _run(_LITTLE + _PEAK, [str(tmp_path / "peak"), *words, *places])
    reported = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 5, reported
    assert "decompresses to more than" in reported
    assert re.search(rf"{segment}( at)? byte 0|{segment} +0 +0 ", reported), reported
    assert int((tmp_path / "peak").read_text()) * 1024 < 256 * MIB


@pytest.mark.parametrize("threads", [1, 3])
def test_a_partition_that_killed_a_process_is_tried_last_and_then_skipped(tmp_path: Path, threads: int) -> None:
    """Killed at orders-1: the next run does the others first; after one more death it is reported and skipped."""
    log_dir = make_log_dir(tmp_path / "logs", {f"orders-{number}": two_groups() for number in range(4)})
    runs = [_clean(log_dir, program=_KILLS, log_cleaner_threads=threads) for _ in range(2)]
    assert [done.returncode for done in runs] == [-signal.SIGKILL] * 2
    assert "orders-1: cleanerd was killed while it cleaned this partition" in " ".join(runs[1].stderr.split())
    if threads > 1:  # other partitions of the first process may still wait for their turn
        _clean(log_dir, program=_KILLS, log_cleaner_threads=threads)
    left = _clean(log_dir, program=_KILLS, log_cleaner_threads=threads)
    assert left.returncode == 4
    others = dict.fromkeys(("orders-0", "orders-2", "orders-3"), "skipped")  # clean since the earlier run
    assert _outcomes(left) == {**others, "orders-1": "quarantined"}
    assert "killed 2 times in a row" in left.stderr
    named = _clean(log_dir, "--partition", "orders-1", log_cleaner_threads=threads)
    assert _outcomes(named) == {"orders-1": "cleaned"}, named.stderr
    assert not [path for path in (tmp_path / "state" / "in-progress").rglob("*") if path.is_file()]
