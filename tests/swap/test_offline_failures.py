"""All failures of an offline cleaning: the log is old or new, and the reason is reported."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker import lease
from cleanerd.broker.lease import LeaseResult
from cleanerd.cleaner import cleaner
from cleanerd.cleaner.manifest import Manifest
from cleanerd.errors import CorruptionError, LogDirBusyError, RefusedError, StalePlanError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import NAME, AfterDecision, Silent, clean, clean_all, config, resources, scratch
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    Partition,
    batches_of,
    make_log_dir,
    read_checkpoint,
    read_segments,
    tree,
)
from tests.swap.offline_round import NOW, TOPIC, force, state_file, two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.segments.pool import PartReader
    from cleanerd.segments.segment import Segment
    from tests.support.failing_files import Injector


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def logical(root: Path) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    """All records by segment base, whatever other files are there."""
    return {
        base: [(record.offset, record.key, record.value) for found in batches for record in found.records]
        for base, batches in read_segments(root / NAME).items()
    }


@pytest.mark.slow
def test_every_refused_step(root: Path, injector: Injector) -> None:
    """OP-10, S-30..S-39: at every refused step each group is old or new, and the next run finishes."""
    old = logical(make_log_dir(root, {NAME: two_groups()}))
    clean_all(root, NOW, TOPIC)
    new = logical(root)
    assert old != new
    states = set()
    for step in range(200):
        with scratch() as other:
            path = make_log_dir(other / "logs", {NAME: two_groups()})
            injector.arm(step, kills=False)
            result = clean(path, force(), TOPIC)
            injector.disarm()
            if not injector.happened:
                break
            assert "Input/output error" in result.reason
            found = logical(path)
            assert all(found.get(base) in (old.get(base), new.get(base)) for base in old), f"step {step}"
            states.add(tuple(found.get(base) == new.get(base) for base in (0, 5)))
            assert not read_checkpoint(path / CLEANER_CHECKPOINT) or found == new, "S-50: the checkpoint comes last"
            again = clean(path, force(), TOPIC)
            assert again.error is None, (step, again.reason)
            assert logical(path) == new
            assert not (path / NAME / ".kstage").exists()
    else:
        pytest.fail("never through")
    assert states >= {(False, False), (True, False)}


@pytest.mark.long
@pytest.mark.parametrize("name", ["mkdir", "open", "write", "fsync", "fchmod", "utime", "fstatvfs", "statvfs"])
def test_no_space(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """OP-10: a full or failing disk, at every call: one reason, each group old or new, no obstacle for the next run."""
    real = getattr(os, name)
    calls = limit = 0

    def failing(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == limit:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    old: dict[int, object] = {}
    reserve = resources(disk_reserve_bytes=None if name == "statvfs" else 0)  # type: ignore[arg-type]
    for limit in range(1, 400):
        with scratch() as other:
            path = make_log_dir(other / "logs", {NAME: two_groups()})
            old = logical(path)
            new = {**old, 0: [record for record in old[0] if record[1] == b"c"], 5: old[5][1:]}
            calls = 0
            with LogDirLock.acquire(path, settle_seconds=0) as lock, monkeypatch.context() as patch:
                locked = LockedDir(read_log_dir(path), lock, StateStore(other / "state"), reserve)
                # each system call fails in turn
                patch.setattr(os, name, failing)
                result = clean_partition(locked, TopicPartition("orders", 0), TOPIC, force(), Silent())
            if calls < limit:
                assert logical(path) == new
                return
            found = logical(path)
            assert all(found.get(base) in (old[base], new[base]) for base in old), f"{name} {limit}"
            if result.error is not None:
                assert "No space left" in result.reason
            assert clean(path, force(), TOPIC).error is None
            assert logical(path) == new
            assert not (path / NAME / ".kstage").exists()
    pytest.fail("never through")


def test_a_plan_that_would_go_below_the_disk_reserve_is_not_begun(root: Path) -> None:
    """U-16, S-25: a cleaning that needs the disk reserve does not begin."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    result = clean(root, force(), TOPIC, resources(disk_reserve_bytes=2**60))
    assert result.error is not None
    assert "not enough free space" in result.reason
    assert tree(root) == before


def test_lock_lost(root: Path) -> None:
    """S-33: the lock is checked before the commit; without it no file is touched any more."""
    make_log_dir(root, {NAME: two_groups()})
    old = logical(root)

    class LostLock(LogDirLock):
        def check(self) -> None:
            raise LogDirBusyError("was removed", where="x")

    result = clean(root, force(), TOPIC, lock_type=LostLock)
    assert isinstance(result.error, LogDirBusyError)
    assert logical(root) == old
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {}
    assert clean(root, force(), TOPIC).outcome == "cleaned"


@pytest.mark.parametrize(
    ("answer", "required", "refused"),
    [
        (LeaseResult.FREE, True, False),
        (LeaseResult.OPENED, False, True),
        (LeaseResult.UNAVAILABLE, False, False),
        (LeaseResult.UNAVAILABLE, True, True),
    ],
)
def test_an_open_active_segment_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: LeaseResult, required: bool, refused: bool
) -> None:
    """S-14: a process has the active segment open, or the check fails."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    # the kernel's error depends on the file system and the user
    monkeypatch.setattr(lease, "probe_lease", lambda *_arguments, **_options: answer)
    requested = resources()
    object.__setattr__(requested, "lease_required", required)
    result = clean(root, force(), TOPIC, requested)
    assert isinstance(result.error, LogDirBusyError) == refused
    if refused:
        assert tree(root) == before


def test_segment_open_for_writing(root: Path) -> None:
    """S-14 with a real process: an open active segment excludes cleanerd, with or without a lock."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    with (root / NAME / f"{8:020d}.log").open("r+b"):
        result = clean(root, force(), TOPIC)
    assert isinstance(result.error, LogDirBusyError)
    assert f"{8:020d}.log" in result.reason
    assert tree(root) == before


