"""SP-5: a session in which the ``python3`` of PATH, which Spark uses for its workers, has no cleanerd."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from cleanerd.spark.session import use_own_python
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

JOB = """
import sys
from pyspark.sql import SparkSession
from cleanerd.spark import Logs, register
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    if len(sys.argv) == 2:
        register(spark)
        print("rows", spark.read.format("kafka-segments").load(sys.argv[1]).count())
    else:
        logs = Logs(spark, sys.argv[1])
        print("rows", logs.read().count(), logs.profile()[0].keys)
except Exception as error:
    print("refused", error)
"""


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A ``python3`` without installed packages."""
    found = tmp_path / "bin" / "python3"
    found.parent.mkdir()
    found.write_text(f'#!/bin/sh\nexec {os.path.realpath(sys.executable)} -S "$@"\n')
    found.chmod(0o755)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    batch = encode_batch([Record(b"a", b"1"), Record(b"b", b"1")])
    return make_log_dir(tmp_path / "logs", {"t-0": Partition({0: batch, 2: b""})})


def output_of(place: Path, arguments: list[str], **more: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    own = {**kept, "SPARK_LOCAL_IP": "127.0.0.1", **more}
    command = [sys.executable, "-c", JOB, *arguments]
    done = subprocess.run(
        command, env=own, cwd=place, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("by_logs", [False, True])
def test_first_on_path(tmp_path: Path, other: Path, path: Path, *, by_logs: bool) -> None:
    """SP-5: ``register`` and ``Logs`` bring the driver's interpreter to the workers."""
    arguments = [str(path), *(["logs"] if by_logs else [])]
    found = output_of(tmp_path, arguments, PATH=f"{other.parent}:{os.environ['PATH']}")
    assert f"rows 2{' 2' if by_logs else ''}" in found, found


@pytest.mark.long
def test_chosen(tmp_path: Path, other: Path, path: Path) -> None:
    """SP-5: ``PYSPARK_PYTHON`` names it, so it stays; ``register`` reports what to set before any query runs."""
    found = output_of(tmp_path, [str(path)], PYSPARK_PYTHON=str(other))
    assert "refused register: Spark's Python workers cannot import cleanerd: ModuleNotFoundError: No module" in found
    assert f"(before the session starts: export PYSPARK_PYTHON={sys.executable};" in found


@pytest.mark.parametrize(
    ("master", "python", "chosen", "expected"),
    [
        ("local[2]", "python3", None, sys.executable),
        ("local[2]", "no-such-python", None, sys.executable),
        ("local[2]", sys.executable, None, sys.executable),
        ("local[2]", "python3", "python3", "python3"),
        ("spark://host:7077", "python3", None, "python3"),
    ],
)
def test_the_python_of_workers(
    other: Path, monkeypatch: pytest.MonkeyPatch, master: str, python: str, chosen: str | None, expected: str
) -> None:
    """SP-5: set only on this machine, and only without another choice."""
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if chosen is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", chosen)
    context: Any = SimpleNamespace(master=master, pythonExec=python)
    use_own_python(cast("SparkSession", SimpleNamespace(sparkContext=context)))
    assert context.pythonExec == expected
