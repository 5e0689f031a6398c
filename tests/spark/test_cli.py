"""``cleanerd spark clean`` as users run it: through ``spark-submit``, and followed by ``cleanerd apply``."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd import __version__
from cleanerd.cleaner.manifest import STAGING
from cleanerd.cli import spark as submitted
from cleanerd.spark.launch import require_spark
from tests.cleaner.driver import NAME
from tests.spark.rich_log import NOW_MS, RichLog
from tests.support.log_dirs import read_segments
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.long

COMPACT = ("--set", "topics.orders.cleanup.policy=compact")
MEMORY = ("--conf", "spark.driver.memory=512m")


def cleanerd(state: Path, *arguments: object) -> list[str]:
    settings = ["--set", f"cleanerd.state.dir={state}", "--set", "cleanerd.disk.reserve=0", *COMPACT]
    return [sys.executable, "-m", "cleanerd", *(str(each) for each in arguments), *settings]


def reported(command: Sequence[str], **environment: str) -> Any:
    inherited = os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=inherited)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["partitions"]


def test_staged_by_spark_and_applied(tmp_path: Path) -> None:
    """The result of apply equals the log of ``cleanerd clean``, and both report the same.

    With spaces, percent signs, and letters that the C locale of Java does not have, in the path.
    """
    path = RichLog(3, transactions=True).write(tmp_path / "lögs  100%25 $HOME *", 4, 20)
    other = tmp_path / "other" / "logs"
    shutil.copytree(path, other, copy_function=shutil.copy2)
    wanted = ("--force", "--from-start", "--now-ms", NOW_MS, "--json", "--quiet")
    by_spark = ("spark", "clean", path, "--master", "local[2]", *MEMORY, "--shards", 2)
    (staged,) = reported(cleanerd(tmp_path / "s1", *by_spark, *wanted), LC_ALL="C")
    assert (staged["outcome"], staged["log_dir"]) == ("staged", str(path))
    (applied,) = reported(cleanerd(tmp_path / "s1", "apply", path, "--json", "--quiet"))
    assert applied["outcome"] == "cleaned"
    (cleaned,) = reported(cleanerd(tmp_path / "s2", "clean", other, "--yes", *wanted))
    for key in ("records_read", "records_kept", "removed"):
        assert staged[key] == cleaned[key]
    assert staged["removed"]["superseded"]
    assert _records(path) == _records(other)


def _records(path: Path) -> list[Any]:
    """A cleaning staged for later has later horizons (U-15); all else is the same."""
    found = read_segments(path / NAME)
    return [(base, [batch.records for batch in batches]) for base, batches in sorted(found.items())]


@pytest.mark.parametrize(
    ("meanwhile", "message"),
    [
        ("import cleanerd; cleanerd.__version__ = '0.0.1'", "a plan of cleanerd {version}, this is 0.0.1"),
        ("import sys; sys.modules['cleanerd'] = None", "No module named 'cleanerd"),
    ],
)
def test_executors_with_another_cleanerd(tmp_path: Path, meanwhile: str, message: str) -> None:
    """Another release, or none: refused with that reason, and the log is unchanged."""
    path = RichLog(3).write(tmp_path / "logs", 2, 10)
    before = _records(path)
    (tmp_path / "sitecustomize.py").write_text(meanwhile)
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    command = cleanerd(tmp_path / "state", "spark", "clean", path, "--force", "--from-start", "--now-ms", NOW_MS)
    command += ["--master", "local[1]", *MEMORY, "--shards", "1"]
    inherited = os.environ | {"PYSPARK_PYTHON": str(interpreter)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=inherited)
    assert done.returncode == 1
    (reported_line,) = (line for line in done.stderr.splitlines() if "Spark gave up" in line)
    assert message.format(version=__version__) in reported_line
    assert f"install cleanerd {__version__} on the executors too" in " ".join(done.stderr.split())
    assert f"install cleanerd {__version__} on the executors" in reported_line
    assert _records(path) == before
    assert not (path / NAME / STAGING).exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_by_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    """A signal to cleanerd ends Java, driver and workers, and the files staged so far are removed."""
    path = RichLog(3, keys=10_000).write(tmp_path / "logs", 40, 400)
    command = cleanerd(tmp_path / "state", "spark", "clean", path, "--force", "--from-start", "--now-ms", NOW_MS)
    command += ["--master", "local[1]", *MEMORY, "--shards", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list((path / NAME).glob(f"{STAGING}/spark-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    family = _descendants(process.pid)
    assert len(family) >= 2
    os.kill(process.pid, number)
    assert process.wait(PATIENCE_SECONDS) == 128 + number
    deadline = time.monotonic() + PATIENCE_SECONDS
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


def test_submitted_by_hand(tmp_path: Path) -> None:
    """``spark-submit`` on the driver itself: Spark chooses the master, and there is one Spark, not two."""
    path = RichLog(3).write(tmp_path / "logs", 2, 10)
    driver = Path(submitted.__file__).parent / "submitted" / "cleanerd_driver.py"
    command = [str(require_spark()), "--master", "local[1]", *MEMORY, str(driver), "spark", "snapshot", str(path)]
    command += ["--out", str(tmp_path / "100% out"), "--json", "--quiet", *cleanerd(tmp_path / "state")[3:]]
    inherited = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=inherited)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["out"] == str(tmp_path / "100% out")
    assert done.stderr.count("SparkContext: Running Spark version") == 1
