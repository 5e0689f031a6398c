"""First dirty and first uncleanable offset, from the files on the disk (S-01, C-05..C-11, C-86)."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import CorruptionError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd.segments.cleanable_range import CleanableRange, log_end_offset, read_bounds
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.reading import SegmentReader
from tests.support.log_dirs import Partition, make_log_dir, set_mtime
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, keyed_batch

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000_000
HOUR = 3_600_000
NO_LAG = 2**63 - 1


def batch(base: int, age_ms: int = 0, count: int = 10) -> bytes:
    return keyed_batch(base, [("a", "1")] * count, timestamp=NOW - age_ms)


def ages(*hours: int) -> dict[int, bytes]:
    """Segments of ten offsets with these ages in hours."""
    return {10 * row: batch(10 * row, hour * HOUR) for row, hour in enumerate(hours)}


def bounds(
    path: Path,
    partition: Partition | None,
    *,
    first_dirty: int = 0,
    min_lag: int = 0,
    max_lag: int = NO_LAG,
    stable: int | None = None,
    reads_batches: bool = False,
) -> CleanableRange:
    if partition is not None:
        make_log_dir(path / "logs", {"orders-0": partition})
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = replace(read_partition(read_log_dir(path / "logs"), name), last_stable_offset=stable)
    with SegmentReader.open(str(log.path), chunk_bytes=100) as reader:
        return read_bounds(
            log,
            reader,
            first_dirty_offset=first_dirty,
            now_ms=NOW,
            min_lag_ms=min_lag,
            max_lag_ms=max_lag,
            reads_batches=reads_batches,
        )


def end(path: Path, partition: Partition) -> int:
    make_log_dir(path / "logs", {"orders-0": partition})
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = read_partition(read_log_dir(path / "logs"), name)
    with SegmentReader.open(str(log.path), chunk_bytes=100) as reader:
        return log_end_offset(log, reader)


def test_limits(tmp_path: Path) -> None:
    """S-01: active segment, high watermark, recovery point; sizes below the limit (C-08)."""
    segments = ages(0, 0, 0, 0)
    found = bounds(tmp_path, Partition(segments), first_dirty=15)
    assert (found.bound.offset, found.bound.limited_by) == (30, "the active segment")
    assert found.bound.limits == {"the active segment": 30, "the high watermark": 40, "the recovery point": 40}
    assert found.dirtiness.clean_bytes == len(segments[0]) + len(segments[10])
    assert found.dirtiness.cleanable_bytes == len(segments[10]) + len(segments[20])


@pytest.mark.parametrize(
    ("high_watermark", "recovery_point", "expected", "by"),
    [
        pytest.param(25, 40, 20, "the high watermark", id="C-07: in the middle of a segment, rounds down"),
        pytest.param(20, 40, 20, "the high watermark", id="on an edge"),
        pytest.param(0, 40, 0, "the high watermark", id="C-86: nothing is committed, nothing is cleanable"),
        pytest.param(40, 12, 10, "the recovery point", id="S-02: beyond it the disk may hold anything"),
        pytest.param(40, 0, 0, "the recovery point", id="S-02: no entry"),
    ],
)
def test_checkpoints(tmp_path: Path, high_watermark: int, recovery_point: int, expected: int, by: str) -> None:
    """S-01, S-02, C-07, C-86, T-17."""
    partition = Partition(ages(0, 0, 0, 0), high_watermark=high_watermark, recovery_point=recovery_point)
    found = bounds(tmp_path, partition)
    assert (found.bound.offset, found.bound.limited_by) == (expected, by)


@pytest.mark.parametrize(
    ("hours", "lag", "expected"),
    [
        pytest.param((3, 2, 1, 0), HOUR + 1, 20, id="C-05: the first that is too young"),
        pytest.param((3, 2, 1, 0), HOUR, 30, id="C-05: exactly the lag is old enough"),
        pytest.param((3, 0, 3, 0), HOUR, 10, id="old ones behind a young one have to wait"),
        pytest.param((3, 3, 3, 0), HOUR, 30, id="the age of the active segment does not matter"),
    ],
)
def test_min_lag(tmp_path: Path, hours: tuple[int, ...], lag: int, expected: int) -> None:
    """C-05: by the time index, not by the file's modification time (which is now)."""
    assert bounds(tmp_path, Partition(ages(*hours)), min_lag=lag).bound.offset == expected


