"""A log with all kinds of producers, generated from a seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.kafka.log_spec import Batch, Codec, Marker, Record, Segment

if TYPE_CHECKING:
    import random

NOW_MS = 1_700_000_000_000
CODECS: tuple[Codec, ...] = ("none", "none", "none", "gzip", "lz4", "zstd")
PLAIN = -1


@dataclass(slots=True)
class _Producer:
    """One producer; ``plain`` ones never begin a transaction."""

    producer_id: int
    transactional: bool
    epoch: int = 0
    sequence: int = 0
    open: bool = False


@dataclass(slots=True)
class _Writer:
    rng: random.Random
    keys: int
    offset: int
    producers: list[_Producer]
    bumps: bool
    now_ms: int = NOW_MS
    borders: list[int] = field(default_factory=list)

    def segment(self, batches: int) -> Segment:
        base = self.offset
        return Segment(base, tuple(self._batch() for _ in range(batches)))

    def _batch(self) -> Batch:
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 40))
        open_ones = [each for each in self.producers if each.open]
        made = self._end(rng.choice(open_ones)) if open_ones and rng.random() < 0.35 else self._data()
        self.borders.append(self.offset)
        return made

    def _data(self) -> Batch:
        rng = self.rng
        producer = rng.choice([None, *self.producers, *self.producers])
        records = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            records.append(self._record())
            self.offset += 1
        if producer is None:
            return Batch(tuple(records), codec=rng.choice(CODECS))
        transactional = producer.transactional and (producer.open or rng.random() < 0.9)
        made = Batch(
            tuple(records),
            codec=rng.choice(CODECS),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
            transactional=transactional,
        )
        producer.sequence += len(records)
        producer.open = producer.open or transactional
        return made

    def _record(self) -> Record:
        rng = self.rng
        key = f"k{rng.randrange(self.keys)}".encode()
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((1, 8, 60))).hex().encode()
        # late and equal versions too
        version = max(0, self.offset + rng.choice((0, 0, 0, -7, -30))) // 2
        return Record(self.offset, self.now_ms, key, value, (("version", version.to_bytes(8, "big")),))

    def _end(self, producer: _Producer) -> Batch:
        rng = self.rng
        if self.bumps:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        producer.open = False
        made = Batch(
            base=self.offset,
            marker=Marker(rng.choice(("commit", "abort", "abort")), self.now_ms),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
        )
        self.offset += 1
        return made


@dataclass(frozen=True, slots=True)
class RandomLog:
    """``borders`` are the offsets after each batch; ``end_ms`` is the time of the last one."""

    segments: tuple[Segment, ...]
    borders: tuple[int, ...]
    end_offset: int
    end_ms: int


def random_log(rng: random.Random) -> RandomLog:
    """Three to seven segments by plain, idempotent and transactional producers; the last may be empty."""
    writer = _Writer(
        rng,
        keys=rng.choice((1, 2, 4, 12)),
        offset=0,
        producers=[_Producer(row, rng.random() < 0.8) for row in range(rng.randint(1, 4))],
        bumps=rng.random() < 0.3,
    )
    segments = [writer.segment(rng.randint(1, 7)) for _ in range(rng.randint(2, 6))]
    segments.append(writer.segment(rng.choice((0, 1, 3, 6))))
    return RandomLog(tuple(segments), tuple(writer.borders), writer.offset, writer.now_ms)
