"""A partition of a stopped broker, cleaned under the lock: what is remembered, and that no failure changes the log."""

from __future__ import annotations

import errno
import json
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.apply import offline
from cleanerd.apply.files import PartitionFiles
from cleanerd.apply.lease import LeaseResult
from cleanerd.apply.lock import LogDirLock
from cleanerd.apply.session import LockedDir
from cleanerd.cleaner import cleaner, stage
from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.survey import Wishes
from cleanerd.errors import CleanerdError, CorruptionError, LogDirBusyError, RefusedError, StalePlanError
from cleanerd.format.names import TopicPartition
from cleanerd.log.clean_point import StateStore
from cleanerd.log.log_dir import read_log_dir
from tests.cleaner.driver import NAME, Silent, clean, clean_all, config, means, scratch
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    Partition,
    Producer,
    batches_of,
    make_log_dir,
    read_checkpoint,
    read_segments,
    snapshot_bytes,
    tree,
)
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.apply.files import Operation
    from cleanerd.cleaner.manifest import Manifest
    from cleanerd.log.read import SegmentReader
    from cleanerd.log.segment import Segment

NOW = BASE_TIMESTAMP_MS + 1_000_000


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def batch(base: int, *entries: tuple[str | None, str | None]) -> bytes:
    return keyed_batch(base, entries, timestamp=NOW - 1000)


def two_groups() -> Partition:
    """Two segments that change, a large one between them that does not, and the newest value of every key."""
    large = batch(4, ("big", "x" * 3000))
    logs = {
        0: batch(0, ("a", "1"), ("b", "1"), ("c", "1")),
        4: large,
        5: batch(5, ("a", "2"), ("b", "2"), ("a", "3")),
        8: b"",
    }
    return Partition(logs)


TOPIC = config(segment_bytes=3000)


def state_file(root: Path) -> Path:
    (found,) = (root.parent / "state").rglob("*.json")
    return found


def force(now_ms: int = NOW, **wishes: object) -> Wishes:
    return Wishes(now_ms=now_ms, force=True, **wishes)  # type: ignore[arg-type]


def test_result_and_what_is_remembered(root: Path) -> None:
    """S-50, U-10, cli.md: numbers of the result; the clean point; Kafka's checkpoint with the lines of others kept."""
    make_log_dir(root, {NAME: two_groups(), "other-3": Partition({0: batch(0, ("a", "1"))}, cleaner_offset=0)})
    sizes = {int(log.stem): log.stat().st_size for log in (root / NAME).glob("*.log")}
    result = clean(root, force(), TOPIC)
    left = {int(log.stem): log.stat().st_size for log in (root / NAME).glob("*.log")}
    assert (result.outcome, result.reason, result.strategy) == ("cleaned", "", "offset")
    assert (result.first_dirty_offset, result.end_offset) == (0, 8)
    assert (result.records_read, result.records_kept, result.dropped.superseded) == (7, 4, 3)
    assert (result.bytes_before, result.bytes_after) == (sum(sizes.values()), sum(left.values()))
    assert (result.segments_before, result.segments_after, result.segments_rewritten) == (3, 3, 2)
    assert result.shards == 1
    assert result.seconds.keys() == {"index", "decide", "rewrite", "apply"}
    assert all(seconds >= 0 for seconds in result.seconds.values())
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8, "other-3": 0}
    state = json.loads(state_file(root).read_text())
    assert (state["format"], state["topic"], state["partition"], state["quarantine"]) == (1, "orders", 0, None)
    assert state["clean_point"]["offset"] == 8
    assert state["clean_point"]["last_segment"]["inode"] == (root / NAME / f"{5:020d}.log").stat().st_ino
    assert state["last_result"]["outcome"] == "cleaned"
    assert not (root / NAME / ".kstage").exists()
    assert not list((root / NAME).glob("*.deleted"))


