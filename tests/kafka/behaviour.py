"""Answers of ``Judge.behave``: what a broker that starts on a log finds in it, and does with it (U-37)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.kafka.answers import Producer

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

Json = dict[str, Any]


class BatchFacts(NamedTuple):
    """A batch by its bytes. ``max_timestamp_ms`` is the header's, -1 for none."""

    base: int
    last: int
    max_timestamp_ms: int
    count: int
    control: int


class RecordFacts(NamedTuple):
    """A record by its bytes; ``control`` is 1 for a marker.

    ``found_to_ms``: a broker finds it for no later time. That is its timestamp, or the largest of its batch if a
    foreign writer stored a lower one.
    """

    offset: int
    timestamp_ms: int
    found_to_ms: int
    control: int


class Found(NamedTuple):
    """The record that a broker returns for a time; ``NONE`` if there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


NONE = Found(-1, -1, -1)


class Walk(NamedTuple):
    """A consumer's result from ``from_offset`` on: number of records, the first one, and a digest of their offsets.

    ``reached`` is its position when a fetch returns no more records.
    """

    from_offset: int
    fetch_bytes: int
    committed: int
    count: int
    first_offset: int
    digest: int
    reached: int

    @property
    def records(self) -> tuple[int, int, int]:
        """The identity of the records."""
        return (self.count, self.first_offset, self.digest)


class Retained(NamedTuple):
    """After ``deleteOldSegments``: base of the first remaining segment, and the log start offset."""

    first_base: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment by its bytes and its file's time."""

    base: int
    size: int
    modified_ms: int
    batches: tuple[BatchFacts, ...]
    records: tuple[RecordFacts, ...]

    @classmethod
    def from_json(cls, node: Json) -> SegmentFacts:
        return cls(
            base=node["base"],
            size=node["size"],
            modified_ms=node["modified_ms"],
            batches=tuple(_rows(BatchFacts, node["batches"])),
            records=tuple(_rows(RecordFacts, node["records"])),
        )


@dataclass(frozen=True, slots=True)
class Questions:
    """The queries made for every log of a call; answers have the same order."""

    times_ms: tuple[int, ...]
    retentions_ms: tuple[int, ...]
    retention_bytes: tuple[int, ...]
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One log. ``largest_ms``: the time of every segment for retention. ``found``: the first record for each time.

    For cleanerd's result only: ``recovered_largest_ms`` and ``recovered_found`` are the same after Kafka rebuilt all
    indexes; ``started`` is a consumer's result after DeleteRecords, with the base of the first remaining segment. For a
    log with facts only, everything but ``segments`` is empty.
    """

    segments: tuple[SegmentFacts, ...]
    log_start_offset: int = -1
    log_end_offset: int = -1
    last_stable_offset: int = -1
    largest_ms: tuple[int, ...] = ()
    earliest: Found = NONE
    max_timestamp: Found = NONE
    found: tuple[Found, ...] = ()
    producers: tuple[Producer, ...] = ()
    walks: tuple[Walk, ...] = ()
    retained_ms: tuple[Retained, ...] = ()
    retained_bytes: tuple[Retained, ...] = ()
    recovered_largest_ms: tuple[int, ...] = ()
    recovered_found: tuple[Found, ...] = ()
    started: tuple[tuple[int, Walk], ...] = ()

    @classmethod
    def from_json(cls, node: Json) -> Behaviour:
        segments = tuple(SegmentFacts.from_json(segment) for segment in node["segments"])
        if "found" not in node:
            return cls(segments)
        flat = node.get("started", ())
        wide = 1 + len(Walk._fields)
        started = [flat[at : at + wide] for at in range(0, len(flat), wide)]
        recovered = node.get("recovered", {"largest_ms": (), "found": ()})
        return cls(
            segments=segments,
            log_start_offset=node["log_start_offset"],
            log_end_offset=node["log_end_offset"],
            last_stable_offset=node["last_stable_offset"],
            largest_ms=tuple(node["largest_ms"]),
            earliest=Found(*node["earliest"]),
            max_timestamp=Found(*node["max_timestamp"]),
            found=tuple(_rows(Found, node["found"])),
            producers=tuple(Producer(**producer) for producer in node["producers"]),
            walks=tuple(_rows(Walk, node["walks"])),
            retained_ms=tuple(_rows(Retained, node["retained_ms"])),
            retained_bytes=tuple(_rows(Retained, node.get("retained_bytes", ()))),
            recovered_largest_ms=tuple(recovered["largest_ms"]),
            recovered_found=tuple(_rows(Found, recovered["found"])),
            started=tuple((row[0], Walk(*row[1:])) for row in started),
        )

    @property
    def batches(self) -> list[BatchFacts]:
        """Batches of all segments."""
        return [batch for segment in self.segments for batch in segment.batches]

    @property
    def records(self) -> list[RecordFacts]:
        """Records of all segments, markers included."""
        return [record for segment in self.segments for record in segment.records]

    @property
    def queries(self) -> int:
        """Number of queries that Kafka's classes answered about the log."""
        answers: tuple[Sized, ...] = (
            self.largest_ms,
            self.found,
            self.producers,
            self.walks,
            self.retained_ms,
            self.retained_bytes,
            self.recovered_largest_ms,
            self.recovered_found,
            self.started,
        )
        return sum(map(len, answers))


@dataclass(frozen=True, slots=True)
class Behaviours:
    """cleanerd's result, the original log (facts only), and the result of Kafka's cleaner if given."""

    questions: Questions
    ours: Behaviour
    before: Behaviour
    theirs: Behaviour | None

    @classmethod
    def from_json(cls, node: Json) -> Behaviours:
        logs = [Behaviour.from_json(log) for log in node["logs"]]
        questions = Questions(**{name: tuple(values) for name, values in node["questions"].items()})
        return cls(questions, logs[0], logs[1], logs[2] if len(logs) > 2 else None)

    @property
    def queries(self) -> int:
        """Number of queries that Kafka's classes answered."""
        return self.ours.queries + (0 if self.theirs is None else self.theirs.queries)


def _rows(kind: Any, flat: Sequence[int]) -> Any:
    """Tuples of ``kind`` out of a flat list of their fields."""
    wide = len(kind._fields)
    return map(kind._make, zip(*(flat[at::wide] for at in range(wide)), strict=True))
