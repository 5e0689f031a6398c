"""A log and its cleanings, in terms that both cleaners share; and short functions to define one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.kafka.log_spec import Batch, Record, Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

DAY_MS = 86_400_000
T0 = 1_700_000_000_000
"""The time at which the logs were written."""

NOW = T0 + DAY_MS
"""The time of the first cleaning, unless a history has another one."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One cleaning on both sides.

    ``segments``: number of existing segments of the history, the last being active (None: all). The dirty section
    begins where the previous cleaning ended, or at ``first_dirty_offset`` (first turn only: the checkpoint that both
    find), or at the log start with ``from_start``. ``first_uncleanable_offset`` is the high watermark. ``map_keys`` is
    the number of keys in Kafka's map, so that its cleaning ends early, and cleanerd's has to end there too
    (``--cleanable-to``). ``swapped``: before this cleaning the two exchange their logs, so that each cleans the other's
    result. ``stable_offset``: the start of the oldest open transaction; Kafka's cleaner gets it as an argument,
    cleanerd has to find it (S-04).
    """

    now_ms: int = NOW
    segments: int | None = None
    first_dirty_offset: int | None = None
    from_start: bool = False
    first_uncleanable_offset: int | None = None
    map_keys: int | None = None
    swapped: bool = False
    stable_offset: int | None = None

    @property
    def limit_offset(self) -> int | None:
        """The offset that limits the cleaning below the active segment, if there is one."""
        return min(
            (limit for limit in (self.first_uncleanable_offset, self.stable_offset) if limit is not None), default=None
        )


@dataclass(frozen=True, slots=True)
class History:
    """A log and its cleanings.

    ``config`` are topic settings; ``chunk_bytes`` and ``map_bytes`` apply to cleanerd only.
    """

    segments: tuple[Segment, ...]
    turns: tuple[Turn, ...] = (Turn(),)
    config: Mapping[str, str] = field(default_factory=dict)
    producer_expiration_ms: int = DAY_MS
    log_start_offset: int = 0
    chunk_bytes: int = 1 << 20
    map_bytes: int = 1 << 20
    io_buffer_bytes: int = 256 << 10

    def visible(self, turn: Turn) -> tuple[Segment, ...]:
        """The segments that exist at ``turn``."""
        return self.segments[: turn.segments]

    def end_offset(self, turn: Turn) -> int:
        """The log end offset at ``turn``."""
        segments = self.visible(turn)
        lasts = [last_offset(batch) + 1 for segment in segments for batch in segment.batches]
        return max(*lasts, segments[-1].base) if lasts else segments[-1].base


def last_offset(batch: Batch) -> int:
    """The last offset of a batch as ``Judge.make`` writes it."""
    if batch.last is not None:
        return batch.last
    if batch.records:
        return batch.records[-1].offset
    if batch.base is None:
        raise ValueError("a batch needs records or a base")
    return batch.base


def text(offset: int, content: str, *, timestamp: int | None = None) -> Record:
    """A record from ``key=value``; ``key`` alone is a tombstone, ``=value`` has an empty key, ``!=value`` no key.

    ``!`` alone has neither key nor value. An empty text after the sign is a value, so ``k=`` has the empty value.
    """
    key, equals, value = content.partition("=")
    return Record(
        offset,
        T0 + offset if timestamp is None else timestamp,
        None if key == "!" else key.encode(),
        value.encode() if equals else None,
    )


def batch(base: int, contents: str, *, timestamp: int | None = None, **settings: object) -> Batch:
    """Records at consecutive offsets from ``base`` on, as texts for :func:`text`."""
    records = tuple(text(base + row, word, timestamp=timestamp) for row, word in enumerate(contents.split()))
    return Batch(records, base=base, **settings)  # type: ignore[arg-type]  # passed on as it is


def log(*segments: Iterable[Batch] | int) -> tuple[Segment, ...]:
    """Segments from their batches, each at the base of its first batch; a number is an empty segment there.

    An empty active segment follows if the last given segment has batches.
    """
    made: list[Segment] = []
    for content in segments:
        if isinstance(content, int):
            made.append(Segment(content))
            continue
        batches = tuple(content)
        first = batches[0]
        base = first.records[0].offset if first.base is None else first.base
        made.append(Segment(base, batches))
    if made[-1].batches:
        made.append(Segment(last_offset(made[-1].batches[-1]) + 1))
    return tuple(made)


def sent(producer: int, base: int, words: str, *, sequence: int = 0, epoch: int = 0, **settings: Any) -> Batch:
    """A batch of an idempotent producer."""
    return batch(base, words, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **settings)
