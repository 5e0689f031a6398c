"""Executors that have Spark's requirements and no cleanerd, and the archive that brings it to them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

import cleanerd

_SPARKS = (
    "numpy",
    "numpy.libs",
    "pandas",
    "pandas.libs",
    "pyarrow",
    "pyarrow.libs",
    "dateutil",
    "pytz",
    "six.py",
    "tzdata",
)


def bare_python(place: Path) -> Path:
    """An interpreter with numpy, pandas and pyarrow, as nodes of a cluster have them, and nothing else."""
    site = Path(distribution("numpy").locate_file(""))
    others = place / "others"
    others.mkdir()
    for name in _SPARKS:
        if (site / name).exists():
            (others / name).symlink_to(site / name)
    found = place / "python"
    base = sys._base_executable  # type: ignore[attr-defined]
    found.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{others}" exec {base} "$@"\n')
    found.chmod(0o755)
    call = [str(found), "-c", "import numpy, pandas, pyarrow, importlib.util as u; print(u.find_spec('cleanerd'))"]
    reported = subprocess.run(call, capture_output=True, text=True, check=True, timeout=240, cwd=place).stdout
    assert reported == "None\n", reported
    return found


def packages(place: Path, *others: str) -> Path:
    """A directory with the wheel and ``others`` from ``pip install --target``, without Spark's packages."""
    root = place / "packages"
    root.mkdir()
    home = Path(cleanerd.__file__).parent
    for each in (home, home.parent / "pyspark_kafka_segments"):
        shutil.copytree(each, root / each.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _closure("cleanerd").union(others, *map(_closure, others)):
        for file in distribution(name).files or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.is_file() and "__pycache__" not in file.parts:
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, root / file)
    return root


def archive_of(packages: Path) -> Path:
    """The archive of the directory as ``--archives`` takes it, next to it."""
    archive = packages.parent / "packages.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(packages, ".")
    return archive


def _closure(name: str) -> set[str]:
    """The packages that ``name`` needs, without extras and without those of the nodes."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for message in distribution(waiting.pop()).requires or ():
            needed = re.split(r"[^A-Za-z0-9._-]", message)[0]
            if "extra ==" not in message and needed not in found | {"numpy", "uvloop", "confluent-kafka"}:
                try:
                    distribution(needed)
                except ModuleNotFoundError:
                    continue  # for another Python, or another system
                found.add(needed)
                waiting.append(needed)
    return found
