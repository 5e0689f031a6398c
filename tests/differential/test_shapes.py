"""Codecs x batch sizes x key distributions, with timestamps in turn, over three rounds with a moving clock."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, get_args

import pytest

from tests.differential.cell import Cell
from tests.differential.history import DAY_MS, NOW, T0, History, Turn
from tests.kafka.log_spec import Batch, Codec, Record, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.differential.duel import Outcome
    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

KEYS: dict[str, Callable[[random.Random, int], bytes | None]] = {
    "one key": lambda _, __: b"k",
    "few keys": lambda rng, _: b"k%d" % rng.randrange(5),
    "skewed keys": lambda rng, _: b"k%d" % int(rng.paretovariate(0.7)),
    "nearly all different": lambda rng, offset: b"k%d" % (offset if rng.random() < 0.9 else 0),
    "long keys, some null": lambda rng, _: (
        None if rng.random() < 0.1 else b"/long/prefix" * 30 + b"%d" % rng.randrange(9)
    ),
}

SIZES = {"1 record": (1, 20), "20 records": (20, 30), "16 KiB": (20, 800), "1 MiB": (16, 65536)}
"""Records in a batch and bytes of a value."""

STAMPS = ("CreateTime", "out of order", "LogAppendTime")
BATCHES = {"1 record": 30, "20 records": 8, "16 KiB": 6, "1 MiB": 2}
SEGMENTS = 4


def _value(rng: random.Random, size: int) -> bytes | None:
    """Half of it compresses. One in seven is a tombstone."""
    if rng.random() < 1 / 7:
        return None
    return rng.randbytes(size // 2) + b"x" * (size - size // 2)


def _timestamp(rng: random.Random, offset: int, stamps: str) -> int:
    return T0 + (rng.randrange(10**6) if stamps == "out of order" else offset)


def _batch(rng: random.Random, base: int, codec: Codec, size: str, keys: str, stamps: str) -> Batch:
    count, value_bytes = SIZES[size]
    records = tuple(
        Record(offset, _timestamp(rng, offset, stamps), KEYS[keys](rng, offset), _value(rng, value_bytes))
        for offset in range(base, base + count)
    )
    return Batch(records, codec=codec, append_time=T0 + base if stamps == "LogAppendTime" else None)


def _shape(codec: Codec, size: str, keys: str, stamps: str) -> Cell:
    rng = random.Random(f"{codec} {size} {keys} {stamps}")
    segments: list[Segment] = []
    offset = 0
    for _ in range(SEGMENTS):
        batches: list[Batch] = []
        for _ in range(BATCHES[size] if size != "1 MiB" or len(segments) < 2 else 1):
            batches.append(_batch(rng, offset, codec, size, keys, stamps))
            offset += SIZES[size][0]
        segments.append(Segment(batches[0].records[0].offset, tuple(batches)))
    segments.append(Segment(offset))
    return Cell(
        f"{codec}, {size}, {keys}, {stamps}",
        History(
            tuple(segments),
            turns=(
                Turn(NOW, segments=3),
                Turn(NOW + DAY_MS - 1),
                # The tombstones of the first round may go, those of the second may not yet.
                Turn(NOW + DAY_MS, from_start=True),
            ),
            # Kafka reads in smaller pieces than a batch of the largest size, and so do we.
            chunk_bytes=1 << 14,
            io_buffer_bytes=1 << 15,
        ),
        _rebuilt(codec, size, stamps),
    )


def _rebuilt(codec: Codec, size: str, stamps: str) -> Callable[[Sequence[Outcome]], bool]:
    """Kafka wrote batches with fewer records than before, and they have the codec; 1 record: they went."""

    def reason(outcomes: Sequence[Outcome]) -> bool:
        first = outcomes[0]
        counts = {batch.base: batch.count for batch in first.before.batches}
        smaller = [batch for batch in first.after.batches if 0 < batch.count < counts[batch.base]]
        right = all(batch.codec == codec for batch in smaller)
        append = all((batch.timestamp_type == "LogAppendTime") == (stamps == "LogAppendTime") for batch in smaller)
        return bool(first.gone() if size == "1 record" else smaller or first.gone()) and right and append

    return reason


LARGE = ("few keys", "nearly all different")
"""The keys that batches of 1 MiB have."""
KINDS = [kind for kind in product(get_args(Codec), SIZES, KEYS) if kind[1] != "1 MiB" or kind[2] in LARGE]
CELLS = [_shape(*kind, STAMPS[number % len(STAMPS)]) for number, kind in enumerate(KINDS)]


def _is_short(codec: Codec, size: str, keys: str) -> bool:
    """Every second one, so that each codec meets each size, and both meet each kind of keys."""
    place = LARGE.index(keys) if size == "1 MiB" else [*SIZES].index(size) + [*KEYS].index(keys)
    return (get_args(Codec).index(codec) + place) % 2 == 0


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(cell, id=cell.name, marks=[] if _is_short(*kind) else [pytest.mark.long])
        for cell, kind in zip(CELLS, KINDS, strict=True)
    ],
)
def test_shape(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-20, C-45, C-47..C-52: whatever the records look like, ours is as Kafka's after each of three rounds."""
    cell.check(judge_43, work)


@pytest.mark.parametrize("size", SIZES)
def test_on_a_disk(judge_43: Judge, tmp_path: Path, size: str) -> None:
    """The same where flushing means something."""
    cell = _shape("lz4", size, "few keys", "CreateTime")
    replace(cell, history=replace(cell.history, turns=cell.history.turns[:1])).check(judge_43, tmp_path)
