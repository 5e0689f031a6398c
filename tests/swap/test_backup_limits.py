"""Age and size limits of replaced segments (S-40): the oldest are removed first, and no other files."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.manifest import FileFact
from cleanerd.errors import CleanerdError
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.swap import backup_limits, kept_place
from cleanerd.swap.backup_limits import ClockReadings, KeepLimits, prune_kept
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.kept_segments import FileIdentity, KeptGroup, KeptSegment, KeptSegments
from tests.cleaner.driver import scratch
from tests.cli.clean_log_dirs import DIRTY, dirty, good, keys
from tests.support.log_dirs import make_log_dir
from tests.swap.offline_round import clean_and_keep, undo_last

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.manifest import FileKind
    from cleanerd.swap.backup_limits import BackupSweep
    from cleanerd.swap.kept_segments import KeptEntry, KeptSize

NOW = 10_000_000
EVERYTHING = 1 << 62


@pytest.fixture
def root() -> Iterator[Path]:
    """One cleaning whose replaced segments were kept."""
    with scratch() as path:
        (path / "kept").mkdir()
        make_log_dir(path / "logs", {"orders-0": dirty(), "other-0": good()})
        assert clean_and_keep(path).outcome == "cleaned"
        aged(path, 0)
        yield path


def kept_segments(root: Path) -> KeptSegments:
    return KeptSegments(root / "state")


def aged(root: Path, cleaned_ms: int) -> KeptEntry:
    (entry,) = kept_segments(root).entries()
    entry = replace(entry, cleaned_ms=cleaned_ms)
    kept_segments(root).save(entry, root.stat())
    return entry


def more(root: Path, number: int, cleaned_ms: int) -> KeptEntry:
    """Another such entry; its segments are hard links of the same files."""
    first = kept_segments(root).entries()[0]
    plan = f"20260101t000000-{number:08x}"
    old, new = root / "kept" / first.plan, root / "kept" / plan
    (new / "orders-0").mkdir(parents=True)
    for file in (old / "orders-0").iterdir():
        (new / "orders-0" / file.name).hardlink_to(file)
    for note in old.glob(".cleanerd-keeps-*"):
        (new / note.name).touch()
    entry = replace(first, plan=plan, kept=str(new / "orders-0"), cleaned_ms=cleaned_ms)
    kept_segments(root).save(entry, root.stat())
    return entry


def sweep(
    root: Path, retention_ms: int, retention_bytes: int = EVERYTHING, steady_ms: int = 0, **more: Any
) -> BackupSweep:
    limits, now = KeepLimits(retention_ms, retention_bytes), ClockReadings(NOW, steady_ms)
    return prune_kept(kept_segments(root), read_log_dir(root / "logs"), root / "kept", limits, now, **more)


def plans(root: Path) -> list[str]:
    return [entry.plan for entry in kept_segments(root).entries()]


def test_entries_beyond_the_age_limit_are_removed(root: Path) -> None:
    """Older than the limit, and younger."""
    assert sweep(root, NOW).forgotten == 0
    assert keys(root / "logs" / "orders-0") != DIRTY
    kept = sweep(root, NOW - 1)
    assert (kept.forgotten, kept.size_bytes, kept.problems) == (1, 0, ())
    assert plans(root) == []
    assert list((root / "kept").iterdir()) == []


def test_a_clock_that_went_back(root: Path) -> None:
    """Segments kept in the future are not old."""
    aged(root, NOW + 1_000_000)
    assert sweep(root, 0).forgotten == 0
    assert undo_last(root).outcome == "undone"


def test_a_clock_that_went_back_for_good(root: Path) -> None:
    """U-42: an entry dated in the future is too old once the daemon has known it for the age limit."""
    aged(root, NOW + 1_000_000_000)
    known: dict[str, KeptSize] = {}
    assert [sweep(root, 100, steady_ms=at, known=known).forgotten for at in (5, 105, 106)] == [0, 0, 1]


def test_the_oldest_entries_beyond_the_size_limit_are_removed(root: Path) -> None:
    """The oldest first, with all entries below a removed one: they could never be restored."""
    size = aged(root, 1).kept_bytes
    middle, last = more(root, 2, 2), more(root, 3, 3)
    assert sweep(root, NOW, 3 * size).forgotten == 0
    kept = sweep(root, NOW, 3 * size, room_bytes=1)
    assert (kept.forgotten, kept.size_bytes) == (1, 2 * size)
    assert plans(root) == [middle.plan, last.plan]
    assert sweep(root, NOW, 2 * size - 1).forgotten == 1
    assert plans(root) == [last.plan]
    assert sweep(root, NOW, 0).forgotten == 1
    assert list((root / "kept").iterdir()) == []


def test_an_entry_in_use_is_not_removed(root: Path) -> None:
    """An undo that links from it, or a cleaning that adds to it; the next sweep removes it."""
    with PartitionFiles(root / "logs" / "orders-0") as files:
        files.claim()
        assert sweep(root, 0).forgotten == 0
        assert len(plans(root)) == 1
    assert sweep(root, 0).forgotten == 1


def test_entries_outside_the_daemons_directory_are_not_removed(root: Path) -> None:
    """Entries in another directory or of another log directory; U-33: whatever path an entry names."""
    first = aged(root, 0)
    (root / "mine").mkdir()
    assert prune_kept(
        kept_segments(root), read_log_dir(root / "logs"), root / "mine", KeepLimits(0, 0), ClockReadings(NOW, 0)
    ).forgotten == 0  # fmt: skip
    kept_segments(root).save(replace(first, kept=str(root / "mine" / first.plan / "orders-0")), root.stat())
    assert sweep(root, 0).forgotten == 0
    assert list((root / "kept").rglob("*.log"))


@pytest.mark.parametrize("topic", ["../../precious", "..", "orders-0/../../precious"])
def test_names_cannot_leave_the_directory(root: Path, topic: str) -> None:
    """U-33: an entry with hostile names."""
    precious = root / "precious-0"
    precious.mkdir()
    (precious / f"{0:020d}.log").write_text("mine")
    (path,) = (root / "state" / "trash").iterdir()
    head, *groups = path.read_text().splitlines()
    document = json.loads(head)
    document["entry"] |= {"topic": topic, "kept": str(root / "kept" / path.stem / f"{topic}-0")}
    path.write_text("\n".join([json.dumps(document), *groups, ""]))
    sweep(root, 0)
    assert (precious / f"{0:020d}.log").read_text() == "mine"


@pytest.mark.long
@pytest.mark.parametrize("step", range(8))
def test_a_kill_while_an_entry_is_removed(root: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The files go first, then the entry: the next sweep removes the rest, and undo reports that it is impossible."""
    real, turns = PartitionFiles._system_call, iter(range(100))

    def call(files: PartitionFiles, operation: Any) -> None:
        if next(turns) == step:
            raise CleanerdError("killed")
        real(files, operation)

    with monkeypatch.context() as patch:
        # kill it at each system call in turn
        patch.setattr(PartitionFiles, "_system_call", call)
        assert sweep(root, 0).problems == (("killed",) if plans(root) else ())
    if plans(root):
        before = keys(root / "logs" / "orders-0")
        assert undo_last(root).outcome in {"refused", "undone"}
        assert keys(root / "logs" / "orders-0") in (before, DIRTY)
    assert sweep(root, 0).problems == ()
    assert plans(root) == []
    assert not list((root / "kept").rglob("*.log"))


