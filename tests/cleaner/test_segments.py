"""Segments that are merged, split, large, empty or damaged: the cleaner on handmade logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import CleanerdError
from tests.cleaner.driver import NAME, clean, clean_all, config, resources, scratch
from tests.cleaner.keyed_log import NOW, batch, keys, lopsided, tail
from tests.cleaner.model import Rules, check_cleaned
from tests.support.log_dirs import CLEANER_CHECKPOINT, Partition, make_log_dir, read_checkpoint, read_segments, tree
from tests.support.logs import encode_batch, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def sizes(root: Path) -> dict[int, int]:
    return {int(log.stem): log.stat().st_size for log in sorted((root / NAME).glob("*.log"))}


def test_group_that_grows(root: Path) -> None:
    """U-17: four sources seem to fit one segment, two do: split at a source edge, nothing lost, no limit passed."""
    logs = {10 * row: lopsided(10 * row, f"k{row}", 900) for row in range(4)}
    make_log_dir(root, {NAME: Partition({**logs, 40: tail(40), 50: batch(50, ("z", "1"))})})
    before = read_segments(root / NAME)
    result = clean_all(root, NOW, config(segment_bytes=2100))
    check_cleaned(before, read_segments(root / NAME), Rules(0, 50, 50, NOW, 86_400_000, ()))
    assert sizes(root).keys() == {0, 20, 40, 50}
    assert all(size <= 2100 for size in sizes(root).values())
    assert result.segments_rewritten == 4
    assert not (root / NAME / ".kstage").exists()
    again = clean_all(root, NOW, config(segment_bytes=2100))
    assert again.outcome == "unchanged"


@pytest.mark.parametrize("closed_ms", [-1, 0, NOW - 10**9, NOW + 10**9])
@pytest.mark.parametrize("has_times", [True, False])
def test_times_of_batches_without_records(root: Path, closed_ms: int, *, has_times: bool) -> None:
    """U-17, U-13: whatever time an emptied batch has, it does not separate small segments of `compact,delete`.

    Each of the first six was closed by an earlier cleaning; the seventh is changed by this one.
    """
    timestamp = NOW - 1000 if has_times else -1
    closed = {
        10 * row: keyed_batch(10 * row, [(f"k{row}", "1")], timestamp=timestamp)
        + encode_batch([], base_offset=10 * row + 9, max_timestamp=closed_ms)
        for row in range(6)
    }
    changes = keyed_batch(60, [("k6", "1"), ("g", "1")], timestamp=timestamp)
    logs = {**closed, 60: changes, 70: keyed_batch(70, [("g", "2")], timestamp=timestamp), 80: b""}
    make_log_dir(root, {NAME: Partition(logs, mtime_ms=NOW)})
    clean_all(root, NOW, config(cleanup_policy="compact,delete", retention_ms=10**8))
    assert list(sizes(root)) == [0, 80]
    assert keys(root)[0] == [*((10 * row, f"k{row}") for row in range(7)), (70, "g")]


def test_times_of_records(root: Path) -> None:
    """U-17: segments whose records are more than a tenth of the retention apart stay apart."""
    old = keyed_batch(0, [("k0", "1")], timestamp=NOW - 10**7 - 1001)
    make_log_dir(root, {NAME: Partition({0: old, 10: batch(10, ("k1", "1"), ("k1", "2")), 20: b""})})
    clean_all(root, NOW, config(cleanup_policy="compact,delete", retention_ms=10**8))
    assert list(sizes(root)) == [0, 10, 20]


def test_every_source_alone(root: Path) -> None:
    """U-17: splitting continues until a source is alone, and that one may be larger than segment.bytes (C-63)."""
    logs = {10 * row: lopsided(10 * row, f"k{row}", 3000) for row in range(4)}
    make_log_dir(root, {NAME: Partition({**logs, 40: tail(40), 50: b""})})
    clean_all(root, NOW, config(segment_bytes=2000))
    assert sizes(root).keys() == {0, 10, 20, 30, 40, 50}
    assert keys(root)[20] == [(29, "k2")]
    assert clean_all(root, NOW, config(segment_bytes=2000)).outcome == "unchanged"


def test_unchanged_member_of_a_split_group(root: Path) -> None:
    """U-17: a small unchanged segment that only joined stays as it is when the group is split."""
    logs = {0: batch(0, ("own", "1")), 10: lopsided(10, "k1", 1950), 20: lopsided(20, "k2", 1950)}
    make_log_dir(root, {NAME: Partition({**logs, 40: tail(40), 50: b""})})
    unchanged = (root / NAME / f"{0:020d}.log").stat()
    clean_all(root, NOW, config(segment_bytes=2000))
    assert sizes(root).keys() == {0, 10, 20, 40, 50}
    left = (root / NAME / f"{0:020d}.log").stat()
    assert (left.st_ino, left.st_mtime_ns) == (unchanged.st_ino, unchanged.st_mtime_ns)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batch_that_grows_by_compression(root: Path, codec: int) -> None:
    """T-28: the estimate is a share of compressed bytes; retained records compress worse than removed ones."""
    noise = bytes((97 + (number * number * 7919 >> 5) % 26) for number in range(4000)).decode()
    logs = {
        10 * row: batch(10 * row, *[(f"s{n}", "x" * 2000) for n in range(9)], (f"k{row}", noise[row:]), codec=codec)
        for row in range(3)
    }
    make_log_dir(root, {NAME: Partition({**logs, 30: tail(30), 50: b""})})
    before = read_segments(root / NAME)
    limit = len(logs[0]) + 100
    clean_all(root, NOW, config(segment_bytes=limit))
    check_cleaned(before, read_segments(root / NAME), Rules(0, 50, 50, NOW, 86_400_000, ()))
    assert all(size <= limit for size in sizes(root).values())


def test_batch_larger_than_the_buffer(root: Path) -> None:
    """C-60, KAFKA-6834: whatever the buffer and max.message.bytes, in every phase."""
    large = batch(1, ("b", "x" * 300_000), ("a", "2"))
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1")) + large, 3: batch(3, ("b", "3")), 4: b""})})
    result = clean_all(root, NOW, config(max_message_bytes=100), resources(chunk_bytes=64))
    assert keys(root) == {0: [(2, "a"), (3, "b")], 4: []}
    assert not any("max.message.bytes" in note for note in result.notes)


def test_oversize_is_reported(root: Path) -> None:
    """R534-5, C-55: a batch that only its new delete horizon makes too large is written nevertheless, and reported."""
    grown = batch(0, ("a", "1"), *[(f"k{number}", None) for number in range(200)])
    make_log_dir(root, {NAME: Partition({0: grown, 201: batch(201, ("a", "3")), 202: b""})})
    result = clean_all(root, NOW, config(max_message_bytes=len(grown)))
    assert any("1 rewritten batches" in note and str(len(grown)) in note for note in result.notes)
    assert keys(root)[0][-1] == (201, "a")


def test_oversize_is_growth(root: Path) -> None:
    """C-55: a rebuilt batch that was over the limit before and is smaller now is not reported."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1"), ("b", "x" * 500)), 2: batch(2, ("a", "3")), 3: b""})})
    result = clean_all(root, NOW, config(max_message_bytes=400))
    assert keys(root)[0] == [(1, "b"), (2, "a")]
    assert not any("max.message.bytes" in note for note in result.notes)


