"""What this process has open of files: for tests that nothing is left.

Compare by ``<=``: what an earlier test left to the garbage collector may go meanwhile. Sockets and pipes are left out:
a client of Kafka's that an earlier test left goes on to look for its broker, and opens both again and again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_descriptors() -> set[str]:
    """Their numbers, with what they are of."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            target = os.readlink(f"/proc/self/fd/{name}")
            if not target.startswith(("socket:", "pipe:")):
                found.add(f"{name} {target}")
    return found


def now_open() -> set[str]:
    """Descriptors, and mappings of files without a name and of shared memory."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return open_descriptors() | {line for line in maps if "(deleted)" in line}
