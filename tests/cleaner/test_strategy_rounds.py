"""A topic under a strategy over several cleanings, and the reports about it (U-1, U-3, U-10, R87-6)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner import tombstone_guard
from cleanerd.cleaner.cleaner import CleaningStopped
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import StalePlanError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.apply_staged import apply_partition
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition, stage_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import NAME, Silent, clean, clean_all, config, resources
from tests.cleaner.strategy_cases import (
    BY_HEADER,
    BY_TIMESTAMP,
    FLAGGED,
    MARKED,
    NOW,
    batches,
    many_tombstones,
    offsets,
    rec,
)
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    read_checkpoint,
    read_segments,
    write_checkpoint,
    write_segment,
)
from tests.support.logs import encode_batch, encode_legacy, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig

PARTITION = TopicPartition("orders", 0)
BY_VERSION = config(**BY_HEADER, segment_bytes=100, delete_retention_ms=500)
"""Every segment is its own group."""


def log_of(root: Path, segments: dict[int, bytes], **facts: Any) -> Path:
    """A log directory with one partition; the active segment is the last one."""
    return make_log_dir(root / "logs", {NAME: Partition(segments, **facts)})


def next_round(log_dir: Path, now_ms: int = NOW, topic: TopicConfig = BY_VERSION) -> CleaningResult:
    """A cleaning from the checkpoint on."""
    result = clean(log_dir, CleaningOptions(now_ms=now_ms, force=True), topic)
    assert result.error is None, result.reason
    return result


def grow(log_dir: Path, base: int, data: bytes) -> None:
    """Write one more segment."""
    write_segment(log_dir / NAME, base, data)
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
        write_checkpoint(log_dir / name, {NAME: base + 100})


class StopBefore:
    """Ends a cleaning before group ``number``."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.rewrites = False

    def phase(self, name: str, _total_bytes: int) -> None:
        self.rewrites = name == "rewrite"

    def advance(self, _done_bytes: int) -> None:
        self.left -= self.rewrites
        if self.left < 0:
            raise CleaningStopped

    def wrote(self, done_bytes: int) -> None:
        """Does nothing."""


def stopped_round(log_dir: Path, groups: int) -> None:
    """A cleaning that is stopped after this many groups."""
    store = StateStore(log_dir.parent / "state")
    with LogDirLock.acquire(log_dir, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(log_dir), lock, store, resources())
        with pytest.raises(CleaningStopped):
            clean_partition(locked, PARTITION, BY_VERSION, CleaningOptions(now_ms=NOW, force=True), StopBefore(groups))


def test_a_deleted_key_does_not_come_back_between_two_groups(tmp_path: Path) -> None:
    """U-1: the tombstone of version 9 is past its horizon; its superseded record is in a later group, never reached."""
    gone = encode_batch([rec("k", 9, value=None), rec("a", 1)], delete_horizon=NOW)
    log_dir = log_of(tmp_path, {0: gone, 2: batches(rec("a", 2), first=2), 3: batches(rec("k", 1), first=3), 4: b""})
    stopped_round(log_dir, groups=1)
    assert offsets(log_dir / NAME, 4) == [0, 2, 3], "the first group was cleaned, and the tombstone guards its key"
    result = next_round(log_dir)
    assert (offsets(log_dir / NAME, 4), result.tombstones_waiting) == ([0, 2], 1)
    assert any("the log has another record of their key" in note for note in result.notes)
    grow(log_dir, 4, batches(rec("a", 3), first=4))
    grow(log_dir, 5, b"")
    result = next_round(log_dir)
    assert (offsets(log_dir / NAME, 5), result.tombstones_waiting, result.removed.tombstone) == ([4], 0, 1)


