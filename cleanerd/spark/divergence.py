"""Compares replicas of a partition. Differences by retention, cleanings and horizons are reported separately.

Two replicas are compared as far as both are stable and begin. After cleanings at other moments they have other records,
but retain the same one of each key, unless it is a tombstone past its delete horizon in one of them. Where neither was
cleaned they have the same records. ``divergence_rules.py`` judges, on the executors or in this process.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cleanerd.errors import ConfigError
from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.damaged_places import other_damage
from cleanerd.spark.divergence_rules import JUDGE
from cleanerd.spark.example import find_differing
from cleanerd.spark.header_walk import walk_headers
from cleanerd.spark.judging import judged
from cleanerd.spark.logs import describe_names, known_clean_end, size_of_all
from cleanerd.spark.record_scan import RecordFact, SegmentWork
from cleanerd.spark.task_runner import ROWS_AN_ARROW_BATCH, ignore_progress, queries
from cleanerd.verify.listing import NO_END

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.example import Example
    from cleanerd.spark.header_walk import HeaderSummary
    from cleanerd.spark.logs import Log
    from cleanerd.spark.task_runner import Item
    from cleanerd.verify.listing import SegmentFile

KINDS: Final[Mapping[str, str]] = {
    "altered": "the two replicas hold different records at the same offset",
    "epoch": "the two replicas have a record from leaders of different epochs: one of them was not truncated",
    "missing": "a committed record is in one replica only, at an offset that the other one has not cleaned yet",
    "latest": "the newest record of a key differs, and no cleaning explains it",
    "committed": "a transaction is committed in one replica and aborted in the other",
    "damaged": "bytes cannot be read",
}
"""Unexplained differences, in the order of the output."""

EXAMPLES: Final = 20
"""Limit of records of a kind for a pair: the lowest offsets. Damage is listed completely."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One of the two. ``begin``: its first offset; ``end_offset``: up to where it is stable; ``clean_end``: cleaned."""

    log_dir: Path
    begin: int
    end_offset: int
    clean_end: int


@dataclass(slots=True)
class Divergence:
    """Two replicas of a partition, from ``begin`` to ``end`` (exclusive), which both have.

    ``records`` are in both. ``cleaned``: in one only, where the other one was cleaned; ``expired``: of them tombstones
    that were the newest of their key; ``zeroed``: attributes that Kafka's cleaner set to 0 in one. ``findings`` by
    kind, ``examples``: the lowest offset of each kind, ``places``: the records at the lowest ones, with their keys.
    """

    name: TopicPartition
    one: Replica
    other: Replica
    records: int = 0
    cleaned: int = 0
    expired: int = 0
    zeroed: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    examples: dict[str, int] = field(default_factory=dict)
    places: list[Example] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    @property
    def begin(self) -> int:
        """The first offset that both have."""
        return max(self.one.begin, self.other.begin)

    @property
    def end(self) -> int:
        """Up to where both are stable."""
        return min(self.one.end_offset, self.other.end_offset)

    @property
    def found(self) -> int:
        """How much there is that nothing explains."""
        return sum(self.findings.values())

    @property
    def has_no_common_offset(self) -> bool:
        """Whether both have offsets, and none that both have: nothing was compared."""
        return self.begin >= self.end and min(each.end_offset - each.begin for each in (self.one, self.other)) > 0


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """The result of :meth:`~cleanerd.spark.api.ReadableLogs.compare_replicas`.

    ``notes``: what is in one of them only.
    """

    partitions: tuple[Divergence, ...]
    notes: tuple[str, ...]

    @property
    def found(self) -> int:
        """How much there is that nothing explains; 0: the replicas hold the same."""
        return sum(each.found for each in self.partitions)


