"""Runs ``cleanerd`` in a process and measures its cost with the operating system's counters (U-30)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of a process in user and kernel mode, of fsync and verification, and elapsed time."""

    cpu_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A process that has ended."""

    cost: Cost
    exit_code: int
    stdout: bytes
    stderr: str


def environment_of(bytecode_dir: Path) -> dict[str, str]:
    """The environment of a process that uses this interpreter's packages, with bytecode in ``bytecode_dir``."""
    package_dir = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((package_dir, *sys.path[1:]))}
    environment["PYTHONPYCACHEPREFIX"] = str(bytecode_dir)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def run_cleanerd(arguments: Sequence[str], *, bytecode_dir: Path) -> Finished:
    """Run ``cleanerd`` with this interpreter and this package, and wait for it.

    Bytecode goes to ``bytecode_dir``: an installed package has its own, and compiling at every start would dominate the
    measurement.
    """
    environment = environment_of(bytecode_dir)
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "cleanerd", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
        )
        try:
            # Not process.wait(): only wait4 reports the resources of this one child.
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        cost = Cost(usage.ru_utime + usage.ru_stime, time.monotonic() - started)
        process.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        return Finished(cost, process.returncode, stdout.read(), stderr.read().decode(errors="replace"))