@pytest.mark.parametrize(("guard", "due"), [("horizon", NOW), ("forever", None)])
def test_a_tombstone_that_waits_for_removed_records_is_due_at_once(tmp_path: Path, guard: str, due: int | None) -> None:
    """R534-6, U-1: otherwise it would stay on a quiet topic after a restart of the daemon or the broker."""
    topic = config(**BY_HEADER, segment_bytes=100, tombstone_guard=guard)
    gone = encode_batch([rec("k", 9, value=None), rec("a", 1)], delete_horizon=NOW)
    log_dir = log_of(tmp_path, {0: gone, 2: batches(rec("k", 1), first=2), 3: b""})
    for kept, next_purge_ms in (([0, 1], due), ([1] if due else [0, 1], None)):
        result = clean(log_dir, CleaningOptions(now_ms=NOW, force=True, tombstone_removal=True), topic)
        assert (offsets(log_dir / NAME, 3), result.next_purge_ms) == (kept, next_purge_ms)
        (state,) = (tmp_path / "state" / "partitions").rglob("*.json")
        assert json.loads(state.read_bytes())["next_purge_ms"] == next_purge_ms


def test_a_tombstone_waits_for_late_data_in_the_tail(tmp_path: Path) -> None:
    """U-1: the dirty tail counts as evidence, and supersedes nothing."""
    gone = encode_batch([rec("k", 9, value=None)], delete_horizon=NOW)
    log_dir = log_of(tmp_path, {0: gone, 1: batches(rec("k", 10), first=1)})
    result = next_round(log_dir)
    assert (result.tombstones_waiting, result.next_purge_ms) == (1, None), "nothing changes before the next cleaning"
    grow(log_dir, 2, b"")
    assert next_round(log_dir).removed.superseded == 1
    assert offsets(log_dir / NAME, 2) == [1]


@pytest.mark.parametrize(
    ("topic", "tombstone"),
    [
        pytest.param(FLAGGED, rec("k", value="who", flag=True), id="flag"),
        pytest.param(MARKED, rec("k", value="who", marker=b"yes"), id="header"),
        pytest.param({**FLAGGED, **BY_TIMESTAMP}, rec("k", value="who", flag=True), id="flag and timestamp"),
    ],
)
def test_a_tombstone_keeps_its_value_until_its_horizon(
    tmp_path: Path, topic: dict[str, object], tombstone: object
) -> None:
    """R87-6, R534-1, U-14: the first cleaning sets the horizon, value and bit stay, then all of it is removed."""
    topics = config(**topic, delete_retention_ms=500)
    record = rec("k", value="old", at=-1)
    log_dir = log_of(tmp_path, {0: encode_batch([record, tombstone]), 2: b""})  # type: ignore[list-item]
    first = clean_all(log_dir, NOW, topics)
    (left,) = read_segments(log_dir / NAME)[0]
    assert left.header.delete_horizon_ms == NOW + 500
    assert [(kept.offset, kept.value, kept.attributes) for kept in left.records] == [
        (1, b"who", tombstone.attributes)  # type: ignore[attr-defined]
    ]
    assert first.removed.tombstone == 0
    assert clean_all(log_dir, NOW + 499, topics).removed.tombstone == 0
    assert clean_all(log_dir, NOW + 500, topics).removed.tombstone == 1
    assert offsets(log_dir / NAME, 2) == []


def test_nulls_without_flag_stay_and_are_counted(tmp_path: Path) -> None:
    """R87-3: no horizon for them either; each counts in the cleaning in which it is dirty."""
    topic = config(**FLAGGED)
    log_dir = log_of(tmp_path, {0: batches(rec("a", value=None), rec("b"), rec("c", value=None, flag=True)), 3: b""})
    result = next_round(log_dir, topic=topic)
    assert result.nulls_without_flag == 1
    horizons = [batch.header.delete_horizon_ms is not None for batch in read_segments(log_dir / NAME)[0]]
    assert horizons == [False, False, True]
    grow(log_dir, 3, batches(rec("d"), first=3))
    grow(log_dir, 4, b"")
    assert next_round(log_dir, topic=topic).nulls_without_flag == 0


