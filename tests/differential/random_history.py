"""A log and its cleanings, generated from a seed. Rare cases are frequent in it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import get_args

from tests.differential.history import DAY_MS, T0, History, Turn
from tests.kafka.log_spec import Batch, Codec, Record, Segment

FAR = 3_000_000_000
CODECS: tuple[Codec, ...] = get_args(Codec)


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class _Maker:
    """Values drawn once per log, and the current log end."""

    rng: random.Random
    offset: int
    now_ms: int = T0
    leader_epoch: int = 0
    producers: list[_Producer] = field(default_factory=list)
    keys: int = 10
    codecs: tuple[Codec, ...] = CODECS
    append_time: bool = False
    disorder_ms: int = 0
    largest_value: int = 100
    largest_batch: int = 30
    floor: int = 0
    """The earliest base offset of the batch being drawn."""

    def segment(self) -> Segment:
        rng = self.rng
        base = self.offset
        batches = tuple(self.batch() for _ in range(0 if rng.random() < 0.1 else rng.randint(1, 12)))
        if not batches or rng.random() < 0.2:
            self.offset += rng.choice((1, 7, FAR, 2**31 - 3) if rng.random() < 0.3 else (1, 3))
        return Segment(base, batches)

    def batch(self) -> Batch:
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 1000, 600_000))
        if rng.random() < 0.05:
            self.leader_epoch += rng.randint(1, 3)
        if rng.random() < 0.08:
            return self._emptied()
        records = self._records()
        base = records[0].offset - (rng.randint(1, 3) if rng.random() < 0.05 else 0)
        base = max(base, self.floor)
        last = records[-1].offset + (rng.randint(1, 9) if rng.random() < 0.05 else 0)
        self.offset = last + 1
        sender = self._sender(last - base + 1)
        return Batch(
            records,
            base=base,
            last=last,
            codec=rng.choice(self.codecs),
            append_time=self.now_ms if self.append_time else None,
            leader_epoch=self.leader_epoch,
            delete_horizon=self.now_ms + rng.randint(0, 3 * DAY_MS) if rng.random() < 0.08 else None,
            producer_id=sender.producer_id,
            producer_epoch=sender.epoch,
            base_sequence=sender.sequence,
        )

    def _emptied(self) -> Batch:
        base = self.offset
        last = base + self.rng.randint(0, 9)
        self.offset = last + 1
        sender = self._sender(last - base + 1)
        return Batch(
            base=base,
            last=last,
            append_time=self.now_ms if self.append_time else None,
            max_timestamp=self.now_ms,
            leader_epoch=self.leader_epoch,
            producer_id=sender.producer_id,
            producer_epoch=sender.epoch,
            base_sequence=sender.sequence,
        )

    def _records(self) -> tuple[Record, ...]:
        rng = self.rng
        self.floor = self.offset
        offset = self.offset
        made = []
        for _ in range(1 if rng.random() < 0.2 else rng.randint(1, self.largest_batch)):
            offset += rng.randint(1, 50) if rng.random() < 0.04 else 0
            made.append(Record(offset, self._timestamp(), self._key(), self._value(), self._headers()))
            offset += 1
        return tuple(made)

    def _timestamp(self) -> int:
        rng = self.rng
        if rng.random() < 0.02:
            return rng.choice((-1, 0, 2**62, 2**63 - 1))
        return max(-1, self.now_ms - (rng.randint(0, self.disorder_ms) if self.disorder_ms else 0))

    def _key(self) -> bytes | None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.04:
            return None
        if draw < 0.06:
            return b""
        return b"key-%d" % min(int(rng.paretovariate(0.8)), 10**6) if draw < 0.3 else b"k%d" % rng.randrange(self.keys)

    def _value(self) -> bytes | None:
        rng = self.rng
        draw = rng.random()
        if draw < 0.15:
            return None
        if draw < 0.2:
            return b""
        size = rng.randint(1, self.largest_value)
        return rng.randbytes(size) if draw < 0.5 else b"v" * size

    def _headers(self) -> tuple[tuple[str, bytes | None], ...]:
        rng = self.rng
        if rng.random() < 0.85:
            return ()
        return tuple(
            (rng.choice(("h", "", "größe")), rng.choice((None, b"", b"x" * 9))) for _ in range(rng.randint(1, 3))
        )

    def _sender(self, count: int) -> _Producer:
        rng = self.rng
        if not self.producers or rng.random() < 0.5:
            return _Producer(-1, -1, -1)
        producer = rng.choice(self.producers)
        if rng.random() < 0.1:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        sent = _Producer(producer.producer_id, producer.epoch, producer.sequence)
        producer.sequence = (producer.sequence + count) % 2**31
        return sent


def random_history(seed: int) -> History:
    """The history of ``seed``, always the same on the same Python."""
    rng = random.Random(seed)
    maker = _Maker(
        rng,
        offset=rng.choice((0, 0, 0, 17, FAR)),
        keys=rng.choice((1, 3, 10, 40, 300, 5000)),
        codecs=rng.choice((CODECS, ("none",), (rng.choice(CODECS),))),
        append_time=rng.random() < 0.25,
        disorder_ms=rng.choice((0, 0, 1000, DAY_MS)),
        largest_value=rng.choice((3, 100, 3000)),
        largest_batch=rng.choice((3, 30, 90)),
    )
    maker.producers = [
        _Producer(rng.choice((row, 2**62 + row)), rng.randint(0, 5), rng.choice((0, 9, 2**31 - 20)))
        for row in range(rng.choice((0, 1, 4)))
    ]
    segments = [maker.segment() for _ in range(rng.randint(2, 9))]
    segments.append(Segment(maker.offset))
    history = History(
        tuple(segments),
        config={
            "delete.retention.ms": str(rng.choice((0, 1, 3_600_000, DAY_MS, 2**63 - 1))),
            "segment.bytes": str(rng.choice((14, 400, 3000, 20_000, 2**30))),
            "index.interval.bytes": str(rng.choice((0, 100, 4096))),
            "max.message.bytes": str(rng.choice((100, 1_048_588))),
        },
        producer_expiration_ms=rng.choice((1, 600_000, DAY_MS, 20 * DAY_MS)),
        chunk_bytes=rng.choice((64, 700, 1 << 14, 1 << 20)),
        map_bytes=rng.choice((1, 1 << 20)),
        io_buffer_bytes=rng.choice((200, 5000, 1 << 18)),
    )
    return _with_turns(rng, history, maker.now_ms)


def _with_turns(rng: random.Random, history: History, written_ms: int) -> History:
    """Three cleanings; the log grows between them, or they begin at the start again; the clock advances.

    Sometimes the two sides exchange their logs; sometimes the high watermark limits the first cleaning.
    """
    count = len(history.segments)
    visible = sorted(rng.randint(2, count) for _ in range(3))
    first = history.segments[: visible[0]]
    bound = _bound(rng, first) if rng.random() < 0.2 else None
    reach = first[-1].base if bound is None else max(each.base for each in first if each.base <= bound)
    log_start = rng.randint(first[0].base, reach - 1) if rng.random() < 0.15 else 0
    now_ms = written_ms + rng.choice((0, 1, DAY_MS // 2))
    turns: list[Turn] = []
    for row, segments in enumerate(visible):
        grown = not turns or segments > visible[row - 1]
        turns.append(
            Turn(
                now_ms,
                segments=segments,
                first_dirty_offset=_first_dirty(rng, first, reach) if row == 0 and not log_start else None,
                from_start=row > 0 and (not grown or rng.random() < 0.3),
                # Only while the segments are equal on both sides: in the last one of a cleaning that ends early,
                # tombstones beyond the end get their horizon (C-48), up to that segment's end.
                map_keys=rng.choice((2, 5, 20)) if row == 0 and rng.random() < 0.4 else None,
                first_uncleanable_offset=bound if row == 0 else None,
                swapped=row > 0 and rng.random() < 0.2,
            )
        )
        now_ms += rng.choice((0, 1, 3_600_000 - 1, 3_600_000, DAY_MS, 40 * DAY_MS))
    return replace(history, turns=tuple(turns), log_start_offset=log_start)


def _bound(rng: random.Random, segments: tuple[Segment, ...]) -> int:
    """A high watermark with at least the first segment to clean."""
    return rng.randint(segments[1].base, segments[-1].base)


def _first_dirty(rng: random.Random, segments: tuple[Segment, ...], reach: int) -> int | None:
    """None (the log start), or an offset below ``reach``: segment edge, batch edge, inside a batch."""
    if rng.random() < 0.4:
        return None
    edges = [segment.base for segment in segments[:-1]]
    edges += [made.base for segment in segments[:-1] for made in segment.batches if made.base is not None]
    chosen = rng.choice(edges) + rng.choice((0, 0, 1, 2, 5))
    return min(max(chosen, segments[0].base), reach - 1)