def test_files_look_like_those_they_replace(root: Path) -> None:
    """S-59, S-60, C-65: owner and mode of the sources, modification time of the last one; the rest is not touched."""
    make_log_dir(root, {NAME: two_groups()})
    path = root / NAME
    for log in path.glob("*.log"):
        os.chmod(log, 0o640)
        os.chown(log, 12, 34)
        os.utime(log, ns=(10**18, 10**18 + int(log.stem) * 10**9))
    before = tree(path)
    clean(root, force(), TOPIC)
    after = tree(path)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {f"{base:020d}{suffix}" for base in (0, 5) for suffix in (".log", ".index", ".timeindex")}
    for base in (0, 5):
        for suffix in (".log", ".index", ".timeindex"):
            status = (path / f"{base:020d}{suffix}").stat()
            assert (status.st_mode & 0o777, status.st_uid, status.st_gid) == (0o640, 12, 34)
            assert status.st_mtime_ns == 10**18 + base * 10**9


def test_two_sources_time(root: Path) -> None:
    """C-65: the modification time of a merged segment is that of its LAST source."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1")), 1: batch(1, ("a", "2")), 2: b""})})
    for base, seconds in ((0, 2_000_000_000), (1, 1_000_000_000)):
        os.utime(root / NAME / f"{base:020d}.log", (seconds, seconds))
    clean(root, force())
    assert (root / NAME / f"{0:020d}.log").stat().st_mtime == 1_000_000_000


def test_checkpoint_is_enough(root: Path) -> None:
    """U-10: without own state Kafka's checkpoint says what is clean; without both, nothing is."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    state_file(root).unlink()
    assert clean(root, force(), TOPIC).first_dirty_offset == 8
    (root / CLEANER_CHECKPOINT).unlink()
    assert clean(root, force(), TOPIC).first_dirty_offset == 0


def test_own_state_goes_further(root: Path) -> None:
    """U-10: a checkpoint that was lost costs nothing while cleanerd's own state is good."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    (root / CLEANER_CHECKPOINT).unlink()
    assert clean(root, force(), TOPIC).first_dirty_offset == 8


def test_kafka_went_further(root: Path) -> None:
    """U-10: under `offset` the broker's cleaner proves as much as ours; the further of the two counts."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(up_to_offset=4), TOPIC)
    (root / CLEANER_CHECKPOINT).write_text("0\n1\norders 0 5\n")
    result = clean(root, force(), TOPIC)
    assert (result.first_dirty_offset, result.end_offset) == (5, 8)


def test_outdated_state(root: Path) -> None:
    """U-10: the last cleaned segment is another file now; the checkpoint counts, and the result says so."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    log = root / NAME / f"{5:020d}.log"
    data = log.read_bytes()
    log.unlink()
    log.write_bytes(data)
    (root / CLEANER_CHECKPOINT).write_text("0\n1\norders 0 5\n")
    result = clean(root, force(), TOPIC)
    assert result.first_dirty_offset == 5
    assert any("outdated" in note for note in result.notes)


@pytest.mark.parametrize("checkpoint", [-1, 9, 2**62])
def test_wrong_checkpoint(root: Path, checkpoint: int) -> None:
    """C-03: the whole log is dirty, the result says so, and the checkpoint is right afterwards."""
    partition = two_groups()
    make_log_dir(root, {NAME: Partition(partition.segments, cleaner_offset=checkpoint)})
    result = clean(root, force(), TOPIC)
    assert (result.outcome, result.first_dirty_offset) == ("cleaned", 0)
    assert any(str(checkpoint) in note for note in result.notes)
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}


def test_first_dirty_above_what_is_clean(root: Path) -> None:
    """A gap that nobody cleaned is never called clean, neither to Kafka nor to ourselves."""
    make_log_dir(root, {NAME: two_groups()})
    result = clean(root, force(first_dirty_offset=5), TOPIC)
    assert (result.outcome, result.first_dirty_offset) == ("cleaned", 5)
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {}
    assert (
        not list((root.parent / "state").rglob("*.json"))
        or json.loads(state_file(root).read_text())["clean_point"] is None
    )
    assert clean(root, force(), TOPIC).first_dirty_offset == 0


def test_from_start_of_a_part(root: Path) -> None:
    """--from-start --up-to below the clean point cleans that part again and takes nothing back."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    assert clean(root, force(from_start=True, up_to_offset=4), TOPIC).end_offset == 4
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}
    assert clean(root, force(), TOPIC).first_dirty_offset == 8


