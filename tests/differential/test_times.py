"""The time of a segment for a broker after a cleaning, which its retention and its search use (U-13, U-37).

A batch that only closes its group must not give a time to records without one. Compared are the original log, the
result of Kafka's cleaner and cleanerd's, each by ``deleteOldSegments`` and ``fetchOffsetByTimestamp`` of the release,
with cleanerd's indexes and with those that a recovery rebuilds.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import NAME as ORDERS
from tests.cleaner.driver import clean_all, config
from tests.cleaner.strategy_cases import BY_HEADER, T, rec
from tests.differential.duel import NAME, clean_ours, prepare
from tests.differential.history import NOW, T0, History, Turn, batch, last_offset
from tests.kafka.log_spec import Batch, Round, Segment
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from tests.kafka.judge import Dump, Judge, Retained

pytestmark = pytest.mark.kafka

HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * 24 * HOUR_MS
RETENTIONS_MS: Final = (WEEK_MS, 12 * HOUR_MS, HOUR_MS // 2)
TIMES_MS: Final = (0, 1, T0 - 1, T0, T0 + 100, T0 + 105, T0 + 110, NOW - WEEK_MS, NOW - HOUR_MS, NOW)
SEGMENT_BYTES: Final = 300
"""two segments with a large record each do not merge"""
LARGE: Final = hashlib.shake_256(b"hard to pack").hexdigest(400)
OLD: Final = T0 - 30 * WEEK_MS
EMPTY_OF_EARLIER_RELEASES: Final = 0


@dataclass(frozen=True)
class Log:
    """Closed segments and the batches that come after them; all files an hour old.

    ``deleted`` are the segments that are deleted after a week of retention, with Kafka's cleaner and with cleanerd.
    """

    name: str
    closed: tuple[tuple[Batch, ...], ...]
    uncleanable: tuple[Batch, ...] = ()
    deleted: int = 0
    segment_bytes: int = SEGMENT_BYTES

    def segments(self) -> tuple[Segment, ...]:
        result = []
        for batches in self.closed:
            first = batches[0]
            base = first.records[0].offset if first.base is None else first.base
            result.append(Segment(base, batches, last_modified_ms=NOW - HOUR_MS))
        end = last_offset(self.closed[-1][-1]) + 1
        return (*result, Segment(end, self.uncleanable, last_modified_ms=NOW - HOUR_MS))

    def history(self) -> History:
        config = {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(WEEK_MS),
            "segment.bytes": str(self.segment_bytes),
        }
        return History(self.segments(), config=config, producer_expiration_ms=HOUR_MS)


def one(offset: int, word: str, timestamp: int = -1, **settings: object) -> Batch:
    return batch(offset, word, timestamp=timestamp, **settings)


def big(offset: int, key: str, timestamp: int = -1, **settings: object) -> Batch:
    return one(offset, f"{key}={LARGE}", timestamp, **settings)


def empty(offset: int, max_timestamp: int, **settings: object) -> Batch:
    return Batch(base=offset, last=offset, max_timestamp=max_timestamp, **settings)  # type: ignore[arg-type]


def two(name: str, *, dup: int = -1, kept: int = -1, deleted: int = 0, **settings: object) -> Log:
    """Two groups, each ending in a record that is written again later."""
    return Log(
        name,
        (
            (big(0, "a", kept, **settings), one(1, "b=1", kept, **settings), one(2, "d=1", dup, **settings)),
            (big(3, "c", kept, **settings), one(4, "d=2", dup, **settings)),
            (big(5, "e", kept, **settings), one(6, "d=3", kept, **settings)),
        ),
        (one(7, "f=1", kept),),
        deleted,
    )  # fmt: skip


PRODUCER: Final = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
NOBODYS: Final = {"producer_id": 9, "producer_epoch": 0}

LOGS: Final = (
    two("v2"),
    two("v1", magic=1),
    two("v0", magic=0),
    two("v2 packed", codec="zstd"),
    two("v1 packed", magic=1, codec="gzip"),
    two("v2 of producers", **PRODUCER),
    two("only the removed record has a time", dup=OLD),
    two("only the retained record has a time", kept=T0),
    two("only the retained record has a time, long ago", kept=OLD, deleted=4),
    two("the removed record is older", dup=OLD, kept=T0),
    two("the removed record is younger", dup=T0, kept=OLD, deleted=4),
    two("all of 1970", dup=0, kept=0, deleted=4),
    Log(
        "one source after another of one group",
        (
            (big(0, "a"),), (one(1, "b=1"),), (one(2, "d=1"),), (big(3, "c"), one(4, "d=2")),
            (big(5, "e", T0), one(6, "d=3", T0)),
        ),
        segment_bytes=1500,
    ),
    Log(
        "log append time closes a group without times",
        (
            (big(0, "a"), one(1, "d=1", append_time=OLD)),
            (big(2, "c"), one(3, "d=2", append_time=OLD)),
            (big(4, "e"), one(5, "d=3")),
        ),
    ),
    Log(
        "log append time at the bound, where Kafka keeps the batch and its time",
        ((big(0, "a"), one(1, "!=1", append_time=OLD)), (big(2, "c"), one(3, "!=2", append_time=OLD))),
    ),
    Log(
        "closed by an earlier release, and now written again",
        (
            (big(0, "a"), one(1, "g=1"), empty(2, EMPTY_OF_EARLIER_RELEASES)),
            (big(3, "c"), one(4, "g=2"), empty(5, EMPTY_OF_EARLIER_RELEASES)),
            (big(6, "e"), one(7, "d=3")),
        ),
    ),
    Log(
        "emptied by Kafka's cleaner and of no producer any more",
        (
            (big(0, "a"), one(1, "g=1"), empty(2, OLD, **NOBODYS)),
            (big(3, "c"), one(4, "g=2")),
        ),
    ),
    Log(
        "a marker that was emptied",
        (
            (big(0, "a"), one(1, "g=1"), empty(2, OLD, control=True, transactional=True, **NOBODYS)),
            (big(3, "c"), one(4, "g=2")),
        ),
    ),
    Log(
        "emptied for its producer beside others",
        (
            (big(0, "a"), one(1, "p=1", NOW - HOUR_MS // 4, **PRODUCER), one(2, "d=1")),
            (big(3, "c"), one(4, "d=2"), one(5, "p=2")),
        ),
    ),
)  # fmt: skip


@pytest.fixture(params=["judge_43", "judge_39"])
def judge(request: pytest.FixtureRequest) -> Judge:
    found: Judge = request.getfixturevalue(request.param)
    return found


@dataclass(frozen=True)
class Sides:
    """The original log, and the result of every cleaner."""

    judge: Judge
    work: Path
    history: History

    def path(self, side: str) -> Path:
        return self.work / side / str(NAME)

    def dump(self, side: str) -> Dump:
        return self.judge.dump(self.path(side))

    def clean_ours(self, *, from_start: bool = False) -> CleaningResult:
        """Clean once by cleanerd."""
        result = clean_ours(
            self.work / "ours",
            StateStore(self.work / "state"),
            self.history,
            Turn(from_start=from_start),
            convert_legacy=not self.judge.jars.profile.startswith("3."),
        )
        assert result.error is None, str(result.error)
        return result

    def retain(self, side: str, retention_ms: int, *, clean_shutdown: bool) -> Retained:
        """The state of a copy after a broker's retention."""
        copy = self.work / "copy" / str(NAME)
        shutil.copytree(self.path(side), copy)
        try:
            return self.judge.retain(
                copy,
                now_ms=NOW,
                config={"cleanup.policy": "compact,delete", "retention.ms": str(retention_ms)},
                times_ms=TIMES_MS,
                clean_shutdown=clean_shutdown,
            )
        finally:
            shutil.rmtree(copy.parent)


