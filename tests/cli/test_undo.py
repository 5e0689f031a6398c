"""``cleanerd undo`` and ``clean --keep-replaced``: everything as before, or refused with the reason (S-40)."""

from __future__ import annotations

import errno
import json
import os
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.cli.clean_log_dirs import (
    CLEANED,
    COMPACT,
    DIRTY,
    NOW,
    Shell,
    batch,
    dirty,
    good,
    keys,
    lock_holder,
    make,
    only_partition,
)
from tests.cli.undoing import clean_and_keep, undo
from tests.support.log_dirs import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    RECOVERY_POINTS,
    make_log_dir,
    read_checkpoint,
    tree,
    with_directory_id,
    write_checkpoint,
    write_segment,
)
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOTHING = "Nothing to undo: no kept segments, according to {}.\n"


pytestmark = pytest.mark.usefixtures("kept")


def segment(path: Path, base: int) -> Path:
    return path / "orders-0" / f"{base:020d}.log"


def test_everything_as_before(root: Path, shell: Shell) -> None:
    """Every file of the partition to the byte, with inode and times; nothing is kept any more; the checkpoint too."""
    path = make(root, cleaner_offset=2)
    before = tree(path / "orders-0", without=())
    inodes = {base: os.stat(segment(path, base)).st_ino for base in (0, 2, 4, 6)}
    times = {base: os.stat(segment(path, base)).st_mtime_ns for base in (0, 2, 4, 6)}
    clean_and_keep(shell, path)
    assert keys(path / "orders-0") == CLEANED
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {"orders-0": 6}
    answer = undo(shell, path, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["schema"] == 1
    found = only_partition(answer)
    assert (found["outcome"], found["segments_before"], found["segments_after"]) == ("undone", 1, 3)
    assert found["bytes_before"] < found["bytes_after"]
    assert tree(path / "orders-0", without=()) == before
    assert {base: os.stat(segment(path, base)).st_ino for base in inodes} == inodes
    assert {base: os.stat(segment(path, base)).st_mtime_ns for base in times} == times
    assert read_checkpoint(path / CLEANER_CHECKPOINT) == {"orders-0": 2}
    assert list((root / "kept").iterdir()) == []
    assert undo(shell, path).out == NOTHING.format(root / "state")
    (row,) = shell("plan", path, "--json", "--quiet", *COMPACT).json["partitions"]
    assert (row["first_dirty_offset"], row["first_dirty_origin"]) == (2, "cleaner-offset-checkpoint")


def test_an_undone_partition_can_be_cleaned_again(root: Path, shell: Shell) -> None:
    """The checkpoint moved back: the same cleaning has the same result."""
    path = make(root)
    clean_and_keep(shell, path)
    undo(shell, path)
    clean_and_keep(shell, path)
    assert keys(path / "orders-0") == CLEANED
    assert only_partition(undo(shell, path, "--json"))["outcome"] == "undone"
    assert keys(path / "orders-0") == DIRTY


def test_two_cleanings_one_after_the_other(root: Path, shell: Shell) -> None:
    """The last one first; then the one before it."""
    path = make(root)
    clean_and_keep(shell, path, "--cleanable-to", 4)
    middle = keys(path / "orders-0")
    clean_and_keep(shell, path)
    assert keys(path / "orders-0") == CLEANED != middle
    assert len(shell("undo", path, "--list", "--json").json["cleanings"]) == 2
    first = shell("undo", path, "--yes", "--json")
    assert first.json["partitions"][0]["earlier"] == 1
    assert "orders-0: 1 earlier cleaning can be undone: run cleanerd undo again" in first.err
    assert keys(path / "orders-0") == middle
    last = shell("undo", path, "--yes", "--json")
    assert last.json["partitions"][0]["earlier"] == 0
    assert "undo again" not in last.err
    assert keys(path / "orders-0") == DIRTY


def test_list(root: Path, shell: Shell) -> None:
    """The kept segments, since when and where; nothing changes."""
    path = make(root)
    assert shell("undo", path, "--list").out == f"Nothing is kept, according to {root / 'state'}.\n"
    clean_and_keep(shell, path)
    before = tree(root, without=())
    answer = shell("undo", path, "--list", "--json")
    (kept,) = answer.json["cleanings"]
    assert kept.keys() == {"topic", "partition", "log_dir", "plan", "cleaned_ms", "kept_bytes", "kept"}
    assert kept["kept_bytes"] == sum(file.stat().st_size for file in (root / "kept").rglob("*") if file.is_file())
    assert "orders-0" in shell("undo", path, "--list").out
    assert shell("undo", path, "--list", "--partition", "good-0").code == 3, "an unknown name is one in every command"
    assert tree(root, without=()) == before


def test_only_this_partition(root: Path, shell: Shell) -> None:
    """--partition leaves the others cleaned."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    clean_and_keep(shell, path)
    assert undo(shell, path, "--partition", "orders-1").code == 0
    assert (keys(path / "orders-0"), keys(path / "orders-1")) == (CLEANED, DIRTY)


def test_the_question_names_the_partitions(root: Path, shell: Shell) -> None:
    """One that pauses and undoes a single partition sees that all are undone. A held directory is refused unasked."""
    path = make_log_dir(root / "logs", {f"orders-{number}": dirty() for number in range(7)})
    clean_and_keep(shell, path)
    answer = shell("undo", path, typed="n")
    assert answer.code == 1
    assert "Undo the last cleaning of orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more (" in answer.err
    assert "Undo the last cleaning of orders-3 (" in shell("undo", path, "--partition", "orders-3", typed="n").err
    with lock_holder(path) as pid:
        answer = shell("undo", path, typed="n")
    assert (answer.code, "Undo" in answer.err) == (4, False)
    assert answer.err.startswith(f"cleanerd: {path}/.lock: is held by process {pid}")


def test_appended_records_do_not_matter(root: Path, shell: Shell) -> None:
    """The broker ran in between, rolled a segment and wrote on."""
    path = make(root)
    clean_and_keep(shell, path)
    with segment(path, 6).open("ab") as file:
        file.write(batch(7, ("y", "1")))
    write_segment(path / "orders-0", 8, batch(8, ("x", "1")))
    assert undo(shell, path).code == 0
    assert keys(path / "orders-0") == {**DIRTY, 6: [(6, "z"), (7, "y")], 8: [(8, "x")]}


def rewrite_in_place(path: Path) -> None:
    """Other bytes; everything that ``stat`` shows stays the same."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy_over(path: Path) -> None:
    """The same bytes in another file: the result of any cleaner that found nothing to remove."""
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    copy.rename(path)


def kept_log(root: Path, base: int) -> Path:
    (found,) = (root / "kept").rglob(f"{base:020d}.log")
    return found


CHANGES: dict[str, Callable[[Path], object]] = {
    "another checksum": lambda root: rewrite_in_place(segment(root / "logs", 0)),
    "was changed after the cleaning": lambda root: copy_over(segment(root / "logs", 0)),
    "segment 2 was added after the cleaning": lambda root: write_segment(root / "logs" / "orders-0", 2, b""),
    "the log begins at offset 6 now": lambda root: segment(root / "logs", 0).unlink(),
    "Kafka's checkpoint is at offset 7": lambda root: write_checkpoint(
        root / "logs" / CLEANER_CHECKPOINT, {"orders-0": 7}
    ),
    "created again": lambda root: (root / "logs" / "orders-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: NY69WlWORPKC3PTXbSJZsA"
    ),
    "is missing or was changed": lambda root: kept_log(root, 2).unlink(),
    "was changed since it was kept": lambda root: copy_over(kept_log(root, 4)),
    "not stopped cleanly": lambda root: (
        (root / "logs" / CLEAN_SHUTDOWN).unlink(),
        write_checkpoint(root / "logs" / RECOVERY_POINTS, {"orders-0": 5}),
    ),
}


@pytest.mark.parametrize("reason", CHANGES)
def test_refused(root: Path, shell: Shell, reason: str) -> None:
    """A change of anything that the cleaning covered: exit code 4, and nothing at all is changed."""
    path = make(root)
    clean_and_keep(shell, path)
    CHANGES[reason](root)
    before = tree(root, without=())
    answer = undo(shell, path, "--json")
    assert answer.code == 4
    assert only_partition(answer)["outcome"] == "refused"
    assert reason in only_partition(answer)["reason"]
    assert tree(root, without=()) == before


def test_a_refusal_is_printed_once(root: Path, shell: Shell) -> None:
    path = make(root)
    clean_and_keep(shell, path)
    rewrite_in_place(segment(path, 0))
    answer = undo(shell, path)
    assert answer.code == 4
    assert (answer.out + answer.err).count("another checksum") == 1
    assert "why" not in answer.out.split(), "a column without a message"


def test_cleaned_again_without_keeping(root: Path, shell: Shell) -> None:
    """A later cleaning that kept the outputs can still have removed a tombstone of a record that would come back."""
    path = make(root)
    clean_and_keep(shell, path, "--cleanable-to", 4)
    assert shell.clean(path).code == 0
    answer = undo(shell, path, "--json")
    assert (answer.code, only_partition(answer)["outcome"]) == (4, "refused")
    assert keys(path / "orders-0") == CLEANED


def test_a_broker_runs(root: Path, shell: Shell) -> None:
    """The lock decides, as for a cleaning; so does the lease."""
    path = make(root)
    clean_and_keep(shell, path)
    with lock_holder(path):
        assert undo(shell, path).code == 4
    with segment(path, 6).open("ab"):
        assert undo(shell, path).code == 4
    assert keys(path / "orders-0") == CLEANED


def test_one_bad_partition_stops_no_other_one(root: Path, shell: Shell) -> None:
    """Exit code 6: some were done."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "orders-1": dirty()})
    clean_and_keep(shell, path)
    rewrite_in_place(segment(path, 0))
    assert undo(shell, path).code == 6
    assert keys(path / "orders-1") == DIRTY


@pytest.mark.parametrize("where", ["missing", "inside", "the log directory", "another broker's", "another file system"])
def test_a_directory_that_cannot_keep_segments(
    root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """S-40, H-21: a clear error before anything is done."""
    path = make(root)
    other = make_log_dir(root / "other", {"good-0": good()})
    kept = {
        "missing": root / "nowhere",
        "inside": path / "orders-0" / "kept",
        "the log directory": path,
        "another broker's": other / "good-0",
        "another file system": root / "kept",
    }[where]
    if where == "inside":
        kept.mkdir()
    if where == "another file system":

        def refuse(*_args: object, **_more: object) -> None:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

        # Not every host lets a test mount one.
        system_call(monkeypatch, "link", refuse)
    before = tree(root, without=())
    answer = shell.clean(path, "--keep-replaced", kept)
    assert answer.code == (3 if where == "missing" else 4)
    assert len(answer.errors) == 1
    assert str(kept) in answer.err
    assert tree(root, without=()) == before


def test_without_a_state_directory_nothing_is_kept(root: Path, shell: Shell) -> None:
    """A cleaning that could not be found again does not happen."""
    path = make(root)
    (root / "state").mkdir()
    (root / "state" / "trash").write_text("")
    before = tree(path, without=())
    assert shell.clean(path, "--keep-replaced", root / "kept").code == 1
    assert tree(path, without=()) == before


def test_damaged_trash(root: Path, shell: Shell) -> None:
    """Set aside with a warning, counts as absent; a newer format is refused and stays."""
    path = make(root)
    clean_and_keep(shell, path)
    (entry_file,) = (root / "state" / "trash").iterdir()
    head, *groups = entry_file.read_text().splitlines()
    document = json.loads(head)
    entry_file.write_text("\n".join([json.dumps({**document, "format": 3}), *groups, ""]))
    assert undo(shell, path).code == 4
    assert entry_file.exists()
    document["entry"]["sources"] = "none"
    entry_file.write_text("\n".join([json.dumps(document), *groups, ""]))
    answer = undo(shell, path)
    assert (answer.code, answer.out) == (0, NOTHING.format(root / "state"))
    assert "set aside" in answer.err
    assert entry_file.with_suffix(".damaged").exists()


def test_another_state_directory(root: Path, shell: Shell) -> None:
    """The segments are kept, but not known in this one: refused, by name, instead of nothing to undo."""
    path = make(root)
    clean_and_keep(shell, path)
    (root / "state").rename(root / "mine")
    answer = undo(shell, path, "--keep-replaced", root / "kept")
    assert answer.code == 4
    message = " ".join(answer.err.split())
    assert f"has segments that a cleaning of orders-0 replaced, but {root}/state has no entry for them" in message
    assert "--set cleanerd.state.dir=DIR" in message
    assert keys(path / "orders-0") == CLEANED
    (root / "empty" / "orders-0").mkdir(parents=True)
    assert undo(shell, path, "--keep-replaced", root / "empty").out == NOTHING.format(root / "state")
    (root / "mine").rename(root / "state")
    # Known, but of another log directory than the named one.
    other = with_directory_id(make_log_dir(root / "other", {"orders-0": dirty()}), uuid.UUID(int=7))
    assert undo(shell, other, "--keep-replaced", root / "kept").out == NOTHING.format(root / "state")
    assert only_partition(undo(shell, path, "--json", "--keep-replaced", root / "kept"))["outcome"] == "undone"
    assert keys(path / "orders-0") == DIRTY


def test_undo_asks_before_it_changes_anything(root: Path, shell: Shell) -> None:
    """Without a terminal and without --yes nothing is done."""
    path = make(root)
    clean_and_keep(shell, path)
    assert shell("undo", path).code == 4
    assert keys(path / "orders-0") == CLEANED


def test_other_directories_do_not_matter(root: Path, shell: Shell) -> None:
    """Entries of other partitions and directories do not matter."""
    path = make(root)
    other = make_log_dir(root / "other", {"orders-0": dirty()})
    meta = (other / "meta.properties").read_text().replace("node.id=1", "node.id=2")
    (other / "meta.properties").write_text(
        meta.replace("directory.id=AAAAAAAAAAAAAAAAANF", "directory.id=AAAAAAAAAAAAAAAAANG")
    )
    clean_and_keep(shell, path)
    assert shell("clean", other, "--yes", "--force", "--quiet", "--now-ms", NOW, *COMPACT).code == 0
    assert undo(shell, other).out == NOTHING.format(root / "state")
    assert undo(shell, path).code == 0
