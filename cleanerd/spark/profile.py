"""What is in a log, key by key: how many there are, what they weigh, what a cleaning would do and need."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from cleanerd.spark.audit import new_digest_key
from cleanerd.spark.columns import pack, unpack
from cleanerd.spark.header_walk import walk_headers
from cleanerd.spark.key_counts import ADDED_RECORDS, Tally, added, at_shares, folded, shard_of, summary
from cleanerd.spark.logs import size_of_all, work_on
from cleanerd.spark.record_scan import scan
from cleanerd.spark.spread import ROWS_AN_ARROW_BATCH, nobody, queries, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.key_counts import Keys
    from cleanerd.spark.logs import Log
    from cleanerd.spark.spread import Item

SHARES: Final = (0.5, 0.9, 0.99)
"""Of the keys, at which records and bytes a key are told, besides the largest."""

MOST_KEYS: Final = 1 << 22
"""So many keys this process counts at once when it is alone, with less than a gigabyte; more are counted in shards."""

_SENT_KEYS: Final = 1 << 20
_BLOCK_KEYS: Final = 1 << 15
_SHARD_BYTES: Final = 64 << 20
"""About as much of a log one shard of its keys stands for."""

_BLOCKS: Final = pa.schema([("target", pa.int32()), ("totals", pa.string()), ("keys", pa.binary())])
_BLOCK_COLUMNS: Final = "target int, totals string, keys binary"


@dataclass(frozen=True, slots=True)
class Profile:
    """One partition. All but ``active`` is about the segments below the active one, and what readers see of them.

    ``bytes`` are those of records, unpacked; ``stored_bytes`` those of the segments. ``records_a_key`` and
    ``bytes_a_key`` are the values at SHARES of the keys, and the largest. ``unseen``: aborted, open, below log start.
    ``hottest_offset``: where the newest record of the key with most records lies, None without keys.
    """

    name: TopicPartition
    strategy: str
    segments: int
    stored_bytes: int
    records: int
    bytes: int
    active: int
    unseen: int
    keyless: int
    keys: int
    superseded: int
    superseded_bytes: int
    tombstones: int
    deleted_keys: int
    unversioned: int
    misversioned: int
    records_a_key: tuple[int, ...]
    bytes_a_key: tuple[int, ...]
    hottest_offset: int | None
    saved_bytes: int
    damaged: tuple[str, ...]

    @property
    def superseded_share(self) -> float:
        """Of the records with a key."""
        return self.superseded / (self.keys + self.superseded) if self.keys else 0.0


def profile_logs(
    session: SparkSession | None, logs: Sequence[Log], advance: Callable[[int], None] = nobody
) -> list[Profile]:
    """Profile each of ``logs``, by the tasks of ``session`` or, without one, by this process.

    Raises:
        CleanerdError: a file cannot be read.
    """
    if session is None:
        walks = walk_headers(None, [log.segments for log in logs])
        totals, keys = _counted_here(work_on(logs, walks, new_digest_key())[1], advance)
    else:
        with queries(session, size_of_all(logs), advance, rows_a_batch=ROWS_AN_ARROW_BATCH):
            walks = walk_headers(session, [log.segments for log in logs])
            totals, keys = _counted(session, work_on(logs, walks, new_digest_key())[1])
    return [
        _profile(log, {**totals.get(part, {}), **keys.get(part, {})}, tuple(walked.damaged))
        for part, (log, walked) in enumerate(zip(logs, walks, strict=True))
    ]


_Counted: TypeAlias = "tuple[dict[int, Counter[str]], dict[int, dict[str, Any]]]"
"""By part: what is counted by record, and what by key."""


def _counted(session: SparkSession, items: Sequence[tuple[int, Item]]) -> _Counted:
    shards = max(session.sparkContext.defaultParallelism, -(-sum(size for size, _ in items) // _SHARD_BYTES))
    blocks = spread(session, items, partial(count_segment, shards), _BLOCKS, _BLOCK_COLUMNS)
    dealt = blocks.repartitionById(shards, "target")
    totals: dict[int, Counter[str]] = {}
    summaries: list[Mapping[str, Any]] = []
    for row in dealt.mapInArrow(count_shard, "found string").collect():
        found = json.loads(row.found)
        for part, counts in found["totals"]:
            totals.setdefault(part, Counter()).update(counts)
        summaries += found["keys"]
    return totals, folded(summaries)


def count_segment(shards: int, item: Item) -> Iterator[pa.RecordBatch]:
    """What a task sends on of one :class:`SegmentWork`: counts, and its keys by shard, as packed columns."""
    tally = Tally(item["part"])
    for batch in scan(item):
        if tally.add(batch) >= _SENT_KEYS:
            yield from _key_blocks(tally.keys(), shards)
            tally.forget_keys()
    yield from _key_blocks(tally.keys(), shards)
    counts = json.dumps([item["part"], tally.totals])
    yield _block(item["part"] % shards, counts, None)


def _key_blocks(keys: Keys, shards: int) -> Iterator[pa.RecordBatch]:
    shard = shard_of(keys["high"], shards)
    order = np.argsort(shard, kind="stable")
    edges = np.searchsorted(shard[order], np.arange(shards + 1)).tolist()
    for target, (first, last) in enumerate(pairwise(edges)):
        for start in range(first, last, _BLOCK_KEYS):
            rows = order[start : min(start + _BLOCK_KEYS, last)]
            yield _block(target, None, pack({}, {name: column[rows] for name, column in keys.items()}))


def _block(target: int, totals: str | None, keys: bytes | None) -> pa.RecordBatch:
    columns = [pa.array([target], pa.int32()), pa.array([totals], pa.string()), pa.array([keys], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=_BLOCKS)


def count_shard(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One shard of the keys: what tasks sent of it, added up; a row of JSON."""
    totals: list[Any] = []
    waiting: list[Keys] = []
    rows = 0
    for batch in batches:
        totals += [json.loads(text) for text in batch.column(1).to_pylist() if text is not None]
        for data in batch.column(2):
            if data.is_valid:
                waiting.append(unpack(data.as_py())[1])
                rows += len(waiting[-1]["high"])
        if rows >= ADDED_RECORDS:
            waiting, rows = [added(waiting)], 0
    found = {"totals": totals, "keys": summary(added(waiting))}
    yield pa.RecordBatch.from_arrays([pa.array([json.dumps(found)])], ["found"])


