"""Releases of cleanerd, installed next to each other: wheels of this tree, one with another version and formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cleanerd import __version__
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOP: Final = Path(__file__).resolve().parents[2]
NEXT: Final = "9.0.0"
NOT_TRACKED: Final = ("cleanerd/_kernel.abi3.so", "cleanerd/agent/cleanerd-agent.jar")

Change = tuple[str, str]

FORMATS: Final[Mapping[str, Change]] = {
    "cleanerd/state/document.py": ("version: int = 1", "version: int = 2"),
}
"""Every file that outlives a process has another format in the next release."""

READS_THE_LAST_ONES: Final[Mapping[str, Change]] = {
    "cleanerd/state/document.py": (
        "or found != self._version:\n",
        "or found not in (self._version - 1, self._version):\n",
    ),
}
"""A release reads the files of the one before it (docs/install.md)."""


@dataclass(frozen=True, slots=True)
class Release:
    """An installed cleanerd. ``site`` is the directory of its packages."""

    version: str
    site: Path

    @property
    def jar(self) -> Path:
        """Its agent."""
        return self.site / "cleanerd" / "agent" / "cleanerd-agent.jar"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this release, and not the tree's."""
        return {**os.environ, "PYTHONPATH": str(self.site), "PYTHONSAFEPATH": "1"}

    def command(self, *words: object) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "cleanerd", *map(str, words)]

    def run(self, *words: object) -> Ran:
        """Run a command with ``--json`` to its end."""
        done = subprocess.run(
            self.command(*words, "--json"), env=self.environment, cwd=self.site, capture_output=True, text=True,
            check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        return Ran(done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr)


@dataclass(frozen=True, slots=True)
class Ran:
    """The result of a command."""

    code: int
    document: Any
    err: str


def this_release(folder: Path) -> Release:
    """The current tree, installed below ``folder``."""
    return _install(folder, __version__, [])


def next_release(folder: Path, more: Sequence[tuple[str, Change]] = (), jar: Path | None = None) -> Release:
    """A release that writes newer formats and reads those of today; ``more``: its further changes, by file.

    ``jar``: its agent, if that is another build.
    """
    changes = [*FORMATS.items(), *READS_THE_LAST_ONES.items(), ("cleanerd/__init__.py", (__version__, NEXT)), *more]
    return _install(folder, NEXT, changes, jar)


def _install(folder: Path, version: str, changes: Sequence[tuple[str, Change]], jar: Path | None = None) -> Release:
    listed = subprocess.run(["git", "ls-files", "cleanerd"], cwd=TOP, capture_output=True, text=True, check=True)
    files = {name: (TOP / name).read_bytes() for name in (*listed.stdout.split(), *NOT_TRACKED)}
    if jar is not None:
        files[NOT_TRACKED[1]] = jar.read_bytes()
    for path, (old, new) in changes:
        text = files[path].decode()
        assert text.count(old) == 1, (path, old)
        files[path] = text.replace(old, new).encode()
    about = f"cleanerd-{version}.dist-info"
    files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: cleanerd\nVersion: {version}\n".encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD")).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"cleanerd-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        for name, data in files.items():
            made.writestr(name, data)
    site = folder / f"site-{version}"
    options = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile", "--target", site]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True, timeout=PATIENCE_SECONDS)
    wheel.unlink()
    return Release(version, site)
