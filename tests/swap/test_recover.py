"""Recovery: cleanerd's leftovers are settled, foreign ones are left alone and reported (S-21, S-28, X-19)."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.manifest import MANIFEST, staged_name, staging_path
from cleanerd.errors import CleanerdError
from cleanerd.swap.group_swap import cleaned_name, final_name, swap_name
from cleanerd.swap.journal import Journal
from cleanerd.swap.recover import SWEEP_AGE_MS, RecoveryReport, recover
from tests.support.failing_files import FailingFiles
from tests.swap.staged_partition import PLAN, StagedPartition, contents, expected, new_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cleanerd.cleaner.manifest import FileKind

STAGING = staging_path(PLAN)


def recovered(partition: StagedPartition) -> RecoveryReport:
    with FailingFiles(partition.path) as files:
        return recover(files)


def untouched(partition: StagedPartition) -> tuple[str, ...]:
    """Recover, and check that no file changed; returns the foreign names."""
    before = contents(partition.path)
    with FailingFiles(partition.path) as files:
        report = recover(files)
        assert files.done == []
    assert contents(partition.path) == before
    assert report == RecoveryReport(foreign=report.foreign)
    return report.foreign


def put(partition: StagedPartition, names: Iterable[str], kinds: Iterable[FileKind]) -> None:
    """Move staged files of group 0 into the partition directory."""
    for name, kind in zip(names, kinds, strict=True):
        (partition.path / staged_name(PLAN, 0, kind)).rename(partition.path / name)


def cleaned(*kinds: FileKind) -> list[str]:
    return [cleaned_name(0, kind) for kind in kinds]


def swaps(*kinds: FileKind) -> list[str]:
    return [swap_name(0, kind) for kind in kinds]


def stop_after(partition: StagedPartition, operations: int) -> None:
    """Swap until ``count`` operations are done."""
    with FailingFiles(partition.path, operations, 5) as files, pytest.raises(CleanerdError):
        partition.swap(files)


def test_recovery_without_leftovers_changes_nothing(partition: StagedPartition) -> None:
    """A partition without leftovers is untouched and costs no flush."""
    shutil.rmtree(partition.path / ".kstage")
    assert untouched(partition) == ()


def test_a_plan_that_never_began_is_dropped(partition: StagedPartition) -> None:
    """X-01, X-02: staged files can always be made again."""
    assert recovered(partition) == RecoveryReport(dropped_plans=(PLAN,))
    assert contents(partition.path) == expected(())


def test_a_plan_without_a_manifest_is_dropped(partition: StagedPartition) -> None:
    """X-01: only the manifest shows that a plan is ready."""
    (partition.path / STAGING / MANIFEST).unlink()
    assert recovered(partition).dropped_plans == (PLAN,)
    assert contents(partition.path) == expected(())


def test_rolled_back_before_the_commit_point(partition: StagedPartition) -> None:
    """X-06: one .cleaned left means old."""
    stop_after(partition, 12)
    names = contents(partition.path)
    assert len([name for name in names if name.endswith(".swap")]) == 3
    assert recovered(partition) == RecoveryReport(rolled_back=(0,), dropped_plans=(PLAN,))
    assert contents(partition.path) == expected(())


def test_a_roll_back_never_leaves_a_lone_index_behind(partition: StagedPartition) -> None:
    """X-16: .swap files of indexes first, then the log's, the .cleaned ones last, a flush after each."""
    stop_after(partition, 12)
    with FailingFiles(partition.path) as files:
        recover(files)
        done = [f"{operation.kind} {operation.name}" for operation in files.done]
    unlinks = [f"unlink {name}" for name in swaps("index", "timeindex")]
    flush = "fsync_directory ."
    assert done[:7] == [
        flush,
        *unlinks,
        flush,
        f"unlink {swap_name(0, 'log')}",
        flush,
        f"unlink {cleaned_name(0, 'txnindex')}",
    ]


@pytest.mark.parametrize("operations", [14, 16, 22, 23, 25, 27, 28, 31])
def test_completed_after_the_commit_point(partition: StagedPartition, operations: int) -> None:
    """X-07 .. X-11."""
    stop_after(partition, operations)
    assert recovered(partition) == RecoveryReport(completed=(0,), dropped_plans=(PLAN,))
    assert contents(partition.path) == expected((0,))


def test_a_group_that_is_done_is_not_read(partition: StagedPartition) -> None:
    """X-12: between two groups. A .deleted file that appears now is the broker's."""
    stop_after(partition, 40)
    foreign = partition.path / f"{final_name(10, 'log')}.deleted"
    foreign.write_bytes(b"")
    assert recovered(partition) == RecoveryReport(dropped_plans=(PLAN,))
    assert contents(partition.path) == {**expected((0,)), foreign.name: b""}


