"""The content of a log by key: counts, sizes, and what a cleaning would do and need."""

from __future__ import annotations

import contextlib
import pickle
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from cleanerd.humanize import counted
from cleanerd.resolution.repacked import UNREADABLE, Repacked, beginning, repacked
from cleanerd.segments.wrong_time import wrong_time_in
from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.grouping import dealt, shard_of
from cleanerd.spark.header_walk import HeaderSummary, walk_headers
from cleanerd.spark.key_counts import (
    ADDED_RECORDS,
    KeyTally,
    RecordTotals,
    added,
    at_shares,
    folded,
    in_several,
    summary,
)
from cleanerd.spark.local_threshold import local_rows
from cleanerd.spark.logs import Log, describe_names, known_clean_end, size_of_all, work_on
from cleanerd.spark.record_scan import WITH_TIMESTAMP, SegmentWork, other_damage, scan
from cleanerd.spark.rows import pack, unpack
from cleanerd.spark.session_info import cores_of
from cleanerd.spark.task_runner import (
    RESULT_COLUMNS,
    ROWS_AN_ARROW_BATCH,
    ignore_progress,
    queries,
    received,
    result_row,
    results_in,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.key_counts import Keys
    from cleanerd.verify.listing import SegmentFile

SHARES: Final = (0.5, 0.9, 0.99)
"""Shares of the keys whose records and bytes are reported, besides the largest."""

MOST_KEYS: Final = 1 << 22
"""Keys that this process counts at once without a session and with two gigabytes; more are counted in shards."""

_SENT_KEYS: Final = 1 << 18
"""How many counted keys a task sends on; its memory is theirs plus ``ADDED_RECORDS`` rows."""
_BLOCK_KEYS: Final = 1 << 15
_SHARD_BYTES: Final = 64 << 20
"""About as much of a log as one shard of its keys covers."""

_LIVE: Final = ("part", "high", "low")

_BLOCKS: Final = pa.schema([("target", pa.int32()), ("totals", pa.binary()), ("keys", pa.binary())])
_BLOCK_COLUMNS: Final = "target int, totals binary, keys binary"


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key with many records. ``offset``: of its winner."""

    records: int
    bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Profile:
    """One partition.

    All fields except ``active`` are about the segments below the active one, as readers see them. ``bytes``: those of
    decompressed records; ``stored_bytes``: those of the segments. ``records_a_key`` and ``bytes_a_key`` are the values
    at SHARES of the keys, and the largest. ``unseen``: aborted, open, below log start. ``overtaken``: keys whose winner
    is not the record with the highest offset, which Kafka retains.

    ``elsewhere``: keys that have a value here and in another partition of the topic (OP-19); None: the topic has
    several partitions here, and too many keys to compare without Spark.

    ``wrong_time``: the first batch whose time is not in milliseconds (OP-18), and what follows; empty: the segments
    begin with none.

    ``sampled_bytes``, ``repacked_bytes``: of a few compressed batches, before and after they were compressed again.

    ``keys_by_records`` are rows (least number of records, keys), each up to the next power of two, and
    ``keys_by_missing`` the same by versions between the lowest and the highest that no record has, of keys with several
    versions. ``dirty_bytes``: those not cleaned yet, the oldest written at ``dirty_since_ms`` (None: it has no
    timestamp, or there are none); None if the clean offset is unknown. ``written`` are rows (begin of a span of
    ``written_span_ms``, records), of all segments.
    """

    name: TopicPartition
    strategy: str
    segments: int
    stored_bytes: int
    records: int
    bytes: int
    active: int
    unseen: int
    no_key: int
    keys: int
    superseded: int
    superseded_bytes: int
    tombstones: int
    deleted_keys: int
    unversioned: int
    misversioned: int
    records_a_key: tuple[int, ...]
    bytes_a_key: tuple[int, ...]
    overtaken: int
    keys_by_records: tuple[tuple[int, int], ...]
    keys_by_missing: tuple[tuple[int, int], ...]
    hot_keys: tuple[HotKey, ...]
    dirty_bytes: int | None
    dirty_since_ms: int | None
    written_span_ms: int
    written: tuple[tuple[int, int], ...]
    saved_bytes: int
    damaged: tuple[str, ...]
    elsewhere: int | None = None
    sampled_bytes: int = 0
    repacked_bytes: int = 0
    wrong_time: str = ""

    @property
    def repacked(self) -> Repacked:
        """Whether a cleaning would make batches larger (OP-23)."""
        return Repacked(self.sampled_bytes, self.repacked_bytes)

    @property
    def superseded_share(self) -> float:
        """Share of the records with a key."""
        return self.superseded / (self.keys + self.superseded) if self.keys else 0.0

    @property
    def dirty_share(self) -> float | None:
        """Share of the bytes; None if unknown."""
        if self.dirty_bytes is None:
            return None
        return self.dirty_bytes / self.bytes if self.bytes else 0.0

    def document(self) -> dict[str, Any]:
        """As JSON; ``damaged`` comes last."""
        fields = {name: value for name, value in asdict(self).items() if name not in {"name", "damaged"}}
        return {
            "topic": self.name.topic,
            "partition": self.name.partition,
            **fields,
            "superseded_share": round(self.superseded_share, 6),
            "dirty_share": None if self.dirty_share is None else round(self.dirty_share, 6),
            "damaged": list(self.damaged),
        }


def profile_logs(
    session: SparkSession | None,
    logs: Sequence[Log],
    advance: Callable[[int], None] = ignore_progress,
    *,
    clean_end_of: Callable[[Log], int | None] = known_clean_end,
    most_keys: int = MOST_KEYS,
    added_records: int = ADDED_RECORDS,
) -> list[Profile]:
    """Profile each of ``logs``, by the tasks of ``session`` or, without one, by this process.

    ``clean_end_of`` returns up to where a log was cleaned, None if unknown. This process has at most ``most_keys`` keys
    at once, and merges rows when ``added_records`` wait.

    Raises:
        CleanerdError: a file cannot be read.
    """
    ends = [clean_end_of(log) for log in logs]
    known = {log.name: end for log, end in zip(logs, ends, strict=True)}
    with queries(
        session,
        f"profile: {describe_names(log.name for log in logs)}",
        size_of_all(logs),
        advance,
        steps=3,
        rows_a_batch=ROWS_AN_ARROW_BATCH,
    ):
        walks = walk_headers(session, [log.segments for log in logs])
        files, items = work_on(logs, walks, new_digest_key(), clean_end_of=lambda log: known[log.name])
        numbers = {topic: number for number, topic in enumerate(sorted({log.name.topic for log in logs}))}
        topics = [numbers[log.name.topic] for log in logs]
        totals, keys = (
            _count_locally(items, topics, advance, most_keys, added_records)
            if session is None
            else _counted(session, items, topics)
        )
    return [
        _profile(
            log,
            totals.get(part, RecordTotals()),
            keys.get(part, {}),
            _damaged(log, walks[part], totals.get(part, RecordTotals()), files),
            known=ends[part] is not None,
        )
        for part, log in enumerate(logs)
    ]


_Counted: TypeAlias = "tuple[dict[int, RecordTotals], dict[int, dict[str, Any]]]"
"""By part: the counts by record, and by key."""


def _counted(session: SparkSession, items: Sequence[tuple[int, SegmentWork]], topics: Sequence[int]) -> _Counted:
    shards = max(cores_of(session), -(-sum(size for size, _ in items) // _SHARD_BYTES))
    blocks = spread(session, items, partial(count_segment, shards), _BLOCKS, _BLOCK_COLUMNS)
    dealt = blocks.repartitionById(shards, "target")
    totals: dict[int, RecordTotals] = {}
    summaries: list[Mapping[str, Any]] = []
    for counts, keys in results_in(dealt.mapInArrow(partial(count_shard, topics=topics), RESULT_COLUMNS)):
        for part, each in counts:
            totals.setdefault(part, RecordTotals()).add(each)
        summaries += keys
    return totals, folded(summaries)


def count_segment(
    shards: int, work: SegmentWork, scanned: Callable[[SegmentWork, pa.Schema], Iterator[pa.RecordBatch]] = scan
) -> Iterator[pa.RecordBatch]:
    """A task's output for one :class:`SegmentWork`: counts, and its keys by shard, as packed columns."""
    tally = KeyTally(work.part)
    for batch in scanned(work, WITH_TIMESTAMP):
        if tally.add(batch) >= _SENT_KEYS:
            yield from _key_blocks(tally.keys(), shards)
            tally.forget_keys()
    _add_beginning(tally, work.segment)
    yield from _key_blocks(tally.keys(), shards)
    yield _block(work.part % shards, pickle.dumps((work.part, tally.totals)), None)


def _add_beginning(tally: KeyTally, segment: SegmentFile) -> None:
    with contextlib.suppress(*UNREADABLE):
        data, batches = beginning(segment.path, segment.size_bytes)
        wrong = wrong_time_in(str(segment.path), batches, time.time_ns() // 1_000_000)
        if wrong is not None:
            tally.totals.wrong_times.append(wrong.note)
        found = repacked(data, batches)
        tally.totals.numbers.update(sampled_bytes=found.before_bytes, repacked_bytes=found.after_bytes)


def _key_blocks(keys: Keys, shards: int) -> Iterator[pa.RecordBatch]:
    for target, rows in dealt(keys, shard_of(keys["high"], shards), shards, _BLOCK_KEYS):
        yield _block(target, None, pack({}, rows))


def _block(target: int, totals: bytes | None, keys: bytes | None) -> pa.RecordBatch:
    columns = [pa.array([target], pa.int32()), pa.array([totals], pa.binary()), pa.array([keys], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_BLOCKS)


def count_shard(batches: Iterator[pa.RecordBatch], topics: Sequence[int] = ()) -> Iterator[pa.RecordBatch]:
    """The tasks' rows of one shard, merged: counts by part, and summaries. ``topics``: see :func:`summary`."""
    totals: list[Any] = []
    waiting: list[Keys] = []
    rows = counted = 0
    for batch in batches:
        totals += [received(data) for data in batch.column(1).to_pylist() if data is not None]
        for data in batch.column(2):
            if data.is_valid:
                waiting.append(unpack(data.as_py())[1])
                rows += len(waiting[-1]["high"])
        if rows >= max(ADDED_RECORDS, counted // 2):
            waiting, rows = [added(waiting)], 0
            counted = len(waiting[0]["high"])
    yield result_row((totals, summary(added(waiting), topics)))


def _count_locally(
    items: Sequence[tuple[int, SegmentWork]],
    topics: Sequence[int],
    advance: Callable[[int], None],
    most_keys: int,
    added_records: int,
) -> _Counted:
    """As :func:`_counted`, one partition after the other; ``elsewhere`` is None where keys are too many to compare."""
    totals: dict[int, RecordTotals] = {}
    summaries: list[Mapping[str, Any]] = []
    live: list[Keys] | None = []
    partitions = Counter(topics)
    for part, of_part in groupby(items, key=lambda each: each[1].part):
        mine = list(of_part)
        shards = 1
        while (found := _tallied(part, mine, shards, local_rows(most_keys), added_records)) is None:
            shards *= 4
        counts, damage, own = found
        if live is not None and partitions[topics[part]] > 1:
            live.append(own)
            if sum(len(each["high"]) for each in live) > local_rows(most_keys):
                live = None
        totals[part] = counts
        summaries += damage
        advance(sum(size for size, _ in mine))
    keys = folded(summaries)
    in_others = _count_elsewhere(live or (), topics)
    for part, of_keys in keys.items():
        of_keys["elsewhere"] = None if live is None and partitions[topics[part]] > 1 else in_others[part]
    return totals, keys


def _count_elsewhere(live: Sequence[Keys], topics: Sequence[int]) -> list[int]:
    """By part: how many of its ``live`` keys another partition of its topic also has (OP-19)."""
    if not live:
        return [0] * len(topics)
    part, high, low = (np.concatenate([each[name] for each in live]) for name in _LIVE)
    in_others = in_several(np.array(topics, np.int32)[part], high, low)
    counts: list[int] = np.bincount(part[in_others], minlength=len(topics)).tolist()
    return counts


def _tallied(
    part: int, items: Sequence[tuple[int, SegmentWork]], shards: int, most_keys: int, added_records: int
) -> tuple[RecordTotals, list[dict[str, Any]], Keys] | None:
    """Counts, summaries, and the keys that have a value; None: a shard has more than ``most_keys``.

    Each shard reads the log once.
    """
    tallies, live = [], []
    for shard in range(shards):
        tally = KeyTally(part, shard, shards, added_records)
        for _, work in items:
            for batch in scan(work, WITH_TIMESTAMP):
                if tally.add(batch) > most_keys:
                    return None
            if shard == shards - 1:
                _add_beginning(tally, work.segment)
        keys = tally.keys()
        tallies += summary(keys)
        live.append({name: keys[name][keys["deleted"] == 0] for name in _LIVE})
    return tally.totals, tallies, {name: np.concatenate([each[name] for each in live]) for name in _LIVE}


def _damaged(log: Log, walked: HeaderSummary, totals: RecordTotals, files: Sequence[SegmentFile]) -> tuple[str, ...]:
    """Damage in headers, and damage that appears only when records are decoded."""
    places = [*walked.damaged, *other_damage(walked.damaged, totals.damaged, files)]
    more = totals.numbers["damaged"] - len(totals.damaged)
    if more > 0:
        places.append(f"{log.log_dir / str(log.name)}: {counted(more, 'more place')} cannot be read (cleanerd verify)")
    return tuple(places)


def _profile(
    log: Log, totals: RecordTotals, found: Mapping[str, Any], damaged: tuple[str, ...], *, known: bool
) -> Profile:
    numbers = {**found, **totals.numbers}

    def number(name: str) -> int:
        return int(numbers.get(name, 0))

    unpacked = number("bytes")
    gone = number("superseded_bytes") + number("unseen_bytes") + number("no_key_bytes")
    times = totals.times
    return Profile(
        name=log.name,
        strategy=log.rules.strategy,
        segments=len(log.segments),
        stored_bytes=log.sealed_bytes,
        records=number("records"),
        bytes=unpacked,
        active=number("active"),
        unseen=number("unseen"),
        no_key=number("no_key"),
        keys=number("keys"),
        superseded=number("superseded"),
        superseded_bytes=number("superseded_bytes"),
        tombstones=number("tombstones"),
        deleted_keys=number("deleted_keys"),
        unversioned=number("unversioned"),
        misversioned=number("misversioned"),
        records_a_key=at_shares(found.get("records_a_key", {}), SHARES),
        bytes_a_key=at_shares(found.get("bytes_a_key", {}), SHARES),
        overtaken=number("overtaken"),
        keys_by_records=by_powers(found.get("records_a_key", {})),
        keys_by_missing=by_powers(found.get("missing_versions", {})),
        hot_keys=tuple(HotKey(*hot) for hot in found.get("hot", ())),
        dirty_bytes=number("dirty_bytes") if known else None,
        dirty_since_ms=totals.dirty_since_ms,
        written_span_ms=times.span_ms,
        written=tuple((span * times.span_ms, count) for span, count in sorted(times.counts.items())),
        # Assume the same compression as in the whole segments.
        saved_bytes=log.sealed_bytes * gone // unpacked if unpacked else 0,
        damaged=damaged,
        elsewhere=numbers.get("elsewhere", 0),
        sampled_bytes=number("sampled_bytes"),
        repacked_bytes=number("repacked_bytes"),
        wrong_time=min(totals.wrong_times, default=""),
    )


def by_powers(histogram: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Rows (least value, count) of values up to the next power of two; 0 has its own row."""
    rows: Counter[int] = Counter()
    for value, count in histogram.items():
        rows[1 << (value.bit_length() - 1) if value else 0] += count
    return tuple(sorted(rows.items()))


def map_bytes(keys: int, *, versioned: bool, load: float) -> int:
    """Memory of an offset map with ``keys`` (U-19): 16 bytes per entry, and a version with its bit."""
    return int(keys * (16 + (8.125 if versioned else 0)) / load) + 1
