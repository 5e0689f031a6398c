"""Shapes of logs: segments, codecs, batches."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, get_args

from tests.differential.cell import Cell
from tests.differential.history import DAY_MS, NOW, T0, History, Turn
from tests.kafka.log_spec import Batch, Codec, Record, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.differential.duel import Outcome

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


def shape_of(codec: Codec, size: str, keys: str, stamps: str) -> Cell:
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
                # the first cleaning's tombstones may be removed, those of the second not yet
                Turn(NOW + DAY_MS, from_start=True),
            ),
            # Kafka reads in smaller pieces than a batch of the largest size, and so does cleanerd
            chunk_bytes=1 << 14,
            io_buffer_bytes=1 << 15,
        ),
        _rebuilt(codec, size, stamps),
    )


def _rebuilt(codec: Codec, size: str, stamps: str) -> Callable[[Sequence[Outcome]], bool]:
    """Kafka wrote batches with fewer records than before, with the codec; with 1 record per batch they were removed."""

    def reason(outcomes: Sequence[Outcome]) -> bool:
        first = outcomes[0]
        counts = {batch.base: batch.count for batch in first.before.batches}
        smaller = [batch for batch in first.after.batches if 0 < batch.count < counts[batch.base]]
        right = all(batch.codec == codec for batch in smaller)
        append = all((batch.timestamp_type == "LogAppendTime") == (stamps == "LogAppendTime") for batch in smaller)
        return bool(first.gone() if size == "1 record" else smaller or first.gone()) and right and append

    return reason


LARGE = ("few keys", "nearly all different")
"""the keys in the case of 1 MiB batches"""


KINDS = [kind for kind in product(get_args(Codec), SIZES, KEYS) if kind[1] != "1 MiB" or kind[2] in LARGE]


CELLS = [shape_of(*kind, STAMPS[number % len(STAMPS)]) for number, kind in enumerate(KINDS)]
