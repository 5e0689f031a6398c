"""Completion in shells (docs/install.md): with the real program, as bash calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.complete import VARIABLE
from cleanerd.cli.main import COMMANDS
from tests.cli.clean_log_dirs import dirty
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path


def _answers(*words: str) -> list[str]:
    """The completions that bash gets for the last of ``words``."""
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": " ".join(("cleanerd", *words))}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "cleanerd"],
        env={**environment, "COMP_CWORD": str(len(words))},
        capture_output=True,
        text=True,
        check=True,
    )
    # A key press does not wait for NumPy: a command's options are known without its modules.
    assert "cleanerd.cli.main" in done.stderr, "U-26: it lists its imports"
    assert "numpy" not in done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands() -> None:
    assert _answers("") == list(COMMANDS)
    assert _answers("in") == ["inspect"]


def test_options_of_a_command() -> None:
    assert {"--from-start", "--force"} <= set(_answers("clean", "--f"))


@pytest.mark.long
def test_partitions(tmp_path: Path) -> None:
    """Topics of several partitions, and partitions, of the typed directory; without one, those of the settings."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": dirty(), "orders-1": dirty(), "carts-0": dirty()})
    assert _answers("plan", str(path), "--partition", "o") == ["orders", "orders-0", "orders-1"]
    setting = f"cleanerd.log.dirs={path}"
    assert _answers("explain", "--no-config", "--set", setting, "") == ["orders", "carts-0", "orders-0", "orders-1"]
    assert _answers("pause", "--no-config", "--set", f"cleanerd.control.socket={tmp_path}/none", "o") == []


@pytest.mark.long
def test_settings_and_strategies() -> None:
    assert _answers("run", "--set", "cleanerd.log.d") == ["cleanerd.log.dirs="]
    assert "topics.orders.min.compaction.lag.ms=" in _answers("run", "--set", "topics.orders.min.c")
    assert _answers("plan", "--strategy", "h") == ["header:"]


def test_an_unknown_command_is_no_error() -> None:
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": "cleanerd nosuch x", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "cleanerd"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script(shell: str) -> None:
    environment = {**os.environ, VARIABLE: f"{shell}_source"}
    done = subprocess.run(
        [sys.executable, "-m", "cleanerd"], env=environment, capture_output=True, text=True, check=True
    )
    assert VARIABLE in done.stdout
