"""Logs that neither cleaner cleans, and the few that Kafka cleans and cleanerd deliberately does not."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.state.cleaner_checkpoint import StateStore
from tests.differential.duel import NAME, clean_ours, digest, prepare
from tests.differential.history import NOW, T0, History, Turn, batch, log
from tests.kafka.judge import JudgeError, Round
from tests.kafka.log_spec import Batch, Segment
from tests.support.logs import Record, encode_batch, encode_legacy, encode_record, encode_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

THREE = [Record(b"k%d" % row, b"v", T0 + row) for row in range(3)]
PLAIN = b"".join(encode_record(record, offset_delta=row, timestamp_delta=row) for row, record in enumerate(THREE))
PACKED = gzip.compress(PLAIN)
BACKWARDS = [replace(record, offset_delta=delta) for record, delta in zip(THREE, (0, 2, 1), strict=True)]

BAD = {
    "fewer records than the count says": encode_batch(THREE, record_count=4),
    "more records than the count says": encode_batch(THREE, record_count=2),
    "a record longer than the batch": encode_batch(THREE, payload=PLAIN[:-4]),
    "bytes behind the last record": encode_batch(THREE, payload=PLAIN + b"x"),
    "a record that does not use its length": encode_batch(THREE, payload=b"\x12" + PLAIN[1:] + b"\0\0"),
    "packed bytes that are none": encode_batch(THREE, codec=1, payload=b"\x1f\x8b" + b"x" * 60),
    "packed bytes with an end missing": encode_batch(THREE, codec=1, payload=PACKED[: len(PACKED) // 2]),
    "a producer without epoch (C-54)": encode_batch(THREE, producer_id=5, base_sequence=0),
    "a producer without sequence (C-54)": encode_batch(THREE, producer_id=5, producer_epoch=0),
}

OURS_ALONE = {
    "a timestamp below -1": encode_batch([replace(record, timestamp=-7) for record in THREE]),
    "offsets that go back": encode_batch(BACKWARDS, last_offset_delta=2),
}


@dataclass(frozen=True, slots=True)
class _Tried:
    """``theirs``: Kafka's exception, or None; ``untouched``: whether cleanerd's log is unchanged."""

    theirs: JudgeError | None
    ours: CleaningResult
    untouched: bool


def _try(judge: Judge, work: Path, segments: tuple[Segment, ...], damage: Callable[[Path], None] | None) -> _Tried:
    full, theirs, ours = (work / side / str(NAME) for side in ("full", "theirs", "ours"))
    judge.make(full, segments, now_ms=NOW)
    if damage is not None:
        damage(full)
    ours.parent.mkdir()
    shutil.copytree(full, ours)
    prepare(ours.parent)
    before = digest(ours)
    thrown: JudgeError | None = None
    try:
        judge.clean(theirs, [Round(NOW)], source=full)
    except JudgeError as error:
        thrown = error
    result = clean_ours(ours.parent, StateStore(work / "state"), History(segments), Turn(NOW))
    return _Tried(thrown, result, before == digest(ours))


@pytest.mark.long
@pytest.mark.parametrize("name", BAD)
def test_neither_cleans(judge_43: Judge, work: Path, name: str) -> None:
    """C-54, C-57: damage ends the cleaning of both, and cleanerd's log is unchanged."""
    segments = log([batch(0, "a=1"), Batch(base=1, last=3, raw=_at(1, BAD[name]))], [batch(4, "k0=2 a=2")])
    tried = _try(judge_43, work, segments, None)
    assert tried.theirs is not None
    assert tried.ours.error is not None
    assert tried.untouched


@pytest.mark.parametrize("name", OURS_ALONE)
def test_cleaned_by_cleanerd_alone(judge_43: Judge, work: Path, name: str) -> None:
    """U-45, U-52: Kafka's builder refuses such a record, so its cleaner marks the log uncleanable.

    Cleanerd loses nothing.
    """
    segments = log([batch(0, "a=1"), Batch(base=1, last=3, raw=_at(1, OURS_ALONE[name]))], [batch(4, "k0=2 a=2")])
    tried = _try(judge_43, work, segments, None)
    assert tried.theirs is not None
    assert tried.ours.error is None
    assert [record.key for each in judge_43.dump(work / "ours" / str(NAME)).batches for record in each.records] == [
        b"k1", b"k2", b"k0", b"a"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("later", "kept", "theirs_cleans"),
    [
        ("k2=2 a=2", [(2, b"k0"), (1, b"k1"), (4, b"k2")], False),
        ("k0=2 a=2", [(1, b"k1"), (3, b"k2"), (4, b"k0")], True),
    ],
)
def test_a_wrapper_whose_offsets_go_back(
    judge_43: Judge, work: Path, later: str, kept: list[tuple[int, bytes]], theirs_cleans: bool
) -> None:
    """U-45: records that Kafka's builder accepts are equal in both logs.

    Only cleanerd cleans the rest, without loss.
    """
    inner = [encode_legacy(at, each.key, b"v", timestamp=T0) for at, each in zip((1, 0, 2), THREE, strict=True)]
    wrapper = Batch(base=1, last=3, raw=encode_wrapper(3, b"".join(inner), timestamp=T0))
    tried = _try(judge_43, work, log([batch(0, "a=1"), wrapper], [batch(4, later)]), None)
    assert (tried.theirs is None) == theirs_cleans
    assert tried.ours.error is None
    for side in ("ours", "theirs") if theirs_cleans else ("ours",):
        batches = judge_43.dump(work / side / str(NAME)).batches
        assert [(record.offset, record.key) for each in batches for record in each.records] == [*kept, (5, b"a")]


def test_a_cut_segment(judge_43: Judge, work: Path) -> None:
    """C-57: a segment that ends inside a batch."""

    def cut(partition: Path) -> None:
        path = partition / f"{0:020d}.log"
        path.write_bytes(path.read_bytes()[:-5])

    segments = log([batch(0, "a=1 a=2"), batch(2, "b=1 c=1")], [batch(4, "a=3")])
    tried = _try(judge_43, work, segments, cut)
    assert tried.theirs is not None
    assert tried.ours.error is not None
    assert tried.untouched


def test_a_wrong_checksum(judge_43: Judge, work: Path) -> None:
    """C-56: Kafka's cleaner does not check it and writes a right checksum over wrong bytes; cleanerd stops."""

    def flip(partition: Path) -> None:
        path = partition / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        at = data.index(b"kept")
        data[at : at + 4] = b"lost"
        path.write_bytes(bytes(data))

    tried = _try(judge_43, work, log([batch(0, "a=1 b=kept a=2")], [batch(3, "c=1")]), flip)
    assert tried.theirs is None
    (laundered, *_) = judge_43.dump(work / "theirs" / str(NAME)).batches
    assert (laundered.problem, laundered.records[0].value) == (None, b"lost")
    assert tried.ours.error is not None
    assert "CRC" in str(tried.ours.error)
    assert tried.untouched


def _at(offset: int, made: bytes) -> bytes:
    """The batch with another base offset, which no checksum covers."""
    return offset.to_bytes(8, "big") + made[8:]
