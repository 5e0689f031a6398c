"""Libraries in C that a test has a process load before its own: they record its calls, or make them fail."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path


def compiled(source: Path, name: str) -> Path:
    """The library made of ``source``; compiled when what lies there was made of another text."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"cleanerd-{name}-{os.getuid()}-{digest}.so"
    if not target.exists():
        made = target.with_suffix(f".{os.getpid()}")
        options = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-U_FORTIFY_SOURCE")
        subprocess.run(["cc", *options, "-o", str(made), str(source), "-ldl"], check=True)
        made.rename(target)
    return target
