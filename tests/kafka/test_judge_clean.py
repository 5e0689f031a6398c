"""Kafka's own cleaner, run by the judge, follows `docs/rules.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import Batch, Judge, Marker, Record, Round, Segment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Dump

pytestmark = pytest.mark.kafka

T = 1_700_000_000_000
RETENTION_MS = 60_000
CONFIG = {"delete.retention.ms": str(RETENTION_MS)}


@pytest.fixture(params=["judge_43", "judge_39"])
def judge(request: pytest.FixtureRequest) -> Judge:
    found: Judge = request.getfixturevalue(request.param)
    return found


def kept(dump: Dump) -> list[int]:
    return [record.offset for record in dump.records]


def scenario() -> list[Segment]:
    """Three segments to clean up to offset 9, and an active one.

    0 a=1 and 1 b=1 (producer 7), 2 a=2, 3 b=null, 4 c=1 | 5 a=3 in a batch with 6 keyless | 7 d, 8 keyless | 9 a=4.
    """
    return [
        Segment(
            0,
            (
                Batch(
                    (Record(0, T, b"a", b"1"), Record(1, T, b"b", b"1")),
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=0,
                ),
                Batch(
                    (Record(2, T + 1, b"a", b"2"), Record(3, T + 2, b"b", None), Record(4, T + 3, b"c", b"1")),
                    codec="zstd",
                ),
            ),
        ),
        Segment(5, (Batch((Record(5, T + 4, b"a", b"3"), Record(6, T + 4, None, b"x"))),)),
        Segment(7, (Batch((Record(7, T + 5, b"d", b"1"),)), Batch((Record(8, T + 6, None, b"x"),)))),
        Segment(9, (Batch((Record(9, T + 7, b"a", b"4"),)),)),
    ]


def test_one_round(judge: Judge, tmp_path: Path) -> None:
    """C-45 superseded records and those without a key are removed.

    C-07 the active segment neither decides nor changes; C-63 one group.
    """
    source, log = tmp_path / "source" / "t-0", tmp_path / "t-0"
    judge.make(source, scenario(), now_ms=T)
    (round_,) = judge.clean(log, [Round(T + 100)], source=source, config=CONFIG)
    dump = judge.dump(log)
    assert kept(dump) == [3, 4, 5, 7, 9]
    assert [s.base for s in dump.segments] == [0, 9]
    assert round_.end_offset == 9
    assert (round_.messages_read, round_.messages_written, round_.invalid_messages_read) == (9, 4, 2)
    assert round_.log_end_offset == 10
    assert round_.cpu_ns > 0
    assert kept(judge.dump(source)) == list(range(10)), "the source stays as it was"
    assert judge.lookups(log).problems == ()


def test_horizon_is_set_then_kept_to_the_last_ms(judge: Judge, tmp_path: Path) -> None:
    """C-47..C-50: the first pass sets the horizon; at horizon - 1 the tombstone stays, at the horizon it is removed."""
    source, log = tmp_path / "source" / "t-0", tmp_path / "t-0"
    judge.make(source, scenario(), now_ms=T)
    now = T + 100
    judge.clean(log, [Round(now)], source=source, config=CONFIG)
    (batch,) = [b for b in judge.dump(log).batches if b.base == 2]
    assert batch.delete_horizon == batch.base_timestamp == now + RETENTION_MS
    assert [r.timestamp for r in batch.records] == [T + 2, T + 3], "deltas are counted from the horizon"
    judge.clean(log, [Round(now), Round(now + RETENTION_MS - 1)], source=source, config=CONFIG)
    assert 3 in kept(judge.dump(log))
    judge.clean(log, [Round(now), Round(now + RETENTION_MS)], source=source, config=CONFIG)
    dump = judge.dump(log)
    assert kept(dump) == [4, 5, 7, 9]
    (batch,) = [b for b in dump.batches if b.base == 2]
    assert batch.delete_horizon == now + RETENTION_MS, "a horizon stays when its tombstones are gone"


def test_last_batches_are_emptied_not_dropped(judge: Judge, tmp_path: Path) -> None:
    """C-39.1 the last batch of a producer that is still known; C-39.2 the batch that ends at the bound."""
    source, log = tmp_path / "source" / "t-0", tmp_path / "t-0"
    judge.make(source, scenario(), now_ms=T)
    judge.clean(log, [Round(T + 100)], source=source, config=CONFIG)
    empty = [b for b in judge.dump(log).batches if b.count == 0]
    assert [(b.base, b.last, b.producer_id, b.last_sequence) for b in empty] == [(0, 1, 7, 1), (8, 8, -1, -1)]
    assert {b.size for b in empty} == {61}


def test_an_expired_producer_protects_no_batch(judge: Judge, tmp_path: Path) -> None:
    """C-43: once its producer id has expired the empty batch is removed too."""
    source, log = tmp_path / "source" / "t-0", tmp_path / "t-0"
    judge.make(source, scenario(), now_ms=T)
    rounds = [Round(T + 100), Round(T + 5000)]
    judge.clean(log, rounds, source=source, config=CONFIG, producer_expiration_ms=5001)
    assert judge.dump(log).batches[0].producer_id == 7
    judge.clean(log, rounds, source=source, config=CONFIG, producer_expiration_ms=5000)
    assert judge.dump(log).batches[0].base == 2


def test_a_bound_below_the_active_segment(judge: Judge, tmp_path: Path) -> None:
    """C-05, C-07: no record from the bound on takes part; the batch that ends there is the emptied one."""
    source, log = tmp_path / "source" / "t-0", tmp_path / "t-0"
    judge.make(source, scenario(), now_ms=T)
    (round_,) = judge.clean(log, [Round(T + 100, first_uncleanable_offset=7)], source=source, config=CONFIG)
    assert round_.end_offset == 7
    dump = judge.dump(log)
    assert kept(dump) == [3, 4, 5, 7, 8, 9]
    assert [s.base for s in dump.segments] == [0, 7, 9]


def test_first_dirty_equal_to_the_bound(judge: Judge, tmp_path: Path) -> None:
    """Kafka answers end offset 0 and changes nothing."""
    log = tmp_path / "t-0"
    judge.make(log, scenario(), now_ms=T)
    before = judge.dump(log).batches
    (round_,) = judge.clean(log, [Round(T + 100, first_dirty_offset=9)], config=CONFIG)
    assert round_.end_offset == 0
    assert judge.dump(log).batches == before


def test_a_full_map_ends_the_round_early(judge: Judge, tmp_path: Path) -> None:
    """C-22: the pass covers only the range of a map of two keys, and all later records stay."""
    source, log = tmp_path / "source" / "t-0", tmp_path / "t-0"
    segments = [
        Segment(0, (Batch((Record(0, T, b"a", b"1"),)), Batch((Record(1, T, b"a", b"2"),)))),
        Segment(2, (Batch((Record(2, T, b"b", b"1"),)), Batch((Record(3, T, b"b", b"2"),)))),
        Segment(4),
    ]
    judge.make(source, segments, now_ms=T)
    rounds = [Round(T)]
    (whole,) = judge.clean(log, rounds, source=source)
    assert (whole.end_offset, kept(judge.dump(log))) == (4, [1, 3])
    (part,) = judge.clean(log, rounds, source=source, map_bytes=96, load_factor=0.5)
    assert (part.end_offset, kept(judge.dump(log))) == (3, [1, 2, 3])


def test_small_limits_make_small_segments(judge: Judge, tmp_path: Path) -> None:
    """C-63: groups end before segment.bytes is exceeded, also below the 1 MiB that 4.x requires for a topic."""
    log = tmp_path / "t-0"
    judge.make(log, scenario(), now_ms=T)
    judge.clean(log, [Round(T + 100)], config={**CONFIG, "segment.bytes": "320"})
    assert [s.base for s in judge.dump(log).segments] == [0, 7, 9]


def test_aborted_data_with_its_marker_beyond_the_bound(judge: Judge, tmp_path: Path) -> None:
    """C-19, F-8: the decisive entry is in the active segment's .txnindex."""
    log = tmp_path / "t-0"
    records = (Record(1, T, b"a", b"aborted"),)
    aborted = Batch(records, base_sequence=0, transactional=True, producer_id=3, producer_epoch=0)
    segments = [
        Segment(0, (Batch((Record(0, T, b"a", b"committed"),)),)),
        Segment(1, (aborted,)),
        Segment(2, (Batch((Record(2, T, b"z", b"1"),)),)),
        Segment(3, (Batch(base=3, marker=Marker("abort", T), producer_id=3, producer_epoch=0),)),
    ]
    judge.make(log, segments, now_ms=T)
    judge.clean(log, [Round(T + 1)])
    assert kept(judge.dump(log)) == [0, 2]


