"""The rules of an audit; shares no line with the cleaner, nor with the engine that finds retained records (U-28).

Records are matched by offset (``record_pairs.py``), then with others of their key. Of each key below the end of the
clean section exactly the record with the highest (has a version, version, offset) stays (R280-3 to R280-6). A tombstone
may be removed when its delete horizon has passed and, under a version strategy, no other record has its key (U-1, U-2).
The digests of an audit use Spark SQL's ``xxhash64(long, int)`` on columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cleanerd.spark.grouping import Columns, Groups, joined, select_rows
from cleanerd.spark.judging import JudgeFunctions
from cleanerd.spark.record_pairs import PairFindings, Pairs
from cleanerd.spark.record_scan import RecordFact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_SEED: Final = np.uint64(42)
"""The seed of Spark's hash."""


def hashed(long: NDArray[np.int64], number: NDArray[np.int32]) -> NDArray[np.uint64]:
    """[n]: the hash of ``long`` and ``number`` (of 32 bits) together, columns [n]."""
    with np.errstate(over="ignore"):
        return _of_int(number, _of_long(long))


def _of_long(value: NDArray[np.int64]) -> NDArray[np.uint64]:
    found = (_SEED + _P5 + np.uint64(8)) ^ (_rotated(value.view(np.uint64) * _P2, 31) * _P1)
    return _mixed(_rotated(found, 27) * _P1 + _P4)


def _of_int(value: NDArray[np.int32], seed: NDArray[np.uint64]) -> NDArray[np.uint64]:
    found = (seed + _P5 + np.uint64(4)) ^ (value.view(np.uint32).astype(np.uint64) * _P1)
    return _mixed(_rotated(found, 23) * _P2 + _P3)


def _rotated(value: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    found: NDArray[Any] = (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))
    return found


def _mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    for bits, factor in ((33, _P2), (29, _P3), (32, np.uint64(1))):
        value = (value ^ (value >> np.uint64(bits))) * factor
    return value


_KEY: Final = ("part", "high", "low")
_RIVALS: Final = ("rivals", "left", "gone")
_LOWEST: Final = ("gone_at",)
_HIGHEST: Final = ("is_dirty", "is_cleaned")
_WINNER: Final = ("wins", "win_flags", "win_version", "win_offset", "win_stands")
_LOSER: Final = ("lose_version", "lose_has_version", "lose_offset")
_NOWHERE: Final = np.iinfo(np.int64).max


def of_records(part: int, pairs: Pairs, most: int) -> tuple[PairFindings, Columns]:
    """The findings of each record of partition ``part``, and rows of their keys, to be merged by :func:`added`."""
    found = PairFindings()
    was, present = pairs.is_before, pairs.is_after
    b_flags, a_flags = pairs.before_flags, pairs.after_flags
    is_seen = (a_flags & RecordFact.VISIBLE) != 0
    # Open when it was copied, and committed since.
    was_seen = ((b_flags & RecordFact.VISIBLE) != 0) | (((b_flags & RecordFact.OPEN) != 0) & is_seen)
    is_below, is_cleaned, is_damaged = (
        pairs.has(RecordFact.BELOW),
        pairs.has(RecordFact.CLEANED),
        pairs.has(RecordFact.DAMAGED),
    )
    is_altered, has_other_attributes = pairs.is_altered, pairs.has_other_attributes
    may_lose_attributes = (pairs.after["attributes"] == 0) & ((b_flags & RecordFact.ATTRIBUTES) == 0)
    again = present & (pairs.afters > 1) & ~is_damaged

    for kind, rows in {
        "lost": was_seen & is_cleaned & ~is_below & ~is_seen,
        "altered": is_altered | (has_other_attributes & ~may_lose_attributes),
        "resurrected": is_seen & was & ~was_seen,
        "invented": present & ~was & ~is_damaged,
        "no_key": is_seen & ((a_flags & RecordFact.HAS_KEY) == 0) & is_below & is_cleaned,
        "damaged": is_damaged,
    }.items():
        found.record(kind, pairs.offset[rows], most)
    found.record("duplicated", pairs.offset[again], most, int((pairs.afters[again] - 1).sum()))

    whole = ~is_damaged
    numbers = found.numbers
    numbers["zeroed"] += int(np.count_nonzero(has_other_attributes & may_lose_attributes & ~is_altered))
    numbers["kept_records"] += int(np.count_nonzero(was & present & whole))
    for name, there, times, columns in (
        ("before", was, pairs.befores, pairs.before),
        ("after", present, pairs.afters, pairs.after),
    ):
        numbers[f"{name}_records"] += int(times[whole].sum())
        numbers[f"{name}_bytes"] += int(columns["size"][there].sum(dtype=np.int64))
        mine = there & whole
        low, attributes = columns["digest_low"][mine], columns["attributes"][mine]
        found.digest(f"{name}_high", columns["digest_high"][mine].view(np.uint64))
        found.digest(f"{name}_low", hashed(low, attributes))
    return found, _rows_of_keys(part, pairs, was_seen, is_seen, is_below)