@pytest.mark.parametrize(
    ("wishes", "says"),
    [
        (Wishes(now_ms=NOW, force=True, first_dirty_offset=9), "--first-dirty 9"),
        (Wishes(now_ms=NOW, force=True, up_to_offset=9), "--up-to 9 is above the bound 8"),
    ],
)
def test_out_of_range(root: Path, wishes: Wishes, says: str) -> None:
    """cli.md: refused with the numbers, the log as it was."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    result = clean(root, wishes, TOPIC)
    assert isinstance(result.error, RefusedError)
    assert says in result.reason
    assert tree(root) == before


def test_producer_batches_stay(root: Path) -> None:
    """R192-1, C-39.1, C-43: the last batch of a live producer stays, emptied; one pass after it expired it goes."""

    def idempotent(base: int, producer_id: int, key: bytes) -> bytes:
        records = [Record(key, b"v", NOW - 1000)]
        return encode_batch(records, base_offset=base, producer_id=producer_id, producer_epoch=2, base_sequence=base)

    logs = {
        0: idempotent(0, 7, b"a") + idempotent(1, 7, b"a") + idempotent(2, 8, b"b"),
        3: batch(3, ("a", "9"), ("b", "9")),
        5: b"",
    }
    make_log_dir(root, {NAME: Partition(logs)})
    clean_all(root, NOW, with_means=means(expiration_ms=1001))
    stored = {found.header.last_offset: found for found in read_segments(root / NAME)[0]}
    assert {offset: len(found.records) for offset, found in stored.items()} == {1: 0, 2: 0, 4: 2}
    header = stored[1].header
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (7, 2, 1, 0)
    clean_all(root, NOW + 1, with_means=means(expiration_ms=1001))
    assert [found.header.last_offset for found in read_segments(root / NAME)[0]] == [4]


def test_producers_of_a_snapshot(root: Path) -> None:
    """R192-2: what the broker remembers counts, and a damaged snapshot is told."""
    records = [Record(b"a", b"v", NOW - 1000)]
    logs = {0: encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0), 1: batch(1, ("a", "2")), 2: b""}
    make_log_dir(root, {NAME: Partition(logs, snapshots={2: [Producer(7, 0, NOW - 10**9)]})})
    result = clean_all(root, NOW)
    assert [found.header.last_offset for found in read_segments(root / NAME)[0]] == [1], "expired by the snapshot"
    assert result.notes == ()
    (root / NAME / f"{2:020d}.snapshot").write_bytes(snapshot_bytes([])[:-1])
    result = clean_all(root, NOW)
    assert any(f"{2:020d}.snapshot" in note for note in result.notes)


class InjectedFiles(PartitionFiles):
    """Fails, or has something happen, at the n-th change."""

    fail_at = -1
    count = 0

    def perform(self, operation: Operation) -> None:
        """Count, and fail when it is time."""
        cls = type(self)
        cls.count += 1
        if cls.count == cls.fail_at:
            raise CleanerdError(f"injected at {operation.kind}", where=operation.name)
        super().perform(operation)


def logical(root: Path) -> dict[int, list[tuple[int, bytes | None, bytes | None]]]:
    """All records by segment base, whatever is beside them."""
    return {
        base: [(record.offset, record.key, record.value) for found in batches for record in found.records]
        for base, batches in read_segments(root / NAME).items()
    }


def test_every_refused_step(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-10, S-30..S-39: whichever step the system refuses, each group is old or new, and the next run finishes."""
    old = logical(make_log_dir(root, {NAME: two_groups()}))
    clean_all(root, NOW, TOPIC)
    new = logical(root)
    assert old != new
    monkeypatch.setattr(offline, "PartitionFiles", InjectedFiles)
    states = set()
    for step in range(1, 200):
        with scratch() as other:
            path = make_log_dir(other / "logs", {NAME: two_groups()})
            monkeypatch.setattr(InjectedFiles, "count", 0)
            monkeypatch.setattr(InjectedFiles, "fail_at", step)
            result = clean(path, force(), TOPIC)
            monkeypatch.setattr(InjectedFiles, "fail_at", -1)
            if result.error is None:
                break
            assert "injected" in result.reason
            found = logical(path)
            assert all(found.get(base) in (old.get(base), new.get(base)) for base in old), f"step {step}"
            states.add(tuple(found.get(base) == new.get(base) for base in (0, 5)))
            assert read_checkpoint(path / CLEANER_CHECKPOINT) == {}
            again = clean(path, force(), TOPIC)
            assert again.error is None, (step, again.reason)
            assert logical(path) == new
            assert not (path / NAME / ".kstage").exists()
    else:
        pytest.fail("never through")
    assert states >= {(False, False), (True, False)}