def compare_logs(
    session: SparkSession | None,
    pairs: Sequence[tuple[Log, Log]],
    *,
    clean_end_of: Callable[[Log], int | None] = known_clean_end,
    advance: Callable[[int], None] = ignore_progress,
    examples: int = EXAMPLES,
) -> list[Divergence]:
    """Compare each pair of replicas; ``clean_end_of`` says up to where one was cleaned, None: as far as possible.

    ``examples``: how many records of each kind are named.

    Raises:
        CleanerdError: a file cannot be read.
    """
    logs = [log for pair in pairs for log in pair]
    job_text = f"divergence: {describe_names(log.name for log in logs)}"
    with queries(session, job_text, size_of_all(logs), advance, steps=3, rows_a_batch=ROWS_AN_ARROW_BATCH):
        walks = walk_headers(session, [log.segments for log in logs], [_high_watermark(log) for log in logs])
        found = [
            _pair(pair, (walks[2 * number], walks[2 * number + 1]), clean_end_of) for number, pair in enumerate(pairs)
        ]
        files: list[SegmentFile] = []
        items = [
            item
            for part, (pair, each) in enumerate(zip(pairs, found, strict=True))
            for item in _work(part, pair, each, (walks[2 * part], walks[2 * part + 1]), files)
        ]
        for part, summary in judged(session, items, JUDGE, examples, advance).items():
            each, numbers = found[part], summary.numbers
            each.records, each.cleaned, each.expired, each.zeroed = (
                numbers["same"], numbers["cleaned"], numbers["expired"], numbers["zeroed"]
            )  # fmt: skip
            each.findings.update(summary.findings)
            each.damaged += other_damage(each.damaged, summary.places.get("damaged", ()), files)
            each.examples |= {kind: places[0] for kind, places in summary.places.items()}
            wanted = [(kind, at) for kind in KINDS for at in summary.places.get(kind, ()) if at >= 0]
            each.places = find_differing(pairs[part][0].segments, pairs[part][1].segments, wanted)
    for each in found:
        if each.damaged and not each.findings["damaged"]:
            each.findings["damaged"] = len(each.damaged)
    return found


def _high_watermark(log: Log) -> int:
    return NO_END if log.high_watermark is None else log.high_watermark


def _pair(
    pair: tuple[Log, Log], walks: tuple[HeaderSummary, HeaderSummary], clean_end_of: Callable[[Log], int | None]
) -> Divergence:
    one, other = (
        Replica(
            log.log_dir,
            max(log.log_start, log.segments[0].base),
            walked.stable_end,
            log.segments[-1].base if (end := clean_end_of(log)) is None else end,
        )
        for log, walked in zip(pair, walks, strict=True)
    )
    return Divergence(pair[0].name, one, other, damaged=[*walks[0].damaged, *walks[1].damaged])


def _work(
    part: int,
    pair: tuple[Log, Log],
    each: Divergence,
    walks: tuple[HeaderSummary, HeaderSummary],
    files: list[SegmentFile],
) -> Iterator[tuple[int, Item]]:
    """All segments that reach into what is compared, which go to ``files`` in the order of their numbers.

    For each record it matters how far the *other* one was cleaned.
    """
    cleaned = (each.other.clean_end, each.one.clean_end)
    hash_key = new_digest_key()
    for log, walked, side, clean_end in zip(pair, walks, (RecordFact.BEFORE, RecordFact.AFTER), cleaned, strict=True):
        for segment in log.segments:
            if segment.base >= each.end or segment.end <= each.begin:
                continue
            files.append(segment)
            yield (
                segment.size_bytes,
                SegmentWork(
                    part=part,
                    file=len(files) - 1,
                    segment=segment,
                    sides=side,
                    hash_key=hash_key,
                    rules=log.rules,
                    hidden=walked.hidden,
                    log_start=each.begin,
                    bound=each.end,
                    clean_end=clean_end,
                ).to_item(),
            )


def pairs_of(one: Sequence[Log], others: Sequence[Sequence[Log]]) -> tuple[list[tuple[Log, Log]], list[str]]:
    """The partitions in two of them, and those in one only: each of ``others`` is compared with ``one``.

    Raises:
        ConfigError: there is nothing to compare.
    """
    pairs: list[tuple[Log, Log]] = []
    notes: list[str] = []
    mine = {log.name: log for log in one}
    for logs in others:
        theirs = {log.name: log for log in logs}
        pairs += [(mine[name], theirs[name]) for name in sorted(mine.keys() & theirs.keys())]
        notes += [f"{name}: not in {logs[0].log_dir}" for name in sorted(mine.keys() - theirs.keys())]
        notes += [f"{name}: not in {one[0].log_dir}" for name in sorted(theirs.keys() - mine.keys())]
    if not pairs:
        raise ConfigError("no partition has two replicas there", where=", ".join(str(log.log_dir) for log in one[:1]))
    return pairs, notes