def test_legacy_batches(judge_43: Judge, judge_39: Judge, tmp_path: Path) -> None:
    """C-53: the same records are retained; 4.3 converts them to v2, 3.9 leaves v0 and v1."""
    source = tmp_path / "source" / "t-0"
    wrapper = Batch((Record(1, T, b"a", b"2"), Record(2, T, b"b", b"1")), magic=1, codec="gzip")
    segments = [
        Segment(0, (Batch((Record(0, T, b"a", b"1"),), magic=0), wrapper, Batch((Record(3, T, b"c", b"1"),), magic=0))),
        Segment(4, (Batch((Record(4, T, b"a", b"3"),), magic=1),)),
        Segment(5),
    ]
    judge_39.make(source, segments, now_ms=T)
    magics = []
    for judge in (judge_43, judge_39):
        log = tmp_path / judge.version() / "t-0"
        judge.clean(log, [Round(T)], source=source)
        dump = judge.dump(log)
        assert kept(dump) == [2, 3, 4]
        magics.append([b.magic for b in dump.batches])
    assert magics == [[2, 2, 2], [1, 0, 1]]


def test_both_releases_agree(judge_43: Judge, judge_39: Judge, tmp_path: Path) -> None:
    """On v2 data everything is equal between the two, index bytes and mtimes included."""
    source = tmp_path / "source" / "t-0"
    config = {**CONFIG, "index.interval.bytes": "1"}
    judge_43.make(source, scenario(), now_ms=T, config=config)
    contents = []
    for judge in (judge_43, judge_39):
        log = tmp_path / judge.version() / "t-0"
        judge.clean(log, [Round(T + 100), Round(T + 100 + RETENTION_MS)], source=source, config=config)
        files = [log / f"{0:020}{suffix}" for suffix in (".log", ".index", ".timeindex")]
        contents.append([(f.read_bytes(), f.stat().st_mtime_ns // 1_000_000) for f in files])
    assert len(contents[0][1][0]) >= 3 * 8, "an index without entries would prove nothing"
    assert contents[0] == contents[1]


@pytest.mark.long
def test_repeat_for_measuring(judge_43: Judge, tmp_path: Path) -> None:
    """Each repetition works on a new copy and reports its own cost."""
    source, log = tmp_path / "source" / "t-0", tmp_path / "t-0"
    judge_43.make(source, scenario(), now_ms=T)
    rounds = judge_43.clean(log, [Round(T + 100)], source=source, config=CONFIG, repeat=3)
    assert [(r.messages_read, r.messages_written) for r in rounds] == [(9, 4)] * 3
    assert all(r.cpu_ns > 0 and r.wall_ns > 0 for r in rounds)
