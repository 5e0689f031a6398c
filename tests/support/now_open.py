"""The open files of this process, for tests that nothing is left.

Compare by ``<=``: leftovers of an earlier test may be collected meanwhile. Sockets and pipes are left out: a Kafka
client of an earlier test keeps looking for its broker, and opens both again and again.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_descriptors() -> set[str]:
    """The descriptors with their targets."""
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
