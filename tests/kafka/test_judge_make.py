"""Kafka reads back what it was instructed to write, in both releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import Batch, Judge, Marker, Record, Segment, ToLoad

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.log_spec import Codec

pytestmark = pytest.mark.kafka

T = 1_700_000_000_000
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS = 86_400_000


@pytest.fixture(params=["judge_43", "judge_39"])
def judge(request: pytest.FixtureRequest) -> Judge:
    found: Judge = request.getfixturevalue(request.param)
    return found


def test_versions(judge_43: Judge, judge_39: Judge) -> None:
    """The judges' classes are those of the releases that pom.xml names."""
    assert judge_43.version() == judge_43.jars.version
    assert judge_43.version().startswith("4.3.")
    assert judge_39.version() == judge_39.jars.version
    assert judge_39.version().startswith("3.9.")


@pytest.mark.long
@pytest.mark.parametrize("codec", CODECS)
def test_v2_round_trip(judge: Judge, tmp_path: Path, codec: Codec) -> None:
    """F-2: every codec; tombstone, null key, empty value, headers, space before and after the records."""
    records = (
        Record(102, T, b"k1", b"v1"),
        Record(103, T + 5, b"k2", None, (("h", b"x"), ("h", None))),
        Record(105, T - 7, None, b"", (("", b""),)),
        Record(108, T + 1, b"", b"v" * 5000),
    )
    batch = Batch(
        records,
        base=100,
        last=110,
        codec=codec,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=2**31 - 5,
        leader_epoch=7,
    )
    log = tmp_path / "t-0"
    assert judge.make(log, [Segment(100, (batch,))], now_ms=T) == 111
    (read,) = judge.dump(log).batches
    assert read.problem is None
    assert tuple((r.offset, r.timestamp, r.key, r.value, r.headers) for r in read.records) == tuple(
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in records
    )
    assert (read.base, read.last, read.codec, read.magic, read.count) == (100, 110, codec, 2, 4)
    assert (read.producer_id, read.producer_epoch, read.leader_epoch) == (4000, 2, 7)
    assert (read.base_sequence, read.last_sequence) == (2**31 - 5, 5)  # F-2.4: wraps past 2^31 - 1
    assert (read.base_timestamp, read.max_timestamp) == (T, T + 5)


def test_log_append_time_patches_the_header_only(judge: Judge, tmp_path: Path) -> None:
    """F-2.6: a leader leaves the base timestamp and deltas alone; records show the append time."""
    log = tmp_path / "t-0"
    batch = Batch((Record(0, T, b"a", b"1"), Record(1, T + 9, b"b", b"2")), append_time=T + 1000)
    judge.make(log, [Segment(0, (batch,))], now_ms=T)
    (read,) = judge.dump(log).batches
    assert (read.timestamp_type, read.base_timestamp, read.max_timestamp) == ("LogAppendTime", T, T + 1000)
    assert [r.timestamp for r in read.records] == [T + 1000, T + 1000]


def test_gaps_empty_segments_and_empty_batches(judge: Judge, tmp_path: Path) -> None:
    """Gaps wider than 2^31, 0-byte segments (D-02) and record-less batches (F-2.5) are at the given places."""
    far = 3_000_000_005
    segments = [
        Segment(0, (Batch((Record(0, T, b"a", b"1"),)),), last_modified_ms=T + 3000),
        Segment(5),
        Segment(7, (Batch(base=7, last=20, producer_id=9, producer_epoch=0, base_sequence=3, max_timestamp=T + 2),)),
        Segment(far, (Batch((Record(far + 1, T, b"a", b"2"),), base=far),)),
        Segment(2 * far),
    ]
    log = tmp_path / "t-0"
    judge.make(log, segments, now_ms=T, topic_id="MkU3OEVBNTcwNTJENDM2Qg")
    dump = judge.dump(log)
    assert [s.base for s in dump.segments] == [0, 5, 7, far, 2 * far]
    assert [s.size == 0 for s in dump.segments] == [False, True, False, False, True]
    assert dump.segments[0].last_modified_ms == T + 3000
    empty = dump.batches[1]
    assert (empty.base, empty.last, empty.count, empty.size) == (7, 20, 0, 61)
    assert (empty.base_timestamp, empty.max_timestamp, empty.last_sequence) == (-1, T + 2, 16)
    assert (dump.batches[2].base, dump.batches[2].records[0].offset) == (far, far + 1)
    assert "partition.metadata" in dump.files
    assert judge.lookups(log).problems == ()


def test_snapshots_as_a_clean_shutdown_writes_them(judge: Judge, tmp_path: Path) -> None:
    """F-10: one at each roll and one at the log end, equal to what the loader rebuilds from the log itself."""
    log = tmp_path / "t-0"
    first = Batch(
        (Record(0, T, b"a", b"1"), Record(1, T, b"b", b"1")), producer_id=5, producer_epoch=0, base_sequence=0
    )
    second = Batch((Record(2, T + 1, b"a", b"2"),), producer_id=5, producer_epoch=0, base_sequence=2)
    judge.make(log, [Segment(0, (first,)), Segment(2, (second,))], now_ms=T)
    snapshots = judge.dump(log).snapshots
    assert sorted(snapshots) == [f"{2:020}.snapshot", f"{3:020}.snapshot"]
    (at_roll,) = snapshots[f"{2:020}.snapshot"]
    (at_end,) = snapshots[f"{3:020}.snapshot"]
    assert (at_roll.last_sequence, at_roll.last_offset, at_roll.offset_delta) == (1, 1, 1)
    assert (at_end.last_sequence, at_end.last_offset, at_end.timestamp) == (2, 2, T + 1)
    clean, unclean = judge.load(
        [
            ToLoad(str(tmp_path / "clean" / "t-0"), source=str(log)),
            ToLoad(str(tmp_path / "unclean" / "t-0"), source=str(log), clean_shutdown=False),
        ],
        now_ms=T + 2,
    )
    assert clean.producers == unclean.producers == (at_end,)
    assert clean.digest == unclean.digest