def play(judge: Judge, work: Path, log: Log) -> Sides:
    """Clean the log by Kafka's cleaner and by cleanerd."""
    return _played(judge, work, log.history())


def _played(judge: Judge, work: Path, history: History) -> Sides:
    sides = Sides(judge, work, history)
    judge.make(sides.path("untouched"), history.segments, now_ms=NOW, producer_expiration_ms=2**31 - 1)
    for side in ("theirs", "ours"):
        shutil.copytree(sides.path("untouched"), sides.path(side))
    prepare(work / "ours")
    judge.clean(
        sides.path("theirs"), [Round(NOW)], config=history.config, producer_expiration_ms=history.producer_expiration_ms
    )
    sides.clean_ours()
    return sides


@pytest.mark.long
@pytest.mark.parametrize("log", [pytest.param(log, id=log.name) for log in LOGS])
def test_retention_and_time_lookups_as_after_kafkas_cleaner(judge: Judge, work: Path, log: Log) -> None:
    """U-13, U-37: retention keeps the same records as after Kafka's cleaner, and a search by time finds the same.

    The wrong rule gives another answer: a time of 0, or any other, in the closing batch is the segment's only one if
    the others have none, and the broker deletes live records by it.
    """
    sides = play(judge, work, log)
    assert sides.dump("ours").records == sides.dump("theirs").records
    closing = [each for each in sides.dump("ours").batches if not each.count]
    assert closing, "nothing was closed: the log tests nothing"
    for clean_shutdown in (True, False):
        for retention_ms in RETENTIONS_MS:
            theirs = sides.retain("theirs", retention_ms, clean_shutdown=clean_shutdown)
            ours = sides.retain("ours", retention_ms, clean_shutdown=clean_shutdown)
            reported = (clean_shutdown, retention_ms)
            assert ours.largest_ms == theirs.largest_ms, reported
            assert (ours.deleted, ours.log_start_offset) == (theirs.deleted, theirs.log_start_offset), reported
            assert ours.found == theirs.found, reported
        assert sides.retain("ours", WEEK_MS, clean_shutdown=clean_shutdown).deleted == log.deleted


