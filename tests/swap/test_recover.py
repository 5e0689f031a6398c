"""Recovery: what is ours is settled, what is not is left alone and reported (S-21, S-28, X-19)."""

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
from tests.swap.staged_partition import PLAN, Scene, contents, expected, new_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cleanerd.cleaner.manifest import FileKind

STAGING = staging_path(PLAN)


def recovered(scene: Scene) -> RecoveryReport:
    with FailingFiles(scene.path) as files:
        return recover(files)


def untouched(scene: Scene) -> tuple[str, ...]:
    """Recover, and see that nothing at all changed; what is called foreign."""
    before = contents(scene.path)
    with FailingFiles(scene.path) as files:
        report = recover(files)
        assert files.done == []
    assert contents(scene.path) == before
    assert report == RecoveryReport(foreign=report.foreign)
    return report.foreign


def put(scene: Scene, names: Iterable[str], kinds: Iterable[FileKind]) -> None:
    """Move staged files of group 0 into the partition directory."""
    for name, kind in zip(names, kinds, strict=True):
        (scene.path / staged_name(PLAN, 0, kind)).rename(scene.path / name)


def cleaned(*kinds: FileKind) -> list[str]:
    return [cleaned_name(0, kind) for kind in kinds]


def swaps(*kinds: FileKind) -> list[str]:
    return [swap_name(0, kind) for kind in kinds]


def stop_after(scene: Scene, operations: int) -> None:
    """Swap until so many operations are done."""
    with FailingFiles(scene.path, operations, 5) as files, pytest.raises(CleanerdError):
        scene.swap(files)


def test_nothing_to_do_does_nothing(scene: Scene) -> None:
    """A partition without leftovers is not touched and costs no flush."""
    shutil.rmtree(scene.path / ".kstage")
    assert untouched(scene) == ()


def test_a_plan_that_was_never_begun_is_dropped(scene: Scene) -> None:
    """X-01, X-02: staged work is always re-creatable."""
    assert recovered(scene) == RecoveryReport(dropped_plans=(PLAN,))
    assert contents(scene.path) == expected(())


def test_a_plan_without_a_manifest_is_dropped(scene: Scene) -> None:
    """X-01: the manifest's existence is the only mark of readiness."""
    (scene.path / STAGING / MANIFEST).unlink()
    assert recovered(scene).dropped_plans == (PLAN,)
    assert contents(scene.path) == expected(())


def test_rolled_back_before_the_commit_point(scene: Scene) -> None:
    """X-06: one .cleaned left means old."""
    stop_after(scene, 12)
    names = contents(scene.path)
    assert len([name for name in names if name.endswith(".swap")]) == 3
    assert recovered(scene) == RecoveryReport(rolled_back=(0,), dropped_plans=(PLAN,))
    assert contents(scene.path) == expected(())


def test_a_roll_back_never_leaves_a_lone_index_behind(scene: Scene) -> None:
    """X-16: .swap files of indexes first, then that of the log, the .cleaned ones last, a flush after each."""
    stop_after(scene, 12)
    with FailingFiles(scene.path) as files:
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
def test_completed_after_the_commit_point(scene: Scene, operations: int) -> None:
    """X-07 .. X-11."""
    stop_after(scene, operations)
    assert recovered(scene) == RecoveryReport(completed=(0,), dropped_plans=(PLAN,))
    assert contents(scene.path) == expected((0,))


def test_a_group_that_is_done_is_not_read(scene: Scene) -> None:
    """X-12: between two groups. The .deleted file that appears there now is the broker's."""
    stop_after(scene, 40)
    foreign = scene.path / f"{final_name(10, 'log')}.deleted"
    foreign.write_bytes(b"")
    assert recovered(scene) == RecoveryReport(dropped_plans=(PLAN,))
    assert contents(scene.path) == {**expected((0,)), foreign.name: b""}


def test_the_broker_may_have_started_in_between(scene: Scene) -> None:
    """The broker's loader rolled back; the journal's begin alone is no reason to touch .deleted files of that range."""
    stop_after(scene, 10)
    for name in (*cleaned("index", "timeindex", "txnindex"), *swaps("log")):
        (scene.path / name).unlink()
    deleted = scene.path / f"{final_name(10, 'log')}.deleted"
    deleted.write_bytes(b"the broker's")
    assert recovered(scene) == RecoveryReport(dropped_plans=(PLAN,))
    assert contents(scene.path) == {**expected(()), deleted.name: b"the broker's"}