def test_legacy_tombstones_keep_their_format_under_flag(tmp_path: Path) -> None:
    """R87-2: in v1 a null is a tombstone; as v2 without the bit it would be a value indefinitely."""
    log = encode_legacy(0, b"a", None, timestamp=NOW) + encode_legacy(1, b"b", b"1", timestamp=NOW)
    log_dir = log_of(tmp_path, {0: log + encode_legacy(2, b"b", b"2", timestamp=NOW), 3: b""})
    clean_all(log_dir, NOW, config(**FLAGGED))
    data = (log_dir / NAME / f"{0:020d}.log").read_bytes()
    assert data[16] == 1
    assert offsets(log_dir / NAME, 3) == [0, 2]


def test_malformed_headers_are_reported_and_counted(tmp_path: Path) -> None:
    """R280-6: with offsets, in one line however many there are; the partition is cleaned nevertheless."""
    bad = [rec(f"k{number}", b"no") for number in range(9)]
    log_dir = log_of(tmp_path, {0: batches(*bad, rec("a"), rec("b", 1)), 11: b""})
    result = next_round(log_dir)
    assert (result.malformed_versions, result.without_version) == (9, 10)
    assert any("9 of them with a malformed one (at offsets 0, 1, 2, 3, 4, ...)" in note for note in result.notes)
    assert (result.to_json()["malformed_versions"], result.to_json()["without_version"]) == (9, 10)
    grow(log_dir, 11, batches(rec("b", b"no"), first=11))
    grow(log_dir, 12, b"")
    assert next_round(log_dir).malformed_versions == 1, "each counts in the cleaning in which it is dirty"


def test_aborted_data_of_a_clean_segment(tmp_path: Path) -> None:
    """U-2: an aborted record in a segment of the clean section supersedes nothing, however high its version."""
    aborted = encode_batch(
        [rec("k", 99)], base_offset=0, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    )
    marker = encode_marker(1, commit=False, producer_id=7)
    log_dir = log_of(
        tmp_path,
        {0: aborted + marker + batches(rec("k", 3), first=2), 3: batches(rec("k", 5), first=3), 4: b""},
        aborted={0: [(7, 0, 1, 0)]},
    )
    clean_all(log_dir, NOW, BY_VERSION, from_start=False, first_dirty_offset=3)
    assert offsets(log_dir / NAME, 4) == [3]


def test_the_end_of_the_log_stays(tmp_path: Path) -> None:
    """R280-9, U-13: the last record is superseded by version, its offset stays as an empty batch."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 9), rec("k", 1)), 2: b""})
    next_round(log_dir)
    assert offsets(log_dir / NAME, 2) == [0]
    assert read_segments(log_dir / NAME)[0][-1].header.last_offset == 1


def test_the_checkpoint_is_our_own(tmp_path: Path) -> None:
    """U-10: Kafka's checkpoint is neither used nor written for a topic that Kafka would clean in another way."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 9), rec("k", 1)), 2: b""}, cleaner_offset=2)
    result = next_round(log_dir)
    assert (result.first_dirty_offset, result.removed.superseded) == (0, 1)
    assert read_checkpoint(log_dir / CLEANER_CHECKPOINT) == {NAME: 2}
    grow(log_dir, 2, batches(rec("k", 1), first=2))
    grow(log_dir, 3, b"")
    assert next_round(log_dir).first_dirty_offset == 2
    assert read_checkpoint(log_dir / CLEANER_CHECKPOINT) == {NAME: 2}


