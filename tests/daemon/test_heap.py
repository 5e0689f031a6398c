"""cleanerd.daemon.heap: threads share two heaps of the C library (memory stays flat)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from cleanerd.daemon.heap import HEAPS, limit_malloc_arenas
from tests.support.patience import PATIENCE_SECONDS

PROGRAM = """
import ctypes, sys, threading
from cleanerd.daemon.heap import limit_malloc_arenas
done = limit_malloc_arenas()
barrier = threading.Barrier(12)
def allocate():
    kept = [bytes(100_000) for _ in range(4)]
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(12)]
for each in threads: each.start()
for each in threads: each.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(b"/dev/stdout", b"w")
print(done, flush=True)
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
"""


def heaps(**environ: str) -> tuple[bool, int]:
    """Whether the limit was set, and how many heaps twelve threads then have."""
    known = {name: value for name, value in os.environ.items() if name not in {"MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**known, **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    return done.stdout.startswith("True"), done.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc: it is about that library's heaps")
def test_threads_share_two_heaps() -> None:
    """Twelve threads would have twelve, with enough cores."""
    assert heaps() == (True, HEAPS)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc: it is about that library's heaps")
@pytest.mark.parametrize(("name", "value"), [("MALLOC_ARENA_MAX", "5"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=5")])
def test_the_operators_allocator_settings_are_used(name: str, value: str) -> None:
    assert heaps(**{name: value}) == (False, 5)


def test_an_existing_setting_is_kept() -> None:
    assert limit_malloc_arenas({"MALLOC_ARENA_MAX": "1"}) is False


FREED = """
import time
from cleanerd.daemon.heap import start_memory_trimming, limit_malloc_arenas
limit_malloc_arenas()
blocks = [b"x" * 100_000 for _ in range(600)]
top = bytes(100_000)
del blocks
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])
before = resident()
assert start_memory_trimming(0.05)
deadline = time.monotonic() + 200
while resident() > before - 10_000 and time.monotonic() < deadline:
    time.sleep(0.02)
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc: it is about that library's heaps")
def test_memory_below_a_block_in_use_is_released() -> None:
    """By itself the C library returns only the end of its heap: 60 MB below one block would stay allocated."""
    done = subprocess.run(
        [sys.executable, "-c", FREED], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert int(done.stdout) * os.sysconf("SC_PAGE_SIZE") > 40_000_000
