"""Random histories with some v0 and v1 batches."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.differential.random_history import random_history
from tests.kafka.log_spec import Batch, Codec, Segment

if TYPE_CHECKING:
    from tests.differential.history import History

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4")


def random_legacy_history(seed: int, *, rounds: int) -> History:
    """The history of ``seed``, always the same on the same Python.

    The last batch of every segment stays v2: Kafka's cleaner fails if one of v0 or v1 at the end of the cleaned range
    loses everything (C-44). Segments get modification times around the legacy horizon.
    """
    history = random_history(seed)
    rng = random.Random(seed)
    share = rng.choice((0.3, 0.7, 1.0))
    now_ms = history.turns[0].now_ms
    retention_ms = min(int(history.config["delete.retention.ms"]), now_ms // 2)
    segments = []
    for segment in history.segments:
        last = len(segment.batches) - 1
        batches = tuple(
            _aged(rng, each) if row < last and rng.random() < share else each
            for row, each in enumerate(segment.batches)
        )
        modified_ms = now_ms - rng.choice((0, 1, 2, retention_ms, retention_ms + 1, retention_ms + 2, now_ms // 2))
        segments.append(Segment(segment.base, batches, last_modified_ms=max(modified_ms, 0)))
    return replace(history, segments=tuple(segments), turns=history.turns[:rounds])


def with_old_batches(history: History, seed: int) -> History:
    """The history with most batches without a producer in an old format, except for the last of a segment."""
    rng = random.Random(seed)
    segments = tuple(
        replace(
            segment,
            batches=tuple(
                _aged(rng, each) if row < len(segment.batches) - 1 and rng.random() < 0.7 else each
                for row, each in enumerate(segment.batches)
            ),
        )
        for segment in history.segments
    )
    return replace(history, segments=segments)


def _aged(rng: random.Random, batch: Batch) -> Batch:
    """The batch as an old client or broker would have written it, if possible."""
    if not batch.records or batch.marker is not None or batch.transactional or batch.producer_id != -1:
        return batch
    return in_old_format(rng, batch)


def in_old_format(rng: random.Random, batch: Batch) -> Batch:
    """The batch in v0, which has no times, or in v1; without a producer, which neither supports."""
    magic = rng.choice((0, 1))
    return Batch(
        records=tuple(replace(record, headers=()) for record in batch.records),
        magic=magic,
        codec=rng.choice(CODECS),
        append_time=batch.append_time if magic == 1 else None,
    )