def test_largest_relative_offset(root: Path) -> None:
    """C-63: exactly 2^31 - 1 is fine, in one segment and in a merged one."""
    data = batch(0, ("a", "1")) + batch(2**31 - 1, ("a", "2"))
    make_log_dir(root, {NAME: Partition({0: data, 2**32: b""})})
    clean_all(root, NOW)
    assert keys(root)[0] == [(2**31 - 1, "a")]


def test_all_superseded(root: Path) -> None:
    """LogCleanerTest, U-13: three segments without a survivor become one with one empty batch, the last one."""
    logs = {base: batch(base, ("a", str(base)), ("b", "1")) for base in (0, 2, 4)}
    make_log_dir(root, {NAME: Partition({**logs, 6: batch(6, ("a", "9"), ("b", "9")), 8: b""})})
    clean_all(root, NOW, first_dirty_offset=None)
    assert keys(root) == {0: [(6, "a"), (7, "b")], 8: []}
    stored = read_segments(root / NAME)[0]
    assert [found.header.last_offset for found in stored] == [7], "no empty batch is kept in the middle of a group"


def test_end_of_the_log_stays(root: Path) -> None:
    """R280-9, U-13, T-18: the last batch below the bound, emptied, so that the log end offset survives."""
    make_log_dir(root, {NAME: Partition({0: batch(0, (None, "1")) + batch(1, (None, "2"), (None, "3")), 3: b""})})
    result = clean_all(root, NOW)
    (left,) = read_segments(root / NAME)[0]
    assert (left.header.base_offset, left.header.last_offset, left.records) == (1, 2, ())
    assert (result.removed.no_key, result.removed.total) == (3, 3)
    assert clean_all(root, NOW).outcome == "unchanged"


