"""Limits the memory that the C library keeps in a process that runs for months.

glibc gives each allocating thread its own heap, up to eight per core, and freed memory serves its own heap only.
Workers, scans and HTTP alternate with large texts and buffers, so each heap grows to its largest use. With ten threads
a daemon grew by 1 MiB a minute for a quarter of an hour (``make soak``) while the memory in use stayed the same. Two
heaps are enough, since Python lets one thread at a time allocate anyway. Free memory in the middle of them returns to
the system every minute, which takes about a millisecond.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from collections.abc import Mapping
from typing import Final

HEAPS: Final = 2
TRIM_INTERVAL_SECONDS: Final = 60.0
_M_ARENA_MAX: Final = -8


def limit_malloc_arenas(environ: Mapping[str, str] | None = None) -> bool:
    """Call before the first thread begins; returns whether it applied.

    Not if the operator set a number (``MALLOC_ARENA_MAX``), and not with another C library, which does not need it.
    """
    environment = os.environ if environ is None else environ
    if "MALLOC_ARENA_MAX" in environment or "glibc.malloc.arena_max" in environment.get("GLIBC_TUNABLES", ""):
        return False
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS))
    return False


def start_memory_trimming(period_seconds: float = TRIM_INTERVAL_SECONDS) -> bool:
    """Trim the heaps regularly, in a separate thread; returns whether this C library can."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return False

    def go_on() -> None:
        while True:
            time.sleep(period_seconds)
            trim(ctypes.c_size_t(0))

    threading.Thread(target=go_on, name="cleanerd-heap", daemon=True).start()
    return True
