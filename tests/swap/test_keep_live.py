"""S-40 beside a running broker: segments are kept before the agent replaces them, and ``undo`` later restores them."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.swap.backup import BackupPlace
from cleanerd.swap.kept_segments import KeptSegments
from cleanerd.swap.swapping_broker import SwappingBroker
from tests.cleaner.driver import NAME, scratch
from tests.support.failing_files import Injector, Killed
from tests.support.fake_agent import do_and_hang_up, hang_up, refuse
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    LOG_STARTS,
    Partition,
    read_checkpoint,
    write_checkpoint,
    write_segment,
)
from tests.swap.live_round import clean_beside, content, leftovers, running, undo_offline
from tests.swap.offline_round import batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from tests.support.fake_agent import FakeAgent


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        (path / "kept").mkdir()
        yield path / "logs"


@contextmanager
def beside(root: Path) -> Iterator[FakeAgent]:
    """Two groups of two segments, and a large unchanged segment between them."""
    logs = {
        0: batch(0, ("a", "1"), ("b", "1")),
        2: batch(2, ("c", "1"), ("d", "1")),
        4: batch(4, ("big", "x" * 3000)),
        5: batch(5, ("a", "2"), ("b", "2")),
        7: batch(7, ("a", "3")),
        8: b"",
    }
    with running(root, Partition(logs)) as agent:
        yield agent


def clean(agent: FakeAgent, **more: Any) -> CleaningResult:
    return clean_beside(agent, keep=BackupPlace(agent.log_dir.parent / "kept"), **more)


def entries(root: Path) -> tuple[Any, ...]:
    return KeptSegments(root.parent / "state").entries()


def kept_files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root.parent / "kept")) for path in (root.parent / "kept").rglob("*.log"))


def files(root: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and inode of every file of a segment."""
    found = sorted((root / NAME).glob("0*"))
    return {path.name: (path.read_bytes(), path.stat().st_ino) for path in found if path.suffix != ".snapshot"}


def test_live_swapped_segments_are_restored(root: Path) -> None:
    """The same files, checkpoints of cleanerd and Kafka; only once: a second undo finds no entry."""
    with beside(root) as agent:
        before = files(root)
        assert clean(agent).outcome == "cleaned"
        assert files(root) != before
        assert len(entries(root)[0].groups) == 2
    done = undo_offline(root)
    assert (done.outcome, done.segments_before, done.segments_after) == ("undone", 2, 4)
    assert files(root) == before
    assert all((root / NAME / name).stat().st_nlink == 1 for name in before)
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 0}
    assert not entries(root)
    assert list((root.parent / "kept").iterdir()) == []
    assert not leftovers(root)


def test_records_that_were_appended_since_stay(root: Path) -> None:
    """They are above all cleaned records."""
    with beside(root) as agent:
        before = files(root)
        clean(agent)
        active = max(path for path in (root / NAME).glob("*.log"))
        active.write_bytes(batch(8, ("late", "1")))
        write_segment(root / NAME, 9, b"")
    assert undo_offline(root).outcome == "undone"
    after = files(root)
    assert {name: after[name] for name in before if name != active.name} == {
        name: before[name] for name in before if name != active.name
    }
    assert (8, b"late", b"1") in content(root)


def test_two_cleanings_are_undone_in_reverse_order(root: Path) -> None:
    """The last one first."""
    with beside(root) as agent:
        before = content(root)
        clean(agent)
        between = content(root)
        active = max(path for path in (root / NAME).glob("*.log"))
        active.write_bytes(batch(8, ("b", "9"), ("c", "9")))
        write_segment(root / NAME, 10, b"")
        agent.facts = {"hw": 10, "lso": 10, "leo": 10, "recovery_point": 10}
        assert clean(agent).outcome == "cleaned"
        assert len(entries(root)) == 2
    assert undo_offline(root).outcome == "undone"
    assert content(root)[: len(between)] == between
    assert undo_offline(root).outcome == "undone"
    assert content(root)[: len(before)] == before


@pytest.mark.parametrize("code", ["source_changed", "busy", "bad_batch"])
def test_a_swap_that_was_refused_keeps_nothing(root: Path, code: str) -> None:
    """The second group is refused: its kept hard links are removed, and the first group can be restored."""
    with beside(root) as agent:
        before = files(root)
        agent.fail("swap", lambda _agent, _request: None, *[refuse(code)] * 100)
        assert clean(agent).outcome != "cleaned"
        (entry,) = entries(root)
        assert [group.base for group in entry.groups] == [0]
        assert [name.rpartition("/")[2][:20] for name in kept_files(root)] == [f"{b:020d}" for b in (0, 2)]
        assert (root / NAME / f"{5:020d}.log").stat().st_nlink == 1
    assert undo_offline(root).outcome == "undone"
    assert files(root) == before


