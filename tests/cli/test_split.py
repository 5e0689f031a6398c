"""The command line's messages about a segment whose offsets no index can hold (C-67)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.clean_log_dirs import COMPACT, Shell, keys
from tests.support.log_dirs import make_log_dir, read_segments, tree
from tests.support.overflow import END, NOW_MS, PIECES, SPAN, overflowed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(root: Path) -> Path:
    return make_log_dir(root / "logs", {"orders-0": overflowed()})


OPTIONS = ("--force", "--now-ms", NOW_MS, *COMPACT)


def test_plan_shows_it(path: Path, shell: Shell) -> None:
    """Before anything is done; in the table's notes and in --json, and with clean --dry-run as well."""
    before = tree(path, without=())
    (row,) = shell("plan", path, "--exact", "--json", *OPTIONS).json["partitions"]
    assert row["action"] == "clean"
    assert "segment 0 has offsets" in " ".join(row["exact"]["notes"])
    for command in (("plan", path, "--exact"), ("clean", path, "--dry-run")):
        answer = shell(*command, *OPTIONS)
        assert answer.code == 0
        assert "orders-0: segment 0 has offsets more than 2^31-1 above its base: clean splits it first" in answer.err
    assert tree(path, without=()) == before


def test_stage_refuses(path: Path, shell: Shell) -> None:
    """A cleaning that is applied later cannot use a split that has not been made: exit code 4, what to do, no trace."""
    before = tree(path, without=())
    answer = shell("stage", path, "--quiet", *OPTIONS)
    assert answer.code == 4
    (line,) = answer.errors
    assert "has to be split first" in line
    assert "stop the broker and run cleanerd clean" in line
    assert tree(path, without=()) == before


def test_clean_splits_and_undo_puts_the_pieces_back(path: Path, kept: Path, shell: Shell) -> None:
    """S-40: the new segments are kept, which have the same batches; undo restores all records."""
    before = [batch.data for stored in read_segments(path / "orders-0").values() for batch in stored]
    answer = shell("clean", path, "--yes", "--keep-replaced", kept, *OPTIONS)
    assert answer.code == 0
    assert "split into 3" in answer.err
    assert 0 not in [offset for offset, _ in keys(path / "orders-0")[0]]
    assert shell("undo", path, "--yes", "--quiet").code == 0
    segments = read_segments(path / "orders-0")
    assert sorted(segments) == [*PIECES, 3 * SPAN, END]
    assert [batch.data for stored in segments.values() for batch in stored] == before
    assert shell("verify", path / "orders-0", "--quiet", *COMPACT).code == 0