def test_an_entry_that_cannot_be_removed_does_not_stop_others(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more(root, 2, 2)
    real = kept_place.delete_kept
    stuck = plans(root)[0]

    def forget(place: Any, entry: KeptEntry, log_dir: Path) -> None:
        if entry.plan == stuck:
            raise CleanerdError("the test's error")
        real(place, entry, log_dir)

    # root can remove every real file
    monkeypatch.setattr(backup_limits, "delete_kept", forget)
    kept = sweep(root, 0)
    assert (kept.forgotten, kept.problems) == (1, ("the test's error",))
    assert plans(root) == [stuck]


def test_concurrent_checks_whether_the_directory_is_writable(tmp_path: Path) -> None:
    """S-40: each of the daemon's workers checks before its cleaning; they do not interfere, and leave no files."""
    (tmp_path / "state").mkdir()
    problems: list[str] = []

    def ask() -> None:
        for _ in range(50):
            try:
                KeptSegments(tmp_path / "state").require_writable(tmp_path.stat())
            except CleanerdError as error:
                problems.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert list((tmp_path / "state" / "trash").iterdir()) == []


def test_an_entry_is_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-40: the daemon checks every minute, and before each cleaning once the limit is reached."""
    for number in range(3):
        more(root, number, 1000 + number)
    read: list[str] = []
    real = KeptSegments.entry

    def counted(segments: KeptSegments, plan: str) -> KeptEntry | None:
        read.append(plan)
        return real(segments, plan)

    # the number of reads is not visible in any output
    monkeypatch.setattr(KeptSegments, "entry", counted)
    known: dict[str, KeptSize] = {}
    first = sweep(root, 1 << 40, known=known)
    assert (len(read), first.forgotten) == (4, 0)
    read.clear()
    assert sweep(root, 1 << 40, known=known) == first
    assert read == []
    size_bytes = first.size_bytes // 4
    entry = kept_segments(root).entries()[2]
    kept_segments(root).save(replace(entry, cleaned_ms=7), root.stat())
    more(root, 9, 9)
    read.clear()
    assert sweep(root, 1 << 40, 3 * size_bytes, known=known).forgotten == 2
    assert sorted(read) == sorted([entry.plan, "20260101t000000-00000009"]), "only changed and new entries are read"
    assert len(known) == 5
    sweep(root, 1 << 40, known=known)
    assert set(known) == set(plans(root)), "removed entries are forgotten"


def test_an_entry_of_a_newer_release_is_left_alone(root: Path) -> None:
    """It stays and is ignored, and the limits apply to all other entries: the daemon was downgraded."""
    newer = root / "state" / "trash" / "20270101t000000-0123abcd.json"
    newer.write_text('{"format": 2}\n')
    found = kept_segments(root)
    limits = KeepLimits(NOW - 1, EVERYTHING)
    assert prune_kept(found, read_log_dir(root / "logs"), root / "kept", limits, ClockReadings(NOW, 0)).forgotten == 1
    assert [str(error) for error in found.newer.values()] == [
        (
            f"{newer}: written by a newer cleanerd (format 2, this one knows 1) "
            "(a newer cleanerd kept segments: undo that with the newer one)"
        )
    ]
    assert newer.exists()


@pytest.mark.long
def test_as_many_segments_as_a_plan_can_name(root: Path) -> None:
    """S-40: with the longest numbers; an entry that cannot be read could be neither undone nor removed."""
    segments = 97_000  # within MAX_MANIFEST_BYTES
    identity = FileIdentity(2**32 - 1, 2**64 - 1, 2**63 - 1)
    files: dict[FileKind, FileIdentity] = dict.fromkeys(("log", "index", "timeindex", "txnindex"), identity)
    first = 2**62
    many = tuple(KeptSegment(first + number, files) for number in range(segments))
    groups = tuple(
        KeptGroup(part[0].base, part[-1].base + 1, part, {"log": FileFact(bytes=1, crc32c=1)}, identity)
        for part in (many[at : at + 200] for at in range(0, segments, 200))
    )
    entry = replace(aged(root, 0), groups=groups, sources={each.base: identity for each in many})
    kept_segments(root).save(entry, root.stat())
    found = kept_segments(root).entry(entry.plan)
    assert found is not None
    assert (len(found.sources), len(found.groups)) == (segments, len(groups))