def test_the_broker_may_have_started_in_between(partition: StagedPartition) -> None:
    """The broker's loader rolled back.

    The journal's begin alone does not permit touching .deleted files of that range.
    """
    stop_after(partition, 10)
    for name in (*cleaned("index", "timeindex", "txnindex"), *swaps("log")):
        (partition.path / name).unlink()
    deleted = partition.path / f"{final_name(10, 'log')}.deleted"
    deleted.write_bytes(b"the broker's")
    assert recovered(partition) == RecoveryReport(dropped_plans=(PLAN,))
    assert contents(partition.path) == {**expected(()), deleted.name: b"the broker's"}


def test_an_interrupted_loader_had_renamed_an_index(partition: StagedPartition) -> None:
    """X-19: .log.swap, sources gone, one output index already final: it must not count as a source's index."""
    put(partition, swaps("log", "index", "timeindex"), ("log", "index", "timeindex"))
    for base in (0, 10):
        for path in partition.path.glob(f"{base:020d}.*"):
            if not path.name.endswith((".swap", ".snapshot")):
                path.unlink()
    put(partition, [final_name(0, "txnindex")], ["txnindex"])
    assert recovered(partition).completed == (0,)
    assert contents(partition.path) == expected((0,))


def test_an_output_index_that_is_lost_forces_a_rebuild(partition: StagedPartition) -> None:
    """X-19 twice: without its .txnindex the segment would show aborted records, so its .index is removed as well."""
    put(partition, swaps("log", "index", "timeindex"), ("log", "index", "timeindex"))
    for base in (0, 10):
        for path in partition.path.glob(f"{base:020d}.*"):
            if not path.name.endswith((".swap", ".snapshot")):
                path.unlink()
    assert recovered(partition).completed == (0,)
    lost = {final_name(0, "index"), final_name(0, "txnindex")}
    assert contents(partition.path) == {name: data for name, data in expected((0,)).items() if name not in lost}


def test_an_incomplete_set_of_swaps_with_all_sources_is_undone(partition: StagedPartition) -> None:
    """Power failed while a loader rolled back: .cleaned removals are on the disk, .swap ones are not."""
    put(partition, swaps("log", "timeindex"), ("log", "timeindex"))
    with FailingFiles(partition.path) as files:
        assert recover(files).rolled_back == (0,)
        first = [operation.name for operation in files.done if operation.kind == "unlink"][:2]
    assert first == [swap_name(0, "timeindex"), swap_name(0, "log")], "the log last: an index alone must not remain"
    assert contents(partition.path) == expected(())


def test_a_lone_index_swap_never_meets_the_old_log(partition: StagedPartition) -> None:
    """X-16: the loader would pair it with the old log, so it is rolled back, not completed."""
    put(partition, swaps("index"), ["index"])
    assert recovered(partition).rolled_back == (0,)
    assert contents(partition.path) == expected(())


@pytest.mark.parametrize(
    "name", [swap_name(20, "log"), cleaned_name(0, "index"), "anything.swap", f"{swap_name(0, 'log')}.cleaned"]
)
def test_files_of_others_are_reported_and_everything_is_left_alone(partition: StagedPartition, name: str) -> None:
    """S-21: not only by name: a .cleaned file with a base of the plan but other contents is the broker's own."""
    (partition.path / name).write_bytes(b"not ours")
    assert untouched(partition) == (name,)


def test_size_alone_does_not_identify_a_file(partition: StagedPartition) -> None:
    """S-21: same name, same size, other bytes: completing it would discard the sources."""
    (partition.path / swap_name(0, "log")).write_bytes(new_bytes(0, "log")[::-1])
    assert untouched(partition) == (swap_name(0, "log"),)


def test_one_foreign_file_stops_the_recovery(partition: StagedPartition) -> None:
    """S-21: the loader handles all of them together, so recovery leaves all of them to it."""
    stop_after(partition, 12)
    (partition.path / cleaned_name(20, "log")).write_bytes(b"")
    assert untouched(partition) == (cleaned_name(20, "log"),)


def test_a_plan_of_a_newer_cleanerd(partition: StagedPartition) -> None:
    """S-28: it is dropped, unless it may have put a file into the log: then all stays, and is reported."""
    path = partition.path / STAGING / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    put(partition, cleaned("log"), ["log"])
    before = contents(partition.path)
    with FailingFiles(partition.path) as files:
        reported = (STAGING, cleaned_name(0, "log"))
        assert recover(files) == RecoveryReport(foreign=reported, newer=(PLAN,))
        assert files.done == []
    assert contents(partition.path) == before
    (partition.path / cleaned_name(0, "log")).unlink()
    assert recovered(partition) == RecoveryReport(dropped_plans=(PLAN,), newer=(PLAN,))
    assert contents(partition.path) == expected(())