def test_hollow_segments(root: Path) -> None:
    """D-03, C-64: files of 0 bytes go with a neighbour, and the base is that of the first source."""
    logs = {0: b"", 5: b"", 10: batch(10, ("a", "1")), 11: b"", 12: batch(12, ("a", "2")), 13: b"", 20: b""}
    make_log_dir(root, {NAME: Partition(logs)})
    clean_all(root, NOW)
    assert keys(root) == {0: [(12, "a")], 20: []}
    assert clean_all(root, NOW).outcome == "unchanged"


def test_hollow_segment_at_the_end_of_a_group(root: Path) -> None:
    """D-03, U-13: the retained batch is the last one of the last source that is NOT empty."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1")), 1: batch(1, (None, "x")), 2: b"", 10: b""})})
    clean_all(root, NOW)
    stored = read_segments(root / NAME)
    assert [(found.header.last_offset, len(found.records)) for found in stored[0]] == [(0, 1), (1, 0)]
    assert list(stored) == [0, 10]


def test_only_hollow_segments(root: Path) -> None:
    """D-03: of nothing but 0-byte segments no group is formed; they count as clean."""
    make_log_dir(root, {NAME: Partition({0: b"", 5: b"", 10: batch(10, ("a", "1"))})})
    assert clean_all(root, NOW).outcome == "unchanged"
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 10}


def test_gap_at_a_segment_end(root: Path) -> None:
    """C-23, KAFKA-8764: the checkpoint is the bound, not the last offset that exists."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1")), 100: batch(100, ("a", "2")), 200: b""})})
    assert clean_all(root, NOW).end_offset == 200
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == {NAME: 200}
    result = clean(root, CleaningOptions(now_ms=NOW, force=True))
    assert (result.outcome, result.first_dirty_offset) == ("skipped", 200)


def test_two_passes_for_a_tombstone(root: Path) -> None:
    """R534-1, R534-2, C-47: kept with its horizon, kept one millisecond before it, removed at it.

    Timestamps unchanged.
    """
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1"), ("a", None)), 2: batch(2, ("b", "1")), 3: b""})})
    topic = config(delete_retention_ms=1000)
    assert clean_all(root, NOW, topic).removed.tombstone == 0
    stored = read_segments(root / NAME)[0][0]
    assert stored.header.delete_horizon_ms == NOW + 1000
    assert [(record.offset, record.value, record.timestamp) for record in stored.records] == [(1, None, NOW - 1000)]
    assert clean_all(root, NOW + 999, topic).outcome == "unchanged"
    assert clean_all(root, NOW + 1000, topic).removed.tombstone == 1
    assert keys(root)[0] == [(2, "b")]