def test_min_lag_by_modification_time(tmp_path: Path) -> None:
    """C-05: without a time index, or with an empty one, the file's time counts."""
    log = Partition(ages(0, 0, 0, 0), indexes=False, mtime_ms=NOW - 2 * HOUR)
    assert bounds(tmp_path, log, min_lag=HOUR).bound.offset == 30
    path = tmp_path / "logs" / "orders-0"
    set_mtime(path / f"{10:020d}.log", NOW - HOUR + 1)
    assert bounds(tmp_path, None, min_lag=HOUR).bound.offset == 10
    (path / f"{10:020d}.timeindex").write_bytes(b"\x00" * 120)
    assert bounds(tmp_path, None, min_lag=HOUR).bound.offset == 10, "a preallocated one is empty"


OLD_ENTRY = struct.pack(">qi", NOW - 20 * HOUR, 0)
YOUNG_ENTRY = struct.pack(">qi", NOW, 0)


@pytest.mark.parametrize(
    ("hours", "index", "expected"),
    [
        pytest.param(0, OLD_ENTRY, 10, id="ends too early"),
        pytest.param(0, b"", 10, id="empty, and the file is old"),
        pytest.param(0, None, 10, id="missing, and the file is old"),
        pytest.param(3, OLD_ENTRY, 30, id="both are old"),
        pytest.param(3, YOUNG_ENTRY, 10, id="young by its index, as with Kafka"),
    ],
)
def test_the_age_of_a_segment_is_read_from_its_batches(
    tmp_path: Path, hours: int, index: bytes | None, expected: int
) -> None:
    """U-51: the time index is a hint; once the batches were read, a scan without reading uses their times too."""
    make_log_dir(tmp_path / "logs", {"orders-0": Partition(ages(3, hours, 3, 0), mtime_ms=NOW - 20 * HOUR)})
    file = tmp_path / "logs" / "orders-0" / f"{10:020d}.timeindex"
    file.unlink()
    if index is not None:
        file.write_bytes(index)
    for reads_batches in (True, False):
        assert bounds(tmp_path, None, min_lag=HOUR, reads_batches=reads_batches).bound.offset == expected


def test_batches_without_a_time(tmp_path: Path) -> None:
    """U-51, C-05: then the file's time counts, as with Kafka."""
    timeless = {0: keyed_batch(0, [("a", "1")], timestamp=-1), 1: batch(1, 0)}
    log = Partition(timeless, indexes=False, mtime_ms=NOW - HOUR + 1)
    assert bounds(tmp_path, log, min_lag=HOUR, reads_batches=True).bound.offset == 0
    set_mtime(tmp_path / "logs" / "orders-0" / f"{0:020d}.log", NOW - HOUR)
    assert bounds(tmp_path, None, min_lag=HOUR, reads_batches=True).bound.offset == 1


def test_possibly_torn_segments_are_not_read_for_their_age(tmp_path: Path) -> None:
    """U-51, U-32: no batch beyond the recovery point is cleaned."""
    log = Partition({**ages(3, 3, 0), 10: b"\xff" * 80}, indexes=False, recovery_point=15, mtime_ms=NOW - 2 * HOUR)
    found = bounds(tmp_path, log, min_lag=HOUR, stable=40, reads_batches=True)
    assert found.bound.offset == 10


def test_min_lag_of_clean_segments(tmp_path: Path) -> None:
    """C-05: only from the segment with first dirty on: a young clean segment limits nothing."""
    assert bounds(tmp_path, Partition(ages(0, 2, 2, 0)), first_dirty=10, min_lag=HOUR).bound.offset == 30
    assert bounds(tmp_path / "b", Partition(ages(0, 2, 2, 0)), first_dirty=9, min_lag=HOUR).bound.offset == 0