def test_a_cleaning_without_a_swap_keeps_no_segments(root: Path) -> None:
    """No entry, directory or hard link is left."""
    with beside(root) as agent:
        agent.fail("swap", *[refuse("bad_batch")] * 100)
        assert clean(agent).outcome == "quarantined"
        assert not entries(root)
        assert list((root.parent / "kept").iterdir()) == []
        assert {path.stat().st_nlink for path in (root / NAME).glob("*.log")} == {1}


def test_a_lost_response(root: Path) -> None:
    """The log shows that the swap happened; its kept segments stay."""
    with beside(root) as agent:
        before = files(root)
        agent.fail("swap", do_and_hang_up)
        assert clean(agent).outcome == "cleaned"
    assert undo_offline(root).outcome == "undone"
    assert files(root) == before


def test_a_swap_of_unknown_outcome_keeps_its_entry(root: Path) -> None:
    """The broker is gone: its kept segments stay, whatever the result of the swap; undo reads the log."""
    with beside(root) as agent:
        before = files(root)

        def die(agent: FakeAgent, request: dict[str, Any]) -> bytes | None:
            agent.stop()
            return hang_up(agent, request)

        agent.fail("swap", die)
        assert clean(agent).outcome == "skipped"
        assert len(entries(root)) == 1
        assert kept_files(root)
    assert undo_offline(root).outcome == "unchanged"
    assert files(root) == before
    assert not entries(root)
    assert list((root.parent / "kept").iterdir()) == []


def test_a_source_replaced_before_it_was_kept(root: Path) -> None:
    """U-3: exactly the planned files are kept, or cleanerd plans again; no other file gets a link."""

    def replaced(_place: object) -> None:
        """The directory for kept segments was opened; next, the sources are linked."""
        if not inodes:
            log = root / NAME / f"{0:020d}.log"
            (root / "copy").write_bytes(log.read_bytes())
            (root / "copy").rename(log)
            inodes.append(log.stat().st_ino)

    inodes: list[int] = []
    with beside(root) as agent:
        place = BackupPlace(root.parent / "kept", require=replaced)
        assert clean_beside(agent, keep=place).outcome == "cleaned"
        assert len(agent.requested("swap")) == 2, "the first plan requested none"
        assert len(entries(root)) == 1
        (kept,) = (root.parent / "kept").rglob(f"{0:020d}.log")
        assert [kept.stat().st_ino] == inodes


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_regular_files_are_kept(root: Path, kind: str) -> None:
    """U-33: neither root nor another user restores an index that the partition's owner planted."""
    with beside(root) as agent:
        planted = root / NAME / f"{0:020d}.txnindex"

        def plant(_place: object) -> None:
            """The directory for kept segments was opened; next, the sources are linked."""
            planted.unlink(missing_ok=True)
            if kind == "link":
                planted.symlink_to("/etc/passwd")
            else:
                os.mkfifo(planted)

        result = clean_beside(agent, keep=BackupPlace(root.parent / "kept", require=plant))
        assert "is not a plain file" in result.reason
        assert not agent.requested("swap")
        assert list((root.parent / "kept").iterdir()) == []


def cleaned_by_another(root: Path) -> None:
    """A segment as Kafka's cleaner leaves it if it removes no record: the same bytes in another file."""
    log = root / NAME / f"{5:020d}.log"
    status = log.stat()
    (root / "copy").write_bytes(log.read_bytes())
    os.utime(root / "copy", ns=(status.st_atime_ns, status.st_mtime_ns))
    (root / "copy").rename(log)


def retention(root: Path) -> None:
    """The broker deletes the first segment."""
    (root / NAME / f"{0:020d}.log").unlink()
    write_checkpoint(root / LOG_STARTS, {NAME: 5})


@pytest.mark.parametrize(
    ("change", "reported"),
    [(cleaned_by_another, "segment 5 was changed after the cleaning"), (retention, "log begins at offset 5 now")],
)
def test_an_entry_that_cannot_be_undone_is_refused(root: Path, change: Any, reported: str) -> None:
    """Refused with a clear message; no file is changed, and no kept segment is lost."""
    with beside(root) as agent:
        clean(agent)
        change(root)
    before, kept = files(root), kept_files(root)
    done = undo_offline(root)
    assert done.outcome == "refused"
    assert reported in done.reason
    assert (files(root), kept_files(root)) == (before, kept)


