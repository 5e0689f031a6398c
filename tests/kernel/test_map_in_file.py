"""A map in a file: the same answers, and no page that is missing ends the process (U-43)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd._kernel import MapLostError, OffsetMap
from tests.kernel.strategies import SMALLEST_MAP_BYTES as SMALLEST_VERSIONED
from tests.support.mounts import tmpfs

SMALLEST = 48 << 10
DIRTY = 1 << 38

_PRELUDE = """
import faulthandler, mmap, os, signal, sys
import numpy as np
from cleanerd._kernel import MapLostError, OffsetMap

def nameless(size):
    fd = os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o600)
    os.ftruncate(fd, size)
    return fd

def put(table, first=0):
    keys = np.random.default_rng(first).integers(0, 2**64, 20000, dtype=np.uint64)
    return table.put_max(keys, first, np.ones(10000, bool))

def bus_error():
    with mmap.mmap(nameless(4096), 4096) as other:
        os.ftruncate(os.open(sys.argv[1], os.O_TMPFILE | os.O_RDWR, 0o600), 0)
        fd = nameless(4096)
        cut = mmap.mmap(fd, 4096)
        os.ftruncate(fd, 0)
        cut[0]
"""


def _run(program: str, place: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: what is tested might end it."""
    command = [sys.executable, "-c", _PRELUDE + program, str(place)]
    return subprocess.run(command, capture_output=True, check=False, text=True, timeout=120)


def _words(keys: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    rng = np.random.default_rng(7)
    return rng.integers(0, 2**64, 2 * 500, dtype=np.uint64).reshape(-1, 2)[keys].reshape(-1)


def _file(size: int) -> int:
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return os.dup(file.fileno())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 499), max_size=300), st.integers(0, 500)), max_size=5),
    st.booleans(),
    st.sampled_from([0.85, 0.1, 0.01]),
    st.integers(0, 200),
)
def test_a_map_in_a_file_equals_one_in_memory(
    calls: list[tuple[list[int], int]], versions: bool, load: float, more_bytes: int
) -> None:
    """Whatever is put, the same rows are taken, found and won as in memory; a file may be longer than whole lines."""
    size = (SMALLEST_VERSIONED if versions else SMALLEST) + more_bytes
    fd = _file(size)
    maps = [OffsetMap(size, load=load, versions=versions), OffsetMap.in_file(fd, size, load=load, versions=versions)]
    os.close(fd)
    for keys, first in calls:
        n = len(keys)
        version, present = (np.arange(n)[::-1].copy(), np.arange(n) % 3 > 0) if versions else (None, None)
        words, mask = _words(keys), np.ones(n, bool)
        taken = [e.put_max(words, DIRTY + first, mask, version=version, has_version=present) for e in maps]
        assert taken[0] == taken[1]
    every = _words(list(range(500)))
    found = [each.contains(every, np.ones(500, bool)).tolist() for each in maps]
    assert found[0] == found[1]
    won = [each.winners(DIRTY, 1024).tolist() for each in maps]
    assert won[0] == won[1]
    facts = [(len(e), e.capacity, e.memory_bytes, e.identity_bits, e.versions) for e in maps]
    assert facts[0] == facts[1]
    maps[1].close()


def test_closed(tmp_path: Path) -> None:
    """The memory goes at once; every other call says what is wrong; to close again is nothing."""
    fd = _file(SMALLEST)
    table = OffsetMap.in_file(fd, SMALLEST)
    name = os.readlink(f"/proc/self/fd/{fd}")
    assert name in Path("/proc/self/maps").read_text()
    table.close()
    table.close()
    assert name not in Path("/proc/self/maps").read_text()
    os.close(fd)
    for call in (
        lambda: table.put_max(_words([1]), 0, np.ones(1, bool)),
        lambda: table.contains(_words([1]), np.ones(1, bool)),
        lambda: table.winners(0, 64),
        table.clear,
        lambda: table.capacity,
        lambda: len(table),
    ):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_file_that_cannot_be_mapped() -> None:
    with tempfile.TemporaryFile("rb", buffering=0) as file, pytest.raises(OSError, match="denied"):
        OffsetMap.in_file(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY), SMALLEST)
    with pytest.raises(OSError, match="descriptor"):
        OffsetMap.in_file(-1, SMALLEST)
    with pytest.raises(ValueError, match="at least"):
        OffsetMap.in_file(-1, SMALLEST - 1)


