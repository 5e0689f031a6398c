"""Logs whose offsets do not ascend: cleanerd removes the same records as Kafka.

If Kafka refuses a log, cleanerd cleans it without loss.
"""

from __future__ import annotations

import gzip
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from cleanerd.state.cleaner_checkpoint import StateStore
from tests.differential.duel import NAME, clean_ours, prepare
from tests.differential.history import NOW, T0, History, Turn, log
from tests.kafka.judge import JudgeError, Round
from tests.kafka.log_spec import Batch
from tests.support.log_dirs import read_segments
from tests.support.logs import Record, encode_batch, encode_legacy, encode_record, encode_wrapper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka


def _random_batch(rng: random.Random, end: int, before: list[Batch]) -> Batch:
    """One of the kinds of batch that brokers store; ``end`` is one above the highest offset."""
    kind = rng.choice(("sound", "sound", "again", "back", "equal", "short", "behind", "minus two"))
    if kind == "again" and before:
        return rng.choice(before)
    first = rng.randint(1, end) if kind == "back" and before else end
    size = rng.randint(1, 4)
    deltas = [0] * size if kind == "equal" else list(range(size))
    records = [
        Record(rng.choice((b"a", b"b", b"c")), b"%d" % rng.randrange(10**6), T0 + first, offset_delta=delta)
        for delta in deltas
    ]
    last = 0 if kind == "short" else deltas[-1]
    settings: dict[str, object] = {}
    if kind == "behind":
        plain = b"".join(
            encode_record(each, offset_delta=each.offset_delta or 0, timestamp_delta=0) for each in records
        )
        settings = {"codec": 1, "payload": gzip.compress(plain, mtime=0) + bytes(rng.randint(1, 9))}
    data = encode_batch(records, base_offset=first, last_offset_delta=last, **settings)  # type: ignore[arg-type]
    return Batch(base=first, last=first + last, raw=data)


def _rows(partition: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for _, batches in sorted(read_segments(partition).items())
        for batch in batches
        for record in batch.records
    ]


def _play(judge: Judge, work: Path, seed: int) -> bool:
    """Clean one log by both; returns whether Kafka did."""
    rng = random.Random(seed)
    batches: list[Batch] = [Batch(base=0, last=0, raw=encode_batch([Record(b"a", b"0", T0)]))]
    end = 1
    for _ in range(rng.randint(2, 8)):
        batches.append(_random_batch(rng, end, batches[1:]))
        end = max(end, (batches[-1].last or 0) + 1)
    sound = encode_batch([Record(b"a", b"0", T0)], last_offset_delta=end - 1)
    segments = log(
        [Batch(base=0, last=end - 1, raw=sound)],
        [Batch(base=end, last=end, raw=encode_batch([Record(b"z", b"1", T0)], base_offset=end))],
    )
    full, theirs, ours = (work / f"{side}{seed}" / str(NAME) for side in ("full", "theirs", "ours"))
    judge.make(full, segments, now_ms=NOW)
    (full / f"{0:020d}.log").write_bytes(b"".join(batch.raw or b"" for batch in batches))  # appends refuse these today
    ours.parent.mkdir()
    shutil.copytree(full, ours)
    prepare(ours.parent)
    before = _rows(full)
    result = clean_ours(ours.parent, StateStore(work / f"state{seed}"), History(segments), Turn(NOW))
    assert result.error is None, (seed, result.reason)
    after = _rows(ours)
    last = {key: value for _, key, value in before}
    assert {key: value for _, key, value in after} == last, seed
    try:
        judge.clean(theirs, [Round(NOW)], source=full)
    except JudgeError:
        return False  # Kafka's builder refuses equal or descending offsets
    assert sorted(map(str, _rows(theirs))) == sorted(map(str, after)), seed
    return True


def test_as_kafka(judge_43: Judge, work: Path) -> None:
    """U-45, U-52: record by record as Kafka 4.3, if that cleans at all; no record is ever lost."""
    assert sum(_play(judge_43, work, seed) for seed in range(24)) > 8


@pytest.mark.parametrize("gap", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers(judge_43: Judge, work: Path, magic: int, gap: int) -> None:
    """U-45: Kafka refuses to clean a wrapper with equal offsets, cleanerd cleans it.

    If they ascend both do the same.
    """
    keys = (b"a", b"b", b"c")
    inner = [
        encode_legacy(2 + gap * row - (2 + 2 * gap if magic else 0), key, b"1", magic=magic)
        for row, key in enumerate(keys)
    ]
    old = encode_wrapper(2 + 2 * gap, b"".join(inner), magic=magic)
    new = encode_batch([Record(b"b", b"2", T0)], base_offset=5)
    segments = log(
        [Batch(base=2, last=5, raw=encode_batch([Record(b"a", b"0", T0)], base_offset=2, last_offset_delta=3))],
        [Batch(base=6, last=6, raw=encode_batch([Record(b"z", b"1", T0)], base_offset=6))],
    )
    full, theirs, ours = (work / side / str(NAME) for side in ("full", "theirs", "ours"))
    judge_43.make(full, segments, now_ms=NOW)
    (full / f"{2:020d}.log").write_bytes(old + new)
    ours.parent.mkdir()
    shutil.copytree(full, ours)
    prepare(ours.parent)
    result = clean_ours(ours.parent, StateStore(work / "state"), History(segments), Turn(NOW))
    assert result.error is None, result.reason
    assert [key for _, key, _ in _rows(ours)] == [b"a", b"c", b"b", b"z"]
    if gap:
        judge_43.clean(theirs, [Round(NOW)], source=full)
        assert _rows(theirs) == _rows(ours)
        return
    with pytest.raises(JudgeError, match="Illegal offset"):
        judge_43.clean(theirs, [Round(NOW)], source=full)
