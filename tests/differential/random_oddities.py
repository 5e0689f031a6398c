"""Random logs unlike healthy topics, generated from a seed: unusual times, and remains of cleanings.

Based on the other random histories, whose batches get other times, other formats, or lose their records.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tests.differential.history import DAY_MS, last_offset
from tests.differential.random_history import random_history
from tests.differential.random_legacy import in_old_format
from tests.differential.random_transactions import random_transactions
from tests.kafka.log_spec import Batch, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.differential.history import History

FASHIONS: Final = ("as it is", "none", "some", "equal", "out of order", "future", "appended", "old")
"""How a segment's records got their times.

None: -1, as clients before 0.10 and some others send; appended: LogAppendTime; old: older than any retention.
"""

ODD_FOR_A_PRODUCER: Final = ("none", "some", "old", "out of order")

NONE_SENT: Final = 7_000
"""A producer id for batches without one."""


@dataclass(slots=True)
class _Odd:
    """Values drawn once per log."""

    rng: random.Random
    now_ms: int
    fashions: tuple[str, ...]
    legacy_share: float
    emptied_share: float
    horizon_share: float
    all_idempotent: bool
    transactions: bool
    sequence: int = 0

    def segments(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """File times ascend in the order of the log: a cleaned segment has the time of its last source."""
        ages = (self.rng.choice((0, 1, 1000, DAY_MS, 8 * DAY_MS, 400 * DAY_MS)) for _ in segments)
        return tuple(
            replace(self._segment(segment), last_modified_ms=self.now_ms - age_ms)
            for segment, age_ms in zip(segments, sorted(ages, reverse=True), strict=True)
        )

    def _segment(self, segment: Segment) -> Segment:
        rng = self.rng
        fashion = rng.choice(self.fashions)
        last = len(segment.batches) - 1
        batches = tuple(self._batch(each, fashion, ends=row == last) for row, each in enumerate(segment.batches))
        return Segment(segment.base, batches)

    def _batch(self, batch: Batch, fashion: str, *, ends: bool) -> Batch:
        rng = self.rng
        if self.transactions and batch.producer_id >= 0 and fashion in ODD_FOR_A_PRODUCER:
            # Kafka keeps a producer with a once open transaction in a snapshot, however old, until its next check; a
            # replay forgets one whose last data has no time, until its marker.
            fashion = "as it is"
        if batch.marker is not None:
            return replace(batch, marker=replace(batch.marker, timestamp=self._time(batch.marker.timestamp, fashion)))
        if not batch.records:
            return replace(batch, max_timestamp=self._time(batch.max_timestamp or 0, fashion))
        made = self._timed(batch, fashion)
        if made.producer_id < 0 and not ends and rng.random() < self.legacy_share:
            return in_old_format(rng, made)
        if rng.random() < self.horizon_share:
            made = replace(made, delete_horizon=self.now_ms + rng.randint(-2 * DAY_MS, 2 * DAY_MS))
        if made.producer_id < 0 and self.all_idempotent:
            made = self._sent(made)
        if not made.transactional and rng.random() < self.emptied_share:
            return self._emptied(made, ends=ends)
        return made

    def _timed(self, batch: Batch, fashion: str) -> Batch:
        if fashion == "as it is":
            return batch
        records = tuple(replace(each, timestamp=self._time(each.timestamp, fashion)) for each in batch.records)
        append_time = max(0, self._time(self.now_ms, "old")) if fashion == "appended" else None
        return replace(batch, records=records, append_time=append_time)

    def _time(self, time_ms: int, fashion: str) -> int:
        rng = self.rng
        if fashion == "none" or (fashion == "some" and rng.random() < 0.6):
            return -1
        if fashion == "equal":
            return self.now_ms - DAY_MS
        if fashion == "out of order":
            return min(max(0, time_ms + rng.randint(-9 * DAY_MS, DAY_MS)), 2**63 - 1)
        if fashion == "future" and rng.random() < 0.4:
            return rng.choice((self.now_ms + 1, self.now_ms + 4000 * DAY_MS, 2**62))
        if fashion == "old":
            return rng.choice((0, 1, max(0, time_ms - 500 * DAY_MS)))
        return time_ms

    def _sent(self, batch: Batch) -> Batch:
        first = batch.records[0].offset if batch.base is None else batch.base
        made = replace(batch, producer_id=NONE_SENT, producer_epoch=0, base_sequence=self.sequence)
        self.sequence += last_offset(batch) - first + 1
        return made

    def _emptied(self, batch: Batch, *, ends: bool) -> Batch:
        """What Kafka's cleaner left of the batch: its header.

        Or cleanerd's remains at a segment's end, of this or earlier releases.
        """
        times = [record.timestamp for record in batch.records]
        time_ms = max(times) if batch.append_time is None else batch.append_time
        if ends and batch.producer_id < 0:
            time_ms = self.rng.choice((0, -1, time_ms))
        return Batch(
            base=batch.records[0].offset if batch.base is None else batch.base,
            last=last_offset(batch),
            max_timestamp=time_ms,
            leader_epoch=batch.leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )


def random_oddities(seed: int) -> History:
    """The history of ``seed``, always the same on the same Python; without turns if nothing is cleanable."""
    rng = random.Random(seed)
    transactions = rng.random() < 0.4
    history = random_transactions(seed) if transactions else random_history(seed)
    if not history.turns:
        return history
    odd = _Odd(
        rng,
        now_ms=history.turns[0].now_ms,
        fashions=rng.choice((("none",), ("none", "as it is"), (rng.choice(FASHIONS),), FASHIONS)),
        legacy_share=rng.choice((0.0, 0.0, 0.3, 1.0)),
        emptied_share=rng.choice((0.0, 0.1, 0.4)),
        horizon_share=rng.choice((0.0, 0.2)),
        all_idempotent=rng.random() < 0.3,
        transactions=transactions,
    )
    segments = odd.segments(history.segments)
    start = history.log_start_offset
    if not start and history.turns[0].first_dirty_offset is None and rng.random() < 0.3:
        start = rng.randint(segments[0].base, _first_marker(segments[0], segments[1].base - 1))
    return replace(
        history,
        segments=segments,
        log_start_offset=start,
        config={**history.config, **_policy(rng)},
        # A producer with old data expires, and a younger marker restores it without its data: expiration is off.
        producer_expiration_ms=20 * DAY_MS if transactions else history.producer_expiration_ms,
    )


def _first_marker(segment: Segment, otherwise: int) -> int:
    """Kafka's cleaner treats transactions aborted below the log start as committed, so no cleaning begins there."""
    markers = [batch.base for batch in segment.batches if batch.control and batch.base is not None]
    markers += [batch.base for batch in segment.batches if batch.marker is not None and batch.base is not None]
    return max(segment.base, min([*markers, otherwise]))


