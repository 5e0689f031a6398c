"""Logs with transactions and every codec, generated from a seed, for Kafka to write."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import get_args

from tests.kafka.log_spec import Batch, Codec, Marker, Record, Segment

T0 = 1_700_000_000_000
HOUR_MS = 3_600_000
CODECS: tuple[Codec, ...] = get_args(Codec)


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    open: bool = False


@dataclass(slots=True)
class _Maker:
    rng: random.Random
    offset: int = 0
    now_ms: int = T0
    leader_epoch: int = 0
    producers: list[_Producer] = field(default_factory=list)

    def batch(self) -> Batch:
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 1000, 60_000))
        self.leader_epoch += rng.random() < 0.03
        producer = rng.choice(self.producers)
        if producer.open and rng.random() < 0.4:
            return self.end(producer)
        base = self.offset
        records = tuple(self.record(base + row) for row in range(rng.randint(1, 6)))
        self.offset += len(records)
        mode = rng.random()
        settings: dict[str, object] = {"codec": rng.choice(CODECS), "leader_epoch": self.leader_epoch}
        if producer.open or mode < 0.6:
            settings |= {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": producer.sequence,
                "transactional": producer.open or mode < 0.4,
            }
            producer.open = bool(settings["transactional"])
            producer.sequence += len(records)
        return Batch(records, base=base, **settings)  # type: ignore[arg-type]  # by name

    def end(self, producer: _Producer) -> Batch:
        base, self.offset = self.offset, self.offset + 1
        producer.open = False
        marker = Marker(self.rng.choice(("commit", "abort")), self.now_ms, coordinator_epoch=3)
        return Batch(
            base=base,
            marker=marker,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
            control=True,
            leader_epoch=self.leader_epoch,
        )

    def record(self, offset: int) -> Record:
        rng = self.rng
        key = None if rng.random() < 0.02 else f"k{rng.randint(0, 25)}".encode()
        value = None if rng.random() < 0.15 else rng.randbytes(rng.choice((0, 3, 300)))
        headers = (("h", b"x"),) if rng.random() < 0.1 else ()
        return Record(offset, self.now_ms - rng.choice((0, 0, 5)), key, value, headers)


def transactional_log(seed: int) -> tuple[Segment, ...]:
    """Six segments and an empty active one; every transaction ends before that."""
    maker = _Maker(random.Random(seed))
    maker.producers = [_Producer(1000 + row) for row in range(3)]
    segments = []
    for _ in range(6):
        base = maker.offset
        segments.append(Segment(base, tuple(maker.batch() for _ in range(maker.rng.randint(3, 14)))))
    base = maker.offset
    ends = tuple(maker.end(producer) for producer in maker.producers if producer.open)
    if ends:
        segments.append(Segment(base, ends))
    segments.append(Segment(maker.offset))
    return tuple(segments)


def legacy_log(seed: int) -> tuple[Segment, ...]:
    """Four segments of magic 0 and 1, wrapped or not, with keys and tombstones, and an empty active one."""
    maker = _Maker(random.Random(seed))
    segments = []
    for row in range(4):
        base = maker.offset
        batches = []
        for _ in range(8):
            maker.now_ms += 1000
            records = tuple(
                replace(maker.record(maker.offset + at), timestamp=maker.now_ms if row % 2 else -1, headers=())
                for at in range(3)
            )
            maker.offset += 3
            codec = maker.rng.choice(("none", "gzip", "snappy", "lz4"))
            batches.append(Batch(records, magic=row % 2, codec=codec))
        segments.append(Segment(base, tuple(batches)))
    segments.append(Segment(maker.offset))
    return tuple(segments)