@pytest.mark.parametrize("name", ["mkdir", "open", "write", "fsync", "fchmod", "utime", "fstatvfs", "statvfs"])
def test_no_space(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """OP-10: a full or failing disk, at whichever call: one reason, each group old or new, nothing left in the way."""
    real = getattr(os, name)
    calls = limit = 0

    def failing(*arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == limit:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    old: dict[int, object] = {}
    reserve = means(disk_reserve_bytes=None if name == "statvfs" else 0)  # type: ignore[arg-type]
    for limit in range(1, 400):
        with scratch() as other:
            path = make_log_dir(other / "logs", {NAME: two_groups()})
            old = logical(path)
            new = {**old, 0: [record for record in old[0] if record[1] == b"c"], 5: old[5][1:]}
            calls = 0
            with LogDirLock.acquire(path, settle_seconds=0) as lock, monkeypatch.context() as patch:
                locked = LockedDir(read_log_dir(path), lock, StateStore(other / "state"), reserve)
                patch.setattr(os, name, failing)
                result = offline.clean_partition(locked, TopicPartition("orders", 0), TOPIC, force(), Silent())
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


def test_reserve(root: Path) -> None:
    """U-16, S-25: what would go below the reserve is not begun."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    result = clean(root, force(), TOPIC, means(disk_reserve_bytes=2**60))
    assert result.error is not None
    assert "not enough free space" in result.reason
    assert tree(root) == before


def test_lock_lost(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-33: the lock is looked at before the commit; without it nothing is touched any more."""
    make_log_dir(root, {NAME: two_groups()})
    old = logical(root)

    def gone(_lock: LogDirLock) -> None:
        raise LogDirBusyError("was removed", where="x")

    monkeypatch.setattr(LogDirLock, "check", gone)
    result = clean(root, force(), TOPIC)
    assert isinstance(result.error, LogDirBusyError)
    assert logical(root) == old
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {}
    monkeypatch.undo()
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
def test_lease(root: Path, monkeypatch: pytest.MonkeyPatch, answer: LeaseResult, required: bool, refused: bool) -> None:
    """S-14: somebody has the active segment open, or it cannot be asked."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    monkeypatch.setattr(offline, "probe_lease", lambda *_arguments, **_options: answer)
    asked = means()
    monkeypatch.setattr(offline, "LeaseResult", LeaseResult)
    object.__setattr__(asked, "lease_required", required)
    result = clean(root, force(), TOPIC, asked)
    assert isinstance(result.error, LogDirBusyError) == refused
    if refused:
        assert tree(root) == before


def test_segment_open_for_writing(root: Path) -> None:
    """S-14, for real: a process that has the active segment open keeps us out, lock or no lock."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    with (root / NAME / f"{8:020d}.log").open("r+b"):
        result = clean(root, force(), TOPIC)
    assert isinstance(result.error, LogDirBusyError)
    assert f"{8:020d}.log" in result.reason
    assert tree(root) == before


def test_log_changed_under_the_plan(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-29, U-3: a source that changed between decision and swap kills the plan; nothing of it is applied."""
    make_log_dir(root, {NAME: two_groups()})
    real = Cleaning.groups

    def groups(cleaning: Cleaning) -> object:
        found = real(cleaning)
        os.utime(root / NAME / f"{4:020d}.log", (1, 1))
        return found

    monkeypatch.setattr(Cleaning, "groups", groups)
    result = clean(root, force(), TOPIC)
    assert isinstance(result.error, StalePlanError)
    assert len(logical(root)[0]) == 3
    assert not (root / NAME / ".kstage").exists()


def test_manifests_do_not_grow(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-16: a manifest holds what is not done yet. With all groups and witnesses in each, 500 groups took a minute."""
    make_log_dir(root, {NAME: two_groups()})
    written: list[Manifest] = []
    real = offline.write_manifest

    def write(directory: int, manifest: Manifest, *, where: str) -> None:
        written.append(manifest)
        real(directory, manifest, where=where)

    monkeypatch.setattr(offline, "write_manifest", write)
    assert clean(root, force(), TOPIC).outcome == "cleaned"
    assert [[group.base for group in manifest.groups] for manifest in written] == [[0], [5]]
    assert [[witness.base for witness in manifest.witnesses] for manifest in written] == [[0, 4, 5], [5]]


def test_wrong_staged_bytes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was staged is read back from the disk before it is used; a bit that flipped there is found."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    real = cleaner.verify_staged

    def verify(reader: SegmentReader, staged: Segment, *others: object) -> None:
        with open(f"{reader.path}/{staged.base:020d}.log", "r+b") as file:
            file.seek(65)
            file.write(b"\x5a")
        real(reader, staged, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(cleaner, "verify_staged", verify)
    result = clean(root, force(), TOPIC)
    assert isinstance(result.error, CorruptionError)
    assert ".kstage" in str(result.error.where)
    assert tree(root) == before


def test_bug(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception that is none of ours gets out, and leaves the log and the directory as they were."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)

    def broken(*_arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(stage.Staging, "finish", broken)
    with pytest.raises(ZeroDivisionError):
        clean(root, force(), TOPIC)
    assert tree(root) == before


def test_quarantine_is_remembered(root: Path) -> None:
    """OP-10, formats.md section 3: the reason; the clean point of before stays; the next success clears it."""
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
    assert state["clean_point"]["offset"] == 8
    data[-1] ^= 1
    log.write_bytes(data)
    assert clean(root, force(from_start=True), TOPIC).error is None
    assert json.loads(state_file(root).read_text())["quarantine"] is None


@pytest.mark.parametrize("name", [f"{0:020d}.log.swap", f"{4:020d}.index.cleaned", f"{5:020d}.timeindex.swap"])
def test_somebody_elses_replacement(root: Path, name: str) -> None:
    """S-21: an unfinished replacement that is not ours: refused, untouched, with the way out."""
    make_log_dir(root, {NAME: two_groups()})
    (root / NAME / name).write_bytes(b"x")
    before = tree(root)
    result = clean(root, force(), TOPIC)
    assert isinstance(result.error, RefusedError)
    assert name in result.reason
    assert "start the broker once" in result.reason
    assert tree(root) == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clean_shutdown": False}, "not stopped cleanly"),
        ({"high_watermarks": False}, "replication-offset-checkpoint is missing"),
    ],
)
def test_skipped(root: Path, change: dict[str, bool], says: str) -> None:
    """S-27, C-86: skipped with the reason, nothing touched."""
    make_log_dir(root, {NAME: two_groups()}, clean_shutdown=change.get("clean_shutdown", True))
    if "high_watermarks" in change:
        (root / "replication-offset-checkpoint").unlink()
    before = tree(root)
    result = clean(root, force(), TOPIC)
    assert (result.outcome, result.error) == ("skipped", None)
    assert says in result.reason
    assert tree(root) == before


def test_tiered(root: Path) -> None:
    """S-49."""
    make_log_dir(root, {NAME: two_groups()})
    result = clean(root, force(), config(remote_storage_enable="true"))
    assert "S-49" in result.reason


def test_unclean(root: Path) -> None:
    """S-27: on request, but only below the recovery point."""
    partition = two_groups()
    make_log_dir(root, {NAME: Partition(partition.segments, recovery_point=6)}, clean_shutdown=False)
    result = clean(root, force(unclean=True), TOPIC)
    assert (result.outcome, result.end_offset) == ("unchanged", 5)


def test_every_cleaned_segment_parses(root: Path) -> None:
    """The bytes that are served afterwards have right checksums."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    assert sum(len(batches_of(log.read_bytes())) for log in (root / NAME).glob("*.log")) == 3