def test_a_loader_that_was_cut_short_had_named_an_index_already(scene: Scene) -> None:
    """X-19: .log.swap, sources gone, one output index already final: it must not be taken for a source's."""
    put(scene, swaps("log", "index", "timeindex"), ("log", "index", "timeindex"))
    for base in (0, 10):
        for path in scene.path.glob(f"{base:020d}.*"):
            if not path.name.endswith((".swap", ".snapshot")):
                path.unlink()
    put(scene, [final_name(0, "txnindex")], ["txnindex"])
    assert recovered(scene).completed == (0,)
    assert contents(scene.path) == expected((0,))


def test_an_output_index_that_is_lost_forces_a_rebuild(scene: Scene) -> None:
    """X-19 twice: without its .txnindex the segment would show aborted records, so its .index goes as well."""
    put(scene, swaps("log", "index", "timeindex"), ("log", "index", "timeindex"))
    for base in (0, 10):
        for path in scene.path.glob(f"{base:020d}.*"):
            if not path.name.endswith((".swap", ".snapshot")):
                path.unlink()
    assert recovered(scene).completed == (0,)
    lost = {final_name(0, "index"), final_name(0, "txnindex")}
    assert contents(scene.path) == {name: data for name, data in expected((0,)).items() if name not in lost}


def test_an_incomplete_set_of_swaps_with_all_sources_is_undone(scene: Scene) -> None:
    """A loader that was undoing lost power: .cleaned removals are on the disk, .swap ones are not."""
    put(scene, swaps("log", "timeindex"), ("log", "timeindex"))
    with FailingFiles(scene.path) as files:
        assert recover(files).rolled_back == (0,)
        first = [operation.name for operation in files.done if operation.kind == "unlink"][:2]
    assert first == [swap_name(0, "timeindex"), swap_name(0, "log")], "the log last: an index alone must not remain"
    assert contents(scene.path) == expected(())


def test_a_lone_index_swap_of_ours_never_meets_the_old_log(scene: Scene) -> None:
    """X-16: the loader would pair it with the old log, so it is undone, not completed."""
    put(scene, swaps("index"), ["index"])
    assert recovered(scene).rolled_back == (0,)
    assert contents(scene.path) == expected(())


@pytest.mark.parametrize(
    "name", [swap_name(20, "log"), cleaned_name(0, "index"), "anything.swap", f"{swap_name(0, 'log')}.cleaned"]
)
def test_files_of_others_are_reported_and_everything_is_left_alone(scene: Scene, name: str) -> None:
    """S-21: not by name only: a .cleaned file with a base of ours, but other contents, is the broker's own."""
    (scene.path / name).write_bytes(b"not ours")
    assert untouched(scene) == (name,)


def test_size_alone_does_not_make_a_file_ours(scene: Scene) -> None:
    """S-21: same name, same size, other bytes: completing it would throw the sources away for it."""
    (scene.path / swap_name(0, "log")).write_bytes(new_bytes(0, "log")[::-1])
    assert untouched(scene) == (swap_name(0, "log"),)


def test_one_foreign_file_stops_the_settling_of_our_own(scene: Scene) -> None:
    """S-21: the loader treats all of them together, so only the loader may."""
    stop_after(scene, 12)
    (scene.path / cleaned_name(20, "log")).write_bytes(b"")
    assert untouched(scene) == (cleaned_name(20, "log"),)


def test_a_plan_of_a_newer_cleanerd(scene: Scene) -> None:
    """S-28: it is dropped, unless something in the log may be its doing: then all is left alone, and so told."""
    path = scene.path / STAGING / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))
    put(scene, cleaned("log"), ["log"])
    before = contents(scene.path)
    with FailingFiles(scene.path) as files:
        reported = (STAGING, cleaned_name(0, "log"))
        assert recover(files) == RecoveryReport(foreign=reported, newer=(PLAN,))
        assert files.done == []
    assert contents(scene.path) == before
    (scene.path / cleaned_name(0, "log")).unlink()
    assert recovered(scene) == RecoveryReport(dropped_plans=(PLAN,), newer=(PLAN,))
    assert contents(scene.path) == expected(())