def test_transactions(judge: Judge, tmp_path: Path) -> None:
    """F-2.7, F-8: markers, and an entry in the .txnindex of the segment that has the ABORT marker."""

    def data(offset: int, producer: int, sequence: int) -> Batch:
        record = Record(offset, T + offset, b"k%d" % offset, b"v")
        return Batch(
            (record,), producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True, codec="lz4"
        )

    def end(offset: int, producer: int, kind: str) -> Batch:
        marker = Marker("commit" if kind == "commit" else "abort", T + offset, coordinator_epoch=3)
        return Batch(base=offset, producer_id=producer, producer_epoch=0, marker=marker)

    log = tmp_path / "t-0"
    segments = [
        Segment(0, (data(0, 1, 0), data(1, 2, 0), data(2, 1, 1))),
        Segment(3, (end(3, 1, "abort"), end(4, 2, "commit"), data(5, 1, 2))),
    ]
    judge.make(log, segments, now_ms=T)
    dump = judge.dump(log)
    assert [s.txn_index for s in dump.segments] == [None, ((1, 0, 3, 1),)]
    abort, commit = dump.batches[3], dump.batches[4]
    assert (abort.control, abort.transactional, abort.base_sequence, abort.size) == (True, True, -1, 78)
    assert abort.records[0].key == bytes.fromhex("00000000")
    assert commit.records[0].key == bytes.fromhex("00000001")
    assert commit.records[0].value == bytes.fromhex("000000000003")
    open_one, done = dump.snapshots[f"{6:020}.snapshot"]
    assert (open_one.producer_id, open_one.txn_first_offset, open_one.coordinator_epoch) == (1, 5, 3)
    assert (done.producer_id, done.txn_first_offset) == (2, -1)


@pytest.mark.long
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[:4])
def test_legacy_round_trip(judge: Judge, tmp_path: Path, magic: int, codec: Codec) -> None:
    """F-3: v0 and v1, alone and in wrappers with a hole; v0 has no timestamp."""
    records = (Record(50, T, b"a", b"1"), Record(52, T + 4, b"b", None))
    log = tmp_path / "t-0"
    judge.make(log, [Segment(50, (Batch(records, magic=magic, codec=codec),))], now_ms=T)
    dump = judge.dump(log)
    assert len(dump.batches) == (2 if codec == "none" else 1)
    assert {b.magic for b in dump.batches} == {magic}
    assert {b.problem for b in dump.batches} == {None}
    assert [(r.offset, r.key, r.value) for r in dump.records] == [(50, b"a", b"1"), (52, b"b", None)]
    assert [r.timestamp for r in dump.records] == ([-1, -1] if magic == 0 else [T, T + 4])


def test_raw_bytes(judge: Judge, tmp_path: Path) -> None:
    """Another writer's batch is appended unchanged: F-13, with a horizon set."""
    raw = bytes.fromhex(
        """
        0000000000000064 0000004f 00000003 02 9dffca71 0040 00000002 0000018bd50bc400 0000018bcfe56807
        ffffffffffffffff ffff ffffffff 00000002
        1600f5efb25202046b320100 2200f1efb25204046b310476320202680278
        """
    )
    log = tmp_path / "t-0"
    judge.make(log, [Segment(100, (Batch(raw=raw),))], now_ms=T)
    (read,) = judge.dump(log).batches
    assert read.delete_horizon == T + DAY_MS
    assert [(r.offset, r.timestamp, r.value) for r in read.records] == [(101, T + 5, None), (102, T + 7, b"v2")]
    assert (log / f"{100:020}.log").read_bytes() == raw


def test_a_border_without_a_request_is_an_error(judge: Judge, tmp_path: Path) -> None:
    """More than 2^31 - 1 offsets in one segment: Kafka rolls, and the maker reports that as unwanted."""
    batches = (Batch((Record(0, T, b"a", b"1"),)), Batch((Record(2**31, T, b"b", b"1"),)))
    with pytest.raises(Exception, match=r"segments were to be at \[0\], Kafka made \[0, 2147483648\]"):
        judge.make(tmp_path / "t-0", [Segment(0, batches)], now_ms=T)


def test_a_second_call_appends(judge: Judge, tmp_path: Path) -> None:
    """A second call appends to the active segment and rolls at the given places."""
    log = tmp_path / "t-0"
    first, second, third = (Batch((Record(i, T, b"k", b"%d" % i),)) for i in (5, 6, 7))
    judge.make(log, [Segment(5, (first,))], now_ms=T)
    assert judge.make(log, [Segment(5, (second,)), Segment(7, (third,))], now_ms=T) == 8
    assert [(b.segment, b.base) for b in judge.dump(log).batches] == [(5, 5), (5, 6), (7, 7)]