CLOSED_EARLIER: Final = (
    Log("with another reason to write it", ((big(0, "a"), one(1, "g=1"), empty(2, 0)), (big(3, "c"), one(4, "g=2")))),
    Log("without one", ((big(0, "a"), empty(2, 0)), (big(3, "c"),))),
    Log("at the bound", ((big(0, "a"), one(1, "g=1"), one(2, "g=2"), empty(3, 0)),)),
)


@pytest.mark.long
@pytest.mark.parametrize("log", [pytest.param(log, id=log.name) for log in CLOSED_EARLIER])
def test_closed_by_an_earlier_release(judge: Judge, work: Path, log: Log) -> None:
    """U-13: a cleaning always fixes a closing batch of time 0 beside records without a time.

    Kafka deletes the log as it was. At the limit its cleaner keeps the 0, which its own could never have written.
    """
    sides = play(judge, work, log)
    assert sides.retain("untouched", WEEK_MS, clean_shutdown=True).deleted == 1
    assert sides.dump("ours").records == sides.dump("theirs").records
    for clean_shutdown in (True, False):
        found = sides.retain("ours", WEEK_MS, clean_shutdown=clean_shutdown)
        assert (found.deleted, found.largest_ms[0]) == (0, NOW - HOUR_MS)
    before = sides.dump("ours")
    assert sides.clean_ours(from_start=True).outcome == "unchanged"
    assert sides.dump("ours") == before, "once is enough"


