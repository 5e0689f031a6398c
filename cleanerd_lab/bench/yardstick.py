"""The yardsticks: copying the same bytes, and the least CPU time that any cleaner needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import crc32c
from cleanerd.format.names import SEGMENT_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_BUSY: Final = """
import time
started, cpu = time.monotonic(), time.process_time()
while time.monotonic() - started < 0.25:
    pass
print((time.process_time() - cpu) / (time.monotonic() - started))
"""
_BUFFER_BYTES: Final = 4 * 1024 * 1024


def copy_seconds(directories: Sequence[Path], work_dir: Path, *, repeat: int) -> float:
    """Elapsed time of the fastest ``cp`` of the segments of all ``directories``, without flushing."""
    files = [str(path) for directory in directories for path in segments(directory)]
    target = work_dir / "copied"
    best = float("inf")
    for _ in range(repeat):
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        started = time.monotonic()
        # Both directories have a segment 0: each file gets a different name.
        subprocess.run(["cp", "--backup=numbered", "--reflink=never", *files, str(target)], check=True)
        best = min(best, time.monotonic() - started)
    shutil.rmtree(target)
    return best


def floor_seconds(directory: Path, *, repeat: int) -> float:
    """CPU time to read all segments twice and checksum them once: every cleaner that reads all bytes needs more.

    The most stable yardstick on a busy machine, because it allocates no pages.
    """
    buffer = np.empty(_BUFFER_BYTES, dtype=np.uint8)
    best = float("inf")
    for _ in range(repeat):
        started = time.process_time()
        for path in segments(directory):
            _read(path, buffer, checksum=True)
            _read(path, buffer, checksum=False)
        best = min(best, time.process_time() - started)
    return best


def idle_share(processes: int) -> float:
    """The share of a core that each of this many busy processes gets, the worst of them: 1 on an idle machine."""
    command = [sys.executable, "-S", "-c", _BUSY]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    return min(float(loop.communicate()[0]) for loop in loops)


def segments(directory: Path) -> list[Path]:
    """The ``.log`` files of a partition directory, ascending."""
    return sorted(path for path in directory.iterdir() if path.suffix == SEGMENT_SUFFIX)


def _read(path: Path, buffer: np.ndarray[tuple[int], np.dtype[np.uint8]], *, checksum: bool) -> None:
    crc = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while count := os.readv(descriptor, [buffer.data]):
            if checksum:
                crc = crc32c(buffer[:count], crc)
    finally:
        os.close(descriptor)
