"""The agent's jar in this installation."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

import cleanerd
from cleanerd.errors import CleanerdError

JAR: Final = "cleanerd-agent.jar"
_BUILD: Final = "Cleanerd-Agent-Build:"
_MANIFEST_BYTES: Final = 65_536


def jar_path() -> Path:
    """The jar's path.

    Raises:
        CleanerdError: it is missing: a checkout in which it was not built.
    """
    path = Path(cleanerd.__file__).resolve().parent / "agent" / JAR
    if not path.is_file():
        raise CleanerdError("is missing", where=str(path), hint="build it: make setup")
    return path


def build_of_jar() -> str | None:
    """The jar's build id, as a running agent reports it in ``info``; None without a jar."""
    try:
        with zipfile.ZipFile(jar_path()) as jar, jar.open("META-INF/MANIFEST.MF") as manifest:
            text = manifest.read(_MANIFEST_BYTES).decode("utf-8", errors="replace")
    except (CleanerdError, OSError, KeyError, zipfile.BadZipFile):
        return None
    lines = (line.removeprefix(_BUILD).strip() for line in text.splitlines() if line.startswith(_BUILD))
    return next(lines, None)