def test_max_lag(tmp_path: Path) -> None:
    """C-10: from the largest timestamp of each dirty segment's FIRST batch."""
    segments = {
        0: batch(0, 9 * HOUR),
        10: batch(10, 2 * HOUR) + batch(20, 8 * HOUR),
        30: batch(30, HOUR),
        40: batch(40),
    }
    found = bounds(tmp_path, Partition(segments), first_dirty=10, max_lag=HOUR)
    assert found.overdue_ms == HOUR
    assert bounds(tmp_path, None, first_dirty=0, max_lag=HOUR).overdue_ms == 8 * HOUR
    assert bounds(tmp_path, None, first_dirty=30, max_lag=HOUR).overdue_ms == 0
    assert bounds(tmp_path, None, first_dirty=40, max_lag=1).overdue_ms == 0, "C-10: never the active segment"
    assert bounds(tmp_path, None, first_dirty=0).overdue_ms == 0, "no lag is set"


def test_max_lag_of_empty_segments(tmp_path: Path) -> None:
    """C-10: no value; D-03 segments have no first batch."""
    assert bounds(tmp_path, Partition({0: b"", 10: b"", 20: batch(20)}), max_lag=1).overdue_ms == 0


def test_damaged_time_index(tmp_path: Path) -> None:
    """U-51: a damaged time index that is needed is reported, with the way out; one that is not needed is not read."""
    make_log_dir(tmp_path / "logs", {"orders-0": Partition(ages(2, 2, 2))})
    broken = tmp_path / "logs" / "orders-0" / f"{10:020d}.timeindex"
    broken.write_bytes(b"\x01" * 13)
    assert bounds(tmp_path, None).bound.offset == 20
    with pytest.raises(CorruptionError) as raised:
        bounds(tmp_path, None, min_lag=HOUR)
    assert raised.value.where == str(broken)
    assert f"delete {broken.name} and {10:020d}.index" in raised.value.hint


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        pytest.param({0: batch(0)}, 10, id="one batch"),
        pytest.param({0: batch(0), 10: b""}, 10, id="an empty active segment"),
        pytest.param({0: batch(0) + batch(12)}, 22, id="a gap"),
        pytest.param({0: encode_legacy(4, b"k", b"v")}, 5, id="an old message"),
        pytest.param({0: b"".join(batch(base) for base in range(0, 2000, 10))}, 2000, id="behind the last index entry"),
    ],
)
def test_log_end(tmp_path: Path, segments: dict[int, bytes], expected: int) -> None:
    """C-86: by the batches of the active segment."""
    assert end(tmp_path / "with", Partition(segments, index_interval_bytes=100)) == expected
    assert end(tmp_path / "without", Partition(segments, indexes=False)) == expected


@pytest.mark.parametrize("may_be_torn", [False, True])
@pytest.mark.parametrize(
    "data",
    [(5).to_bytes(4, "big") + (9999).to_bytes(4, "big"), struct.pack(">ii", 1, 30), b"\1" * 7, b"\xff" * 16],
    ids=["past", "inside a batch", "cut", "negative"],
)
def test_log_end_with_a_wrong_index(tmp_path: Path, data: bytes, *, may_be_torn: bool) -> None:
    """C-86: a wrong index is ignored, as the log decides: the file is read from its start."""
    make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: batch(0)})})
    (tmp_path / "logs" / "orders-0" / f"{0:020d}.index").write_bytes(data)
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = read_partition(read_log_dir(tmp_path / "logs"), name)
    with SegmentReader.open(str(log.path)) as reader:
        assert log_end_offset(log, reader, may_be_torn=may_be_torn) == 10


@pytest.mark.parametrize("tail", [b"\x00" * 100, batch(20)[:30], b"\xff" * 70], ids=["preallocated", "cut", "garbage"])
def test_log_end_of_a_torn_log(tmp_path: Path, tail: bytes) -> None:
    """S-27, F-1: after a crash, or while a broker writes, the log ends before the damage; otherwise it is an error.

    Zeros are not damage: the broker preallocated the space.
    """
    make_log_dir(tmp_path / "logs", {"orders-0": Partition({0: batch(0), 10: batch(10) + tail})})
    name = parse_topic_partition_dir("orders-0")
    assert name is not None
    log = read_partition(read_log_dir(tmp_path / "logs"), name)
    with SegmentReader.open(str(log.path), chunk_bytes=100) as reader:
        assert log_end_offset(log, reader, may_be_torn=True) == 20
        if any(tail):
            with pytest.raises(CorruptionError):
                log_end_offset(log, reader)
        else:
            assert log_end_offset(log, reader) == 20


