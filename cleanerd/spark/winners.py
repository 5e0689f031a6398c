"""Task 2: puts one shard of the keys into an offset map; returns the retained and the superseded records.

As locally (``cleaner/index.py``, ``cleaner/clean_part.py``): the dirty section first, then the clean one is compared
with it. Rows arrive sorted, so ordinals are assigned in their order: a block's rows ascend like their offsets.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import numpy as np

from cleanerd._kernel import OffsetMap
from cleanerd.cleaner.index import FIRST_DIRTY_ORDINAL, OffsetMapFullError
from cleanerd.errors import CleanerdError
from cleanerd.spark.blocks import KeyRows, NumberSpool, bits_row
from cleanerd.spark.plan import Sizes, plan_of
from cleanerd.spark.rows import CLEAN, DIRTY, SUPERSEDED, WINNERS, WON, Row, error_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.cleaner.plan import CleaningPlan


def choose(packed: bytes, sizes: Sizes, rows: Iterator[Row]) -> Iterator[Row]:
    """Process the rows of one shard, sorted by kind, segment, split and block; resulting rows go to their segments."""
    plan = plan_of(packed)
    with contextlib.closing(_Shard(plan, sizes)) as shard:
        for row in rows:
            if row.kind == DIRTY:
                try:
                    shard.put(row)
                except OffsetMapFullError:
                    yield full_row()
                    return
            elif row.kind == CLEAN:
                yield from shard.compare_with(row)
            else:
                yield row._replace(target=row.segment)
        yield from shard.winners()


def full_row() -> Row:
    """Reports to the driver that a map was too small."""
    return error_row(CleanerdError("the keys of a shard do not fit its map"), full=True)


class _Shard:
    def __init__(self, plan: CleaningPlan, sizes: Sizes) -> None:
        self._versioned = plan.rules.versioned
        self._map = OffsetMap(sizes.map_bytes, load=plan.map_load, versions=self._versioned)
        self._dirty = NumberSpool(FIRST_DIRTY_ORDINAL)
        self._clean = NumberSpool(0)

    def put(self, row: Row) -> None:
        """Add a block of the dirty section.

        Raises:
            OffsetMapFullError: the keys do not fit.
        """
        keys = KeyRows.of_bytes(row.payload)
        ordinal = self._dirty.add(row, keys)
        done = self._map.put_max(
            keys.hashes, ordinal, everything(keys), version=keys.versions, has_version=keys.present
        )
        if done < len(keys):
            raise OffsetMapFullError

    def compare_with(self, row: Row) -> Iterator[Row]:
        """A block of the clean section: which of its records have a key of the dirty section."""
        keys = KeyRows.of_bytes(row.payload)
        if keys.versions is None or keys.present is None:
            superseded = self._map.contains(keys.hashes, everything(keys))
        else:
            ordinal = self._clean.add(row, keys)
            superseded = self._map.update_existing(
                keys.hashes, ordinal, everything(keys), version=keys.versions, has_version=keys.present
            )
        if superseded.any():
            yield bits_row(SUPERSEDED, row, keys.numbers[superseded])

    def winners(self) -> Iterator[Row]:
        """The winners in the map after all records have competed."""
        yield from self._dirty.winners(self._map, WINNERS)
        yield from self._clean.winners(self._map, WON)

    def close(self) -> None:
        self._dirty.close()
        self._clean.close()


def everything(keys: KeyRows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """[k] bool: a mask that selects all."""
    return np.ones(len(keys), dtype=np.bool_)
