"""The swap of a group: its order, its barriers, and the state after a failed step (S-30 .. S-39)."""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.manifest import staging_path
from cleanerd.errors import CleanerdError, LogDirBusyError, StalePlanError
from cleanerd.format.names import file_name
from cleanerd.swap import group_swap as swap_module
from cleanerd.swap.group_swap import finish_plan, retired_names, swap_group
from cleanerd.swap.journal import Journal
from cleanerd.swap.recover import recover
from tests.support.failing_files import FailingFiles
from tests.swap.staged_partition import GROUPS, PLAN, OpenLock, StagedPartition, build, contents, expected, source_files

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.swap.files import FileOperation

ZERO = "0" * 20
TEN = "0" * 18 + "10"
STAGING = staging_path(PLAN)


def short(operation: FileOperation) -> str:
    """One operation as one line, without zeros."""
    text = f"{operation.kind} {operation.name}" + (f" -> {operation.target}" if operation.target else "")
    return text.replace(STAGING, "S").replace(ZERO, "0").replace(TEN, "10")


def test_the_directory_is_listed_once_a_group(partition: StagedPartition) -> None:
    """S-31: the directory also has all other groups' files; cleanerd used to list it four times per group."""
    listed: list[str] = []

    class Listing(FailingFiles):
        def names(self, *directory: str) -> frozenset[str]:
            listed.extend(directory or ["."])
            return super().names(*directory)

    group = partition.groups[0]
    with Listing(partition.path) as files:
        found = source_files(files, group)
        listed.clear()
        swap_group(files, PLAN, group, Journal(files, PLAN), OpenLock(), source_files=found)
    assert listed == ["."]


def test_steps_and_barriers_in_their_order(partition: StagedPartition) -> None:
    """S-31 .. S-38, step by step."""
    group = partition.groups[0]
    lock = OpenLock()
    with FailingFiles(partition.path) as files:
        swap_group(files, PLAN, group, Journal(files, PLAN), lock, source_files=source_files(files, group))
        done = [short(operation) for operation in files.done]
    retired = ["0.index", "0.log", "0.timeindex", "0.txnindex", "10.index", "10.log", "10.snapshot", "10.timeindex"]
    assert done == [
        "rename S/0.timeindex -> 0.timeindex.cleaned",
        "rename S/0.index -> 0.index.cleaned",
        "rename S/0.txnindex -> 0.txnindex.cleaned",
        "rename S/0.log -> 0.log.cleaned",
        "fsync_directory .",
        "append S/journal",
        "fsync S/journal",
        "fsync_directory S",
        "fsync_directory .kstage",
        "rename 0.log.cleaned -> 0.log.swap",
        "rename 0.index.cleaned -> 0.index.swap",
        "rename 0.timeindex.cleaned -> 0.timeindex.swap",
        "rename 0.txnindex.cleaned -> 0.txnindex.swap",
        "fsync_directory .",
        *[f"rename {name} -> {name}.deleted" for name in retired],
        "fsync_directory .",
        "rename 0.log.swap -> 0.log",
        "fsync_directory .",
        "rename 0.index.swap -> 0.index",
        "rename 0.timeindex.swap -> 0.timeindex",
        "rename 0.txnindex.swap -> 0.txnindex",
        "fsync_directory .",
        *[f"unlink {name}.deleted" for name in retired],
        "fsync_directory .",
        "append S/journal",
        "fsync S/journal",
    ]
    assert lock.checks == 1


def test_swapping_all_groups_leaves_no_staged_files(partition: StagedPartition) -> None:
    """S-39: outputs in place; sources, snapshots of merged bases and the staging directory are gone."""
    with FailingFiles(partition.path) as files:
        partition.swap(files)
    assert contents(partition.path) == expected((0, 30))


def test_the_snapshot_of_the_first_source_and_the_newest_one_stay(partition: StagedPartition) -> None:
    """S-35, S-45."""
    group = partition.groups[1]
    names = set(contents(partition.path))
    assert file_name(40, ".snapshot") in retired_names(group, names)
    assert file_name(30, ".snapshot") not in retired_names(group, names)
    names -= {file_name(50, ".snapshot")}
    assert file_name(40, ".snapshot") not in retired_names(group, names), "now it is the newest of the log"


def test_the_lock_is_checked_before_the_commit_point(partition: StagedPartition) -> None:
    """S-33: after the lock is lost, no file is renamed to .swap, and cleanerd removes nothing from the broker's log."""

    class LostLock:
        def check(self) -> None:
            raise LogDirBusyError("gone")

    group = partition.groups[0]
    with FailingFiles(partition.path) as files:
        found = source_files(files, group)
        with pytest.raises(LogDirBusyError):
            swap_group(files, PLAN, group, Journal(files, PLAN), LostLock(), source_files=found)
        assert short(files.done[-1]) == "fsync_directory .kstage"
    names = contents(partition.path)
    assert not [name for name in names if name.endswith((".swap", ".deleted"))]
    assert len([name for name in names if name.endswith(".cleaned")]) == 4
    assert expected(()).items() <= names.items()


