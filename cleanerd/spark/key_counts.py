"""Counts keys for a profile, as columns with a row per key that can be merged.

Tasks merge what they read, and shards merge their tasks' rows; a single process merges everything. A key's retained
record is the one with the highest (has a version, version, offset), in any order of merging.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from cleanerd.spark.grouping import Columns, Groups, columns_of, joined, select_rows, shard_of
from cleanerd.spark.record_scan import RecordFact
from cleanerd.spark.write_times import WriteTimes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

ADDED_RECORDS: Final = 1 << 18
"""How many rows wait before they are merged, or half as many as there are keys; 27 MB, and briefly three times that."""

COMPETES: Final = int(RecordFact.SEALED | RecordFact.VISIBLE | RecordFact.HAS_KEY)
"""The condition for a record to compete for its key."""

_SUMS: Final = ("records", "bytes", "unversioned", "misversioned", "tombstones")
_OF_WINNER: Final = ("has_version", "version", "offset", "size", "deleted")
_KEY: Final = ("part", "high", "low")
_HISTOGRAMS: Final = ("records_a_key", "bytes_a_key", "missing_versions")
_MOST: Final = np.iinfo(np.int64).max

_POWERS: Final = np.left_shift(np.uint64(1), np.arange(63, dtype=np.uint64))
_ROUNDED: Final = np.concatenate([[0], _POWERS]).astype(np.int64)

MOST_PLACES: Final = 20
"""Limit of reported unreadable places per segment."""

HOT_KEYS: Final = 10
"""Limit of reported keys per log, those with the most records."""

Keys: TypeAlias = Columns
"""Columns [k] by name: part and hash of each key, sums over its records, and the winner.

