"""A wrong clock and commands that run only for a moment (U-42)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.state.last_time import FILE_NAME
from tests.cli.clean_log_dirs import COMPACT, Shell, batch, keys
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000
NO_RETENTION = ("--set", "topics.orders.delete.retention.ms=0")
HAD = {0: [(1, "a"), (2, "b")], 3: [(3, "c")]}


def with_horizon(root: Path, shell: Shell) -> Path:
    """A log whose tombstone, of the key a, is removed by the next cleaning."""
    path = root / "logs"
    logs = {0: batch(0, ("a", "1"), ("a", None)), 2: batch(2, ("b", "1")), 3: batch(3, ("c", "1"))}
    make_log_dir(path, {"orders-0": Partition(logs)})
    assert clean(shell, path, "--now-ms", 1_580_000_000_000)
    assert keys(path / "orders-0") == HAD
    return path


def clean(shell: Shell, path: Path, *more: object) -> str:
    """The output; asserts that it cleaned."""
    answer = shell("clean", path, "--yes", "--force", "--from-start", *COMPACT, *NO_RETENTION, *more)
    assert answer.code == 0, answer.err
    return answer.out + answer.err


def set_stored_time_behind(root: Path, off_ms: int) -> None:
    """By the stored times, the clock is now ahead by this much."""
    file = root / "state" / FILE_NAME
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, "wall_ms": document["wall_ms"] - off_ms}))


@pytest.mark.parametrize("command", ["clean", "stage"])
def test_a_clock_that_is_ahead_removes_nothing(root: Path, shell: Shell, command: str) -> None:
    """U-42: a tombstone that is only due by an untrusted clock stays.

    An operator who knows better can confirm the time.
    """
    path = with_horizon(root, shell)
    set_stored_time_behind(root, 20 * 365 * DAY_MS)  # before the horizon of the tombstone
    words = (
        command,
        path,
        "--force",
        "--from-start",
        *COMPACT,
        *NO_RETENTION,
        *(("--yes",) if command == "clean" else ()),
    )
    answer = shell(*words)
    assert answer.code == 0
    assert "the clock jumped ahead by 7300 days" in answer.err
    assert "--now-ms sets the time" in answer.err
    assert keys(path / "orders-0") == HAD
    assert not [*(path / "orders-0" / ".kstage").glob("*")]
    assert "7300 days" in shell("plan", path, *COMPACT).err
    assert "7300 days" in shell(*words).err, "the next one does not trust it either, within the hour"
    assert keys(path / "orders-0") == HAD


def test_a_right_clock_removes_a_tombstone(root: Path, shell: Shell) -> None:
    """The counterpart: nothing is reported, nothing waits."""
    path = with_horizon(root, shell)
    assert "the clock" not in clean(shell, path)
    assert keys(path / "orders-0") == {0: [(2, "b")], 3: [(3, "c")]}


def test_the_option_decides_about_a_clock_in_doubt(root: Path, shell: Shell) -> None:
    path = with_horizon(root, shell)
    set_stored_time_behind(root, 20 * 365 * DAY_MS)
    assert "the clock" not in clean(shell, path, "--now-ms", 4_000_000_000_000)
    assert keys(path / "orders-0") == {0: [(2, "b")], 3: [(3, "c")]}


def test_reading_commands_write_nothing(root: Path, shell: Shell) -> None:
    path = with_horizon(root, shell)
    (root / "state" / FILE_NAME).unlink()
    shell("plan", path, *COMPACT)
    shell("explain", "orders-0", path, *COMPACT)
    shell("clean", path, "--dry-run", *COMPACT)
    assert not (root / "state" / FILE_NAME).exists()
