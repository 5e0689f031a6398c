"""``cleanerd clean``: which partitions of which directories, and its question before."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest

from tests.cli.clean_log_dirs import (
    CLEANED,
    COMPACT,
    NOW,
    Shell,
    dirty,
    keys,
    make,
)
from tests.support.log_dirs import (
    Partition,
    make_log_dir,
    tree,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_several_directories(root: Path, shell: Shell) -> None:
    """All are cleaned; one that cannot be used does not stop the others (6)."""
    first = make_log_dir(root / "first", {"orders-0": dirty()})
    second = make_log_dir(root / "second", {"orders-1": dirty()})
    answer = shell.clean(first, root / "nowhere", second, "--json")
    assert [entry["log_dir"] for entry in answer.json["partitions"]] == [str(first), str(second)]
    assert answer.code == 6
    assert answer.errors == [
        f"cleanerd: {root / 'nowhere'}: does not exist (name a directory from the broker's log.dirs)"
    ]
    assert keys(first / "orders-0") == keys(second / "orders-1") == CLEANED
    assert shell.clean(root / "nowhere", "--json").code == 3


def test_a_pattern_cleans_compacted_topics(root: Path, shell: Shell) -> None:
    """A topic by name is cleaned whatever it is; a pattern skips topics that are not compacted."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty(), "orders.raw-0": dirty()})
    raw = ("--set", "topics.orders.raw.cleanup.policy=delete")
    answer = shell.clean(path, "--partition", "ord*", "--json", *raw)
    assert [(entry["topic"], entry["partition"]) for entry in answer.json["partitions"]] == [
        ("orders", 0), ("orders", 1),
    ]  # fmt: skip
    assert answer.code == 0
    assert shell.clean(path, "--partition", "orders.raw", *raw).code == 3
    before = tree(path)
    answer = shell.clean(path, "--partition", "orders-0", "--partition", "nope-0", "--partition", "no*")
    assert (answer.code, tree(path)) == (3, before)
    assert "nope-0, no*: no such partition or topic" in answer.err


def test_a_requested_partition_in_a_directory_that_cannot_be_read(root: Path, shell: Shell) -> None:
    """The other directories are unchanged: a name that matches nothing there does not mean everything."""
    first = make_log_dir(root / "first", {"orders-0": dirty()})
    before = tree(first)
    answer = shell.clean(root / "nowhere", first, "--partition", "orders-7")
    assert answer.code == 3
    assert tree(first) == before


def test_a_directory_given_twice_is_cleaned_once(root: Path, shell: Shell) -> None:
    """Whatever its spelling."""
    path = make(root)
    (root / "link").symlink_to(path, target_is_directory=True)
    answer = shell.clean(path, f"{path}/", root / "link", "--json")
    assert [entry["log_dir"] for entry in answer.json["partitions"]] == [str(path)]


@pytest.mark.parametrize(
    ("more", "question"),
    [
        ({}, r"Clean orders-0 \(\d+ B\)\? \[y/N\] "),
        ({"orders-1": dirty()}, r"Clean 2 partitions \(\d+ B\)\? \[y/N\] "),
        ({"orders-1": dirty(cleaner_offset=6)}, r"Clean orders-0 \(\d+ B\)\? \[y/N\] "),
    ],
)
def test_the_question_shows_its_scope(root: Path, shell: Shell, more: dict[str, Partition], question: str) -> None:
    """The number of partitions and bytes that would be cleaned; answering no changes nothing."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), **more})
    before = tree(path)
    answer = shell("clean", path, "--quiet", "--now-ms", NOW, *COMPACT, typed="n\n")
    assert re.search(question, answer.err), answer.err
    assert answer.code == 1
    assert tree(path) == before
    assert shell("clean", path, "--quiet", "--now-ms", NOW, *COMPACT, typed="y\n").code == 0
    assert keys(path / "orders-0") == CLEANED


@pytest.mark.parametrize("command", ["clean", "undo"])
def test_no_question_if_there_is_nothing_to_clean(root: Path, shell: Shell, command: str) -> None:
    """Not even for --yes: there is no user and no question."""
    path = make(root, cleaner_offset=6)
    answer = shell(command, path, "--quiet", "--now-ms", NOW, *COMPACT) if command == "clean" else shell(command, path)
    assert (answer.code, "[y/N]" in answer.err) == (0, False)


def test_several_directories_have_a_column(root: Path, shell: Shell) -> None:
    """In the tables of plan and clean; with --json a directory that could not be used is an error there too."""
    first, second = (make_log_dir(root / name, {"orders-0": dirty()}) for name in ("first", "second"))
    for answer in (shell("plan", first, second, *COMPACT), shell.clean(first, second)):
        rows = [line for line in answer.out.splitlines() if line.startswith("orders-0")]
        assert [str(first) in row for row in rows] == [True, False]
        assert [str(second) in row for row in rows] == [False, True]
    assert "log directory" not in shell("plan", first, *COMPACT).out
    (error,) = shell.clean(first, root / "nowhere", "--json").json["errors"]
    assert (error["message"], error["where"], error["exit_code"]) == ("does not exist", str(root / "nowhere"), 3)


class Typist(io.StringIO):
    """Replaces a user at a terminal."""

    def isatty(self) -> bool:
        return True
