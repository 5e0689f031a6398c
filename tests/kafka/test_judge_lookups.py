"""The lookup judge: right on Kafka's own indexes, and it finds a wrong entry of every kind."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import Batch, Record, Segment

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

T = 1_700_000_000_000
BASE = 1000


@pytest.fixture
def log(judge_43: Judge, tmp_path: Path) -> Path:
    """Ten batches of two records, with gaps, times that rise and fall, and an index entry per batch."""
    path = tmp_path / "t-0"
    batches = []
    for i in range(10):
        offset, time = BASE + 5 * i, T + 100 * (i if i % 3 else -i)
        batches.append(Batch((Record(offset, time + 7, b"a", b"1"), Record(offset + 2, time, b"b", b"1"))))
    judge_43.make(path, [Segment(BASE, tuple(batches))], now_ms=T, config={"index.interval.bytes": "1"})
    return path


def edit(log: Path, suffix: str, place: int, entry: bytes) -> None:
    path = log / f"{BASE:020}{suffix}"
    data = bytearray(path.read_bytes())
    data[place : place + len(entry)] = entry
    path.write_bytes(data)


def test_right_indexes(judge_43: Judge, log: Path) -> None:
    check = judge_43.lookups(log)
    assert check.problems == ()
    assert check.requested > 100
    assert check.entries > 10, "an index without entries would prove nothing"


@pytest.mark.long
@pytest.mark.parametrize(
    ("suffix", "entry", "message"),
    [
        (".index", struct.pack(">ii", 7, 77), "is not where a batch begins"),
        (".timeindex", struct.pack(">qi", T + 107, 47), "starts behind the first record of that time"),
        (".timeindex", struct.pack(">qi", T + 10_000, 2), "does not rise"),
    ],
)
def test_wrong_entries(judge_43: Judge, log: Path, suffix: str, entry: bytes, message: str) -> None:
    """F-7: a first entry with a position where no batch begins, or with a time that comes earlier, or later."""
    edit(log, suffix, 0, entry)
    problems = judge_43.lookups(log).problems
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("batch", "offset", "message"), [(3, 6, "starts behind its batch"), (1, 13, "names an offset outside its batch")]
)
def test_an_entry_for_another_batch(judge_43: Judge, log: Path, batch: int, offset: int, message: str) -> None:
    """F-7: positions are those of batches, but offset and position do not belong together."""
    position = judge_43.dump(log).batches[batch].position
    edit(log, ".index", 0, struct.pack(">ii", offset, position))
    problems = judge_43.lookups(log).problems
    assert any(message in problem for problem in problems), problems


def test_a_time_index_that_ends_too_early(judge_43: Judge, log: Path) -> None:
    """The broker reads the largest timestamp of a segment from the last entry, and skips segments by it."""
    path = log / f"{BASE:020}.timeindex"
    path.write_bytes(path.read_bytes()[:-12])
    assert any("last time index entry" in problem for problem in judge_43.lookups(log).problems)


def test_a_missing_index(judge_43: Judge, log: Path) -> None:
    (log / f"{BASE:020}.index").unlink()
    assert "is missing" in judge_43.lookups(log).problems[0]
