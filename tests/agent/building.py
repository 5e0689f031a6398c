"""Agents that differ from the released one in one class, or in some texts of a class."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.support.patience import PATIENCE_SECONDS

HERE: Final = Path(__file__).resolve().parent
BUILD: Final = HERE.parents[1] / "agent" / "build.sh"


def build(work_dir: Path, overlay: str) -> Path:
    """The agent with the classes of ``builds/OVERLAY`` instead of its own."""
    jar = work_dir / f"{overlay}.jar"
    subprocess.run(["bash", BUILD, jar, HERE / "builds" / overlay], check=True, timeout=PATIENCE_SECONDS)
    return jar


def changed_build(work_dir: Path, name: str, file: str, *changes: tuple[str, str]) -> Path:
    """The agent with some texts of one class replaced; each text must occur exactly once.

    ``changed_source`` with the same ``name`` before it changes another class, too.
    """
    sources = changed_source(work_dir, name, file, *changes)
    jar = work_dir / f"{name}.jar"
    subprocess.run(["bash", BUILD, jar, sources], check=True, timeout=PATIENCE_SECONDS)
    return jar


def stopping_build(work_dir: Path, file: str, *changes: tuple[str, str]) -> Path:
    """Like ``changed_build``, and a swap stops at named moments (``builds/moments``); ``moments.jar``."""
    shutil.copytree(HERE / "builds" / "moments", work_dir / "moments-sources", dirs_exist_ok=True)
    return changed_build(work_dir, "moments", file, *changes)


def changed_source(work_dir: Path, name: str, file: str, *changes: tuple[str, str]) -> Path:
    """The class for ``changed_build``; returns the directory that it is built from."""
    package = work_dir / f"{name}-sources" / "cleanerd" / "agent"
    package.mkdir(parents=True, exist_ok=True)
    text = (BUILD.parent / "src" / "cleanerd" / "agent" / file).read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (package / file).write_text(text)
    return package.parents[1]
