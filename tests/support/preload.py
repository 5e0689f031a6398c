"""Libraries in C that a test's process loads before its own: they record its calls, or make them fail."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def compiled(source: Path, name: str) -> Path:
    """The library made of ``source``; compiled if the existing one was made of another text."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"cleanerd-{name}-{os.getuid()}-{digest}.so"
    if not target.exists():
        made = target.with_suffix(f".{os.getpid()}")
        options = ("-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-U_FORTIFY_SOURCE")
        subprocess.run(["cc", *options, "-o", str(made), str(source), "-ldl"], check=True)
        made.rename(target)
    return target


@contextmanager
def preloading(library: Path, **reported: Path) -> Iterator[None]:
    """Processes started in the block have ``library``, and ``reported`` in their environment."""
    names = {"LD_PRELOAD": str(library), **{name: str(value) for name, value in reported.items()}}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
