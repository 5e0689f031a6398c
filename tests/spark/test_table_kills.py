"""Killed between two files, before and after the commit: the table is the old or the new one; the next run is right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd.spark.api import ReadableLogs
from tests.spark.growing_logs import Growing, values
from tests.spark.tables import CATALOG, NAME, Tables
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

WRITE, COMMIT = "write", "commit"
POINTS = {"between files": (WRITE, 1), "before the commit": (COMMIT, 0), "after the commit": (COMMIT, 1)}

CHILD = """
import json, os, signal, sys
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.tables import files
from cleanerd.spark.tables.target import Delta, Iceberg

kind, uri, logs, where, count, verb = json.loads(sys.argv[1])
calls = 0

def killing(original, after):
    def call(*args, **kwargs):
        global calls
        if after:
            original(*args, **kwargs)
        calls += 1
        if calls >= count:
            os.kill(os.getpid(), signal.SIGKILL)
        return None if after else original(*args, **kwargs)
    return call

if kind == "delta":
    from cleanerd.spark.tables.delta import DeltaOpen as Open
else:
    from cleanerd.spark.tables.iceberg import IcebergOpen as Open
if where == "commit":
    Open.commit = killing(Open.commit, count == 1)
    count = 1
else:
    files._Writer._end = killing(files._Writer._end, True)
table = Delta(uri) if kind == "delta" else Iceberg(uri, sys.argv[2])
getattr(ReadableLogs(None, logs).latest(), verb)(table)
"""


def killed(tables: Tables, logs: Path, point: str, command: str) -> None:
    uri = str(tables.root / "table") if tables.kind == "delta" else NAME
    where, count = POINTS[point]
    given = json.dumps([tables.kind, uri, str(logs), where, count, command])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, given, CATALOG],
        env=os.environ | tables.environment, timeout=PATIENCE_SECONDS, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


def run(kind: str, root: Path, point: str) -> None:
    tables = Tables(kind, root)
    log = Growing(root, "orders-0", "orders-1")
    log.put("orders-0", a="1", b="1", c="1")
    log.put("orders-1", a="1", b="1")
    (first,) = {each.log_dir for each in log.write()}
    committed = point == "after the commit"
    with tables.known():
        killed(tables, first, point, "write_table")
        assert tables.target.open().exists == committed
        if not committed:
            ReadableLogs(None, first).latest().write_table(tables.target)
        before = values(tables)
        assert before == {"orders-0": {"a": "1", "b": "1", "c": "1"}, "orders-1": {"a": "1", "b": "1"}}
        log.put("orders-0", a="2", b=None, d="1")
        log.put("orders-1", a=None)
        (second,) = {each.log_dir for each in log.write()}
        after = {"orders-0": {"a": "2", "c": "1", "d": "1"}, "orders-1": {"b": "1"}}
        killed(tables, second, point, "merge_into")
        assert values(tables) == (after if committed else before)
        commits = tables.commits()
        merged = ReadableLogs(None, second).latest().merge_into(tables.target)
        assert values(tables) == after
        assert tables.commits() == commits + (0 if committed else 1)
        assert sum(each.written for each in merged) == (0 if committed else 2)


def test_killed_between_files(tmp_path: Path) -> None:
    """Uncommitted files are in no table, however often it happens."""
    run("delta", tmp_path, "between files")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("point", list(POINTS))
def test_killed(tmp_path: Path, kind: str, point: str) -> None:
    """At every place, in both formats."""
    run(kind, tmp_path, point)