def _policy(rng: random.Random) -> Mapping[str, str]:
    if rng.random() < 0.4:
        return {}
    return {"cleanup.policy": "compact,delete", "retention.ms": str(rng.choice((1000, DAY_MS, 7 * DAY_MS, 10**12)))}


def features(history: History) -> Iterator[str]:
    """The unusual features of the log, so that a test can assert that all of them occurred."""
    for segment in history.segments:
        yield from _times(segment, history.turns[0].now_ms)
        yield from _remains(segment)
        end = last_offset(segment.batches[-1]) if segment.batches else -1
        if segment.base < history.log_start_offset <= end:
            yield "the log start inside a segment"
    if "delete" in history.config.get("cleanup.policy", ""):
        yield "compact,delete"
    if all(batch.producer_id >= 0 for segment in history.segments for batch in segment.batches):
        yield "idempotent producers only"


def _times(segment: Segment, now_ms: int) -> Iterator[str]:
    times = [record.timestamp for batch in segment.batches for record in batch.records]
    if times and max(times) < 0:
        yield "a segment without any time"
    if -1 in times and max(times) >= 0:
        yield "records with and without a time"
    if times and max(times) > now_ms:
        yield "future times"
    if times != sorted(times):
        yield "out of order"
    if len(times) > 1 and times[0] >= 0 and len(set(times)) == 1:
        yield "equal times"


def _remains(segment: Segment) -> Iterator[str]:
    """Features of formats and earlier cleanings."""
    for batch in segment.batches:
        if batch.magic < 2:
            yield "v0 and v1"
        if batch.records and batch.append_time is not None:
            yield "LogAppendTime"
        if batch.delete_horizon is not None:
            yield "delete horizons"
        if not batch.records and batch.marker is None and batch.producer_id >= 0:
            yield "an emptied batch of a producer"
    if segment.batches and segment.batches[-1].marker is not None:
        yield "a marker at a segment's end"
    if segment.batches and segment.batches[-1].max_timestamp in {0, -1}:
        yield "a closing batch of ours"