def test_a_manifest_that_is_damaged_is_none(scene: Scene) -> None:
    """Written with rename, it is never torn by us; its plan is dropped, and what it might have put in is foreign."""
    (scene.path / STAGING / MANIFEST).write_bytes(b"{")
    put(scene, cleaned("log"), ["log"])
    assert untouched(scene) == (cleaned_name(0, "log"),)
    (scene.path / cleaned_name(0, "log")).unlink()
    assert recovered(scene).dropped_plans == (PLAN,)


def test_a_manifest_under_another_plans_name_is_none(scene: Scene) -> None:
    """The journal and the staged files would be looked for elsewhere."""
    os.rename(scene.path / STAGING, scene.path / ".kstage" / f"{PLAN[:-1]}e")
    swap = scene.path / swap_name(0, "index")
    swap.write_bytes(new_bytes(0, "index"))
    assert untouched(scene) == (swap.name,)
    swap.unlink()
    assert recovered(scene) == RecoveryReport(dropped_plans=(f"{PLAN[:-1]}e",))
    assert contents(scene.path) == expected(())


def test_unknown_things_are_swept_after_a_day(scene: Scene) -> None:
    """What nobody knows goes after a day; symbolic links are removed, not followed."""
    unknown = scene.path / ".kstage" / "unknown"
    (unknown / "deep").mkdir(parents=True)
    (unknown / "deep" / "file").write_bytes(b"")
    os.symlink(scene.path, unknown / "link")
    now_ms = int(unknown.stat().st_mtime * 1000)
    with FailingFiles(scene.path) as files:
        assert recover(files, now_ms=now_ms + SWEEP_AGE_MS // 2).swept == ()
        assert unknown.exists()
        assert recover(files, now_ms=now_ms + SWEEP_AGE_MS + 1000).swept == (".kstage/unknown",)
    assert contents(scene.path) == expected(())


def test_staging_of_a_killed_spark_driver_goes_with_the_next_claim(scene: Scene) -> None:
    """S-28: it goes with whoever has the claim next; without the claim its driver may be at work, and it stays.

    Found by kills of Spark: where the local engine came next, as much as the whole staging lay there for a day.
    """
    work = scene.path / ".kstage" / "spark-20261122t000000-0123abcd"
    (work / "0011223344556677").mkdir(parents=True)
    (work / "0011223344556677" / f"{0:020d}.log").write_bytes(b"staged")
    with FailingFiles(scene.path) as files:
        recover(files)
        assert work.exists()
        files.claim()
        recover(files)
        assert not work.exists()
    assert contents(scene.path) == expected(())


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_staging_directory_that_is_none_is_foreign(scene: Scene, kind: str) -> None:
    """Nothing is ever done through a link out of the partition."""
    staging = scene.path / ".kstage"
    shutil.move(staging, scene.path.parent / "elsewhere")
    if kind == "file":
        staging.write_bytes(b"")
    else:
        os.symlink(scene.path.parent / "elsewhere", staging)
    with FailingFiles(scene.path) as files:
        assert recover(files) == RecoveryReport(foreign=(".kstage",))
        assert files.done == []
    assert (scene.path.parent / "elsewhere" / PLAN / MANIFEST).exists()


def test_two_plans_one_of_them_begun(scene: Scene) -> None:
    """At most one plan is ready, but a crash while one replaces another leaves two."""
    other = f"{PLAN[:-1]}0"
    shutil.copytree(scene.path / STAGING, scene.path / ".kstage" / other)
    manifest = scene.path / ".kstage" / other / MANIFEST
    manifest.write_text(manifest.read_text().replace(PLAN, other))
    stop_after(scene, 14)
    assert recovered(scene) == RecoveryReport(completed=(0,), dropped_plans=(other, PLAN))
    assert contents(scene.path) == expected((0,))


def test_the_journal_is_read_for_its_own_plan_only(scene: Scene) -> None:
    """A done line of another plan must not hide an unfinished group."""
    stop_after(scene, 14)
    with FailingFiles(scene.path) as files:
        done = Journal(files, f"{PLAN[:-1]}0")
        (scene.path / ".kstage" / f"{PLAN[:-1]}0").mkdir()
        done.done(scene.groups[0])
    text = (scene.path / ".kstage" / f"{PLAN[:-1]}0" / "journal").read_bytes()
    with (scene.path / STAGING / "journal").open("ab") as file:
        file.write(text)
    assert recovered(scene).completed == (0,)
    assert contents(scene.path) == expected((0,))
