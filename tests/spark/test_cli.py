"""``cleanerd spark clean`` as it is started: through ``spark-submit``, and followed by ``cleanerd apply``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.manifest import STAGING
from tests.cleaner.driver import NAME
from tests.spark.rich_log import NOW_MS, RichLog
from tests.support.log_dirs import read_segments

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COMPACT = ("--set", "topics.orders.cleanup.policy=compact")
MEMORY = ("--conf", "spark.driver.memory=512m")


def cleanerd(state: Path, *arguments: object) -> list[str]:
    settings = ["--set", f"cleanerd.state.dir={state}", "--set", "cleanerd.disk.reserve=0", *COMPACT]
    return [sys.executable, "-m", "cleanerd", *(str(each) for each in arguments), *settings]


def told(command: Sequence[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["partitions"]


def test_staged_by_spark_and_applied(tmp_path: Path) -> None:
    """What apply makes of the plan is the log that ``cleanerd clean`` makes, and both say the same of it."""
    path = RichLog(3, transactions=True).write(tmp_path / "logs", 4, 20)
    other = tmp_path / "other" / "logs"
    shutil.copytree(path, other, copy_function=shutil.copy2)
    wanted = ("--force", "--from-start", "--now-ms", NOW_MS, "--json", "--quiet")
    (staged,) = told(cleanerd(tmp_path / "s1", "spark", "clean", path, "--master", "local[2]", *MEMORY, *wanted))
    assert (staged["outcome"], staged["log_dir"]) == ("staged", str(path))
    (applied,) = told(cleanerd(tmp_path / "s1", "apply", path, "--json", "--quiet"))
    assert applied["outcome"] == "cleaned"
    (cleaned,) = told(cleanerd(tmp_path / "s2", "clean", other, "--yes", *wanted))
    for key in ("records_read", "records_kept", "dropped"):
        assert staged[key] == cleaned[key]
    assert staged["dropped"]["superseded"]
    assert _records(path) == _records(other)


def _records(path: Path) -> list[Any]:
    """A plan for later gives horizons that are later (U-15); all else is the same."""
    found = read_segments(path / NAME)
    return [(base, [batch.records for batch in batches]) for base, batches in sorted(found.items())]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """A signal to cleanerd ends Java, driver and workers, and what was staged so far is gone."""
    path = RichLog(3, keys=10_000).write(tmp_path / "logs", 40, 400)
    command = cleanerd(tmp_path / "state", "spark", "clean", path, "--force", "--from-start", "--now-ms", NOW_MS)
    command += ["--master", "local[1]", *MEMORY]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list((path / NAME).glob(f"{STAGING}/spark-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    family = _descendants(process.pid)
    assert len(family) >= 2
    os.kill(process.pid, number)
    assert process.wait(60) == 128 + number
    deadline = time.monotonic() + 30
    while any(_lives(pid) for pid in family):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not (path / NAME / STAGING).exists()


def _descendants(root: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(ppid) for pid, ppid in (line.split() for line in listed.splitlines()[1:])}
    found = [root]
    for pid in sorted(parents):
        if parents[pid] in found:
            found.append(pid)
    return found[1:]


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