def test_records_below_a_moved_log_start_come_back_hidden(root: Path) -> None:
    """DeleteRecords inside a segment: the log start stays, so no client sees the restored records below it."""
    with beside(root) as agent:
        before = files(root)
        clean(agent)
        write_checkpoint(root / LOG_STARTS, {NAME: 1})
    assert undo_offline(root).outcome == "undone"
    assert files(root) == before
    assert read_checkpoint(root / LOG_STARTS) == {NAME: 1}


@pytest.mark.long
@pytest.mark.parametrize("kills", [False, True])
def test_every_step_of_a_cleaning_that_keeps(injector: Injector, kills: bool) -> None:
    """Failed or killed at each file change: swapped segments can always be restored; others are untouched."""
    for step in range(200):
        with scratch() as base:
            (base / "kept").mkdir()
            root = base / "logs"
            with beside(root) as agent:
                before = files(root)
                injector.arm(step, kills=kills)
                with suppress(Killed):
                    clean(agent)
                injector.disarm()
            happened = injector.happened
            for _ in entries(root):  # a cleaning that planned again has one per plan
                assert undo_offline(root).outcome in {"undone", "unchanged"}, step
            assert not entries(root)
            assert files(root) == before, step
            if not happened:
                assert step > 20, "every step was tried"
                return
    pytest.fail("the cleaning never ended")


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_around_a_swap(root: Path, number: int, when: str) -> None:
    """The request was not sent, or its response was never read."""
    turns = iter(range(100))

    class Killing(SwappingBroker):
        def swap(self, request: dict[str, Any], staged_bytes: int) -> Any:
            killed = next(turns) == number
            if killed and when == "before":
                raise Killed
            done = super().swap(request, staged_bytes)
            if killed:
                raise Killed
            return done

    with beside(root) as agent:
        before = files(root)
        with pytest.raises(Killed):
            clean(agent, broker_type=Killing)
    assert undo_offline(root).outcome == ("unchanged" if (number, when) == (0, "before") else "undone")
    assert files(root) == before


def test_a_full_disk_for_the_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No segment is swapped before its entry is on the disk; the hard links are removed."""

    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    with beside(root) as agent:
        before = files(root)
        with monkeypatch.context() as patch:
            # only the state directory's disk is full, from now on
            patch.setattr("cleanerd.swap.kept_segments.write_state_file", full)
            result = clean(agent)
        assert result.outcome == "failed"
        assert "No space left" in result.reason
        assert not agent.requested("swap")
        assert files(root) == before
        assert list((root.parent / "kept").iterdir()) == []
        assert clean(agent).outcome == "cleaned"
    assert undo_offline(root).outcome == "undone"
    assert files(root) == before


def test_each_group_is_written_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """13,000 segments make some hundred groups: writing the whole entry for each would be quadratic."""
    calls: list[str] = []
    for name in ("save", "add"):
        real = getattr(KeptSegments, name)
        # the number of writes is not visible in any output
        monkeypatch.setattr(
            KeptSegments, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))[1]
        )
    with beside(root) as agent:
        clean(agent)
    assert calls == ["save", "add"]


def test_a_truncated_last_line(root: Path) -> None:
    """A kill or full disk while a group was added: its swap never began, and the entry shows the groups that did."""
    with beside(root) as agent:
        before = files(root)
        agent.fail("swap", lambda _agent, _request: None, *[refuse("bad_batch")] * 9)
        clean(agent)
    (path,) = (root.parent / "state" / "trash").iterdir()
    path.write_bytes(path.read_bytes() + path.read_bytes().splitlines()[-1][:-20])
    assert len(entries(root)[0].groups) == 1
    assert undo_offline(root).outcome == "undone"
    assert files(root) == before


def test_missing_space_is_reported(root: Path) -> None:
    """The limit is smaller than the cleaning: it is done, and its result says that it cannot be undone."""
    requests: list[int] = []

    def none(size_bytes: int) -> str:
        requests.append(size_bytes)
        return "the test's reason"

    with beside(root) as agent:
        bytes_before = sum((root / NAME / f"{b:020d}.log").stat().st_size for b in (0, 2, 5, 7))
        result = clean_beside(agent, keep=BackupPlace(root.parent / "kept", none))
    assert result.outcome == "cleaned"
    assert result.notes == ("the replaced segments are not kept, so the cleaning cannot be undone: the test's reason",)
    assert requests == [bytes_before]
    assert not entries(root)