def test_no_retention_takes_two_passes(root: Path) -> None:
    """C-47: even with delete.retention.ms = 0."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", None)), 1: batch(1, ("b", "1")), 2: b""})})
    topic = config(delete_retention_ms=0)
    assert clean_all(root, NOW, topic).removed.tombstone == 0
    assert clean_all(root, NOW, topic).removed.tombstone == 1


def test_horizon_that_overflows(root: Path) -> None:
    """C-50, T-34: no bit is written and the tombstone is never removed; no note says that it will be."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1"), ("a", None)), 2: b""})})
    topic = config(delete_retention_ms=2**63 - 1)
    for _ in range(3):
        result = clean_all(root, NOW, topic)
        assert (result.removed.tombstone, "horizon" in str(result.notes)) == (0, False)
    (stored,) = read_segments(root / NAME)[0]
    assert (stored.header.delete_horizon_ms, len(stored.records)) == (None, 1)
    assert stored.records[0].timestamp == NOW - 1000


def test_horizon_is_not_moved(root: Path) -> None:
    """C-49: a later retention changes nothing for a batch that has its horizon."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", None), ("b", "1")), 2: batch(2, ("c", "1")), 3: b""})})
    clean_all(root, NOW, config(delete_retention_ms=1000))
    assert clean_all(root, NOW + 500, config(delete_retention_ms=5_000_000)).outcome == "unchanged"
    assert clean_all(root, NOW + 1000, config(delete_retention_ms=5_000_000)).removed.tombstone == 1
    stored = read_segments(root / NAME)[0][0]
    assert stored.header.delete_horizon_ms == NOW + 1000, "kept by a rewrite without tombstones"


def test_clean_section_is_compared_with_the_dirty_section(root: Path) -> None:
    """C-45.3: dirty records supersede clean ones, and clean records never supersede each other (R280-11)."""
    logs = {0: batch(0, ("a", "1"), ("a", "2"), ("b", "1")), 3: batch(3, ("b", "2"), ("c", "1")), 5: b""}
    make_log_dir(root, {NAME: Partition(logs, cleaner_offset=3)})
    result = clean(root, CleaningOptions(now_ms=NOW, force=True))
    assert (result.first_dirty_offset, result.end_offset) == (3, 5)
    assert keys(root)[0] == [(0, "a"), (1, "a"), (3, "b"), (4, "c")]


@pytest.mark.parametrize("first_dirty", range(7))
@pytest.mark.parametrize("up_to", range(7))
def test_every_range(root: Path, first_dirty: int, up_to: int) -> None:
    """C-17, C-20, C-45.1, S-05, U-20: first dirty and end anywhere; records above the end remove nothing."""
    logs = {
        0: batch(0, ("a", "0"), ("b", "1"), ("a", None)),
        3: batch(3, ("b", None)) + batch(4, ("a", "4"), (None, "5")),
        6: batch(6, ("a", "6")),
    }
    make_log_dir(root, {NAME: Partition(logs)})
    before = read_segments(root / NAME)
    result = clean(root, CleaningOptions(now_ms=NOW, force=True, first_dirty_offset=first_dirty, up_to_offset=up_to))
    assert result.error is None
    assert (result.outcome == "skipped") == (up_to <= first_dirty)
    after = read_segments(root / NAME)
    if result.outcome == "skipped":
        assert before == after
    else:
        check_cleaned(before, after, Rules(first_dirty, up_to, 6, NOW, 86_400_000, ()))
    expected = {NAME: up_to} if first_dirty == 0 and up_to > 0 else {}
    assert read_checkpoint(root / CLEANER_CHECKPOINT) == expected, "a gap is never called clean"


def test_records_below_the_log_start(root: Path) -> None:
    """C-15: the cleaner neither skips nor removes them; they belong to the clean section."""
    logs = {0: batch(0, ("a", "1"), ("b", "1"), ("c", "1")), 3: batch(3, ("a", "2")), 4: b""}
    make_log_dir(root, {NAME: Partition(logs, log_start_offset=2)})
    assert clean(root, CleaningOptions(now_ms=NOW, force=True)).first_dirty_offset == 2
    assert keys(root)[0] == [(1, "b"), (2, "c"), (3, "a")]


def test_decompression_bomb(root: Path) -> None:
    """T-27: a small batch that decompresses to more than the limit is refused before memory is used."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "x" * 5_000_000), codec=4), 1: b""})})
    before = tree(root)
    result = clean(root, CleaningOptions(now_ms=NOW, force=True), with_resources=resources(max_unpacked_bytes=1 << 20))
    assert isinstance(result.error, CleanerdError)
    assert tree(root) == before


