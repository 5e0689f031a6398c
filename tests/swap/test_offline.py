"""Cleaning a partition of a stopped broker under the lock: remembered state, and failures that never change the log."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import RefusedError
from tests.cleaner.driver import NAME, clean, clean_all, resources, scratch
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    Partition,
    Producer,
    make_log_dir,
    read_checkpoint,
    read_segments,
    snapshot_bytes,
    tree,
    write_segment,
)
from tests.support.logs import Record, encode_batch
from tests.swap.offline_round import NOW, TOPIC, batch, force, state_file, two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def test_result_and_remembered_state(root: Path) -> None:
    """S-50, U-10: figures of the result; cleanerd's checkpoint; Kafka's checkpoint with the other lines kept."""
    make_log_dir(root, {NAME: two_groups(), "other-3": Partition({0: batch(0, ("a", "1"))}, cleaner_offset=0)})
    sizes = {int(log.stem): log.stat().st_size for log in (root / NAME).glob("*.log")}
    result = clean(root, force(), TOPIC)
    left = {int(log.stem): log.stat().st_size for log in (root / NAME).glob("*.log")}
    assert (result.outcome, result.reason, result.strategy) == ("cleaned", "", "offset")
    assert (result.first_dirty_offset, result.end_offset) == (0, 8)
    assert (result.records_read, result.records_kept, result.removed.superseded) == (7, 4, 3)
    assert (result.bytes_before, result.bytes_after) == (sum(sizes.values()), sum(left.values()))
    assert (result.segments_before, result.segments_after, result.segments_rewritten) == (3, 3, 2)
    assert result.passes == 1
    assert result.seconds.keys() == {"index", "decide", "rewrite", "swap"}
    assert all(seconds >= 0 for seconds in result.seconds.values())
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8, "other-3": 0}
    state = json.loads(state_file(root).read_text())
    assert (state["format"], state["topic"], state["partition"], state["quarantine"]) == (1, "orders", 0, None)
    assert state["cleanerd_checkpoint"]["offset"] == 8
    assert state["cleanerd_checkpoint"]["last_segment"]["inode"] == (root / NAME / f"{5:020d}.log").stat().st_ino
    assert state["last_result"]["outcome"] == "cleaned"
    assert not (root / NAME / ".kstage").exists()
    assert not list((root / NAME).glob("*.deleted"))


def test_cleaned_files_have_the_sources_metadata(root: Path) -> None:
    """S-59, S-60, C-65: owner and mode of the sources, modification time of the last one; other files are untouched."""
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


def test_the_time_of_a_merged_segment(root: Path) -> None:
    """C-65: the modification time of a merged segment is that of its LAST source."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1")), 1: batch(1, ("a", "2")), 2: b""})})
    for base, seconds in ((0, 2_000_000_000), (1, 1_000_000_000)):
        os.utime(root / NAME / f"{base:020d}.log", (seconds, seconds))
    clean(root, force())
    assert (root / NAME / f"{0:020d}.log").stat().st_mtime == 1_000_000_000


def test_checkpoint_is_enough(root: Path) -> None:
    """U-10: without own state Kafka's checkpoint shows the clean section; without both, all is dirty."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    state_file(root).unlink()
    assert clean(root, force(), TOPIC).first_dirty_offset == 8
    (root / CLEANER_CHECKPOINT).unlink()
    assert clean(root, force(), TOPIC).first_dirty_offset == 0


def test_own_state_goes_further(root: Path) -> None:
    """U-10: a lost checkpoint costs nothing while cleanerd's own state is valid."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    (root / CLEANER_CHECKPOINT).unlink()
    assert clean(root, force(), TOPIC).first_dirty_offset == 8


def test_kafka_went_further(root: Path) -> None:
    """U-10: under `offset` both cleaners give the same guarantee; the higher checkpoint counts."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(up_to_offset=4), TOPIC)
    (root / CLEANER_CHECKPOINT).write_text("0\n1\norders 0 5\n")
    result = clean(root, force(), TOPIC)
    assert (result.first_dirty_offset, result.end_offset) == (5, 8)


def test_outdated_state(root: Path) -> None:
    """U-10: the last cleaned segment is another file now; Kafka's checkpoint counts, and the result says so."""
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


def test_cleanerds_checkpoint_does_not_outlive_the_log(root: Path) -> None:
    """U-10, S-50: a log is truncated and grows again, beside a broker whose cleaner is off and leaves the checkpoint.

    By that checkpoint both records of a key in the new part would stay, and after its tombstone's removal the deleted
    key would be back.
    """
    make_log_dir(root, {NAME: two_groups()})
    assert clean(root, force(), TOPIC).end_offset == 8
    for base in (5, 8):
        for file in (root / NAME).glob(f"{base:020d}.*"):
            file.unlink()
    write_segment(root / NAME, 5, batch(5, ("x", "old"), ("x", None), ("y", "1")))
    write_segment(root / NAME, 8, batch(8, ("z", "1")))
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}
    result = clean(root, force(), TOPIC)
    assert (result.outcome, result.first_dirty_offset) == ("cleaned", 0)
    assert any("as cleanerd wrote it" in note for note in result.notes)
    batches = [each for found in read_segments(root / NAME).values() for each in found]
    assert [record.offset for each in batches for record in each.records if record.key == b"x"] == [6]


