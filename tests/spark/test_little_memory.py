"""A session on this machine in a cgroup that is too small for Spark's defaults."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd_lab.bench.generate import PARTITION, make_log
from tests.daemon.little_memory import cgroup
from tests.spark.bench import SHAPE
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.daemon.little_memory import Cgroup

pytestmark = pytest.mark.long

MIB = 1 << 20


def profiled(group: Cgroup, log_dir: Path, state: Path) -> Any:
    """The command's report about the log, as a user runs it."""
    command = [sys.executable, "-m", "cleanerd", "spark", "profile", log_dir, "--json", "--quiet"]
    command += ["--set", f"cleanerd.state.dir={state}", "--set", f"topics.{PARTITION.topic}.cleanup.policy=compact"]
    done = subprocess.run(
        [*group.prefix, *map(str, command)], capture_output=True, text=True, timeout=8 * PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, group.kills()) == (0, 0), done.stderr
    (found,) = json.loads(done.stdout)["partitions"]
    return found


def test_a_session_in_a_gigabyte(tmp_path: Path) -> None:
    """It was killed before: a task of a profile took 760 MiB. With less, this process alone gets the same numbers."""
    made = make_log(tmp_path / "data", SHAPE, unpacked_bytes=900 * MIB, segment_bytes=128 * MIB)
    found = []
    for limit_mib in (1024, 640):
        with cgroup(limit_mib * MIB) as group:
            if not group.version:
                pytest.skip("no memory cgroup can be made here")
            found.append(profiled(group, made.log_dir, tmp_path / "state"))
    assert found[0] == found[1]
    assert found[0]["records"] == made.records
