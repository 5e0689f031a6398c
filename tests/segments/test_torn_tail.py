"""The trusted part of a torn log (U-32): transactions that are decided below high watermark and recovery point."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.errors import CorruptionError
from cleanerd.format.names import MAX_OFFSET, parse_topic_partition_dir
from cleanerd.segments.cleanable_range import read_bounds
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.torn_tail import decided_aborted, recovered_aborted
from tests.support.log_dirs import Partition, Producer, make_log_dir
from tests.support.logs import Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cleanerd.segments.partition import PartitionLog
    from cleanerd.segments.segment import Segment

NOW = 1_700_000_000_000
Entries = list[tuple[int, int, int]]


def txn(base: int, producer: int = 7, count: int = 1) -> bytes:
    records = [Record(b"k", b"v", NOW)] * count
    return encode_batch(
        records, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def end(base: int, producer: int = 7, *, commit: bool = False) -> bytes:
    return encode_marker(base, commit=commit, producer_id=producer, timestamp=NOW)


def plain(base: int, count: int = 1) -> bytes:
    return keyed_batch(base, [("a", "1")] * count)


def log_of(path: Path, segments: Mapping[int, bytes], **facts: object) -> PartitionLog:
    make_log_dir(path / "logs", {"orders-0": Partition(segments, **facts)}, clean_shutdown=False)  # type: ignore[arg-type]
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    return read_partition(read_log_dir(path / "logs"), name)


def open_limit(log: PartitionLog, *, may_be_torn: bool = True) -> int | None:
    """The start of the first open transaction, as for the limits of a cleaning."""
    with SegmentReader.open(str(log.path), chunk_bytes=100) as reader:
        found = read_bounds(
            log,
            reader,
            first_dirty_offset=0,
            now_ms=NOW,
            min_lag_ms=0,
            max_lag_ms=2**63 - 1,
            may_be_torn=may_be_torn,
        )
    return found.bound.limits.get("an open transaction")


def aborted(log: PartitionLog, bound: int = 28) -> Entries:
    with SegmentReader.open(str(log.path), chunk_bytes=100) as reader:
        entries = decided_aborted(log, reader, bound, may_be_torn=True).entries
    return [(int(e["producer_id"]), int(e["first_offset"]), int(e["last_offset"])) for e in entries]


SEGMENTS = {0: plain(0, 10), 10: txn(10) + plain(11, 9), 20: plain(20, 5) + end(25) + plain(26, 4), 30: plain(30, 5)}


@pytest.mark.parametrize(
    ("recovery_point", "high_watermark", "expected"),
    [
        pytest.param(30, 35, None, id="the marker lies below both"),
        pytest.param(26, 35, None, id="just below"),
        pytest.param(25, 35, 10, id="the marker may be lost with the power"),
        pytest.param(20, 35, 10, id="and its segment"),
        pytest.param(30, 25, 10, id="S-04: it is not committed"),
        pytest.param(10, 35, None, id="the transaction itself may be lost"),
    ],
)
def test_a_marker_closes_below_the_recovery_point(
    tmp_path: Path, recovery_point: int, high_watermark: int, expected: int | None
) -> None:
    """U-32: a marker above it closes no transaction; in an undamaged log only the high watermark counts (S-04)."""
    log = log_of(tmp_path, SEGMENTS, recovery_point=recovery_point, high_watermark=high_watermark)
    assert open_limit(log) == expected
    assert open_limit(log, may_be_torn=False) == (10 if high_watermark == 25 else None)


def test_a_snapshot_from_above_the_recovery_point(tmp_path: Path) -> None:
    """U-32: it knows a marker that the recovery truncates with the damaged segment before it."""
    segments = {**SEGMENTS, 20: plain(20, 5)[:-1], 30: plain(30, 5)}
    known = {20: [Producer(7, 10, NOW, open_from=10)], 30: [Producer(7, 10, NOW)]}
    assert open_limit(log_of(tmp_path, segments, snapshots=known, recovery_point=20, high_watermark=35)) == 10


@pytest.mark.parametrize(
    "index",
    [
        pytest.param([], id="none of it"),
        pytest.param([(7, 10, 25, 10)], id="all of it"),
        pytest.param([(9, 9, 22, 9)], id="of another log"),
    ],
)
def test_the_log_of_the_recovery_points_segment_is_read(tmp_path: Path, index: list[tuple[int, int, int, int]]) -> None:
    """U-32: a recovering broker has emptied its index; the entries are those that the recovery writes."""
    log = log_of(tmp_path, SEGMENTS, aborted={20: index}, recovery_point=28, high_watermark=35)
    assert aborted(log) == [(7, 10, 25)]
    assert aborted(log, bound=10) == [], "later transactions do not matter"


def test_indexes_below_are_used(tmp_path: Path) -> None:
    """U-12: they are on the disk, and may have entries that a cleaning removed: the log is not read for them."""
    log = log_of(tmp_path, SEGMENTS, aborted={20: [(7, 9, 25, 9)]}, recovery_point=30, high_watermark=35)
    assert aborted(log) == [(7, 9, 25)]


def test_indexes_above_the_recovery_point_are_not_read(tmp_path: Path) -> None:
    """U-32: indexes from the recovery point's segment on may contain anything; the log is read up to its damage."""
    segments = {**SEGMENTS, 30: txn(30, 8) + end(31, 8) + txn(32, 8) + end(33, 8)[:-1]}
    log = log_of(tmp_path, segments, recovery_point=28, high_watermark=40)
    (log.path / f"{30:020d}.txnindex").write_bytes(b"\xff" * 40)
    assert aborted(log) == [(7, 10, 25)]
    with SegmentReader.open(str(log.path), chunk_bytes=100) as reader:
        found = recovered_aborted(log, reader, MAX_OFFSET).entries
    assert found["last_offset"].tolist() == [25, 31], "for a reader of all of the log"


