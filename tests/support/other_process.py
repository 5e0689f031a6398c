"""Another process that holds a log directory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def other_process(path: Path, what: str, *, user: int = 0) -> Iterator[int]:
    """A process that runs ``what`` with a log directory ``path``, and then waits; yields its id."""
    code = (
        "import os, sys\nfrom pathlib import Path\n"
        "from cleanerd.fsio.held_file import DAEMON_FILE, HeldFile\nfrom cleanerd.swap.lock import LogDirLock\n"
        f"os.setuid({user}) if {user} else None\n"
        f"sys.argv = ['cleanerd', 'clean']\npath = Path({str(path)!r})\n{what}\n"
        "print('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.stdin.close()
