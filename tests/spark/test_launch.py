"""Starting Spark: missing requirements are reported, and everything started ends with its parent."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cleanerd.errors import ConfigError
from cleanerd.host.memory import TASKS_VARIABLE
from cleanerd.spark import launch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("master", "given"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[2,7]", "local[2,7]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
        ("k8s://https://host:6443", "k8s://https://host:6443"),
    ],
)
def test_masters(master: str, given: str) -> None:
    """``local[N]`` alone tries a task once: a single error of a disk would end everything."""
    assert launch.checked_master(master) == given


@pytest.mark.parametrize("master", ["", "localhost", "local[0]", "local[]", "spark://", "http://x", "sc://x:15002"])
def test_a_connect_url_is_refused_as_a_master(master: str) -> None:
    """The message for a URL of Spark Connect names the commands that accept one."""
    with pytest.raises(
        ConfigError, match=r"not a Spark master \((local|Spark Connect .* cleanerd.spark.Logs)"
    ) as refused:
        launch.checked_master(master)
    assert ("Connect" in str(refused.value)) == master.startswith("sc:")


def test_the_driver_runs_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result goes to this terminal: cluster mode is refused before anything starts, whatever Spark's files say."""
    with pytest.raises(ConfigError, match=r"deployMode=cluster.*runs here.*spark-submit yourself"):
        launch.submit(tmp_path / "x.py", [], master="yarn", conf={"spark.submit.deployMode": "cluster"})
    reported = tmp_path / "reported"
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-submit"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {reported}\n')
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert launch.submit(tmp_path / "x.py", [], master="yarn", conf={"spark.submit.deployMode": "client"}) == 0
    words = reported.read_text().splitlines()
    assert words[words.index("--deploy-mode") + 1] == "client"


def test_no_packages() -> None:
    with pytest.raises(ConfigError, match=r"no_such_package.*whl\[spark\]"):
        launch.require_spark(("pyspark", "no_such_package"))


def _java(place: Path, body: str) -> Path:
    (place / "bin").mkdir(parents=True)
    script = place / "bin" / "java"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return place


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (None, "no java there"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "version 11"),
        ("echo 'java version \"1.8.0_202\"' >&2", "version 8"),
        ("echo gibberish >&2", "no version"),
    ],
)
def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str | None, reported: str) -> None:
    home = tmp_path / "jdk" if body is None else _java(tmp_path / "jdk", body)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ConfigError, match=reported):
        launch.require_spark()


def test_a_spark_home_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="has no bin/spark-submit"):
        launch.require_spark()


@given(st.binary().map(lambda data: os.fsdecode(data.replace(b"\0", b""))))
@example("")
@example("%")
@example("a\r\nb  c")
def test_arguments(argument: str) -> None:
    """Any path arrives unchanged, though Java and shell scripts pass it on: no byte of it is special to them."""
    quoted = launch.quoted_argument(argument)
    assert quoted
    assert re.fullmatch(r"[A-Za-z0-9/=,:@\[\]*+%._~-]+", quoted)
    assert launch.unquoted_argument(quoted) == argument


def test_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers use this interpreter, unless the environment names the one of the cluster."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert launch.environment({}, tasks=2)["PYSPARK_PYTHON"] == sys.executable
    cluster = launch.environment({"PYSPARK_PYTHON": "/opt/env/bin/python"}, tasks=None)
    assert cluster["PYSPARK_PYTHON"] == "/opt/env/bin/python"
    assert "SPARK_LOCAL_IP" not in cluster


def test_how_many_tasks_share_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers share the memory by the tasks that run at once: with ``local[1]`` one, however many cores there are."""
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "${{{TASKS_VARIABLE}-none}}" >> {tmp_path}/tasks\n')
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(launch, "local_cores", lambda: 8)  # this machine may have one, which "local" means
    monkeypatch.setenv(TASKS_VARIABLE, "77")  # of a session that started this process
    conf = {"spark.driver.memory": "1g"}
    for master in ("local", "local[*]", "local[3]", "spark://host:7077", "local-cluster[2,1,1024]"):
        assert launch.submit(tmp_path / "driver.py", [], master=master, conf=conf) == 0
    assert (tmp_path / "tasks").read_text().split() == ["1", "8", "3", "none", "none"]


def test_the_core_needs_no_spark() -> None:
    """Everything but the driver imports without pyspark, pyarrow and pandas; so does ``cleanerd spark --help``."""
    code = """
import sys
for name in ("pyspark", "pyarrow", "pandas"):
    sys.modules[name] = None
from cleanerd.cli.main import run
assert run(["spark", "clean", "--help"]) == 0
import cleanerd.swap.round, cleanerd.spark.launch
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--master" in done.stdout


FAMILY = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.{on_term})
child = subprocess.Popen([sys.executable, "-c", "import signal, time; time.sleep(300)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(300)
"""


@pytest.mark.long
@pytest.mark.parametrize("on_term", ["SIG_DFL", "SIG_IGN"])
def test_the_whole_group_ends(tmp_path: Path, on_term: str) -> None:
    """A stopped parent of a driver leaves its Python running (design/spark.md, G): the process group has to end."""
    note = tmp_path / "pid"
    command = [sys.executable, "-c", FAMILY.format(on_term=on_term), str(note)]
    process = subprocess.Popen(command, start_new_session=True)
    _until(lambda: note.exists() and note.read_text() != "")
    launch.end_group(process, grace_seconds=1.0)
    assert process.returncode in (-signal.SIGTERM, -signal.SIGKILL)
    _until(lambda: not _runs(int(note.read_text())))


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
