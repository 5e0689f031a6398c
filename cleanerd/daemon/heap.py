"""How the C library keeps memory for a process that runs for months.

glibc gives each thread that allocates a heap of its own, up to eight for each core, and what is freed in one of them
serves no other. Workers, looks and HTTP take turns with large texts and buffers, so each heap grows to the largest of
all of them: with ten threads a daemon grew by 1 MiB a minute for a quarter of an hour (``make soak``) while
what Python had in use stayed the same. Two heaps are enough, as Python lets one thread at a time allocate anyway.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAPS: Final = 2
_M_ARENA_MAX: Final = -8


def keep_few_heaps(environ: Mapping[str, str] | None = None) -> bool:
    """Before the first thread begins; returns whether it was done.

    Not where the operator said how many (``MALLOC_ARENA_MAX``), and not with another C library, which has no need.
    """
    environment = os.environ if environ is None else environ
    if "MALLOC_ARENA_MAX" in environment or "glibc.malloc.arena_max" in environment.get("GLIBC_TUNABLES", ""):
        return False
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS))
    return False