def test_a_segment_without_records(judge: Judge, work: Path) -> None:
    """U-13: alone in its segment the closing batch has time 0, or a search by time would end there.

    It does in Kafka's, whose segment of no bytes has the time of its file.
    """
    none_left = (one(0, "d=1", T0), one(1, "g=1", T0))
    log = Log("", (none_left, (big(2, "a", T0 + 100), one(3, "c=1", T0 + 110)), (one(4, "d=2", T0), one(5, "g=2", T0))))
    sides = play(judge, work, log)
    assert next((each.base, each.last, each.count) for each in sides.dump("ours").batches) == (1, 1, 0)
    for clean_shutdown in (True, False):
        found = sides.retain("ours", WEEK_MS, clean_shutdown=clean_shutdown)
        assert found.largest_ms[0] == 0
        assert found.found[TIMES_MS.index(T0)] == 2
        assert found.found[TIMES_MS.index(T0 + 105)] == 3
        theirs = sides.retain("theirs", WEEK_MS, clean_shutdown=clean_shutdown)
        assert theirs.found[TIMES_MS.index(T0)] == -1, "Kafka has fixed this: do the same"


@pytest.mark.parametrize("at_bound", [False, True], ids=["the last of a producer", "at the bound"])
def test_a_batch_without_records_beside_records_without_a_time(judge: Judge, work: Path, at_bound: bool) -> None:
    """U-13, U-17: a batch emptied earlier has a time that none of the records has, and they do not get it.

    Kafka's cleaner merges all into one segment, and the broker deletes live records by the time of the header.
    """
    time_ms = NOW - 40 * MINUTE_MS
    first, last = (one(0, "a=1"), one(1, "d=1")), (one(3, "d=2"), one(4, "e=1"))
    closed = (first, last, (empty(5, time_ms, **NOBODYS),))
    if not at_bound:
        closed = (first, (empty(2, time_ms, **PRODUCER),), last)
    log = Log("", closed, (one(6, "f=1"),), segment_bytes=3000)
    history = log.history()
    fresh = tuple(replace(each, last_modified_ms=NOW - MINUTE_MS) for each in history.segments)
    short = {**history.config, "retention.ms": str(30 * MINUTE_MS)}
    sides = _played(judge, work, replace(history, segments=fresh, config=short))
    assert sides.dump("ours").records == sides.dump("theirs").records
    for clean_shutdown in (True, False):
        deleted = {
            side: sides.retain(side, 30 * MINUTE_MS, clean_shutdown=clean_shutdown).log_start_offset
            for side in ("untouched", "theirs", "ours")
        }
        assert (deleted["untouched"], deleted["ours"]) == (0, 0)
        assert deleted["theirs"] > 4, "Kafka has fixed this: do the same"


@pytest.mark.parametrize(("winner_retention", "left"), [("record-time", []), ("write-time", [0])])
def test_a_retained_record_older_than_the_superseded_one(
    judge: Judge, work: Path, winner_retention: str, left: list[int]
) -> None:
    """U-61, U-65: the key was written an hour ago. Kafka deletes its record by its own time, which is eight days ago.

    With ``write-time`` it stays as long as the record that it superseded would have, and is found by its own time.
    """
    wanted, then = NOW - 8 * DAY_MS, NOW - HOUR_MS
    segments = {
        0: encode_batch([rec("k", 9, at=wanted - T)]),
        1: encode_batch([rec("k", 5, at=then - T), rec("y", 1, at=then - T)], base_offset=1),
        3: b"",
    }
    log_dir = make_log_dir(work / "logs", {ORDERS: Partition(segments)})
    values = {**BY_HEADER, "cleanup_policy": "compact,delete", "segment_bytes": 100}
    clean_all(log_dir, NOW, config(**values, compaction_winner_retention=winner_retention))
    for clean_shutdown in (True, False):
        copy = work / f"copy-{clean_shutdown}" / ORDERS
        shutil.copytree(log_dir / ORDERS, copy)
        retention = {"cleanup.policy": "compact,delete", "retention.ms": str(WEEK_MS)}
        found = judge.retain(copy, now_ms=NOW, config=retention, times_ms=[wanted], clean_shutdown=clean_shutdown)
        assert found.deleted == 1 - len(left)
        assert found.found == (0,)
        assert [each.offset for each in judge.dump(copy).records if each.key in ("k", b"k")] == left