``last``: its highest offset. ``least``: its lowest version, the highest number if no record has one.
"""


@dataclass(slots=True)
class RecordTotals:
    """The counts by record. ``dirty_since_ms``: when the oldest dirty one was written.

    ``damaged``: places that could not be read, encoded as in ``record_scan``: the lowest of each segment. One of the
    numbers counts them. ``wrong_times``: a note per segment with times in another unit than milliseconds (OP-18).
    """

    numbers: Counter[str] = field(default_factory=Counter)
    times: WriteTimes = field(default_factory=WriteTimes)
    dirty_since_ms: int | None = None
    damaged: list[int] = field(default_factory=list)
    wrong_times: list[str] = field(default_factory=list)

    def add(self, other: RecordTotals) -> None:
        """Add the counts of other records."""
        self.numbers.update(other.numbers)
        self.times.add_all(other.times)
        self.since(other.dirty_since_ms)
        self.damaged += other.damaged
        self.wrong_times += other.wrong_times

    def since(self, written_ms: int | None) -> None:
        """Note the write time of a dirty record."""
        if written_ms is not None:
            self.dirty_since_ms = min(written_ms, written_ms if self.dirty_since_ms is None else self.dirty_since_ms)


class KeyTally:
    """Counts the records of one log, and the keys of one shard of ``shards``."""

    def __init__(self, part: int, shard: int = 0, shards: int = 1, added_records: int = ADDED_RECORDS) -> None:
        self._part = part
        self._shard = shard
        self._shards = shards
        self._least_rows = added_records
        self._waiting: list[Keys] = []
        self._rows = self._added = 0
        self.totals = RecordTotals()

    def add(self, batch: pa.RecordBatch) -> int:
        """Add rows of ``record_scan.WITH_TIMESTAMP``. Returns the number of keys so far, 0 if not counted yet."""
        column = columns_of(batch)
        flags = column["flags"]
        whole = (flags & RecordFact.DAMAGED) == 0
        self._count(flags[whole], column["size"][whole], column["timestamp"][whole])
        self._note_damage(column["offset"][~whole])
        rows = np.flatnonzero(whole & ((flags & COMPETES) == COMPETES))
        if self._shards > 1:
            rows = rows[shard_of(column["key_high"][rows], self._shards) == self._shard]
        self._waiting.append(_of_records(self._part, column, rows))
        self._rows += len(rows)
        return len(self.keys()["high"]) if self._rows >= max(self._least_rows, self._added // 2) else 0

    def _count(self, flags: NDArray[np.int32], size: NDArray[np.int32], timestamp: NDArray[np.int64]) -> None:
        """Count records: all [n] are below the active segment, except ``active``."""
        sealed, visible = (flags & RecordFact.SEALED) != 0, (flags & RecordFact.VISIBLE) != 0
        unseen = sealed & ~visible
        keyless = sealed & visible & ((flags & RecordFact.HAS_KEY) == 0)
        # Open data may still be committed: a cleaning would not remove it.
        dirty = sealed & ((flags & RecordFact.CLEANED) != 0) & ((flags & RecordFact.BELOW) == 0)
        bytes_of = {
            "": sealed, "unseen_": unseen & ((flags & RecordFact.OPEN) == 0), "no_key_": keyless, "dirty_": dirty,
        }  # fmt: skip
        numbers = self.totals.numbers
        for name, rows in {"records": sealed, "unseen": unseen, "no_key": keyless, "active": ~sealed}.items():
            numbers[name] += int(np.count_nonzero(rows))
        for name, rows in bytes_of.items():
            numbers[f"{name}bytes"] += int(size[rows].sum(dtype=np.int64))
        self.totals.times.add(timestamp)
        waiting = timestamp[dirty & (timestamp >= 0)]
        self.totals.since(int(waiting.min()) if len(waiting) else None)

    def _note_damage(self, places: NDArray[np.int64]) -> None:
        """``places`` [n], ascending in the file, which is descending in numbers."""
        self.totals.numbers["damaged"] += len(places)
        self.totals.damaged += places[:MOST_PLACES].tolist()

    def keys(self) -> Keys:
        """The counts so far."""
        self._waiting = [added(self._waiting)]
        self._rows, self._added = 0, len(self._waiting[0]["high"])
        return self._waiting[0]

    def forget_keys(self) -> None:
        """Drop the keys, which were sent on."""
        self._waiting = []
        self._rows = self._added = 0


def _of_records(part: int, column: Mapping[str, NDArray[Any]], rows: NDArray[np.intp]) -> Keys:
    flags, size = column["flags"][rows], column["size"][rows].astype(np.int64)
    has_version, deleted = (flags & RecordFact.HAS_VERSION) != 0, (flags & RecordFact.TOMBSTONE) != 0
    return {
        "part": np.full(len(rows), part, np.int32),
        "high": column["key_high"][rows],
        "low": column["key_low"][rows],
        "records": np.ones(len(rows), np.int64),
        "bytes": size,
        "unversioned": (~has_version).astype(np.int64),
        "misversioned": ((flags & RecordFact.BAD_VERSION) != 0).astype(np.int64),
        "tombstones": deleted.astype(np.int64),
        "has_version": has_version.astype(np.uint8),
        "version": column["version"][rows],
        "offset": column["offset"][rows],
        "size": size,
        "deleted": deleted.astype(np.uint8),
        "last": column["offset"][rows],
        "least": np.where(has_version, column["version"][rows], _MOST),
    }


def added(several: Sequence[Keys]) -> Keys:
    """Each key once, ordered by part and hash, with summed counts and the overall winner."""
    if not several:
        none = {name: np.zeros(0, np.int64) for name in ("flags", "size", "key_high", "key_low", "version", "offset")}
        return _of_records(0, none, np.zeros(0, np.intp))
    groups = Groups.of(joined(several), _KEY)
    rows = groups.rows
    winner = groups.best([rows[name] for name in ("has_version", "version", "offset")])
    return {
        **groups.firsts(_KEY),
        **groups.sums(_SUMS),
        **select_rows({name: rows[name] for name in _OF_WINNER}, winner),
        **groups.highest(("last",)),
        **groups.lowest(("least",)),
    }


def in_several(topics: NDArray[np.int32], high: NDArray[np.int64], low: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[n]: rows whose key another row of the same topic also has (OP-19); a partition has each key once."""
    order = np.lexsort((low, high, topics))
    same = np.ones(max(len(order) - 1, 0), np.bool_)
    for column in (topics, high, low):
        same &= column[order][1:] == column[order][:-1]
    found = np.zeros(len(order), np.bool_)
    found[order[1:][same]] = found[order[:-1][same]] = True
    return found