def test_a_damaged_manifest_is_ignored(partition: StagedPartition) -> None:
    """It is written by rename, never torn; its plan is dropped, and files it might have moved in are foreign."""
    (partition.path / STAGING / MANIFEST).write_bytes(b"{")
    put(partition, cleaned("log"), ["log"])
    assert untouched(partition) == (cleaned_name(0, "log"),)
    (partition.path / cleaned_name(0, "log")).unlink()
    assert recovered(partition).dropped_plans == (PLAN,)


def test_a_manifest_under_another_plans_name_is_ignored(partition: StagedPartition) -> None:
    """The journal and the staged files would be searched elsewhere."""
    os.rename(partition.path / STAGING, partition.path / ".kstage" / f"{PLAN[:-1]}e")
    swap = partition.path / swap_name(0, "index")
    swap.write_bytes(new_bytes(0, "index"))
    assert untouched(partition) == (swap.name,)
    swap.unlink()
    assert recovered(partition) == RecoveryReport(dropped_plans=(f"{PLAN[:-1]}e",))
    assert contents(partition.path) == expected(())


def test_unknown_things_are_swept_after_a_day(partition: StagedPartition) -> None:
    """Unknown files go after a day; symbolic links are removed, not followed."""
    unknown = partition.path / ".kstage" / "unknown"
    (unknown / "deep").mkdir(parents=True)
    (unknown / "deep" / "file").write_bytes(b"")
    os.symlink(partition.path, unknown / "link")
    now_ms = int(unknown.stat().st_mtime * 1000)
    with FailingFiles(partition.path) as files:
        assert recover(files, now_ms=now_ms + SWEEP_AGE_MS // 2).swept == ()
        assert unknown.exists()
        assert recover(files, now_ms=now_ms + SWEEP_AGE_MS + 1000).swept == (".kstage/unknown",)
    assert contents(partition.path) == expected(())


def test_the_next_claim_removes_staging_of_a_killed_spark_driver(partition: StagedPartition) -> None:
    """S-28: the next claim holder removes it; without the claim its driver may still run, and it stays.

    Found by kills of Spark: if the local engine came next, the whole staging stayed for a day.
    """
    work = partition.path / ".kstage" / "spark-20261122t000000-0123abcd"
    (work / "0011223344556677").mkdir(parents=True)
    (work / "0011223344556677" / f"{0:020d}.log").write_bytes(b"staged")
    with FailingFiles(partition.path) as files:
        recover(files)
        assert work.exists()
        files.claim()
        recover(files)
        assert not work.exists()
    assert contents(partition.path) == expected(())


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_staging_path_that_is_not_a_directory_is_foreign(partition: StagedPartition, kind: str) -> None:
    """Recovery never follows a link out of the partition."""
    staging = partition.path / ".kstage"
    shutil.move(staging, partition.path.parent / "elsewhere")
    if kind == "file":
        staging.write_bytes(b"")
    else:
        os.symlink(partition.path.parent / "elsewhere", staging)
    with FailingFiles(partition.path) as files:
        assert recover(files) == RecoveryReport(foreign=(".kstage",))
        assert files.done == []
    assert (partition.path.parent / "elsewhere" / PLAN / MANIFEST).exists()


def test_two_plans_of_which_one_began(partition: StagedPartition) -> None:
    """At most one plan is ready, but a crash while one replaces another leaves two."""
    other = f"{PLAN[:-1]}0"
    shutil.copytree(partition.path / STAGING, partition.path / ".kstage" / other)
    manifest = partition.path / ".kstage" / other / MANIFEST
    manifest.write_text(manifest.read_text().replace(PLAN, other))
    stop_after(partition, 14)
    assert recovered(partition) == RecoveryReport(completed=(0,), dropped_plans=(other, PLAN))
    assert contents(partition.path) == expected((0,))


def test_the_journal_is_read_for_its_own_plan_only(partition: StagedPartition) -> None:
    """A done line of another plan must not hide an unfinished group."""
    stop_after(partition, 14)
    with FailingFiles(partition.path) as files:
        done = Journal(files, f"{PLAN[:-1]}0")
        (partition.path / ".kstage" / f"{PLAN[:-1]}0").mkdir()
        done.done(partition.groups[0])
    text = (partition.path / ".kstage" / f"{PLAN[:-1]}0" / "journal").read_bytes()
    with (partition.path / STAGING / "journal").open("ab") as file:
        file.write(text)
    assert recovered(partition).completed == (0,)
    assert contents(partition.path) == expected((0,))