def _counted_here(items: Sequence[tuple[int, Item]], advance: Callable[[int], None]) -> _Counted:
    """As :func:`_counted`, a partition after the other."""
    totals: dict[int, Counter[str]] = {}
    summaries: list[Mapping[str, Any]] = []
    for part, of_part in groupby(items, key=lambda each: each[1]["part"]):
        mine = list(of_part)
        shards = 1
        while (found := _tallied(part, mine, shards)) is None:
            shards *= 4
        counts, told = found
        totals[part] = counts
        summaries += told
        advance(sum(size for size, _ in mine))
    return totals, folded(summaries)


def _tallied(
    part: int, items: Sequence[tuple[int, Item]], shards: int
) -> tuple[Counter[str], list[dict[str, Any]]] | None:
    """None: too many keys for so few shards. Each shard reads the log once."""
    told = []
    for shard in range(shards):
        tally = Tally(part, shard, shards)
        for _, item in items:
            for batch in scan(item):
                if tally.add(batch) > MOST_KEYS:
                    return None
        told += summary(tally.keys())
    return tally.totals, told


def _profile(log: Log, found: Mapping[str, Any], damaged: tuple[str, ...]) -> Profile:
    def number(name: str) -> int:
        return int(found.get(name, 0))

    unpacked = number("bytes")
    gone = number("superseded_bytes") + number("unseen_bytes") + number("keyless_bytes")
    return Profile(
        name=log.name,
        strategy=log.rules.strategy,
        segments=len(log.segments),
        stored_bytes=log.sealed_bytes,
        records=number("records"),
        bytes=unpacked,
        active=number("active"),
        unseen=number("unseen"),
        keyless=number("keyless"),
        keys=number("keys"),
        superseded=number("superseded"),
        superseded_bytes=number("superseded_bytes"),
        tombstones=number("tombstones"),
        deleted_keys=number("deleted_keys"),
        unversioned=number("unversioned"),
        misversioned=number("misversioned"),
        records_a_key=at_shares(found.get("records_a_key", {}), SHARES),
        bytes_a_key=at_shares(found.get("bytes_a_key", {}), SHARES),
        hottest_offset=found["hottest"][1] if "hottest" in found else None,
        # As compressed as everything else in the segments.
        saved_bytes=log.sealed_bytes * gone // unpacked if unpacked else 0,
        damaged=damaged,
    )


def map_bytes(keys: int, *, versioned: bool, load: float) -> int:
    """Memory of an offset map that holds ``keys`` (U-19): 16 bytes an entry, and a version with its bit."""
    return int(keys * (16 + (8.125 if versioned else 0)) / load) + 1
