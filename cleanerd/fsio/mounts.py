"""The kind of the file system of a path, by the kernel's name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
"""File systems in memory, whose files are lost at a restart."""


# Where fsync, locks or leases may guarantee less. Kernel names, as in /proc/self/mountinfo.
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "lustre", "gfs2", "ocfs2", "virtiofs"})


def is_remote(kind: str) -> bool:
    """Whether a file system of this kind depends on a server or on a driver."""
    return kind in _REMOTE or kind.startswith("fuse")


def file_system_of(path: Path | int, mounts: str | None = None) -> str | None:
    """The kernel's name of the file system of ``path`` or of an open file, by device; of several mounts any one."""
    try:
        device = os.stat(path).st_dev
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace") if mounts is None else mounts
    except OSError:
        return None
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in text.splitlines():
        # id parent major:minor root mount-point options [optional fields] - type source options
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) > 2 and fields[2] == wanted and kind:
            return kind[0]
    return None