def test_without_state_the_whole_log_is_dirty(tmp_path: Path) -> None:
    """U-10: only our own state has the offset up to which versions were compared."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 9), rec("k", 1)), 2: b""})
    assert next_round(log_dir).end_offset == 2
    grow(log_dir, 2, batches(rec("a", 1), first=2))
    grow(log_dir, 3, b"")
    for file in (tmp_path / "state").rglob("*.json"):
        file.unlink()
    assert next_round(log_dir).first_dirty_offset == 0


def test_a_new_strategy_cleans_nothing_again(tmp_path: Path) -> None:
    """R280-11, U-6: the clean section stays as it is, and a note says that it was cleaned by another strategy."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 9), rec("a", 5), rec("k", 1)), 3: b""})
    by_offset = config(compaction_strategy="offset", segment_bytes=100)
    next_round(log_dir, topic=by_offset)
    assert offsets(log_dir / NAME, 3) == [1, 2]
    grow(log_dir, 3, batches(rec("a", 4), first=3))
    grow(log_dir, 4, b"")
    result = next_round(log_dir)
    assert (result.first_dirty_offset, offsets(log_dir / NAME, 4)) == (3, [1, 2])
    assert any("Keys without new records stay as they are" in note for note in result.notes)
    grow(log_dir, 4, batches(rec("a", 4), first=4))
    grow(log_dir, 5, b"")
    result = next_round(log_dir, topic=by_offset)
    assert (result.first_dirty_offset, offsets(log_dir / NAME, 5)) == (4, [2, 4])
    assert any("Keys without new records stay as they are" in note for note in result.notes)


def staged(log_dir: Path, *, first_dirty_offset: int | None = None) -> None:
    """A staged cleaning with a running broker."""
    store = StateStore(log_dir.parent / "state")
    options = CleaningOptions(now_ms=NOW, force=True, first_dirty_offset=first_dirty_offset)
    result = stage_partition(read_log_dir(log_dir), store, resources(), PARTITION, BY_VERSION, options, Silent())
    assert result.outcome == "staged", result.reason


def applied(log_dir: Path) -> CleaningResult:
    with LogDirLock.acquire(log_dir, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(log_dir), lock, StateStore(log_dir.parent / "state"), resources())
        return apply_partition(locked, PARTITION, BY_VERSION, CleaningOptions(now_ms=NOW, force=True))


