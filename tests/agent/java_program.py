"""Java programs that use classes of the agent, without a broker."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.agent.live import JAR
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

JAVA: Final = Path(__file__).parent / "java"


def reported_by(
    work_dir: Path, sources: Sequence[Path], main: str, *arguments: str, libs: Path | None = None
) -> list[str]:
    """The output lines of class ``main`` of ``sources``, compiled beside the agent's own classes and jars."""
    with zipfile.ZipFile(JAR) as jar:
        jar.extractall(work_dir, [name for name in jar.namelist() if name.startswith("implementation/")])
    classes = work_dir / "implementation"
    path = str(classes) if libs is None else f"{classes}:{libs}/*"
    _run(["javac", "-proc:none", "-d", classes, "-cp", path, *sources])
    return _run(["java", "-Xshare:auto", "-cp", path, main, *arguments]).splitlines()


def _run(command: Sequence[str | Path]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout
