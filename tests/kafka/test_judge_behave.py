"""The behaviour judge (U-37): answers of Kafka's classes, and each kind of difference is noticed."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.kafka.alike import Alike
from tests.kafka.behaviour import NONE, Found
from tests.kafka.judge import Batch, Judge, Marker, Record, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.kafka.behaviour import Behaviours

pytestmark = pytest.mark.kafka

T = 1_700_000_000_000
DAY = 86_400_000
NOW = T + 10 * DAY


@pytest.fixture(params=["judge_43", "judge_39"])
def judge(request: pytest.FixtureRequest) -> Judge:
    found: Judge = request.getfixturevalue(request.param)
    return found


def one(offset: int, time_ms: int = -1, **fields: int | bool) -> Batch:
    return Batch((Record(offset, time_ms, b"k%d" % offset, b"v"),), **fields)  # type: ignore[arg-type]


def emptied(base: int, time_ms: int) -> Batch:
    return Batch(base=base, max_timestamp=time_ms)


def made(judge: Judge, path: Path, *segments: Sequence[Batch], modified_ms: int = NOW) -> Path:
    """A log whose segments begin with their first batches, and an empty active one at the end."""
    specs = []
    end = 0
    for batches in segments:
        first = batches[0]
        base = first.records[0].offset if first.base is None else first.base
        specs.append(Segment(base, tuple(batches), last_modified_ms=modified_ms))
        end = max(batch.records[-1].offset if batch.records else batch.base or 0 for batch in batches) + 1
    judge.make(path / "t-0", [*specs, Segment(end, last_modified_ms=modified_ms)], now_ms=T)
    return path / "t-0"


def requested(
    judge: Judge, root: Path, ours: Path, theirs: Path | None = None, before: Path | None = None
) -> Behaviours:
    return judge.behave(ours, theirs=theirs, before=before or ours, scratch=root / "scratch", now_ms=NOW)


def breaches(answers: Behaviours) -> str:
    return "\n".join(Alike(answers, now_ms=NOW, span_ms=0).breaches())


@pytest.mark.long
def test_answers(judge: Judge, tmp_path: Path) -> None:
    """Times, retention and numbers of a small log, as a broker has them; the log is only read."""
    log = made(judge, tmp_path, [one(0, T), one(1, T - 5)], [one(2, T + DAY), emptied(3, -1)], [one(4)])
    before = {entry.name: (entry.stat().st_mtime_ns, entry.stat().st_size) for entry in log.iterdir()}
    answers = requested(judge, tmp_path, log)
    assert {entry.name: (entry.stat().st_mtime_ns, entry.stat().st_size) for entry in log.iterdir()} == before
    assert not (tmp_path / "scratch").exists()
    ours = answers.ours
    assert (ours.log_start_offset, ours.log_end_offset, ours.last_stable_offset) == (0, 5, 5)
    assert ours.largest_ms[:3] == (T, T + DAY, NOW)
    found = dict(zip(answers.questions.times_ms, (each.offset for each in ours.found), strict=True))
    assert (found[0], found[T - 5], found[T], found[T + 1], found[T + DAY], found[T + DAY + 1]) == (0, 0, 0, 2, 2, -1)
    assert ours.max_timestamp == Found(2, T + DAY, 0)
    starts = {
        retention_ms: left.log_start_offset
        for retention_ms, left in zip(answers.questions.retentions_ms, ours.retained_ms, strict=True)
    }
    assert (starts[10 * DAY], starts[10 * DAY - 1], starts[9 * DAY], starts[9 * DAY - 1]) == (0, 2, 2, 4)
    assert starts[0] == 4, "the file of the last segment is as old as now"
    assert breaches(answers) == ""
    assert answers.queries > 50


@pytest.mark.long
def test_alike_by_other_segments(judge: Judge, tmp_path: Path) -> None:
    """U-13, U-17: other borders and a closing batch without a time are not reported."""
    theirs = made(judge, tmp_path / "theirs", [one(0, T), one(2, T + 5), one(4, T + 9)])
    ours = made(judge, tmp_path / "ours", [one(0, T), emptied(1, -1)], [one(2, T + 5), one(4, T + 9)])
    assert breaches(requested(judge, tmp_path, ours, theirs)) == ""


@pytest.mark.long
@pytest.mark.parametrize(
    ("closing_ms", "others_ms", "message"),
    [
        (0, -1, "deletes segment 0, which has the time"),
        (T, -1, "deletes segment 0, which has the time"),
        (T + 7, T, "nothing found, though there is the record at 2"),
        (NOW, T, "keeps segment 0 of ours"),
    ],
)
def test_a_closing_batch_with_a_time(
    judge: Judge, tmp_path: Path, closing_ms: int, others_ms: int, message: str
) -> None:
    """U-13: a closing batch's time deletes records without one, hides later records, or keeps expired ones."""
    theirs = made(judge, tmp_path / "theirs", [one(0, others_ms)], [one(2, T + 5)])
    ours = made(judge, tmp_path / "ours", [one(0, others_ms), emptied(1, closing_ms)], [one(2, T + 5)])
    assert message in breaches(requested(judge, tmp_path, ours, theirs, before=theirs))


@pytest.mark.long
def test_a_record_without_a_time_in_an_old_segment(judge: Judge, tmp_path: Path) -> None:
    """U-17: merged with old segments it is deleted as early; that Kafka did not merge them is noticed."""
    before = made(judge, tmp_path / "before", [one(0)], [one(1, T)])
    ours = made(judge, tmp_path / "ours", [one(0), one(1, T)])
    assert "the record at 0 goes before" in breaches(requested(judge, tmp_path, ours, before, before=before))
    assert breaches(requested(judge, tmp_path, ours, ours, before=before)) == "", "Kafka's cleaner loses it as well"


def test_files_of_now(judge: Judge, tmp_path: Path) -> None:
    """C-66: a cleaned segment without times that has the cleaning's time is kept too long."""
    before = made(judge, tmp_path / "before", [one(0), one(1)], [one(2)], modified_ms=T)
    ours = made(judge, tmp_path / "ours", [one(0), one(1)], [one(2)], modified_ms=NOW)
    assert "keeps segment 0 of ours" in breaches(requested(judge, tmp_path, ours, before, before=before))


def _last_time_lost(log: Path) -> None:
    index = log / f"{0:020}.timeindex"
    index.write_bytes(index.read_bytes()[:-12])


def _aborted_forgotten(log: Path) -> None:
    (log / f"{0:020}.txnindex").write_bytes(b"")


def _older(log: Path) -> None:
    os.utime(log / f"{6:020}.log", (T // 1000, T // 1000))


@pytest.mark.long
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_last_time_lost, "to a broker"),
        (_aborted_forgotten, "a consumer gets of theirs"),
        (_older, "deletes the record|goes before"),
    ],
)
def test_damage_is_noticed(judge: Judge, tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    """U-37: the same batches, and a broker that behaves differently on them."""
    sent = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    marker = Batch(base=4, marker=Marker("abort", T + 4), producer_id=5, producer_epoch=0)
    batches = ([one(0, T), one(1, T + 5), one(2, T + 9, base_sequence=0, **sent), marker], [one(6), one(7)])
    theirs = made(judge, tmp_path / "theirs", *batches)
    assert breaches(requested(judge, tmp_path, theirs, theirs)) == ""
    ours = tmp_path / "ours" / "t-0"
    shutil.copytree(theirs, ours)
    damage(ours)
    found = breaches(requested(judge, tmp_path, ours, theirs, before=theirs))
    assert any(part in found for part in message.split("|")), found


@pytest.mark.long
def test_open_transactions_and_producers(judge: Judge, tmp_path: Path) -> None:
    """U-37: last stable offset and producers; without snapshots they are read from the log."""
    sent = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    theirs = made(judge, tmp_path / "theirs", [one(0, NOW), one(1, NOW, base_sequence=0, **sent)], [one(2, NOW)])
    ours = made(judge, tmp_path / "ours", [one(0, NOW), one(1, NOW)], [one(2, NOW)])
    answers = requested(judge, tmp_path, ours, theirs)
    assert answers.theirs is not None
    assert (answers.theirs.last_stable_offset, answers.ours.last_stable_offset) == (1, 3)
    assert "last_stable_offset: theirs 1, ours 3" in breaches(answers)
    assert "producers: theirs" in breaches(answers)


@pytest.mark.long
def test_without_any_time(judge: Judge, tmp_path: Path) -> None:
    """If no record has a time there is no largest one, whatever Kafka returns; U-13: 0 if there is no record."""
    theirs = made(judge, tmp_path / "theirs", [emptied(0, -1), one(1)], [one(2)])
    ours = made(judge, tmp_path / "ours", [emptied(0, 0)], [one(1)], [one(2)])
    answers = requested(judge, tmp_path, ours, theirs, before=theirs)
    assert answers.theirs is not None
    assert answers.theirs.max_timestamp.timestamp_ms == -1
    assert answers.ours.max_timestamp == NONE
    assert breaches(answers) == ""
