"""What this process has open: for tests that nothing is left."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def now_open() -> set[str]:
    """Descriptors with what they are of, and mappings of files without a name.

    Compare by ``<=``: what an earlier test left to the garbage collector may go meanwhile.
    """
    maps = Path("/proc/self/maps").read_text().splitlines()
    found = {line for line in maps if "(deleted)" in line and "/dev/zero" not in line}  # that is memory
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
    return found