@pytest.mark.parametrize("checkpoint", [-1, 9, 2**62])
def test_wrong_checkpoint(root: Path, checkpoint: int) -> None:
    """C-03: the whole log is dirty, the result says so, and the checkpoint is right afterwards."""
    partition = two_groups()
    make_log_dir(root, {NAME: Partition(partition.segments, cleaner_offset=checkpoint)})
    result = clean(root, force(), TOPIC)
    assert (result.outcome, result.first_dirty_offset) == ("cleaned", 0)
    assert any(str(checkpoint) in note for note in result.notes)
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}


def test_first_dirty_above_the_clean_section(root: Path) -> None:
    """An uncleaned gap is never in the clean section, neither for Kafka nor for cleanerd."""
    make_log_dir(root, {NAME: two_groups()})
    result = clean(root, force(first_dirty_offset=5), TOPIC)
    assert (result.outcome, result.first_dirty_offset) == ("cleaned", 5)
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {}
    assert (
        not list((root.parent / "state").rglob("*.json"))
        or json.loads(state_file(root).read_text())["cleanerd_checkpoint"] is None
    )
    assert clean(root, force(), TOPIC).first_dirty_offset == 0


def test_a_clean_section_below_a_gap_stays_clean(root: Path) -> None:
    """U-10: --first-dirty above the checkpoint rewrites a segment below it.

    The next cleaning begins at the checkpoint.
    """
    make_log_dir(root, {NAME: two_groups()})
    assert clean(root, force(up_to_offset=4), TOPIC).end_offset == 4
    before = json.loads(state_file(root).read_text())["cleanerd_checkpoint"]["last_segment"]
    assert clean(root, force(first_dirty_offset=5), TOPIC).segments_rewritten == 2
    after = json.loads(state_file(root).read_text())["cleanerd_checkpoint"]["last_segment"]
    assert after["inode"] == (root / NAME / f"{0:020d}.log").stat().st_ino != before["inode"]
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 4}
    result = clean(root, force(), TOPIC)
    assert (result.first_dirty_offset, result.end_offset, result.notes) == (4, 8, ())


def test_an_outdated_checkpoint_stays_outdated_after_a_gap(root: Path) -> None:
    """U-10: the segment below the checkpoint was another file already; no fact shows that it is clean."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(up_to_offset=4), TOPIC)
    log = root / NAME / f"{0:020d}.log"
    data = log.read_bytes()
    log.unlink()
    log.write_bytes(data)
    assert clean(root, force(first_dirty_offset=5), TOPIC).segments_rewritten == 2
    assert clean(root, force(), TOPIC).first_dirty_offset == 0


def test_from_start_of_a_part(root: Path) -> None:
    """--from-start --cleanable-to below the checkpoint cleans that part again and keeps the checkpoint."""
    make_log_dir(root, {NAME: two_groups()})
    clean(root, force(), TOPIC)
    assert clean(root, force(from_start=True, up_to_offset=4), TOPIC).end_offset == 4
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 8}
    assert clean(root, force(), TOPIC).first_dirty_offset == 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (CleaningOptions(now_ms=NOW, force=True, first_dirty_offset=9), "--first-dirty 9"),
        (
            CleaningOptions(now_ms=NOW, force=True, up_to_offset=9),
            "--cleanable-to 9 is above the first uncleanable offset 8",
        ),
    ],
)
def test_out_of_range(root: Path, options: CleaningOptions, message: str) -> None:
    """Refused with the numbers; the log is unchanged."""
    make_log_dir(root, {NAME: two_groups()})
    before = tree(root)
    result = clean(root, options, TOPIC)
    assert isinstance(result.error, RefusedError)
    assert message in result.reason
    assert tree(root) == before


def test_producer_batches_stay(root: Path) -> None:
    """R192-1, C-39.1, C-43: an active producer's last batch stays without records.

    A pass after its expiration removes it.
    """

    def idempotent(base: int, producer_id: int, key: bytes) -> bytes:
        records = [Record(key, b"v", NOW - 1000)]
        return encode_batch(records, base_offset=base, producer_id=producer_id, producer_epoch=2, base_sequence=base)

    logs = {
        0: idempotent(0, 7, b"a") + idempotent(1, 7, b"a") + idempotent(2, 8, b"b"),
        3: batch(3, ("a", "9"), ("b", "9")),
        5: b"",
    }
    make_log_dir(root, {NAME: Partition(logs)})
    clean_all(root, NOW, with_resources=resources(expiration_ms=1001))
    stored = {found.header.last_offset: found for found in read_segments(root / NAME)[0]}
    assert {offset: len(found.records) for offset, found in stored.items()} == {1: 0, 2: 0, 4: 2}
    header = stored[1].header
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (7, 2, 1, 0)
    clean_all(root, NOW + 1, with_resources=resources(expiration_ms=1001))
    assert [found.header.last_offset for found in read_segments(root / NAME)[0]] == [4]


def test_producers_of_a_snapshot(root: Path) -> None:
    """R192-2: the broker's snapshot counts, and a damaged snapshot is reported."""
    records = [Record(b"a", b"v", NOW - 1000)]
    logs = {0: encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0), 1: batch(1, ("a", "2")), 2: b""}
    make_log_dir(root, {NAME: Partition(logs, snapshots={2: [Producer(7, 0, NOW - 10**9)]})})
    result = clean_all(root, NOW)
    assert [found.header.last_offset for found in read_segments(root / NAME)[0]] == [1], "expired by the snapshot"
    assert result.notes == ()
    (root / NAME / f"{2:020d}.snapshot").write_bytes(snapshot_bytes([])[:-1])
    result = clean_all(root, NOW)
    assert any(f"{2:020d}.snapshot" in note for note in result.notes)
