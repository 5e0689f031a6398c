"""Other processes that hold the locks and open the files of a test."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

_JAVA = Path(__file__).with_name("JavaLock.java")

_RECORD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("busy", flush=True)
else:
    print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def answering(command: list[str]) -> Iterator[str]:
    """Run ``command`` until the block ends; yields the first line of its output."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(timeout=PATIENCE_SECONDS)


@contextmanager
def python(program: str, *arguments: str | Path) -> Iterator[str]:
    """A Python process that prints a line and waits for the end of its input."""
    with answering([sys.executable, "-c", program, *map(str, arguments)]) as answer:
        yield answer


@contextmanager
def record_lock(path: Path) -> Iterator[str]:
    """A process that tries to take the same POSIX record lock as Java: ``locked`` or ``busy``."""
    with python(_RECORD_LOCK, path) as answer:
        yield answer


@contextmanager
def java_lock(path: Path, *segments: Path) -> Iterator[str]:
    """A JVM with ``FileChannel.tryLock``, and ``segments`` open for reading and writing."""
    with answering(["java", "-Xmx64m", "-XX:+UseSerialGC", str(_JAVA), str(path), *map(str, segments)]) as answer:
        yield answer