def test_a_file_that_is_cut(tmp_path: Path) -> None:
    """U-43: no SIGBUS; every later call and the close say that the map is lost, and a new map is sound."""
    done = _run(
        """
fd = nameless(1 << 20)
table = OffsetMap.in_file(fd, 1 << 20)
put(table)
os.ftruncate(fd, 0)
for call in (lambda: put(table, 1), lambda: table.winners(0, 64), table.clear, table.close):
    try:
        call()
        print("nothing raised")
    except MapLostError as error:
        print(error.errno, error.strerror)
fd = nameless(1 << 20)
table = OffsetMap.in_file(fd, 1 << 20)
print(put(table), len(table))
""",
        tmp_path,
    )
    lost = "5 a page of the offset map's file did not come back\n"
    assert (done.returncode, done.stdout) == (0, 4 * lost + "10000 10000\n"), done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "call",
    [
        "table.put_max(keys, 0, rows)",
        "table.contains(keys, rows)",
        "table.update_existing(keys, 0, rows, version=numbers, has_version=rows)",
        "table.put_max(keys, 0, rows, version=numbers, has_version=rows)",
        "table.winners(0, 64)",
        "put(table)\nexcept MapLostError:\n    print('lost')\ntry:\n    table.clear()",
    ],
)
def test_a_large_file_whose_pages_are_all_lost(tmp_path: Path, call: str) -> None:
    """U-43: a disk that died takes every page, and a call ends soon after the first, however many rows it has.

    For each page that is put in place is a mapping, of which a process has 65530, and memory.
    """
    versions = "version=" in call
    done = _run(
        f"""
size = 1 << 30
fd = nameless(size)
table = OffsetMap.in_file(fd, size, versions={versions})
keys = np.random.default_rng(1).integers(0, 2**64, 2 * 300_000, dtype=np.uint64)
rows, numbers = np.ones(300_000, bool), np.ones(300_000, np.int64)
def taken():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
if not {versions}:
    put(table)
before = taken()
os.ftruncate(fd, 0)
try:
    {call}
except MapLostError:
    print("lost")
print((taken() - before) // 1024 // 16)
""",
        tmp_path,
    )
    lost = 2 if "clear" in call else 1
    assert (done.returncode, done.stdout) == (0, lost * "lost\n" + "0\n"), done.stderr


def test_a_disk_without_room(tmp_path: Path) -> None:
    """U-43: where the promised room is not there after all, the map is lost and the process goes on."""
    with tmpfs(tmp_path / "small", "size=256k") as place:
        done = _run(
            """
table = OffsetMap.in_file(nameless(1 << 20), 1 << 20)
try:
    put(table)
except MapLostError:
    print("lost")
""",
            place,
        )
        assert (done.returncode, done.stdout) == (0, "lost\n"), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("bus_error()", ""),
        ("faulthandler.enable(); OffsetMap.in_file(nameless(1 << 20), 1 << 20); bus_error()", "Bus error"),
        ("OffsetMap.in_file(nameless(1 << 20), 1 << 20); faulthandler.enable(); bus_error()", "Bus error"),
        ("os.kill(os.getpid(), signal.SIGBUS)", ""),
        ("put(table)\nos.ftruncate(fd, 0)\ntry:\n    put(table)\nexcept MapLostError:\n    pass\nbus_error()", ""),
    ],
)
def test_a_bus_error_of_somebody_else(tmp_path: Path, program: str, told: str) -> None:
    """U-43: it ends the process as it would without a map, and whoever dumps it then still does."""
    done = _run(f"fd = nameless(1 << 20)\ntable = OffsetMap.in_file(fd, 1 << 20)\n{program}\nprint('alive')", tmp_path)
    assert done.returncode == -signal.SIGBUS
    assert "alive" not in done.stdout
    assert told in done.stderr


def test_a_signal_handler_set_after_the_first_map(tmp_path: Path) -> None:
    """Somebody put his handler there after the first map: the next map is safe all the same."""
    done = _run(
        """
OffsetMap.in_file(nameless(1 << 20), 1 << 20).close()
faulthandler.enable()
fd = nameless(1 << 20)
table = OffsetMap.in_file(fd, 1 << 20)
os.ftruncate(fd, 0)
try:
    put(table)
except MapLostError:
    print("lost")
""",
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (0, "lost\n"), done.stderr


@pytest.mark.long
def test_many_maps_one_after_the_other() -> None:
    """Their places among those that are watched come back, and a lost one leaves nothing behind."""
    for number in range(3000):
        fd = _file(SMALLEST)
        table = OffsetMap.in_file(fd, SMALLEST)
        if number % 100 == 0:
            os.ftruncate(fd, 0)
            with pytest.raises(MapLostError):
                table.put_max(_words([1]), 0, np.ones(1, bool))
        os.close(fd)
