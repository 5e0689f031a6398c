"""A command reads a log directory once when it starts, and once more where it cleans, under the lock."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.clean_log_dirs import Shell, make

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKPOINTS = {"recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"}

_counted: list[Counter[str]] = []


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if _counted and event in {"open", "os.scandir"}:
        name = os.path.basename(str(arguments[0]))
        _counted[0][name if event == "open" else f"list of {name}"] += 1


@contextmanager
def readings() -> Iterator[Counter[str]]:
    """Counts openings of files, by name, and listings."""
    if not getattr(_count, "is_added", False):
        sys.addaudithook(_count)  # it cannot be removed
        vars(_count)["is_added"] = True
    _counted.append(Counter())
    try:
        yield _counted[0]
    finally:
        _counted.clear()


@pytest.mark.parametrize("command", ["clean", "stage"])
def test_a_log_directory_is_read_twice(root: Path, shell: Shell, command: str) -> None:
    """S-16: the first reading is for the output, the second decides; the cleaner's checkpoint is merged after it."""
    path = make(root)
    words = ("--yes", "--force") if command == "clean" else ("--force",)
    with readings() as found:
        answer = shell(command, path, *words, "--quiet", "--set", "topics.orders.cleanup.policy=compact")
    assert answer.code == 0, answer.err
    assert {name: found[name] for name in CHECKPOINTS} == dict.fromkeys(CHECKPOINTS, 2)
    assert found["cleaner-offset-checkpoint"] == (3 if command == "clean" else 2)
    assert found["meta.properties"] == 2
    assert found["list of logs"] <= 3


def test_a_question_reads_nothing_more(root: Path, shell: Shell) -> None:
    """The question before a cleaning is about the first reading."""
    path = make(root)
    with readings() as found:
        answer = shell("clean", path, "--force", "--set", "topics.orders.cleanup.policy=compact", typed="y\n")
    assert answer.code == 0, answer.err
    assert {name: found[name] for name in CHECKPOINTS} == dict.fromkeys(CHECKPOINTS, 2)
    assert found["meta.properties"] == 2


def test_the_batches_are_read_once_for_their_producers(root: Path, shell: Shell) -> None:
    """S-04, R192-1: the state that shows open transactions also has each producer's last batch."""
    path = make(root)
    with readings() as found:
        answer = shell("clean", path, "--yes", "--force", "--quiet", "--set", "topics.orders.cleanup.policy=compact")
    assert answer.code == 0, answer.err
    active = f"{6:020d}.log"
    assert found[active] == 3, "its end, its producers, and whether it is still the same file before the swap"


def test_a_command_finds_its_state_once(root: Path, shell: Shell) -> None:
    """The counted change, the question and the cleaning share one store, whose place in the state is read once."""
    path = make(root)
    settings = ("--force", "--set", "topics.orders.cleanup.policy=compact")
    assert shell("clean", path, *settings, "--yes").code == 0
    with readings() as found:
        answer = shell("clean", path, *settings, typed="y\n")
    assert answer.code == 0, answer.err
    assert found["place"] == 1
    assert {name: found[name] for name in CHECKPOINTS} == dict.fromkeys(CHECKPOINTS, 2)
