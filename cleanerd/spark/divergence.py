"""Compares replicas of a partition.

Differences by retention, cleanings and horizons are reported separately. Two replicas are compared in the range that
both have and in which both are stable. After cleanings at different times they have different records, but retain the
same one of each key, unless it is a tombstone past its delete horizon in one of them. Uncleaned parts have the same
records. The rules judge on the executors or in this process. The rules share no code with the cleaner, like those of an
audit. A record is BELOW if the other replica was cleaned up to there, which may have removed it; VISIBLE only within
the common range. One replica is BEFORE, the other AFTER.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.errors import ConfigError
from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.example import Example, find_differing
from cleanerd.spark.grouping import Columns, Groups, joined, select_rows
from cleanerd.spark.header_walk import HeaderSummary, walk_headers
from cleanerd.spark.judging import JudgeFunctions, judged
from cleanerd.spark.logs import Log, describe_names, known_clean_end, size_of_all
from cleanerd.spark.record_pairs import PairFindings, Pairs
from cleanerd.spark.record_scan import RecordFact, SegmentWork, hidden_in, other_damage
from cleanerd.spark.task_runner import ROWS_AN_ARROW_BATCH, ignore_progress, queries
from cleanerd.verify.listing import NO_END, SegmentFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition

_KEY: Final = ("part", "high", "low")
_OF_WINNER: Final = ("flags", "version", "offset", "is_stored")
_SIDES: Final = ("one", "other")


def of_records(part: int, pairs: Pairs, most: int) -> tuple[PairFindings, Columns]:
    """The findings of each record of pair ``part``, and rows of their keys, to be merged by :func:`added`.

    Data that is stored but not visible, or was never cleaned, is reported here: ``committed``, ``missing``.
    """
    found = PairFindings()
    one_flags, other_flags = pairs.before_flags, pairs.after_flags
    in_one, in_other = (one_flags & RecordFact.VISIBLE) != 0, (other_flags & RecordFact.VISIBLE) != 0
    one_stores, other_stores = pairs.is_before, pairs.is_after
    is_altered, has_other_attributes = pairs.is_altered, pairs.has_other_attributes
    zeroed = (pairs.before["attributes"] == 0) | (pairs.after["attributes"] == 0)
    may_lose_attributes = zeroed & ((one_flags & RecordFact.ATTRIBUTES) == 0)
    only_one, only_other = in_one & ~other_stores, in_other & ~one_stores
    may_be_gone = (only_one & ((one_flags & RecordFact.BELOW) != 0)) | (
        only_other & ((other_flags & RecordFact.BELOW) != 0)
    )
    in_both, is_damaged = in_one & in_other, pairs.has(RecordFact.DAMAGED)

    for kind, rows in {
        "altered": in_both & (is_altered | (has_other_attributes & ~may_lose_attributes)),
        "epoch": in_both & pairs.has_other_epoch,
        "missing": (only_one | only_other) & ~may_be_gone,
        "committed": one_stores & other_stores & (in_one != in_other),
        "damaged": is_damaged,
    }.items():
        found.record(kind, pairs.offset[rows], most)
    for name, rows in {
        "same": in_both & ~is_damaged,
        "cleaned": may_be_gone,
        "zeroed": in_both & has_other_attributes & may_lose_attributes & ~is_altered,
    }.items():
        found.numbers[name] += int(np.count_nonzero(rows))

    rows = np.flatnonzero(pairs.has(RecordFact.HAS_KEY) & (in_one | in_other))
    keys: Columns = {
        "part": np.full(len(rows), part, np.int32),
        "high": pairs.high[rows],
        "low": pairs.low[rows],
        **_of_side("one", pairs, rows, in_one, one_flags, pairs.before["version"], other_stores),
        **_of_side("other", pairs, rows, in_other, other_flags, pairs.after["version"], one_stores),
    }
    return found, keys


def _of_side(
    side: str,
    pairs: Pairs,
    rows: NDArray[np.intp],
    competes: NDArray[np.bool_],
    flags: NDArray[np.int32],
    version: NDArray[np.int64],
    is_stored: NDArray[np.bool_],
) -> Columns:
    """Rows of one side's keys. ``is_stored``: the other replica has the record too."""
    columns: Columns = {
        "wins": competes.astype(np.uint8),
        "flags": flags,
        "version": version,
        "offset": pairs.offset,
        "is_stored": is_stored.astype(np.uint8),
    }
    return {f"{side}_{name}": column[rows] for name, column in columns.items()}


def added(several: Sequence[Columns]) -> Columns:
    """Each key once, ordered by part and hash, with the record that wins it in either replica."""
    groups = Groups.of(joined(several), _KEY)
    rows = groups.rows
    found = groups.firsts(_KEY)
    for side in _SIDES:
        rank = [(rows[f"{side}_flags"] & RecordFact.HAS_VERSION) != 0, rows[f"{side}_version"], rows[f"{side}_offset"]]
        winner = groups.best(rank, rows[f"{side}_wins"] != 0)
        found |= select_rows({name: rows[name] for name in (f"{side}_{each}" for each in _OF_WINNER)}, winner)
        found[f"{side}_wins"] = (winner >= 0).astype(np.uint8)
    return found


