"""Keys counted: what of a key's records a profile wants to know, as columns with a row a key that add up.

The rows of some records and the rows of some more give, put together, those of all: so a task adds up what it reads, a
shard what its tasks found, and one process alone all of it. The record that wins a key is the one with the highest (has
a version, version, offset), whoever is asked first.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd.spark.record_scan import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

ADDED_RECORDS: Final = 1 << 20
"""So many rows wait before they are added up; some 100 MB."""

COMPETES: Final = int(Fact.SEALED | Fact.VISIBLE | Fact.HAS_KEY)
"""What a record has that counts for its key."""

_SUMS: Final = ("records", "bytes", "unversioned", "misversioned", "tombstones")
_OF_WINNER: Final = ("has_version", "version", "offset", "size", "deleted")
_KEY: Final = ("part", "high", "low")
_LEAST: Final = np.iinfo(np.int64).min

Keys = dict[str, "NDArray[Any]"]
"""Columns [k] by name: part and hash of each key, sums over its records, and the record that wins."""


class Tally:
    """Counts the records of one log; of its keys those of one shard of ``shards``."""

    def __init__(self, part: int, shard: int = 0, shards: int = 1) -> None:
        self._part = part
        self._shard = shard
        self._shards = shards
        self._waiting: list[Keys] = []
        self._rows = 0
        self.totals: Counter[str] = Counter()

    def add(self, batch: pa.RecordBatch) -> int:
        """Rows of ``record_scan.SCHEMA``.

        Returns how many keys it are so far, 0 as long as nobody has looked.
        """
        column = {name: batch.column(at).to_numpy(zero_copy_only=False) for at, name in enumerate(batch.schema.names)}
        flags = column["flags"]
        whole = (flags & Fact.DAMAGED) == 0
        self._count(flags[whole], column["size"][whole])
        rows = np.flatnonzero(whole & ((flags & COMPETES) == COMPETES))
        if self._shards > 1:
            rows = rows[shard_of(column["key_high"][rows], self._shards) == self._shard]
        self._waiting.append(_of_records(self._part, column, rows))
        self._rows += len(rows)
        return len(self.keys()["high"]) if self._rows >= ADDED_RECORDS else 0

    def _count(self, flags: NDArray[np.int32], size: NDArray[np.int32]) -> None:
        """What is counted by record: of all [n] below the active segment, but ``active``."""
        sealed, visible = (flags & Fact.SEALED) != 0, (flags & Fact.VISIBLE) != 0
        unseen = sealed & ~visible
        keyless = sealed & visible & ((flags & Fact.HAS_KEY) == 0)
        # What is open may be committed yet: nothing that a cleaning would save.
        bytes_of = {"": sealed, "unseen_": unseen & ((flags & Fact.OPEN) == 0), "keyless_": keyless}
        for name, rows in {"records": sealed, "unseen": unseen, "keyless": keyless, "active": ~sealed}.items():
            self.totals[name] += int(np.count_nonzero(rows))
        for name, rows in bytes_of.items():
            self.totals[f"{name}bytes"] += int(size[rows].sum(dtype=np.int64))

    def keys(self) -> Keys:
        """What was counted so far."""
        self._waiting = [added(self._waiting)]
        self._rows = 0
        return self._waiting[0]

    def forget_keys(self) -> None:
        """Begin anew with the keys: those so far went elsewhere."""
        self._waiting = []


def shard_of(high: NDArray[np.int64], shards: int) -> NDArray[np.int64]:
    """[k]: which of ``shards`` the keys with this half of their hash belong to."""
    found: NDArray[np.int64] = ((high.view(np.uint64) >> np.uint64(32)) * np.uint64(shards) >> np.uint64(32)).astype(
        np.int64
    )
    return found


def _of_records(part: int, column: Mapping[str, NDArray[Any]], rows: NDArray[np.intp]) -> Keys:
    flags, size = column["flags"][rows], column["size"][rows].astype(np.int64)
    has_version, deleted = (flags & Fact.HAS_VERSION) != 0, (flags & Fact.TOMBSTONE) != 0
    return {
        "part": np.full(len(rows), part, np.int32),
        "high": column["key_high"][rows],
        "low": column["key_low"][rows],
        "records": np.ones(len(rows), np.int64),
        "bytes": size,
        "unversioned": (~has_version).astype(np.int64),
        "misversioned": ((flags & Fact.BAD_VERSION) != 0).astype(np.int64),
        "tombstones": deleted.astype(np.int64),
        "has_version": has_version.astype(np.uint8),
        "version": column["version"][rows],
        "offset": column["offset"][rows],
        "size": size,
        "deleted": deleted.astype(np.uint8),
    }


def added(several: Sequence[Keys]) -> Keys:
    """Each key once, in order of part and hash: sums added up, the winner of the winners."""
    if not several:
        none = {name: np.zeros(0, np.int64) for name in ("flags", "size", "key_high", "key_low", "version", "offset")}
        return _of_records(0, none, np.zeros(0, np.intp))
    joined = {name: np.concatenate([each[name] for each in several]) for name in several[0]}
    order = np.lexsort([joined[name] for name in reversed(_KEY)])
    if not len(order):
        return joined
    rows = {name: column[order] for name, column in joined.items()}
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = np.any([rows[name][1:] != rows[name][:-1] for name in _KEY], axis=0)
    starts = np.flatnonzero(is_first)
    group = np.cumsum(is_first) - 1
    best = np.ones(len(order), np.bool_)
    for name in ("has_version", "version", "offset"):
        column = np.where(best, rows[name].astype(np.int64), _LEAST)
        best &= column == np.maximum.reduceat(column, starts)[group]
    winner = np.maximum.reduceat(np.where(best, np.arange(len(order)), -1), starts)
    return {
        **{name: rows[name][starts] for name in _KEY},
        **{name: np.add.reduceat(rows[name], starts) for name in _SUMS},
        **{name: rows[name][winner] for name in _OF_WINNER},
    }


def summary(keys: Keys) -> list[dict[str, Any]]:
    """By part what the keys of some shard come to, as JSON has it; ``keys`` as :func:`added` gives them."""
    told = []
    parts, starts = np.unique(keys["part"], return_index=True)
    for part, (first, end) in zip(parts.tolist(), pairwise([*starts.tolist(), len(keys["part"])]), strict=True):
        of = {name: column[first:end] for name, column in keys.items()}
        most = int(of["records"].max())
        told.append({
            "part": part,
            "keys": len(of["high"]),
            "superseded": int((of["records"] - 1).sum()),
            "superseded_bytes": int((of["bytes"] - of["size"]).sum()),
            "deleted_keys": int(of["deleted"].sum()),
            **{name: int(of[name].sum()) for name in ("unversioned", "misversioned", "tombstones")},
            "records_a_key": _histogram(of["records"]),
            "bytes_a_key": _histogram(of["bytes"]),
            "hottest": [most, int(of["offset"][of["records"] == most].max())],
        })  # fmt: skip
    return told


def _histogram(values: NDArray[np.int64]) -> list[list[int]]:
    """Each value, and how often. As values add up to what is in the log, there are not many different ones."""
    found, counts = np.unique(values, return_counts=True)
    return [found.tolist(), counts.tolist()]


def folded(summaries: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """What the shards told of each part, in one."""
    found: dict[int, dict[str, Any]] = {}
    for told in summaries:
        mine = found.setdefault(told["part"], {"hottest": [0, 0], "records_a_key": Counter(), "bytes_a_key": Counter()})
        for name, value in told.items():
            if name == "hottest":
                mine[name] = max(mine[name], value)
            elif name.endswith("_a_key"):
                mine[name].update(dict(zip(*value, strict=True)))
            elif name != "part":
                mine[name] = mine.get(name, 0) + value
    return found


def at_shares(histogram: Mapping[int, int], shares: Sequence[float]) -> tuple[int, ...]:
    """The values at ``shares`` of all, smallest first, and the largest; zeros where there are none."""
    if not histogram:
        return (0,) * (len(shares) + 1)
    values = sorted(histogram)
    reached = np.cumsum([histogram[value] for value in values])
    places = np.searchsorted(reached, [share * int(reached[-1]) for share in shares])
    return (*(values[place] for place in places.tolist()), values[-1])
