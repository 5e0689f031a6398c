"""The hook before the broker's start (S-26): the drop-in's own line, on a staged log directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.clean_log_dirs import CLEANED, COMPACT, NOW, Shell, keys, lock_holder, make
from tests.packaging.sandbox import settings_of
from tests.support.log_dirs import tree

REPOSITORY = Path(__file__).parents[2]
DROP_IN = REPOSITORY / "systemd" / "kafka.service.d" / "10-cleanerd-apply.conf"
CONFIG = '"cleanerd.disk.reserve" = 0\n[topics."orders"]\n"cleanup.policy" = "compact"\n'


def _hook(root: Path, logs: Path) -> subprocess.CompletedProcess[str]:
    """Run the drop-in's line with this tree's program and these directories."""
    program, config = root / "cleanerd", root / "cleanerd.toml"
    program.write_text(f'#!/bin/sh\ncd {REPOSITORY} && exec {sys.executable} -m cleanerd "$@"\n')
    program.chmod(0o755)
    config.write_text(CONFIG)
    (line,) = settings_of(DROP_IN)["ExecStartPre"]
    places = {
        "/opt/cleanerd/bin/cleanerd": program,
        "/etc/cleanerd/cleanerd.toml": config,
        "/var/lib/cleanerd": root / "state",
        "/var/lib/kafka/data": logs,
    }
    for shipped, ours in places.items():
        assert shipped in line
        line = line.replace(shipped, str(ours))
    return subprocess.run(line.removeprefix("-").split(), capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_staged_cleaning_is_swapped_in(root: Path, shell: Shell) -> None:
    logs = make(root)
    assert shell("stage", logs, "--force", "--quiet", "--now-ms", NOW, *COMPACT).code == 0
    done = _hook(root, logs)
    assert (done.returncode, "1 of 1 partitions cleaned" in done.stdout) == (0, True), done.stderr
    assert keys(logs / "orders-0") == CLEANED


@pytest.mark.long
def test_without_a_staged_cleaning_it_does_nothing(root: Path) -> None:
    logs = make(root)
    before = tree(logs, without=(".lock",))
    done = _hook(root, logs)
    assert (done.returncode, done.stdout) == (0, "Nothing is staged.\n")
    assert tree(logs, without=(".lock",)) == before


@pytest.mark.long
def test_it_gives_up_if_a_broker_runs(root: Path, shell: Shell) -> None:
    """S-15: exit code 4, well before systemd's timeout; the staged cleaning stays, and with "-" the unit continues."""
    logs = make(root)
    assert shell("stage", logs, "--force", "--quiet", "--now-ms", NOW, *COMPACT).code == 0
    staged = tree(logs, without=(".lock",))
    with lock_holder(logs):
        done = _hook(root, logs)
    assert done.returncode == 4
    assert tree(logs, without=(".lock",)) == staged
