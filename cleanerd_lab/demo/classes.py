"""The place of the archive of a broker's classes, and the JVM options that use it (made by `class_archive`)."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path


def with_classes(libs_dir: Path) -> tuple[str, ...]:
    """JVM options for a quick start with the jars of ``libs_dir``; none without an archive."""
    archive = archive_place(libs_dir)
    return (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()


def archive_place(libs_dir: Path) -> Path:
    """The archive's file. Its name depends on everything that a JVM compares: itself, and each jar's path and times."""
    java = os.path.realpath(shutil.which("java") or "java")
    facts = [java, os.fspath(libs_dir.resolve()), _times_of(Path(java))]
    facts += [f"{jar.name} {_times_of(jar)}" for jar in sorted(libs_dir.glob("*.jar"))]
    return libs_dir / f"classes-{hashlib.sha256(os.linesep.join(facts).encode()).hexdigest()[:16]}.jsa"


def _times_of(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:
        return "missing"
    return f"{found.st_size} {found.st_mtime_ns}"