def test_every_segment_that_decides_has_a_witness(tmp_path: Path) -> None:
    """U-3, S-29: the retained record is in an unchanged segment.

    If that is truncated, the staged cleaning is invalid.
    """
    segments = {
        0: batches(rec("k", 9), rec("x", 1)),
        2: batches(rec("a", 1), first=2),
        3: batches(rec("k", 1), first=3),
    }
    log_dir = log_of(tmp_path, {**segments, 4: b""})
    staged(log_dir)
    (manifest,) = (log_dir / NAME).glob(".kstage/*/manifest.json")
    document = json.loads(manifest.read_bytes())
    assert [witness["base"] for witness in document["witnesses"]] == [0, 2, 3]
    assert [group["base"] for group in document["groups"]] == [3], (
        "only the superseded record's segment is written again"
    )
    assert document["strategy_fingerprint"] == "strategy=header;header=version;encoding=long;tombstone.mode=null"
    write_segment(log_dir / NAME, 0, segments[0][: len(segments[0]) // 2])
    result = applied(log_dir)
    assert isinstance(result.error, StalePlanError)
    assert offsets(log_dir / NAME, 4) == [0, 2, 3]


def test_a_staged_cleaning_moves_only_our_checkpoint(tmp_path: Path) -> None:
    """U-10: on-start, as offline."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 9), rec("k", 1)), 2: b""})
    staged(log_dir)
    assert applied(log_dir).outcome == "cleaned"
    assert not read_checkpoint(log_dir / CLEANER_CHECKPOINT)
    grow(log_dir, 2, batches(rec("k", 1), first=2))
    grow(log_dir, 3, b"")
    assert next_round(log_dir).first_dirty_offset == 2


def test_a_staged_cleaning_that_moves_no_checkpoint(tmp_path: Path) -> None:
    """U-10: --first-dirty above the checkpoint rewrites a segment below it; the next cleaning begins as before."""
    log_dir = log_of(tmp_path, {0: batches(rec("k", 1), rec("a", 5)), 2: b""})
    assert next_round(log_dir).end_offset == 2
    for base, number in ((2, 1), (3, 9)):
        grow(log_dir, base, batches(rec("k", number), first=base))
    grow(log_dir, 4, b"")
    staged(log_dir, first_dirty_offset=3)
    assert applied(log_dir).segments_rewritten == 2
    grow(log_dir, 5, b"")
    result = next_round(log_dir)
    assert (result.first_dirty_offset, result.notes) == (2, ())


@pytest.mark.parametrize("map_load", [0.85, 0.02, 0.005])
def test_a_small_map_proves_as_much(tmp_path: Path, map_load: float) -> None:
    """U-1: the keys of tombstones are cut into shards when they do not fit."""
    log_dir = log_of(tmp_path, many_tombstones(90))
    options = CleaningOptions(now_ms=NOW, force=True)
    result = clean(log_dir, options, BY_VERSION, resources(map_bytes=1, map_load=map_load))
    assert (result.removed.tombstone, result.tombstones_waiting) == (60, 30)


def test_a_tombstone_that_fits_no_shard_stays(tmp_path: Path) -> None:
    """U-1: a tombstone without a completed search is not removed."""
    log_dir = log_of(tmp_path, many_tombstones(300))
    result = clean(log_dir, CleaningOptions(now_ms=NOW, force=True), BY_VERSION, resources(map_bytes=1, map_load=0.001))
    assert 0 < result.removed.tombstone < 200
    assert result.removed.tombstone + result.tombstones_waiting == 300
    assert tombstone_guard.TOO_MANY_KEYS in result.notes
    assert not any("another record of their key" in note for note in result.notes)


def test_a_tail_that_cannot_be_read_keeps_them(tmp_path: Path) -> None:
    """U-1: the records behind the damage are unknown; the partition is cleaned, its tombstones wait."""
    segments = many_tombstones(9)
    data = bytearray(batches(rec("x", 1), rec("y", 1), first=18))
    data[-1] ^= 1
    log_dir = log_of(tmp_path, {**segments, 18: bytes(data)})
    result = next_round(log_dir)
    assert (result.outcome, result.removed.tombstone, result.removed.superseded) == ("cleaned", 0, 3)
    assert result.tombstones_waiting == 9
    assert any("cannot be read" in note for note in result.notes)


@pytest.mark.slow
@pytest.mark.parametrize("topic", [BY_HEADER, BY_TIMESTAMP])
def test_same_bytes_with_any_number_of_threads(tmp_path: Path, topic: dict[str, object]) -> None:
    """OP-2: versions do not change that."""
    rows = [
        rec(f"k{n % 700}", n * 7919 % 1000, value=None if n % 50 == 0 else "v" * 50, at=n % 90) for n in range(6000)
    ]
    log = {
        base: b"".join(encode_batch(rows[at : at + 20], base_offset=at) for at in range(base, base + 2000, 20))
        for base in range(0, 6000, 2000)
    }
    found = {}
    for workers, map_bytes, chunk_bytes in (
        (1, 1 << 20, 1 << 20),
        (2, 1 << 20, 1 << 14),
        (4, 1, 1 << 14),
        (3, 1, 1 << 16),
    ):
        log_dir = log_of(tmp_path / f"w{workers}", {**log, 6000: b""})
        with_resources = replace(resources(map_bytes=map_bytes, chunk_bytes=chunk_bytes, map_load=0.2), workers=workers)
        options = CleaningOptions(now_ms=NOW, force=True, first_dirty_offset=2500)
        result = clean(log_dir, options, config(**topic), with_resources)
        assert result.error is None, result.reason
        assert result.removed.superseded > 3000
        logs = sorted((log_dir / NAME).glob("*.log"))
        found[workers] = ([log.read_bytes() for log in logs], result.removed)
    assert found[1] == found[2] == found[3] == found[4]