def _rows_of_keys(
    part: int, pairs: Pairs, was_seen: NDArray[np.bool_], is_seen: NDArray[np.bool_], is_below: NDArray[np.bool_]
) -> Columns:
    """A row per record with a key that consumers read, before or after."""
    rows = np.flatnonzero(pairs.has(RecordFact.HAS_KEY) & (was_seen | is_seen))
    flags, b_flags, a_flags = pairs.flags[rows], pairs.before_flags[rows], pairs.after_flags[rows]
    offset, was_seen, is_seen, is_below = pairs.offset[rows], was_seen[rows], is_seen[rows], is_below[rows]
    competes, left = was_seen & is_below, is_seen & is_below
    gone = competes & ~is_seen & ((b_flags & RecordFact.MAY_GO) == 0)
    return {
        "part": np.full(len(rows), part, np.int32),
        "high": pairs.high[rows],
        "low": pairs.low[rows],
        "rivals": was_seen.astype(np.int64),
        "left": left.astype(np.int64),
        "gone": gone.astype(np.int64),
        "gone_at": np.where(gone, offset, _NOWHERE),
        "is_dirty": (competes & ((flags & RecordFact.DIRTY) != 0)).astype(np.uint8),
        "is_cleaned": ((flags & RecordFact.CLEANED) != 0).astype(np.uint8),
        "wins": competes.astype(np.uint8),
        "win_flags": b_flags,
        "win_version": pairs.before["version"][rows],
        "win_offset": offset,
        "win_stands": is_seen.astype(np.uint8),
        "lose_has_version": ((a_flags & RecordFact.HAS_VERSION) != 0).astype(np.uint8),
        "lose_version": pairs.after["version"][rows],
        "lose_offset": offset,
    }


def added(several: Sequence[Columns]) -> Columns:
    """Each key once, ordered by part and hash: the highest of the retained records so far, and of the lost ones."""
    groups = Groups.of(joined(several), _KEY)
    rows = groups.rows
    has_version = (rows["win_flags"] & RecordFact.HAS_VERSION) != 0
    winner = groups.best([has_version, rows["win_version"], rows["win_offset"]], rows["wins"] != 0)
    # Complements: the lowest value is the highest complement.
    rank = [rows[name].astype(np.int64) for name in ("lose_has_version", "lose_version", "lose_offset")]
    loser = groups.best([~column for column in rank], rows["left"] != 0)
    found = {
        **groups.firsts(_KEY),
        **groups.sums(_RIVALS),
        **groups.lowest(_LOWEST),
        **groups.highest(_HIGHEST),
        **select_rows({name: rows[name] for name in _WINNER}, winner),
        **select_rows({name: rows[name] for name in _LOSER}, loser),
    }
    found["wins"] = (winner >= 0).astype(np.uint8)
    return found


def of_keys(keys: Columns, most: int) -> PairFindings:
    """The findings of one partition's keys, which :func:`added` has merged."""
    found = PairFindings()
    flags, present = keys["win_flags"], keys["win_stands"] != 0
    left, dirty = keys["left"], keys["is_dirty"] != 0
    wins = keys["wins"] != 0
    # With a non-default strategy a tombstone is removed alone (U-1).
    may_go = ((flags & RecordFact.MAY_GO) != 0) & ~(((flags & RecordFact.ALONE) != 0) & (keys["rivals"] > 1))
    is_missing = wins & dirty & ~present
    is_tombstone = (flags & RecordFact.TOMBSTONE) != 0

    def report(kind: str, rows: NDArray[np.bool_], at: NDArray[np.int64], many: NDArray[Any] | None = None) -> None:
        found.record(kind, at[rows], most, None if many is None else int(many[rows].sum()))

    report("lost", is_missing & (left == 0) & ~may_go, keys["win_offset"])
    report("lost", wins & ~dirty & (keys["gone"] > 0), keys["gone_at"], keys["gone"])
    report("stale", is_missing & (left > 0) & ~is_tombstone, keys["lose_offset"])
    report("resurrected", is_missing & (left > 0) & is_tombstone, keys["lose_offset"])
    twice = dirty & (keys["is_cleaned"] != 0) & wins & present & (left > 1)
    report("duplicated", twice, keys["lose_offset"], left - 1)
    return found


JUDGE: Final = JudgeFunctions(of_records, added, of_keys)
