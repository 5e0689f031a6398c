"""Matches both sides' records by offset (rows of ``record_scan.SCHEMA``), for the rules.

A judge compares records, then their keys, and returns :class:`PairFindings`, which can be added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cleanerd.spark.grouping import Columns, joined
from cleanerd.spark.record_scan import RecordFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(slots=True)
class PairFindings:
    """The findings in some records of a partition, and after :meth:`add` in all of them.

    ``findings``: by kind, ``places``: the lowest offsets of each. ``numbers`` are summed, ``digests`` added modulo
    2^64.
    """

    findings: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[int]] = field(default_factory=dict)
    numbers: Counter[str] = field(default_factory=Counter)
    digests: dict[str, int] = field(default_factory=dict)

    def record(self, kind: str, at: NDArray[np.int64], most: int, many: int | None = None) -> None:
        """Record findings of ``kind`` at the offsets ``at`` [n], storing at most ``most``; ``many``: how many [n]."""
        if len(at):
            self.findings[kind] += len(at) if many is None else many
            lowest = np.partition(at, most - 1)[:most] if len(at) > most else at
            self._store(kind, lowest.tolist(), most)

    def _store(self, kind: str, at: Sequence[int], most: int) -> None:
        self.places[kind] = sorted({*self.places.get(kind, ()), *at})[:most]

    def digest(self, name: str, values: NDArray[np.uint64]) -> None:
        """Add ``values`` [n] to a digest, in any order."""
        self.digests[name] = self.digests.get(name, 0) ^ int(np.bitwise_xor.reduce(values))

    def add(self, other: PairFindings, most: int) -> None:
        """Add the findings in other records."""
        self.findings.update(other.findings)
        self.numbers.update(other.numbers)
        for kind, at in other.places.items():
            self._store(kind, at, most)
        for name, value in other.digests.items():
            self.digests[name] = self.digests.get(name, 0) ^ value


_COMPARED: tuple[str, ...] = ("version", "digest_high", "digest_low", "attributes", "size", "epoch")


@dataclass(frozen=True, slots=True)
class Pairs:
    """The records of a partition, one per row, by offset: the columns of both sides.

    ``befores``, ``afters``: how often the record occurs. ``flags``: :class:`RecordFact` of each side, 0 without it.
    ``before``, ``after``: the columns of ``record_scan.SCHEMA``, undefined without it. A record that a side has more
    than once has the highest value of each column. ``high``, ``low``: its key, from the side before.
    """

    offset: NDArray[np.int64]
    befores: NDArray[np.int64]
    afters: NDArray[np.int64]
    before_flags: NDArray[np.int32]
    after_flags: NDArray[np.int32]
    high: NDArray[np.int64]
    low: NDArray[np.int64]
    before: Columns
    after: Columns

    @property
    def is_before(self) -> NDArray[np.bool_]:
        """[n]: whether the side before the cleaning has a record at the offset."""
        return self.befores > 0

    @property
    def is_after(self) -> NDArray[np.bool_]:
        """[n]: whether the side after the cleaning has one."""
        return self.afters > 0

    @property
    def flags(self) -> NDArray[np.int32]:
        """[n]: its flags, from the side before if it exists there."""
        flags: NDArray[np.int32] = np.where(self.is_before, self.before_flags, self.after_flags)
        return flags

    def has(self, fact: RecordFact) -> NDArray[np.bool_]:
        """[n]: has one of ``flags``."""
        found: NDArray[np.bool_] = (self.flags & fact) != 0
        return found

    @property
    def is_altered(self) -> NDArray[np.bool_]:
        """[n]: both sides have it, with different content."""
        return self._differs("digest_high") | self._differs("digest_low")

    @property
    def has_other_attributes(self) -> NDArray[np.bool_]:
        """[n]: both sides have it, with different attributes."""
        return self._differs("attributes")

    @property
    def has_other_epoch(self) -> NDArray[np.bool_]:
        """[n]: both sides have it, with different leader epochs; old message formats have none, which is -1."""
        one, other = self.before["epoch"], self.after["epoch"]
        found: NDArray[np.bool_] = self._differs("epoch") & (one >= 0) & (other >= 0)
        return found

    def _differs(self, name: str) -> NDArray[np.bool_]:
        differs: NDArray[np.bool_] = self.is_before & self.is_after & (self.before[name] != self.after[name])
        return differs


def paired(several: Sequence[Columns]) -> Pairs:
    """The rows of ``several``, of one partition, by offset."""
    rows = joined(several)
    offset, group = _by_offset(rows["offset"])
    flags, count = rows["flags"], len(offset)
    then, now = (flags & RecordFact.BEFORE) != 0, (flags & RecordFact.AFTER) != 0
    sides = []
    for side in (then, now):
        at = group[side]
        sides.append((at, np.bincount(at, minlength=count)))

    def highest(side: int, column: NDArray[Any], least: int | None = None) -> NDArray[Any]:
        at, times = sides[side]
        found = np.full(count, np.iinfo(column.dtype).min if least is None else least, column.dtype)
        values = column[(then, now)[side]]
        if times.max(initial=0) <= 1:
            found[at] = values
        else:
            np.maximum.at(found, at, values)
        return found

    befores, afters = sides[0][1], sides[1][1]
    keys = [np.where(befores > 0, highest(0, rows[name]), highest(1, rows[name])) for name in ("key_high", "key_low")]
    return Pairs(
        offset=offset,
        befores=befores,
        afters=afters,
        before_flags=highest(0, flags, 0),
        after_flags=highest(1, flags, 0),
        high=keys[0],
        low=keys[1],
        before={name: highest(0, rows[name]) for name in _COMPARED},
        after={name: highest(1, rows[name]) for name in _COMPARED},
    )


def _by_offset(offset: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
    """The distinct offsets, ascending, and each row's index among them. Files ascend, so there is little to sort."""
    order = np.argsort(offset, kind="stable")
    ascending = offset[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    group = np.empty(len(order), np.intp)
    group[order] = np.cumsum(is_first) - 1
    return ascending[is_first], group
