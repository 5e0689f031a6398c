"""The comparison finds every planted difference, and permits exactly what U-13 allows."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import Batch, Record, Segment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Comparison, Judge

pytestmark = pytest.mark.kafka

T = 1_700_000_000_000
RECORDS = (
    Record(10, T, b"a", b"1", (("h", b"x"),)),
    Record(12, T + 5, b"b", None),
    Record(13, T + 9, None, b"3"),
)
BATCH = Batch(
    RECORDS,
    last=15,
    codec="gzip",
    producer_id=1,
    producer_epoch=2,
    base_sequence=3,
    leader_epoch=4,
    delete_horizon=T + 99,
)
LAST = Batch((Record(20, T, b"z", b"1"),))


def compare(judge: Judge, tmp_path: Path, theirs: list[Segment], ours: list[Segment]) -> Comparison:
    judge.make(tmp_path / "theirs" / "t-0", theirs, now_ms=T)
    judge.make(tmp_path / "ours" / "t-0", ours, now_ms=T)
    return judge.compare(tmp_path / "theirs" / "t-0", tmp_path / "ours" / "t-0")


def record(index: int, **change: object) -> Batch:
    records = list(RECORDS)
    records[index] = dataclasses.replace(records[index], **change)  # type: ignore[arg-type]
    return dataclasses.replace(BATCH, records=tuple(records))


@pytest.mark.long
def test_equal(judge_43: Judge, tmp_path: Path) -> None:
    """Segment borders do not count."""
    theirs = [Segment(10, (BATCH, LAST))]
    ours = [Segment(10, (BATCH,)), Segment(18), Segment(20, (LAST,))]
    result = compare(judge_43, tmp_path, theirs, ours)
    assert result.differences == ()
    assert result.additions == ()
    assert (result.batches, result.records) == (2, 4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("altered", "message"),
    [
        (dataclasses.replace(BATCH, records=RECORDS[:2]), "count: theirs 3, ours 2"),
        (dataclasses.replace(BATCH, records=RECORDS[1:], base=10), "record 10: offset: theirs 10, ours 12"),
        (record(0, value=b"2"), "record 10: value: theirs x31, ours x32"),
        (record(1, value=b""), "record 12: value: theirs null, ours x"),
        (record(2, key=b""), "record 13: key: theirs null, ours x"),
        (record(1, timestamp=T + 6), "record 12: timestamp"),
        (record(1, offset=11), "record 12: offset: theirs 12, ours 11"),
        (record(0, headers=(("h", b"y"),)), "record 10: headers: theirs [h=x78], ours [h=x79]"),
        (record(0, headers=(("h", None),)), "record 10: headers"),
        (record(0, headers=()), "record 10: headers"),
        (dataclasses.replace(BATCH, last=14), "last offset: theirs 15, ours 14"),
        (dataclasses.replace(BATCH, base=9), "9-15: only in ours"),
        (dataclasses.replace(BATCH, codec="none"), "attributes: theirs 65, ours 64"),
        (dataclasses.replace(BATCH, delete_horizon=None), "attributes: theirs 65, ours 1"),
        (dataclasses.replace(BATCH, delete_horizon=T + 98), f"base timestamp: theirs {T + 99}, ours {T + 98}"),
        (dataclasses.replace(BATCH, append_time=T + 9), "attributes: theirs 65, ours 73"),
        (record(2, timestamp=T + 10), f"max timestamp: theirs {T + 9}, ours {T + 10}"),
        (dataclasses.replace(BATCH, producer_id=2), "producer id: theirs 1, ours 2"),
        (dataclasses.replace(BATCH, producer_epoch=1), "producer epoch: theirs 2, ours 1"),
        (dataclasses.replace(BATCH, base_sequence=4), "base sequence: theirs 3, ours 4"),
        (dataclasses.replace(BATCH, transactional=True), "attributes: theirs 65, ours 81"),
        (dataclasses.replace(BATCH, leader_epoch=5), "leader epoch: theirs 4, ours 5"),
    ],
)
def test_planted_differences(judge_43: Judge, tmp_path: Path, altered: Batch, message: str) -> None:
    """One fact of one batch or record differs from theirs: it is named."""
    result = compare(judge_43, tmp_path, [Segment(9, (BATCH, LAST))], [Segment(9, (altered, LAST))])
    assert any(message in difference for difference in result.differences), result.differences


def test_a_missing_batch(judge_43: Judge, tmp_path: Path) -> None:
    """Also an empty one: cleanerd keeps what Kafka keeps (C-39)."""
    empty = Batch(base=16, last=17, producer_id=8, producer_epoch=0, base_sequence=0)
    result = compare(judge_43, tmp_path, [Segment(10, (BATCH, empty, LAST))], [Segment(10, (LAST,))])
    assert result.differences == ("10-15: only in theirs", "16-17: only in theirs (empty)")


def test_an_extra_batch_with_records(judge_43: Judge, tmp_path: Path) -> None:
    """Records that Kafka removed are never allowed, wherever they are."""
    extra = Batch((Record(16, T, b"x", b"1"),))
    result = compare(
        judge_43, tmp_path, [Segment(10, (BATCH, LAST))], [Segment(10, (BATCH, extra)), Segment(17, (LAST,))]
    )
    assert result.differences == ("16-16: only in ours",)


def test_the_one_allowed_addition(judge_43: Judge, tmp_path: Path) -> None:
    """U-13: a further empty batch of cleanerd's is permitted at a segment's end.

    It needs the last offset of a source segment.
    """
    empty = Batch(base=16, last=17)
    theirs = [Segment(10, (BATCH, LAST))]
    result = compare(judge_43, tmp_path, theirs, [Segment(10, (BATCH, empty)), Segment(18, (LAST,))])
    assert result.differences == ()
    assert result.additions == ((16, 17),)
    # the same batch within a segment
    judge_43.make(tmp_path / "inside" / "t-0", [Segment(10, (BATCH, empty, LAST))], now_ms=T)
    inside = judge_43.compare(tmp_path / "theirs" / "t-0", tmp_path / "inside" / "t-0")
    assert inside.differences == ("16-17: only in ours: empty, but not the last batch of a segment",)
    # the reverse is not an addition but a loss
    back = judge_43.compare(tmp_path / "ours" / "t-0", tmp_path / "theirs" / "t-0")
    assert back.differences == ("16-17: only in theirs (empty)",)


@pytest.mark.long
def test_an_addition_must_come_from_the_source(judge_43: Judge, tmp_path: Path) -> None:
    """U-13: with the source given, an empty batch that ends no segment of it is not allowed either."""
    empty = Batch(base=16, last=17)
    compare(judge_43, tmp_path, [Segment(10, (BATCH, LAST))], [Segment(10, (BATCH, empty)), Segment(18, (LAST,))])
    dropped = (Record(17, T, b"x", b"1"),)
    right, wrong = tmp_path / "right" / "t-0", tmp_path / "wrong" / "t-0"
    judge_43.make(right, [Segment(10, (BATCH, Batch(dropped, base=16))), Segment(18, (LAST,))], now_ms=T)
    judge_43.make(wrong, [Segment(10, (BATCH, Batch(dropped, base=16), LAST))], now_ms=T)
    theirs, ours = tmp_path / "theirs" / "t-0", tmp_path / "ours" / "t-0"
    assert judge_43.compare(theirs, ours, source=right).differences == ()
    assert judge_43.compare(theirs, ours, source=wrong).differences == (
        "16-17: only in ours: empty, but no segment of the source ends with it",
    )


def test_a_wrong_checksum(judge_43: Judge, tmp_path: Path) -> None:
    """Batches go through ensureValid of Kafka's own batch: one bit of the CRC in cleanerd's file."""
    compare(judge_43, tmp_path, [Segment(10, (BATCH,))], [Segment(10, (BATCH,))])
    log = tmp_path / "ours" / "t-0" / f"{10:020}.log"
    data = bytearray(log.read_bytes())
    data[17] ^= 1
    log.write_bytes(data)
    (difference,) = judge_43.compare(tmp_path / "theirs" / "t-0", tmp_path / "ours" / "t-0").differences
    assert "CorruptRecordException" in difference
    assert "CorruptRecordException" in str(judge_43.dump(tmp_path / "ours" / "t-0").batches[0].problem)


@pytest.mark.long
def test_bytes_behind_the_last_batch(judge_43: Judge, tmp_path: Path) -> None:
    """Kafka's iterator ends silently on a partial batch; the judge does not."""
    compare(judge_43, tmp_path, [Segment(10, (BATCH,))], [Segment(10, (BATCH,))])
    with (tmp_path / "ours" / "t-0" / f"{10:020}.log").open("ab") as log:
        log.write(b"\0" * 10)
    with pytest.raises(Exception, match="10 bytes after the last batch"):
        judge_43.compare(tmp_path / "theirs" / "t-0", tmp_path / "ours" / "t-0")


def test_the_list_of_differences_ends(judge_43: Judge, tmp_path: Path) -> None:
    """Two completely different logs do not fill a terminal."""
    theirs = [Segment(0, tuple(Batch((Record(2 * i, T, b"k", b"v"),)) for i in range(50)))]
    ours = [Segment(0, tuple(Batch((Record(2 * i + 1, T, b"k", b"v"),)) for i in range(50)))]
    assert len(compare(judge_43, tmp_path, theirs, ours).differences) == 20
