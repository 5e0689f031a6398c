"""Profiles of partitions, summed up by topic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from cleanerd.humanize import human_bytes, human_count, human_ms
from cleanerd.spark.write_times import WriteTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cleanerd.spark.profile import Profile


@dataclass(frozen=True, slots=True)
class TopicProfile:
    """The partitions of a topic; its numbers are their sums."""

    topic: str
    partitions: tuple[Profile, ...]

    def total(self, of: Callable[[Profile], int]) -> int:
        return sum(map(of, self.partitions))

    @property
    def strategy(self) -> str:
        """The rule by which records win."""
        return self.partitions[0].strategy

    @property
    def stored_bytes(self) -> int:
        """The size of its closed segments."""
        return self.total(lambda each: each.stored_bytes)

    @property
    def saved_bytes(self) -> int:
        return self.total(lambda each: each.saved_bytes)

    @property
    def saved_share(self) -> float:
        """Share of the bytes in closed segments."""
        return self.saved_bytes / self.stored_bytes if self.stored_bytes else 0.0

    @property
    def dirty_share(self) -> float | None:
        """Share of the bytes of records in partitions where it is known; None if there are none."""
        known = [(each.dirty_bytes, each.bytes) for each in self.partitions if each.dirty_bytes is not None]
        size_bytes = sum(size for _, size in known)
        if not known:
            return None
        return sum(dirty for dirty, _ in known) / size_bytes if size_bytes else 0.0

    @property
    def dirty_since_ms(self) -> int | None:
        """When the oldest dirty record was written; None: no dirty record has a timestamp."""
        return min((each.dirty_since_ms for each in self.partitions if each.dirty_since_ms is not None), default=None)

    @property
    def overtaken(self) -> int:
        """Keys whose winner is not the last record."""
        return self.total(lambda each: each.overtaken)

    def age(self, now_ms: int) -> str:
        """The age of the oldest dirty record, in words."""
        return "-" if self.dirty_since_ms is None else human_ms(max(now_ms - self.dirty_since_ms, 0))

    def cells(self, now_ms: int) -> list[str]:
        """A table row: topic, partitions, size on disk, saving, share, other winners, dirty share, age."""
        return [
            self.topic,
            human_count(len(self.partitions)),
            human_bytes(self.stored_bytes),
            human_bytes(self.saved_bytes),
            f"{self.saved_share:.0%}",
            human_count(self.overtaken),
            "-" if self.dirty_share is None else f"{self.dirty_share:.0%}",
            self.age(now_ms),
        ]

    @property
    def written(self) -> WriteTimes:
        """When its records were written."""
        times = WriteTimes()
        for each in self.partitions:
            counts = {begin_ms // each.written_span_ms: count for begin_ms, count in each.written}
            times.add_all(WriteTimes(each.written_span_ms, Counter(counts)))
        return times


def by_topic(profiles: Iterable[Profile]) -> list[TopicProfile]:
    """The topics, the largest saving first."""
    ordered = sorted(profiles, key=lambda each: each.name)
    topics = [TopicProfile(topic, tuple(own)) for topic, own in groupby(ordered, key=lambda each: each.name.topic)]
    return sorted(topics, key=lambda each: -each.saved_bytes)


def added_rows(rows: Iterable[Sequence[tuple[int, int]]]) -> list[tuple[int, int]]:
    """The summed rows (least value, count) of several partitions."""
    total: Counter[int] = Counter()
    for each in rows:
        total.update(dict(each))
    return sorted(total.items())