def txn(base: int, producer: int = 1) -> bytes:
    """Ten records of a transaction."""
    return encode_batch(
        [Record(b"a", b"1", NOW)] * 10,
        base_offset=base,
        transactional=True,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    )


def marker(base: int, producer: int = 1, *, commit: bool = True) -> bytes:
    return encode_marker(base, commit=commit, producer_id=producer, timestamp=NOW)


@pytest.mark.parametrize(
    ("segments", "high_watermark", "expected", "raw"),
    [
        pytest.param({0: batch(0), 10: txn(10), 20: batch(20), 30: b""}, 30, 10, 10, id="S-04: open, never ended"),
        pytest.param({0: batch(0), 10: batch(10) + txn(20), 30: batch(30), 40: b""}, 40, 10, 20, id="C-07: rounded"),
        pytest.param({0: txn(0), 10: marker(10), 11: batch(11), 21: b""}, 21, 21, None, id="ended"),
        pytest.param({0: txn(0), 10: marker(10, commit=False), 11: b""}, 11, 11, None, id="aborted"),
        pytest.param({0: batch(0), 10: txn(10), 20: marker(20), 21: b""}, 20, 10, 10, id="not below the mark"),
        pytest.param({0: batch(0), 10: txn(10), 20: batch(20) + marker(30)}, 31, 20, None, id="ended in the active"),
        pytest.param({0: txn(0, 1), 10: txn(10, 2), 20: marker(20, 1), 21: b""}, 21, 10, 10, id="the oldest open one"),
        pytest.param({0: batch(0), 10: batch(10), 20: txn(20)}, 30, 20, 20, id="open in the active segment only"),
    ],
)  # fmt: skip
def test_open_transactions(
    tmp_path: Path, segments: dict[int, bytes], high_watermark: int, expected: int, raw: int | None
) -> None:
    """S-04, C-05 (LSO): nothing from the first offset of the oldest open transaction on is cleaned."""
    found = bounds(tmp_path, Partition(segments, high_watermark=high_watermark)).bound
    assert found.offset == expected
    assert found.limits.get("an open transaction") == raw


def test_an_open_transaction_is_named_as_the_limit(tmp_path: Path) -> None:
    """S-04: it is reported as the limit's cause, however old it is."""
    hanging = Partition({0: batch(0), 10: txn(10), 20: batch(20), 30: batch(30)})
    found = bounds(tmp_path, hanging, max_lag=1)
    assert (found.bound.offset, found.bound.limited_by) == (10, "an open transaction")


def test_the_last_stable_offset_of_a_running_broker(tmp_path: Path) -> None:
    """S-04: its last stable offset counts, whatever the log says; at the high watermark no transaction is open."""
    log = Partition({0: batch(0), 10: txn(10), 20: batch(20), 30: batch(30)}, high_watermark=35)
    none_open = bounds(tmp_path, log, stable=35).bound
    assert (none_open.offset, none_open.limits.get("an open transaction")) == (30, None)
    one_open = bounds(tmp_path, None, stable=25).bound
    assert (one_open.offset, one_open.limits.get("an open transaction")) == (20, 25)


def test_young_and_overdue(tmp_path: Path) -> None:
    """C-05, C-10: with the time since when, for ``explain``."""
    found = bounds(tmp_path, Partition(ages(3, 2, 1, 0)), min_lag=HOUR + 1, max_lag=2 * HOUR)
    assert found.young_since_ms == NOW - HOUR
    assert (found.overdue_at_ms, found.overdue_ms) == (NOW - HOUR, HOUR)
    later = bounds(tmp_path, None, max_lag=5 * HOUR)
    assert (later.young_since_ms, later.overdue_at_ms, later.overdue_ms) == (None, NOW + 2 * HOUR, 0)
    assert bounds(tmp_path, None).overdue_at_ms is None
