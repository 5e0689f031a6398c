"""Check that every file has the version of pyproject.toml: ``tools/version.py``; set another one: ``version.py 0.2.0``.

pyproject.toml is the source. What else has to name the version is listed here with its place.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "pyproject.toml": r'^version = "(.+)"$',
    "Cargo.toml": r'^version = "(.+)"$',
    "Cargo.lock": r'^name = "cleanerd-kernel(?:-python)?"\nversion = "(.+)"$',
    "cleanerd/__init__.py": r'^__version__ = "(.+)"$',
    "deploy/helm/Chart.yaml": r'^(?:version|appVersion): "?([^"\n]+)"?$',
    "Dockerfile": r"--tag cleanerd(?:-spark)?:([^ `]+)",
    "config/compose.yml": r"image: cleanerd:(\S+)",
    "config/kubernetes/spark.yml": r"cleanerd-spark:(\S+)",
    "config/kubernetes/statefulset.yml": r"cleanerd:(\d\S+)",
    "config/kubernetes/strimzi.yml": r"cleanerd:(\d\S+)",
    "docs/install.md": r"cleanerd[:_-](\d+\.\d+\.\d+(?:rc\d+)?)",
    "README.md": r"Version (\d+\.\d+\.\d+(?:rc\d+)?)",
    "docs/containers.md": r"--tag cleanerd:(\S+)",
    "docs/spark-deploy.md": r"--tag cleanerd-spark:(\S+)",
}
"""File -> pattern whose group is the version, at each place."""


def wanted() -> str:
    """The version of pyproject.toml."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return version


def differing(root: Path, version: str) -> list[str]:
    """``file:line: the version there`` for each place with another version, and each file without one."""
    found = []
    for name, pattern in PLACES.items():
        text = (root / name).read_text(encoding="utf-8")
        places = list(re.finditer(pattern, text, re.MULTILINE))
        if not places:
            found.append(f"{name}: names no version")
        found += [
            f"{name}:{text.count(chr(10), 0, place.start(1)) + 1}: {place[1]}"
            for place in places
            if place[1] != version
        ]
    return found


def replace(root: Path, version: str) -> None:
    """Write ``version`` to each place."""
    for name, pattern in PLACES.items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        for place in reversed(list(re.finditer(pattern, text, re.MULTILINE))):
            text = text[: place.start(1)] + version + text[place.end(1) :]
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Check, or set."""
    if len(sys.argv) > 1:
        replace(ROOT, sys.argv[1])
    elif found := differing(ROOT, wanted()):
        sys.exit("\n".join([f"the version is {wanted()} (pyproject.toml), but:", *found]))


if __name__ == "__main__":
    main()
