"""``cleanerd undo`` next to a newer release's entry, a replica that is being moved, and a quarantine (S-40)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.clean_log_dirs import COMPACT, DIRTY, NOW, Shell, keys, make, only_partition
from tests.cli.undoing import clean_and_keep, undo
from tests.support.log_dirs import make_log_dir, tree

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("kept")


def test_a_newer_entry_does_not_stop_undo(root: Path, shell: Shell) -> None:
    """It keeps and reports entries that it cannot read, and undoes the others: exit code 6, some were done."""
    path = make(root)
    clean_and_keep(shell, path)
    newer = root / "state" / "trash" / "20260101t000000-00000000.json"
    newer.write_text('{"format": 3}\n')
    listed = shell("undo", path, "--list", "--json")
    assert (listed.code, len(listed.json["cleanings"])) == (0, 1)
    assert "undo that with the newer one" in listed.err
    answer = undo(shell, path)
    assert answer.code == 6
    assert answer.err.count("undo that with the newer one") == 1
    assert keys(path / "orders-0") == DIRTY
    assert newer.exists()
    (root / "kept" / "20260101t000000-00000000" / "orders-0").mkdir(parents=True)
    assert undo(shell, path, "--keep-replaced", root / "kept").code == 4, "this release knows that it exists"


def test_a_replica_that_is_being_moved_is_not_undone(root: Path, shell: Shell) -> None:
    """The broker has copied a part of the cleaned log to another directory, and would copy the rest as it was before.

    Records that a tombstone deleted could follow there without it (by version it may be above them).
    """
    path = make(root)
    clean_and_keep(shell, path)
    other = make_log_dir(root / "other", {})
    future = other / f"orders-0.{'a' * 32}-future"
    future.mkdir()
    before = tree(root, without=())
    answer = undo(shell, path, other, "--json")
    assert answer.code == 4
    assert only_partition(answer)["outcome"] == "refused"
    assert f"it is being moved to another log directory, {other}" in only_partition(answer)["reason"]
    assert tree(root, without=(".lock",)) == {
        name: reported for name, reported in before.items() if name[-5:] != ".lock"
    }
    future.rmdir()
    assert undo(shell, path, other).code == 0
    assert keys(path / "orders-0") == DIRTY


def test_the_reason_of_a_later_quarantine_after_an_undo(root: Path, shell: Shell) -> None:
    """Its segment, and the time of the next try, stay stored: the reason disappears with the segment."""
    path = make(root)
    clean_and_keep(shell, path)
    (state,) = (root / "state" / "partitions").rglob("*.json")
    document = json.loads(state.read_text())
    retry = {"since_ms": NOW, "failures": 2, "at_ms": NOW + 1}
    about = document["cleanerd_checkpoint"]["last_segment"]
    document |= {"quarantine": "damaged", "retry": retry, "quarantined_segment": about}
    state.write_text(json.dumps(document))
    assert undo(shell, path).code == 0
    found = json.loads(state.read_text())
    assert (found["quarantine"], found["retry"], found["quarantined_segment"]) == ("damaged", retry, about)
    reported = shell("explain", "orders-0", path, *COMPACT).out
    assert "The segment that this is about was replaced or deleted since" in reported


def test_a_disk_with_another_mount_point(root: Path, shell: Shell) -> None:
    """The log directory is known by its id.

    Undo finds the kept segments if their directory is named, and leaves none.
    """
    path = make(root)
    clean_and_keep(shell, path)
    moved = path.rename(root / "moved")
    refused = undo(shell, moved)
    assert refused.code == 4
    assert "has no entry for kept segments of" in refused.err
    assert undo(shell, moved, "--keep-replaced", root / "kept").code == 0
    assert keys(moved / "orders-0") == DIRTY
    assert list((root / "kept").iterdir()) == []