def test_several_transactions_of_one_producer(tmp_path: Path) -> None:
    """Each marker ends the transaction that began after the previous one; an emptied or committed one names none."""
    active = end(20) + txn(21) + txn(22) + end(23) + end(24) + txn(25) + end(26, commit=True) + txn(27) + end(28)
    segments = {0: plain(0, 10), 10: plain(10, 10), 20: active + txn(29) + end(30)}
    log = log_of(tmp_path, segments, recovery_point=30, high_watermark=40)
    assert aborted(log) == [(7, 21, 23), (7, 27, 28)], "the transaction that ends at 30 is not decided"
    known = {20: [Producer(7, 12, NOW, open_from=12)]}
    log = log_of(tmp_path / "open before", segments, recovery_point=30, high_watermark=40, snapshots=known)
    assert aborted(log) == [(7, 12, 20), (7, 21, 23), (7, 27, 28)]


def whole(log: PartitionLog, bound: int = 40) -> Entries:
    """The same for a log that was stopped cleanly."""
    with SegmentReader.open(str(log.path), chunk_bytes=100) as reader:
        entries = decided_aborted(log, reader, bound, may_be_torn=False).entries
    return [(int(e["producer_id"]), int(e["first_offset"]), int(e["last_offset"])) for e in entries]


@pytest.mark.parametrize("indexes", [(), (0,), (10, 20), (20,), (20, 30), (0, 10, 20, 30)])
def test_indexes_that_the_broker_rebuilds(tmp_path: Path, indexes: tuple[int, ...]) -> None:
    """F-8: only if the offset index is missing, the log counts; the content of its transaction index does not."""
    segments = {**SEGMENTS, 10: txn(10) + end(11) + txn(12) + plain(13, 7), 30: txn(30) + end(31)}
    known = {10: [(7, 10, 11, 10)], 20: [(7, 11, 25, 11)], 30: [(7, 29, 31, 29)]}
    rebuilt = {10: [(7, 10, 11)], 20: [(7, 12, 25)], 30: [(7, 30, 31)]}
    log_of(tmp_path, segments, aborted=known)
    for base in indexes:
        (tmp_path / "logs" / "orders-0" / f"{base:020d}.index").unlink()
    expected = [entry for base in known for entry in (rebuilt[base] if base in indexes else [known[base][0][:3]])]
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = read_partition(read_log_dir(tmp_path / "logs"), name)
    assert whole(log) == expected
    assert whole(replace(log, last_stable_offset=40)) == [entries[0][:3] for entries in known.values()], (
        "a broker that runs has loaded its log"
    )


def test_every_other_index_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-8: each segment is read a few times, however many are rebuilt; from the beginning for each was quadratic."""
    segments = {4 * row: txn(4 * row) + end(4 * row + 1) + txn(4 * row + 2) + end(4 * row + 3) for row in range(60)}
    log_of(tmp_path, segments)
    for base in list(segments)[::2]:
        (tmp_path / "logs" / "orders-0" / f"{base:020d}.index").unlink()
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = read_partition(read_log_dir(tmp_path / "logs"), name)
    times: Counter[int] = Counter()
    real = SegmentReader.chunks

    def counted(reader: SegmentReader, segment: Segment, call: Any, *, start: int = 0) -> Any:
        times[segment.base] += 1
        return real(reader, segment, call, start=start)

    monkeypatch.setattr(SegmentReader, "chunks", counted)  # the number of reads is not visible in any result
    expected = [(7, base + at, base + at + 1) for base in list(segments)[:-1:2] for at in (0, 2)]
    assert sorted(whole(log, bound=240)) == sorted(expected)
    assert max(times.values()) <= 4, times


def test_entries_of_another_segment(tmp_path: Path) -> None:
    """F-8: a marker below the segment's base cannot be its own: the broker rebuilds the index."""
    log = log_of(tmp_path, SEGMENTS, aborted={20: [(7, 3, 19, 3)]})
    assert whole(log) == [(7, 10, 25)]


def test_damage_below_the_recovery_point(tmp_path: Path) -> None:
    """S-27: that is not a torn end: no guesses."""
    segments = {**SEGMENTS, 10: txn(10)[:-1]}
    with pytest.raises(CorruptionError):
        open_limit(log_of(tmp_path, segments, recovery_point=30, high_watermark=35))


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("at", [61, -1])
def test_damage_before_a_marker_with_missing_indexes(tmp_path: Path, torn: bool, at: int) -> None:
    """F-8, U-32: damage below the recovery point does not end the search, which would miss the ABORT after it."""
    damaged = bytearray(SEGMENTS[10])
    damaged[at] ^= 1
    segments = {0: txn(0) + plain(1, 9), 10: bytes(damaged), 20: end(20) + end(21), 30: plain(30, 5), 35: plain(35)}
    snapshot = {10: [Producer(7, 0, NOW, open_from=0)], 30: [Producer(7, 0, NOW)]}
    log_of(tmp_path, segments, recovery_point=30, high_watermark=36, snapshots=snapshot)
    for base in (10, 20):
        (tmp_path / "logs" / "orders-0" / f"{base:020d}.index").unlink()
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = read_partition(read_log_dir(tmp_path / "logs"), name)
    assert open_limit(log, may_be_torn=torn) is None, "by the snapshot, without reading the damage"
    with pytest.raises(CorruptionError) as caught:
        aborted(log) if torn else whole(log)
    assert f"{10:020d}.log" in str(caught.value)