def test_keys_that_do_not_fit_the_map(root: Path) -> None:
    """OP-2, U-20: as many shards as necessary, and the same result."""
    entries = [(f"key-{number}", "v") for number in range(200)]
    make_log_dir(root, {NAME: Partition({0: batch(0, *entries), 200: batch(200, *entries), 400: b""})})
    result = clean_all(root, NOW, None, resources(map_bytes=1, map_load=0.005))
    assert result.passes > 8
    assert (result.removed.superseded, result.records_kept) == (200, 200)
    assert [offset for offset, _ in keys(root)[0]] == list(range(200, 400))


@pytest.mark.parametrize("index_bytes", [4, 8, 12, 24])
@pytest.mark.parametrize("interval_bytes", [0, 1, 10_000])
def test_tiny_indexes(root: Path, index_bytes: int, interval_bytes: int) -> None:
    """T-30, T-36: an index without space is full at once; the data is not affected."""
    logs = {base: batch(base, ("a", str(base))) + batch(base + 1, (f"k{base}", "1")) for base in range(0, 20, 2)}
    make_log_dir(root, {NAME: Partition({**logs, 20: b""})})
    topic = config(segment_index_bytes=index_bytes, index_interval_bytes=interval_bytes)
    clean_all(root, NOW, topic)
    left = [record for found in keys(root).values() for record in found]
    assert left == [*((base + 1, f"k{base}") for base in range(0, 18, 2)), (18, "a"), (19, "k18")]
    sizes_of_indexes = [(root / NAME / f"{0:020d}.{suffix}").stat().st_size for suffix in ("index", "timeindex")]
    assert sizes_of_indexes[0] <= index_bytes
    assert sizes_of_indexes[1] <= max(index_bytes, 12), "the closing entry is written nevertheless, as Kafka does"
    assert clean_all(root, NOW, topic).outcome == "unchanged"


@pytest.mark.parametrize("segment_bytes", [14, 61, 100])
def test_tiny_segments(root: Path, segment_bytes: int) -> None:
    """C-63: nothing fits together, so every source stays alone."""
    logs = {base: batch(base, ("a", str(base))) for base in range(5)}
    make_log_dir(root, {NAME: Partition({**logs, 5: b""})})
    clean_all(root, NOW, config(segment_bytes=segment_bytes))
    assert keys(root)[4] == [(4, "a")]
    assert all(not found for base, found in keys(root).items() if base != 4)


@pytest.mark.parametrize("now_ms", [0, 2**63 - 1, 2**63, 2**80])
def test_any_clock(root: Path, now_ms: int) -> None:
    """C-50: a clock at either end of time does no harm."""
    make_log_dir(root, {NAME: Partition({0: batch(0, ("a", "1"), ("a", None)), 2: b""})})
    result = clean(
        root, CleaningOptions(now_ms=now_ms, force=True), config(min_compaction_lag_ms=0, max_compaction_lag_ms=1)
    )
    assert result.error is None
    assert keys(root)[0] == [(1, "a")]
    (stored,) = read_segments(root / NAME)[0]
    assert stored.header.delete_horizon_ms == (86_400_000 if now_ms == 0 else None)
    assert stored.records[0].timestamp == NOW - 1000
