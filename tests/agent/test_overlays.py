"""The agents that long tests build still compile: a renamed method of the agent shows in the fast tests, too."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.agent.building import BUILD, HERE
from tests.agent.java_program import JAVA
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = BUILD.parent / "src"


def faults(work_dir: Path, *overlays: Path) -> str:
    """The compiler's errors for the agent's sources with each of ``overlays`` instead of its class."""
    generated = work_dir / "cleanerd" / "agent" / "Build.java"
    generated.parent.mkdir(parents=True)
    generated.write_text('package cleanerd.agent;\n\nfinal class Build {\n    static final String ID = "";\n}\n')
    program = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", JAVA / "Overlays.java"]
    command = [*program, SOURCES, work_dir, *overlays]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    return done.stdout


def test_each_overlay_compiles(tmp_path: Path) -> None:
    overlays = sorted((HERE / "builds").iterdir())
    assert len(overlays) == 5
    assert faults(tmp_path, *overlays) == ""


@pytest.mark.long
def test_a_stale_overlay_is_found(tmp_path: Path) -> None:
    """The overlay itself compiles; its callers do not."""
    stale = tmp_path / "stale" / "cleanerd" / "agent" / "Threads.java"
    stale.parent.mkdir(parents=True)
    stale.write_text("package cleanerd.agent;\n\nfinal class Threads {}\n")
    assert "cannot find symbol" in faults(tmp_path / "work", tmp_path / "stale")