@pytest.mark.parametrize("change", ["vanished", "appeared"])
def test_other_source_files_than_planned_are_refused(partition: StagedPartition, change: str) -> None:
    """S-29: no file is touched if a source file vanished or appeared since the plan."""
    group = partition.groups[0]
    with FailingFiles(partition.path) as files:
        found = source_files(files, group)
        if change == "vanished":
            (partition.path / file_name(10, ".index")).unlink()
        else:
            (partition.path / file_name(10, ".txnindex")).write_bytes(b"")
        before = contents(partition.path)
        with pytest.raises(StalePlanError, match=file_name(10, ".(index|txnindex)")):
            swap_group(files, PLAN, group, Journal(files, PLAN), OpenLock(), source_files=found)
        assert files.done == []
    assert contents(partition.path) == before


def steps_of_a_whole_swap(directory: Path) -> int:
    partition = build(directory / "count" / "t-0")
    with FailingFiles(partition.path) as files:
        partition.swap(files)
        return len(files.done)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_every_single_step_can_fail(memory_path: Path, number: int) -> None:
    """S-31 .. S-39: after a failed step recovery makes every group old or new; no data is lost, no file is left."""
    seen = []
    for failing in range(steps_of_a_whole_swap(memory_path)):
        partition = build(memory_path / str(failing) / "t-0")
        with FailingFiles(partition.path, failing, number) as files:
            with pytest.raises(CleanerdError) as caught:
                partition.swap(files)
            assert str(partition.path) in str(caught.value.where)
            recover(files)
        seen.append(swapped_in(partition))
    assert seen == sorted(seen), "a later failure can only leave more groups new"
    assert set(seen) == {0, 1, 2}


@pytest.mark.long
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
def test_every_step_of_the_recovery_can_fail_too(memory_path: Path, every: int) -> None:
    """Recovery from any failure, or from every fourth, itself failing at any step, and called again."""
    for failing in range(0, steps_of_a_whole_swap(memory_path), every):
        again = -1
        while True:
            again += 1
            partition = build(memory_path / f"{failing}-{again}" / "t-0")
            with FailingFiles(partition.path, failing, errno.EIO) as files, pytest.raises(CleanerdError):
                partition.swap(files)
            with FailingFiles(partition.path, again, errno.EIO) as files:
                try:
                    recover(files)
                except CleanerdError:
                    interrupted = True
                else:
                    interrupted = False
            with FailingFiles(partition.path) as files:
                recover(files)
            swapped_in(partition)
            if not interrupted:
                break


@pytest.mark.slow
def test_a_disk_that_goes_read_only_leaves_a_state_that_recovers_later(memory_path: Path) -> None:
    """H-20 and similar: no change is possible, recovery included; after the repair all is old or new."""
    for failing in range(steps_of_a_whole_swap(memory_path)):
        partition = build(memory_path / str(failing) / "t-0")
        with FailingFiles(partition.path, failing, errno.EROFS, lasting=True) as files:
            with pytest.raises(CleanerdError):
                partition.swap(files)
            done = len(files.done)
            with suppress(CleanerdError):
                recover(files)
            assert len(files.done) == done
        with FailingFiles(partition.path) as files:
            recover(files)
        swapped_in(partition)


def swapped_in(partition: StagedPartition) -> int:
    """The number of new groups; fails if the directory has other files."""
    found = contents(partition.path)
    for count in range(len(GROUPS), -1, -1):
        if found == expected(tuple(GROUPS)[:count]):
            return count
    pytest.fail(f"neither old nor new: {sorted(found)}")


def test_finish_plan_removes_the_manifest_first_and_only_its_own(partition: StagedPartition) -> None:
    """S-39: a plan without a manifest is invalid; other directories stay."""
    other = partition.path / ".kstage" / "foreign"
    other.mkdir()
    with FailingFiles(partition.path) as files:
        finish_plan(files, PLAN)
        kinds = [short(operation) for operation in files.done]
    assert kinds[:2] == ["unlink S/manifest.json", "fsync_directory S"]
    assert kinds[-1] == "fsync_directory .kstage"
    assert contents(partition.path) == {**expected(()), ".kstage/": b"", ".kstage/foreign/": b""}
    with FailingFiles(partition.path) as files:
        finish_plan(files, PLAN)
        assert files.done == []


def test_names_of_other_segments_are_not_parsed(partition: StagedPartition, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-31: the directory has thousands of them, and each group lists it several times."""
    for base in range(1000, 1400):
        (partition.path / file_name(base, ".index")).touch()
    real, taken = swap_module.parse_file_name, []

    def counted(name: str) -> tuple[int, str] | None:
        taken.append(name)
        return real(name)

    # the number of parsed names is visible only in the time
    monkeypatch.setattr(swap_module, "parse_file_name", counted)
    group = partition.groups[0]
    with FailingFiles(partition.path) as files:
        swap_group(files, PLAN, group, Journal(files, PLAN), OpenLock(), source_files=source_files(files, group))
    assert 0 < len(taken) < 100
