"""Random logs: several segments of v2 batches with everything that a compacted topic may contain."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.log_dirs import Producer
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

NOW_MS = BASE_TIMESTAMP_MS + 1_000_000
KEYS: tuple[bytes, ...] = (b"", *(b"key-%d" % number for number in range(11)))


@dataclass(slots=True)
class LogMaker:
    """Writes batches as a broker would, and keeps the same state of producers."""

    seed: int
    codecs: Sequence[int] = (0, 1, 2, 3, 4)
    offset: int = 0
    producers: dict[int, Producer] = field(default_factory=dict)
    _random: random.Random = field(init=False)
    _sequences: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def segment(self, batches: int, now_ms: int) -> bytes:
        """The bytes of ``batches`` batches, written before ``now_ms``."""
        return b"".join(self._batch(now_ms) for _ in range(batches))

    def skip(self, offsets: int) -> None:
        """Leave a gap in the log."""
        self.offset += offsets

    def _batch(self, now_ms: int) -> bytes:
        pick = self._random
        if pick.random() < 0.2:
            self.skip(pick.choice((1, 2, 7)))
        producer_id = pick.choice((-1, -1, 1, 2, 3))
        count = 0 if pick.random() < 0.1 else pick.randint(1, 9)
        records, delta = [], pick.choice((0, 0, 0, 2))
        for _ in range(count):
            records.append(self._record(now_ms, delta))
            delta += pick.choice((1, 1, 1, 2))
        last_delta = max(delta - 1, 0) + pick.choice((0, 0, 3))
        has_horizon = pick.random() < 0.15
        last_offset = self.offset + last_delta
        sequence = self._sequences.get(producer_id, 0)
        data = encode_batch(
            records,
            base_offset=self.offset,
            codec=pick.choice(list(self.codecs)),
            log_append_time=now_ms - pick.randint(1, 1000) if pick.random() < 0.2 else None,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 4,
            base_sequence=-1 if producer_id < 0 else sequence,
            leader_epoch=pick.randint(0, 3),
            last_offset_delta=last_delta,
            delete_horizon=now_ms + pick.randint(-500, 500) if has_horizon else None,
            max_timestamp=None if records else now_ms - pick.randint(1, 900),
        )
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + last_delta + 1
            max_timestamp_ms = int.from_bytes(data[35:43], "big", signed=True)
            self.producers[producer_id] = Producer(
                producer_id, last_offset, max_timestamp_ms, epoch=4, last_sequence=sequence + last_delta
            )
        self.offset = last_offset + 1
        return data

    def _record(self, now_ms: int, offset_delta: int) -> Record:
        pick = self._random
        return Record(
            key=None if pick.random() < 0.08 else pick.choice(KEYS),
            value=pick.choice((None, None, b"", b"v", b"value-%d" % self.offset, b"x" * pick.randint(1, 300))),
            timestamp=now_ms - pick.randint(0, 5000),
            offset_delta=offset_delta,
            headers=pick.choice(((), (), ((b"h", None),), ((b"a", b"1"), (b"\xff", b"")))),
            attributes=pick.choice((0, 0, 0, 0x20, 0xFF)),
        )
