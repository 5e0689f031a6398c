"""The rules for two replicas; shares no line with the cleaner, as the rules of an audit.

A record is BELOW if the other replica was cleaned up to there, so that it may be gone from it; VISIBLE only within the
common range. One replica is BEFORE, the other AFTER.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.spark.grouping import Columns, Groups, joined, select_rows
from cleanerd.spark.judging import JudgeFunctions
from cleanerd.spark.record_pairs import PairFindings
from cleanerd.spark.record_scan import RecordFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cleanerd.spark.record_pairs import Pairs

_KEY: Final = ("part", "high", "low")
_OF_WINNER: Final = ("flags", "version", "offset", "is_stored")
_SIDES: Final = ("one", "other")


def of_records(part: int, pairs: Pairs, most: int) -> tuple[PairFindings, Columns]:
    """The findings of each record of pair ``part``, and rows of their keys, which :func:`added` adds up.

    Data that is stored but not visible, or was never cleaned, is reported here: ``committed``, ``missing``.
    """
    found = PairFindings()
    one_flags, other_flags = pairs.before_flags, pairs.after_flags
    in_one, in_other = (one_flags & RecordFact.VISIBLE) != 0, (other_flags & RecordFact.VISIBLE) != 0
    one_stores, other_stores = pairs.was, pairs.stands
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
    """``is_stored``: the other replica has it too."""
    columns: Columns = {
        "wins": competes.astype(np.uint8),
        "flags": flags,
        "version": version,
        "offset": pairs.offset,
        "is_stored": is_stored.astype(np.uint8),
    }
    return {f"{side}_{name}": column[rows] for name, column in columns.items()}


def added(several: Sequence[Columns]) -> Columns:
    """Each key once, in order of part and hash, with the record that wins it in either replica."""
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
    """The findings of one pair's keys, which :func:`added` has added up."""
    found = PairFindings()
    one_wins, other_wins = keys["one_wins"] != 0, keys["other_wins"] != 0
    equal = one_wins & other_wins
    one_is_higher = np.zeros(len(one_wins), np.bool_)
    for one, other in _ranks(keys):
        one_is_higher |= equal & (one > other)
        equal &= one == other
    # A key that both have alike has no finding. Otherwise the best record is not in the second replica, if it has any.
    differs = (one_wins | other_wins) & ~equal
    by_one = one_wins & (~other_wins | one_is_higher)
    best = {name: np.where(by_one, keys[f"one_{name}"], keys[f"other_{name}"]) for name in _OF_WINNER}
    second_offset = np.where(by_one, keys["other_offset"], keys["one_offset"])
    is_gone = differs & (best["is_stored"] == 0) & ((best["flags"] & RecordFact.BELOW) != 0)
    # A tombstone's time may have been over in one, and nothing of the key be left there; or, by version, only what was
    # written later. Nothing that was written before it can have come through the cleaning that it came through.
    is_alone = ~(one_wins & other_wins)
    may_have_expired = ((best["flags"] & RecordFact.TOMBSTONE) != 0) & (is_alone | (second_offset > best["offset"]))
    found.record("latest", best["offset"][is_gone & ~may_have_expired], most)
    found.numbers["expired"] += int(np.count_nonzero(is_gone & may_have_expired))
    return found


def _ranks(keys: Columns) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The retained records in either replica: has a version, version, offset."""
    versioned = [(keys[f"{side}_flags"] & int(RecordFact.HAS_VERSION)).astype(np.int64) for side in _SIDES]
    others = [(keys[f"one_{name}"], keys[f"other_{name}"]) for name in ("version", "offset")]
    return [(versioned[0], versioned[1]), *others]


JUDGE: Final = JudgeFunctions(of_records, added, of_keys)