def test_log_changed_under_the_plan(root: Path) -> None:
    """S-29, U-3: a source that changed between decision and swap voids the plan; no part of it is applied."""
    make_log_dir(root, {NAME: two_groups()})

    def changes() -> None:
        os.utime(root / NAME / f"{4:020d}.log", (1, 1))

    result = clean(root, force(), TOPIC, progress=AfterDecision(changes))
    assert isinstance(result.error, StalePlanError)
    assert len(logical(root)[0]) == 3
    assert not (root / NAME / ".kstage").exists()


def test_manifests_do_not_grow(root: Path) -> None:
    """U-16: a manifest has the remaining groups only.

    With all groups and preconditions in each, 500 groups took a minute.
    """
    make_log_dir(root, {NAME: two_groups()})
    written: list[Manifest] = []

    class Watching(LogDirLock):
        def check(self) -> None:
            """Before the commit of every group its manifest is there."""
            (path,) = (root / NAME).glob(".kstage/*/manifest.json")
            written.append(Manifest.from_json(path.read_bytes(), str(path)))
            super().check()

    assert clean(root, force(), TOPIC, lock_type=Watching).outcome == "cleaned"
    assert [[group.base for group in manifest.groups] for manifest in written] == [[0], [5]]
    assert [[witness.base for witness in manifest.witnesses] for manifest in written] == [[0, 4, 5], [5]]


def test_wrong_staged_bytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staged files are read back from the disk before their use, which finds flipped bits."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    real = cleaner.verify_staged

    def verify(reader: PartReader, staged: Segment, *others: object, **decided: int) -> None:
        with open(f"{reader.path}/{staged.base:020d}.log", "r+b") as file:
            file.seek(65)
            file.write(b"\x5a")
        real(reader, staged, *others, **decided)  # type: ignore[arg-type]

    # a disk that flips a bit between write and read
    monkeypatch.setattr(cleaner, "verify_staged", verify)
    result = clean(root, force(), TOPIC)
    assert isinstance(result.error, CorruptionError)
    assert ".kstage" in str(result.error.where)
    assert tree(root) == before


def test_an_unexpected_exception_leaves_the_log_unchanged(root: Path) -> None:
    """An exception of another kind propagates, and leaves the log and the directory unchanged."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)

    class Broken(Silent):
        def wrote(self, done_bytes: int) -> None:  # noqa: ARG002
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        clean(root, force(), TOPIC, progress=Broken())
    assert tree(root) == before


def test_quarantine_is_remembered(root: Path) -> None:
    """OP-10: with the reason; the previous checkpoint stays; the next success clears it."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    log = root / NAME / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    result = clean(root, force(from_start=True), TOPIC)
    assert result.outcome == "quarantined"
    state = json.loads(state_file(root).read_text())
    assert state["quarantine"] == result.reason
    assert str(log) in result.reason
    assert state["cleanerd_checkpoint"]["offset"] == 8
    data[-1] ^= 1
    log.write_bytes(data)
    assert clean(root, force(from_start=True), TOPIC).error is None
    assert json.loads(state_file(root).read_text())["quarantine"] is None


@pytest.mark.parametrize("name", [f"{0:020d}.log.swap", f"{4:020d}.index.cleaned", f"{5:020d}.timeindex.swap"])
def test_a_foreign_unfinished_swap(root: Path, name: str) -> None:
    """S-21: an unfinished foreign swap: refused, untouched, with the remedy."""
    make_log_dir(root, {NAME: two_groups()})
    (root / NAME / name).write_bytes(b"x")
    before = tree(root)
    result = clean(root, force(), TOPIC)
    assert isinstance(result.error, RefusedError)
    assert name in result.reason
    assert "start the broker once" in result.reason
    assert tree(root) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clean_shutdown": False}, "not stopped cleanly"),
        ({"high_watermarks": False}, "replication-offset-checkpoint is missing"),
    ],
)
def test_skipped(root: Path, change: dict[str, bool], message: str) -> None:
    """S-27, C-86: skipped with the reason, no file touched."""
    make_log_dir(root, {NAME: two_groups()}, clean_shutdown=change.get("clean_shutdown", True))
    if "high_watermarks" in change:
        (root / "replication-offset-checkpoint").unlink()
    before = tree(root)
    result = clean(root, force(), TOPIC)
    assert (result.outcome, result.error) == ("skipped", None)
    assert message in result.reason
    assert tree(root) == before


def test_tiered(root: Path) -> None:
    """S-49."""
    make_log_dir(root, {NAME: two_groups()})
    result = clean(root, force(), config(remote_storage_enable="true"))
    assert "tiered topics are not cleaned" in result.reason


def test_unclean(root: Path) -> None:
    """S-27: on request, but only below the recovery point."""
    partition = two_groups()
    make_log_dir(root, {NAME: Partition(partition.segments, recovery_point=6)}, clean_shutdown=False)
    result = clean(root, force(unclean=True), TOPIC)
    assert (result.outcome, result.end_offset) == ("unchanged", 5)


def test_every_cleaned_segment_parses(root: Path) -> None:
    """All remaining bytes have right checksums."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    assert sum(len(batches_of(log.read_bytes())) for log in (root / NAME).glob("*.log")) == 3