def of_keys(keys: Columns, most: int) -> PairFindings:
    """The findings of one pair's keys, which :func:`added` has merged."""
    found = PairFindings()
    one_wins, other_wins = keys["one_wins"] != 0, keys["other_wins"] != 0
    equal = one_wins & other_wins
    one_is_higher = np.zeros(len(one_wins), np.bool_)
    for one, other in _ranks(keys):
        one_is_higher |= equal & (one > other)
        equal &= one == other
    # A key that is equal in both has no finding. Otherwise the second replica lacks the best record, or has it alone.
    differs = (one_wins | other_wins) & ~equal
    by_one = one_wins & (~other_wins | one_is_higher)
    best = {name: np.where(by_one, keys[f"one_{name}"], keys[f"other_{name}"]) for name in _OF_WINNER}
    second_offset = np.where(by_one, keys["other_offset"], keys["one_offset"])
    is_gone = differs & (best["is_stored"] == 0) & ((best["flags"] & RecordFact.BELOW) != 0)
    # A tombstone may have expired in one replica, with no record of the key left there, or under a version strategy
    # only later ones. No earlier record can have survived the cleaning that removed the tombstone.
    is_alone = ~(one_wins & other_wins)
    may_have_expired = ((best["flags"] & RecordFact.TOMBSTONE) != 0) & (is_alone | (second_offset > best["offset"]))
    found.record("latest", best["offset"][is_gone & ~may_have_expired], most)
    found.numbers["expired"] += int(np.count_nonzero(is_gone & may_have_expired))
    return found


def _ranks(keys: Columns) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The rank of the retained records in either replica: has a version, version, offset."""
    versioned = [(keys[f"{side}_flags"] & int(RecordFact.HAS_VERSION)).astype(np.int64) for side in _SIDES]
    others = [(keys[f"one_{name}"], keys[f"other_{name}"]) for name in ("version", "offset")]
    return [(versioned[0], versioned[1]), *others]


JUDGE: Final = JudgeFunctions(of_records, added, of_keys)


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
"""Limit of records per kind and pair: the lowest offsets. Damage is listed completely."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica.

    ``begin``: its first offset; ``end_offset``: where it is stable; ``clean_end``: up to where it was cleaned.
    """

    log_dir: Path
    begin: int
    end_offset: int
    clean_end: int


@dataclass(slots=True)
class Divergence:
    """Two replicas of a partition, from ``begin`` to ``end`` (exclusive), which both have. ``records``: in both.

    ``cleaned``: in one only, because the other one was cleaned; ``expired``: of these, tombstones that were the newest
    of their key; ``zeroed``: attributes that Kafka's cleaner set to 0 in one. ``findings``: by kind. ``examples``: the
    lowest offset of each kind. ``places``: the records at the lowest offsets, with their keys.
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
        """The first common offset."""
        return max(self.one.begin, self.other.begin)

    @property
    def end(self) -> int:
        """The offset up to which both are stable."""
        return min(self.one.end_offset, self.other.end_offset)

    @property
    def found(self) -> int:
        """The number of unexplained differences."""
        return sum(self.findings.values())

    @property
    def has_no_common_offset(self) -> bool:
        """Whether both have offsets, but none in common: nothing was compared."""
        return self.begin >= self.end and min(each.end_offset - each.begin for each in (self.one, self.other)) > 0


@dataclass(frozen=True, slots=True)
class ReplicaComparison:
    """The result of :meth:`~cleanerd.spark.api.ReadableLogs.compare_replicas`.

    ``notes``: partitions in one of them only.
    """

    partitions: tuple[Divergence, ...]
    notes: tuple[str, ...]

    @property
    def found(self) -> int:
        """The number of unexplained differences; 0: the replicas are equal."""
        return sum(each.found for each in self.partitions)


def compare_logs(
    session: SparkSession | None,
    pairs: Sequence[tuple[Log, Log]],
    *,
    clean_end_of: Callable[[Log], int | None] = known_clean_end,
    advance: Callable[[int], None] = ignore_progress,
    examples: int = EXAMPLES,
) -> list[Divergence]:
    """Compare each pair of replicas; ``clean_end_of`` returns up to where one was cleaned, None: unknown.

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
) -> Iterator[tuple[int, SegmentWork]]:
    """All segments in the compared range, which are appended to ``files`` in the order of their numbers.

    A record's facts depend on where the *other* replica was cleaned.
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
                    hidden=hidden_in(segment, walked.hidden),
                    log_start=each.begin,
                    bound=each.end,
                    clean_end=clean_end,
                ),
            )


def pairs_of(one: Sequence[Log], others: Sequence[Sequence[Log]]) -> tuple[list[tuple[Log, Log]], list[str]]:
    """The partitions in two of them, and notes on those in one only; each of ``others`` is compared with ``one``.

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
