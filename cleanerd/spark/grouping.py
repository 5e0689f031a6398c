"""Groups rows of columns by common values with NumPy: sorted once, then reduced.

Columns are one-dimensional, of the same length, and have names, as in ``columns.pack``. This module contains no rules
of cleaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

Columns: TypeAlias = "dict[str, NDArray[Any]]"

LEAST: Final = np.iinfo(np.int64).min


def columns_of(batch: pa.RecordBatch) -> Columns:
    """The columns of ``batch``, which has only numbers."""
    return {name: batch.column(at).to_numpy(zero_copy_only=False) for at, name in enumerate(batch.schema.names)}


def select_rows(columns: Columns, rows: NDArray[Any]) -> Columns:
    """The selected ``rows``: indexes, or a mask [n]."""
    return {name: column[rows] for name, column in columns.items()}


def joined(several: Sequence[Columns]) -> Columns:
    """All rows of ``several`` (at least one), one after the other."""
    if len(several) == 1:
        return several[0]
    return {name: np.concatenate([each[name] for each in several]) for name in several[0]}


def dealt(columns: Columns, target: NDArray[np.int64], targets: int, most_rows: int) -> Iterator[tuple[int, Columns]]:
    """The rows by their ``target`` [n], below ``targets``, at most ``most_rows`` at once."""
    order = np.argsort(target, kind="stable")
    edges = np.searchsorted(target[order], np.arange(targets + 1)).tolist()
    for number, (first, last) in enumerate(pairwise(edges)):
        for start in range(first, last, most_rows):
            yield number, select_rows(columns, order[start : min(start + most_rows, last)])


def shard_of(high: NDArray[np.int64], shards: int) -> NDArray[np.int64]:
    """[k]: the shard, of ``shards``, of the keys with this half of their hash."""
    found: NDArray[np.int64] = ((high.view(np.uint64) >> np.uint64(32)) * np.uint64(shards) >> np.uint64(32)).astype(
        np.int64
    )
    return found


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows in the order of the columns that they are grouped by.

    ``starts`` [g]: the first row of each group. ``group`` [n]: the number of a row's group.
    """

    rows: Columns
    starts: NDArray[np.intp]
    group: NDArray[np.intp]

    @classmethod
    def of(cls, columns: Columns, by: Sequence[str]) -> Groups:
        """``columns``, grouped by the named ones."""
        order = _order(columns, by)
        rows = select_rows(columns, order)
        is_first = np.ones(len(order), np.bool_)
        if len(order):
            is_first[1:] = np.any([rows[name][1:] != rows[name][:-1] for name in by], axis=0)
        return cls(rows, np.flatnonzero(is_first), np.cumsum(is_first) - 1)

    def firsts(self, names: Sequence[str]) -> Columns:
        """[g] of the named columns, which are equal in each group."""
        return select_rows({name: self.rows[name] for name in names}, self.starts)

    def sums(self, names: Sequence[str]) -> Columns:
        """[g]: sums of the named columns."""
        return self._reduced(np.add, names)

    def highest(self, names: Sequence[str]) -> Columns:
        """[g]: maxima of the named columns, each for itself."""
        return self._reduced(np.maximum, names)

    def lowest(self, names: Sequence[str]) -> Columns:
        """[g]: minima of the named columns, each for itself."""
        return self._reduced(np.minimum, names)

    def _reduced(self, function: np.ufunc, names: Sequence[str]) -> Columns:
        mine = {name: self.rows[name] for name in names}
        if not len(self.starts):
            return mine
        return {name: function.reduceat(column, self.starts) for name, column in mine.items()}

    def best(self, rank: Sequence[NDArray[Any]], among: NDArray[np.bool_] | None = None) -> NDArray[np.intp]:
        """[g]: the row with the highest ``rank`` among the rows ``among`` [n].

        ``rank``: columns [n], the most significant first. -1: a group has no such row. Of equal ones the last.
        """
        if not len(self.starts):
            return self.starts
        best = np.ones(len(self.group), np.bool_) if among is None else among.copy()
        for each in rank:
            column = np.where(best, each.astype(np.int64), LEAST)
            best &= column == np.maximum.reduceat(column, self.starts)[self.group]
        found: NDArray[np.intp] = np.maximum.reduceat(np.where(best, np.arange(len(best)), -1), self.starts)
        return found


def _order(columns: Columns, by: Sequence[str]) -> NDArray[np.intp]:
    """As ``lexsort``, but sorts only one half of the hashes, which nearly always differ."""
    order: NDArray[np.intp]
    if "high" in by and len(columns["high"]):
        order = np.argsort(columns["high"], kind="stable")
        high = columns["high"][order]
        same = np.flatnonzero(high[1:] == high[:-1])
        others = [columns[name] for name in by if name != "high"]
        before = by[: by.index("high")]
        if all(len(columns[name]) == 0 or (columns[name] == columns[name][0]).all() for name in before) and not any(
            (each[order[same]] != each[order[same + 1]]).any() for each in others
        ):
            return order
    order = np.lexsort([columns[name] for name in reversed(by)])
    return order
