"""A log full of transactions and its cleanings, generated from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from tests.differential.history import DAY_MS, History, Turn, last_offset
from tests.differential.random_history import CODECS, _Maker, _Producer
from tests.kafka.log_spec import Batch, Marker, Segment

RETENTION_MS = 1000
ROUNDS = 4


@dataclass(slots=True)
class _Transactions(_Maker):
    """Producers that mostly use transactions, and their markers."""

    open: dict[int, int] = field(default_factory=dict)
    """Start of the open transaction by producer id."""
    bumps: float = 0.0
    """How often a marker bumps the epoch: always with transaction version 2."""

    def segment(self) -> Segment:
        base = self.offset
        batches = tuple(self.batch() for _ in range(0 if self.rng.random() < 0.05 else self.rng.randint(1, 14)))
        self.offset += 0 if batches else 1
        return Segment(base, batches)

    def batch(self) -> Batch:
        rng = self.rng
        self.now_ms += rng.choice((0, 1, 40))
        draw = rng.random()
        if self.open and draw < 0.35:
            return self._end(rng.choice(sorted(self.open)))
        if draw < 0.42:
            return self._end(rng.choice(self.producers).producer_id)
        if draw < 0.46:
            return self._hollow(control=True)
        if draw < 0.5:
            return self._hollow(control=False)
        return self._data()

    def _data(self) -> Batch:
        rng = self.rng
        producer = rng.choice(self.producers) if rng.random() < 0.8 else _Producer(-1, -1, -1)
        records = self._records()
        transactional = producer.producer_id >= 0 and (producer.producer_id in self.open or rng.random() < 0.85)
        if transactional:
            self.open.setdefault(producer.producer_id, records[0].offset)
        made = Batch(
            records,
            codec=rng.choice(self.codecs),
            append_time=self.now_ms if self.append_time else None,
            transactional=transactional,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence,
        )
        if producer.producer_id >= 0:
            producer.sequence = (producer.sequence + records[-1].offset - records[0].offset + 1) % 2**31
        self.offset = records[-1].offset + 1
        return made

    def _end(self, producer_id: int) -> Batch:
        rng = self.rng
        (producer,) = (each for each in self.producers if each.producer_id == producer_id)
        if rng.random() < self.bumps:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        self.open.pop(producer_id, None)
        marker = Marker(rng.choice(("commit", "abort")), self.now_ms, rng.randint(0, 2))
        made = Batch(base=self.offset, marker=marker, producer_id=producer_id, producer_epoch=producer.epoch)
        self.offset += 1
        return made

    def _hollow(self, *, control: bool) -> Batch:
        """The rest of a batch after an earlier cleaning."""
        rng = self.rng
        producer = rng.choice(self.producers)
        base = self.offset
        last = base if control else base + rng.randint(0, 4)
        self.offset = last + 1
        if not control:
            self.open.setdefault(producer.producer_id, base)
        made = Batch(
            base=base,
            last=last,
            max_timestamp=self.now_ms,
            transactional=True,
            control=control,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=-1 if control else producer.sequence,
        )
        if not control:
            producer.sequence = (producer.sequence + last - base + 1) % 2**31
        return made


def random_transactions(seed: int) -> History:
    """The history of ``seed``, always the same on the same Python; without turns if nothing is cleanable."""
    rng = random.Random(seed)
    maker = _Transactions(
        rng,
        offset=rng.choice((0, 0, 17)),
        keys=rng.choice((1, 3, 10, 40)),
        codecs=rng.choice((CODECS, ("none",), (rng.choice(CODECS),))),
        append_time=rng.random() < 0.2,
        largest_value=rng.choice((3, 100)),
        largest_batch=rng.choice((1, 3, 10)),
        bumps=rng.choice((0.0, 0.2, 1.0)),
    )
    maker.producers = [_Producer(row, rng.randint(0, 5), 0) for row in range(rng.randint(1, 5))]
    segments = [maker.segment() for _ in range(rng.randint(2, 8))]
    # Kafka's replay after the last snapshot ignores ages (F-10), so there must be nothing to replay.
    expiration_ms = rng.choice((1, DAY_MS, 20 * DAY_MS, 20 * DAY_MS, 20 * DAY_MS))
    grows = expiration_ms > 19 * DAY_MS
    if grows and rng.random() < 0.5:
        base = maker.offset
        ends = tuple(maker._end(producer) for producer in sorted(maker.open) if rng.random() < 0.7)
        segments.append(Segment(base, ends))
    else:
        segments.append(Segment(maker.offset))
    history = History(
        tuple(segments),
        config={
            "delete.retention.ms": str(rng.choice((0, RETENTION_MS, RETENTION_MS, DAY_MS))),
            "index.interval.bytes": str(rng.choice((0, 100, 4096))),
            "segment.bytes": str(rng.choice((400, 2000, 2**30, 2**30, 2**30))),
        },
        producer_expiration_ms=expiration_ms,
        chunk_bytes=rng.choice((64, 700, 1 << 20)),
        map_bytes=rng.choice((1, 1 << 20)),
        io_buffer_bytes=rng.choice((200, 1 << 18)),
    )
    return replace(history, turns=tuple(_turns(rng, history, maker.now_ms, grows=grows)))


def _turns(rng: random.Random, history: History, written_ms: int, *, grows: bool) -> list[Turn]:
    """Up to four cleanings on a log that may grow, each with work to do, none beyond an open transaction."""
    turns: list[Turn] = []
    now_ms = written_ms + rng.choice((0, 1, RETENTION_MS))
    reached = history.segments[0].base
    count = len(history.segments)
    for visible in sorted(rng.randint(2, count) if grows else count for _ in range(ROUNDS)):
        segments = history.segments[:visible]
        stable = stable_offset(segments)
        limit = segments[-1].base if stable is None else min(stable, segments[-1].base)
        bound = max((each.base for each in segments if each.base <= limit), default=0)
        if bound <= history.segments[0].base:
            continue
        first = None
        if not turns and rng.random() < 0.4:
            first = _first_dirty(rng, history, bound)
        turns.append(
            Turn(
                now_ms,
                segments=visible,
                first_dirty_offset=first,
                from_start=bool(turns) and (bound <= reached or turns[-1].map_keys is not None or rng.random() < 0.6),
                map_keys=rng.choice((2, 5, 20)) if not turns and rng.random() < 0.25 else None,
                swapped=bool(turns) and rng.random() < 0.2,
                stable_offset=stable,
            )
        )
        reached = bound
        now_ms += rng.choice((0, 1, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS + 1, DAY_MS))
    return turns


def _first_dirty(rng: random.Random, history: History, bound: int) -> int:
    """Anywhere below ``bound``, but without an earlier abort marker in its segment, where Kafka's map is wrong.

    See ``test_committed_data_behind_an_abort_marker``.
    """
    chosen = rng.randint(history.segments[0].base, bound - 1)
    segment = max((each for each in history.segments if each.base <= chosen), key=lambda each: each.base)
    markers = (b for b in segment.batches if b.marker is not None and b.marker.type == "abort")
    return segment.base if any(b.base is not None and b.base < chosen for b in markers) else chosen


def stable_offset(segments: tuple[Segment, ...]) -> int | None:
    """The start of the oldest open transaction, None if none is open (S-04)."""
    began: dict[int, int] = {}
    for segment in segments:
        for batch in segment.batches:
            if batch.marker is not None:
                began.pop(batch.producer_id, None)
            elif batch.transactional and not batch.control:
                base = batch.records[0].offset if batch.base is None else batch.base
                assert base <= last_offset(batch)
                began.setdefault(batch.producer_id, base)
    return min(began.values(), default=None)