def summary(keys: Keys, topics: Sequence[int] = ()) -> list[dict[str, Any]]:
    """By part the summary of a shard's keys, as JSON; ``keys`` as from :func:`added`.

    ``topics``: the number of each part's topic, if ``keys`` are those of all parts.
    """
    rows = []
    elsewhere = np.zeros(len(keys["high"]), np.int64)
    if topics:
        live = np.flatnonzero(keys["deleted"] == 0)
        of_topic = np.array(topics, np.int32)[keys["part"][live]]
        elsewhere[live] = in_several(of_topic, keys["high"][live], keys["low"][live])
    keys = {**keys, "elsewhere": elsewhere}
    parts, starts = np.unique(keys["part"], return_index=True)
    for part, (first, end) in zip(parts.tolist(), pairwise([*starts.tolist(), len(keys["part"])]), strict=True):
        of = {name: column[first:end] for name, column in keys.items()}
        rows.append({
            "part": part,
            "keys": len(of["high"]),
            "superseded": int((of["records"] - 1).sum()),
            "superseded_bytes": int((of["bytes"] - of["size"]).sum()),
            "deleted_keys": int(of["deleted"].sum()),
            "overtaken": int(np.count_nonzero(of["offset"] != of["last"])),
            **{name: int(of[name].sum()) for name in ("unversioned", "misversioned", "tombstones", "elsewhere")},
            "records_a_key": _histogram(of["records"]),
            "bytes_a_key": _histogram(of["bytes"]),
            "missing_versions": _histogram(_missing_versions(of)),
            "hot": [[int(of[name][row]) for name in ("records", "bytes", "offset")] for row in _hottest(of)],
        })  # fmt: skip
    return rows


def _missing_versions(keys: Keys) -> NDArray[np.int64]:
    """[v]: of each key with several versions, how many numbers between its lowest and highest are unused, rounded.

    Rounded down to a power of two, because each number is reported with its frequency.
    """
    versioned = (keys["records"] - keys["unversioned"]).astype(np.uint64)
    several = versioned > 1
    # Exact modulo 2^64, where the difference of two signed numbers may overflow.
    between = keys["version"][several].view(np.uint64) - keys["least"][several].view(np.uint64)
    there = versioned[several] - np.uint64(1)
    missing = np.where(between > there, between - there, np.uint64(0))
    rounded: NDArray[np.int64] = _ROUNDED[np.searchsorted(_POWERS, missing, side="right")]
    return rounded


def _hottest(keys: Keys) -> list[int]:
    """The rows with the most records, newer ones first if equal; at most HOT_KEYS."""
    records, offset = keys["records"], keys["offset"]
    place = max(len(records) - HOT_KEYS, 0)
    least = np.partition(records, place)[place]
    more, equal = np.flatnonzero(records > least), np.flatnonzero(records == least)
    wanted = min(HOT_KEYS - len(more), len(equal))
    newest = equal[np.argpartition(offset[equal], len(equal) - wanted)[len(equal) - wanted :]]
    rows = np.concatenate([more, newest])
    hottest: list[int] = rows[np.lexsort((offset[rows], records[rows]))[::-1]].tolist()
    return hottest


def _histogram(values: NDArray[np.int64]) -> list[list[int]]:
    """Each value with its frequency. Values sum up to the log's content, so there are few different ones."""
    found, counts = np.unique(values, return_counts=True)
    return [found.tolist(), counts.tolist()]


def _by_records(hot: Sequence[int]) -> tuple[int, int]:
    records, _, offset = hot
    return records, offset


def folded(summaries: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """The shards' summaries of each part, merged."""
    found: dict[int, dict[str, Any]] = {}
    for each_summary in summaries:
        mine = found.setdefault(each_summary["part"], {"hot": [], **{name: Counter() for name in _HISTOGRAMS}})
        for name, value in each_summary.items():
            if name == "hot":
                mine[name] = sorted([*mine[name], *value], key=_by_records, reverse=True)[:HOT_KEYS]
            elif name in _HISTOGRAMS:
                mine[name].update(dict(zip(*value, strict=True)))
            elif name != "part":
                mine[name] = mine.get(name, 0) + value
    return found


def at_shares(histogram: Mapping[int, int], shares: Sequence[float]) -> tuple[int, ...]:
    """The values at ``shares`` of all, ascending, and the largest; zeros without values."""
    if not histogram:
        return (0,) * (len(shares) + 1)
    values = sorted(histogram)
    reached = np.cumsum([histogram[value] for value in values])
    places = np.searchsorted(reached, [share * int(reached[-1]) for share in shares])
    return (*(values[place] for place in places.tolist()), values[-1])
