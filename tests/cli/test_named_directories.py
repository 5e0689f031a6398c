"""Which log directories a command is about, and where it finds the agent of their broker."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.mode import choose_mode
from cleanerd.resolution import checkpoint_pair
from cleanerd.segments.log_dir import read_log_dir
from tests.cli.clean_log_dirs import CLEANED, dirty, keys, lock_holder, make
from tests.support.fake_agent import FakeAgent
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell


@contextmanager
def broker_on(*paths: Path) -> Iterator[None]:
    """One process that holds the locks of all of them, as a broker does."""
    script = (
        "import fcntl, sys\n"
        "files = [open(path + '/.lock', 'w') for path in sys.argv[1:]]\n"
        "[fcntl.lockf(file, fcntl.LOCK_EX) for file in files]\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, *map(str, paths)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.stdin.close()


def two(root: Path) -> tuple[Path, Path]:
    one = make(root)
    other = make_log_dir(root / "other", {"orders-1": dirty()})
    return one, other


def test_the_agent_is_in_another_directory_of_the_broker(root: Path) -> None:
    """U-31: it creates its socket in the first of log.dirs; the broker's own process shows which these are."""
    first, second = two(root)
    with broker_on(first, second), FakeAgent(first, first / ".cleanerd-agent.sock"):
        assert choose_mode(read_log_dir(second), [], None).mode == "live"
    with broker_on(second), broker_on(first), FakeAgent(first, first / ".cleanerd-agent.sock"):
        assert choose_mode(read_log_dir(second), [], None).mode == "on-start", "it is another broker's"


def test_log_dirs_of_the_settings(root: Path, shell: Shell) -> None:
    """Every command uses ``cleanerd.log.dirs`` if its command line names no directory."""
    first, second = two(root)
    settings = ("--set", f"cleanerd.log.dirs={first},{second}", "--set", "topics.orders.cleanup.policy=compact")
    planned = shell("plan", "--json", *settings)
    assert sorted(each["partition"] for each in planned.json["partitions"]) == [0, 1]
    assert shell("explain", "orders-1", "--json", *settings).code == 0
    assert shell("verify", "--json", *settings).code == 0
    assert shell("audit", "orders-1", "--key", "a", "--json", *settings).json["path"] == str(second / "orders-1")
    assert shell("clean", "--yes", "--force", *settings).code == 0
    assert keys(first / "orders-0") == keys(second / "orders-1") == CLEANED
    for command in ("stage", "apply", "move-aside", "undo"):
        assert shell(command, *settings).code == 0
    assert shell("agent", "attach", *settings).code == 4, "no broker runs there"
    with broker_on(first, second), FakeAgent(first, first / ".cleanerd-agent.sock"):
        assert shell("agent", "info", *settings).code == 0


def test_undo_in_the_directories_of_the_settings(root: Path, shell: Shell) -> None:
    """All of them, as for the cleaning."""
    first, second = two(root)
    before = keys(first / "orders-0"), keys(second / "orders-1")
    settings = ("--set", f"cleanerd.log.dirs={first},{second}", "--set", "topics.orders.cleanup.policy=compact")
    (root / "kept").mkdir()
    assert shell("clean", "--yes", "--force", "--keep-replaced", root / "kept", *settings).code == 0
    assert keys(first / "orders-0") == keys(second / "orders-1") == CLEANED
    undone = shell("undo", "--yes", "--json", *settings).json["partitions"]
    assert [each["outcome"] for each in undone] == ["undone", "undone"]
    assert (keys(first / "orders-0"), keys(second / "orders-1")) == before


@pytest.mark.parametrize(
    "words",
    [
        ["plan"],
        ["clean"],
        ["stage"],
        ["apply"],
        ["verify"],
        ["explain", "o-0"],
        ["undo"],
        ["move-aside"],
        ["agent", "attach"],
    ],
)
def test_no_directory_at_all(shell: Shell, words: list[str]) -> None:
    """Exit code 2, as for any missing argument."""
    answer = shell(*words)
    assert (answer.code, "cleanerd.log.dirs" in answer.err) == (2, True)


def test_the_settings_name_directories_that_are_wrong(root: Path, shell: Shell) -> None:
    """The error is that of the settings, not that of a missing argument."""
    answer = shell("plan", "--set", f"cleanerd.broker.properties={root / 'no-such-file'}")
    assert (answer.code, "cannot be read" in answer.err) == (3, True)


def test_one_wait_for_all_directories(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-03: the first readings of all are made before the wait."""
    monkeypatch.setattr(checkpoint_pair, "SETTLE_SECONDS", 1.0)
    first, second = two(root)
    with lock_holder(first), lock_holder(second):
        began = time.monotonic()
        answer = shell("plan", first, second, "--set", "topics.orders.cleanup.policy=compact")
        took = time.monotonic() - began
    assert (answer.code, answer.err.count("checkpoints are read twice")) == (0, 1)
    assert took >= 1.0
