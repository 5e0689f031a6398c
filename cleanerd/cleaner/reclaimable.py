"""The bytes that a cleaning would free: exact for a small log, else from a sample with bounds (U-41).

Used by ``plan`` and the daemon. A log within the budget is decided as a cleaning decides it. A larger one is sampled at
random. Records that another sampled record supersedes are known to be removed. The number of further superseded records
has bounds that hold for any distribution of keys (``superseded_bounds.py``). The interval adds the sampling error, from
how much ranges and slices of the keys differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from cleanerd.cleaner.cleaner import Cleaning, NoProgress
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.sample import GOES, MAY_GO, Sample, draw_sample, header_costs, weights
from cleanerd.cleaner.superseded_bounds import MOST_MATCHES, least_unseen, most_unseen
from cleanerd.humanize import describe_reclaimable

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.survey import CleaningOptions, Survey
    from cleanerd.segments.log_dir import LogDir

Method = Literal["exact", "sample", "guess"]
"""How the bytes were found: by the decision itself, from a sample, or from other cleanings' results before a scan."""

STRETCHES: Final = 2048
LEAST_STRETCH_BYTES: Final = 16 * 1024
MOST_STRETCH_BYTES: Final = 256 * 1024
"""Small ranges give many of them, which reduces the sampling error. Each one costs about a millisecond."""

SURE: Final = 3.0
"""Standard errors on each side."""

SLICES: Final = 16
"""Groups of keys, by their hashes: their differences show the effect of single keys on the sample."""

NOT_SEEN: Final = 3.0
"""The rule of three: an event not seen in ``n`` independent tries is rarer than ``3 / n``, at 95 % confidence."""


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """The bytes that a cleaning would free: ``bytes``, between ``low`` and ``high``; all equal if exact.

    0 if the log would grow, because v0 and v1 batches become v2 (U-18). ``read_bytes``: how much of the log was read.
    """

    bytes: int
    low: int
    high: int
    method: Method
    read_bytes: int = 0

    def grown(self, more_bytes: int, dirty_bytes: int) -> Reclaimable:
        """The estimate after ``more_bytes`` were written, ``dirty_bytes`` of them dirty; not exact any more.

        A record supersedes at most one other, of about its size.
        """
        more_bytes = max(more_bytes, 0)
        share = min(1.0, self.bytes / max(dirty_bytes, 1))
        return replace(self, bytes=self.bytes + int(share * more_bytes), high=self.high + more_bytes, method="sample")

    def at_most(self, size_bytes: int) -> Reclaimable:
        """OP-11: the estimate for a log of ``size_bytes``, since retention may have deleted what could be reclaimed."""
        if 0 <= self.low <= self.bytes <= self.high <= size_bytes:
            return self
        low, count, high = (min(max(each, 0), size_bytes) for each in sorted((self.low, self.bytes, self.high)))
        return replace(self, bytes=count, low=low, high=high)

    def to_json(self) -> dict[str, int | str]:
        return {"bytes": self.bytes, "low": self.low, "high": self.high, "method": self.method}

    def describe(self) -> str:
        """``1.4 GiB`` if it is exact, else ``~1.4 GiB ± 0.1``."""
        return describe_reclaimable(self.bytes, self.low, self.high, exact=self.method == "exact")


def estimate_reclaimable(
    log_dir: LogDir,
    found: Survey,
    resources: Resources,
    options: CleaningOptions,
    *,
    budget_bytes: int,
    advance: Callable[[int], None] = lambda _: None,
) -> Reclaimable:
    """The bytes that a cleaning of ``found`` would free, even if it is not cleaned now.

    About ``budget_bytes`` are read of a larger log.

    Raises:
        CleanerdError: as a cleaning; also if the indexes of a large log are unusable.
    """
    if found.bounds.bound.offset <= found.bounds.first_dirty_offset and found.end_offset <= found.log.log_start_offset:
        return Reclaimable(0, 0, 0, "exact")
    size = sum(s.size_bytes for s in found.log.segments[:-1] if s.base < found.end_offset)
    with replace(resources, workers=1).readers(str(found.log.path)) as pool:
        plan = make_plan(log_dir, found, resources, options, pool.reader)
        if size <= budget_bytes:
            cleaning = Cleaning(plan, pool, _Advancing(advance))
            cleaning.decide()
            saved = max(cleaning.saved_bytes(), 0)
            return Reclaimable(saved, saved, saved, "exact", size)
    stretch_bytes = min(max(budget_bytes // STRETCHES, LEAST_STRETCH_BYTES), MOST_STRETCH_BYTES)
    sample = draw_sample(plan, budget_bytes=budget_bytes, stretch_bytes=stretch_bytes, advance=advance)
    return of_sample(sample, versioned=plan.rules.versioned)


class _Advancing(NoProgress):
    """Reports its progress to a callback."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self._advance = advance

    def advance(self, done_bytes: int) -> None:
        self._advance(done_bytes)


def of_sample(sample: Sample, *, versioned: bool) -> Reclaimable:
    """The estimate for the whole log from a sample's records."""
    by_dirty = by_any = _SampledRecords.of(sample, versioned=versioned, cleans_too=False)
    if versioned:
        by_any = _SampledRecords.of(sample, versioned=True, cleans_too=True)
    low = high = 0.0
    for dirty in (True, False):
        low += _SectionEstimate(sample, by_dirty, dirty=dirty, versioned=versioned).low()
        high += _SectionEstimate(sample, by_any, dirty=dirty, versioned=versioned).high()
    total = sum(size for _, size in sample.parts)
    least = min(max(int(low), 0), total)
    most = min(max(math.ceil(high), least), total)
    return Reclaimable((least + most) // 2, least, most, "sample", int(sample.sizes.sum()))


@dataclass(frozen=True, slots=True)
class _SampledRecords:
    """Per record [n]: ``goes``: it is removed.

    ``open``: other records of its key decide. ``matches``: its number in other ranges.
    """

    goes: NDArray[np.bool_]
    open: NDArray[np.bool_]
    matches: NDArray[np.int64]

    @classmethod
    def of(cls, sample: Sample, *, versioned: bool, cleans_too: bool) -> _SampledRecords:
        """Find the records that sampled ones supersede: in the same range, or by how many ranges.

        ``cleans_too``: clean records can supersede clean records. These are superseded only if the dirty section has
        their key, which the sample may not show (R280-11).
        """
        rows = np.flatnonzero(sample.key_hash)
        best_first = rows[_ranked(sample, rows)]
        keys = sample.key_hash[best_first]
        first_of_key = np.concatenate([[True], keys[1:] != keys[:-1]]) if len(keys) else np.zeros(0, np.bool_)
        # The sort is stable, so the first of each (key, range) is the winner there.
        key_number = np.cumsum(first_of_key) - 1
        by_stretch = np.lexsort((sample.stretch[best_first], key_number))
        pair = key_number[by_stretch] * np.int64(len(sample.stretches) + 1) + sample.stretch[best_first][by_stretch]
        first_of_pair = np.concatenate([[True], pair[1:] != pair[:-1]]) if len(pair) else np.zeros(0, np.bool_)
        is_best = np.zeros(len(rows), dtype=np.bool_)
        is_best[by_stretch[first_of_pair]] = True
        dirty = sample.dirty[best_first]
        best_is_dirty = np.zeros(len(rows), dtype=np.bool_)
        groups = np.cumsum(first_of_pair) - 1
        best_is_dirty[by_stretch] = dirty[by_stretch[first_of_pair]][groups] if len(groups) else False
        before_dirty = _before(is_best & dirty, first_of_key)
        before_all = _before(is_best, first_of_key) if versioned else before_dirty
        goes = sample.fate == GOES
        matches = np.zeros(len(goes), dtype=np.int64)
        matches[best_first] = np.where(dirty | cleans_too, before_all, before_dirty)
        beaten_here = np.zeros(len(goes), dtype=np.bool_)
        beaten_here[best_first] = ~is_best & (best_is_dirty | (dirty & versioned) | cleans_too)
        goes_anyway = goes | beaten_here
        is_open = (sample.key_hash != 0) & (sample.fate != GOES) & ~beaten_here
        return cls(goes_anyway | (is_open & (matches > 0)), is_open, matches)


def _ranked(sample: Sample, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """``rows`` sorted by key, and within a key the winner first (R280-4..6)."""
    columns: list[NDArray[Any]] = [-sample.offset[rows]]
    if sample.present[rows].any():
        # ~ reverses the order, also of the lowest number.
        columns += [~np.where(sample.present[rows], sample.version[rows], 0), ~sample.present[rows]]
    order: NDArray[np.int64] = np.lexsort((*columns, sample.key_hash[rows]))
    return order


def _before(flags: NDArray[np.bool_], first_of_key: NDArray[np.bool_]) -> NDArray[np.int64]:
    """[n]: how many ``flags`` of the same key precede each row."""
    if not len(flags):
        return np.zeros(0, dtype=np.int64)
    count: NDArray[np.int64] = np.cumsum(flags) - flags
    starts = np.flatnonzero(first_of_key)
    result: NDArray[np.int64] = count - np.repeat(count[starts], np.diff(starts, append=len(flags)))
    return result


class _SectionEstimate:
    """The clean or the dirty section, and the share of it that is removed."""

    def __init__(self, sample: Sample, found: _SampledRecords, *, dirty: bool, versioned: bool) -> None:
        self._sample = sample
        self._found = found
        self._stretches = np.flatnonzero(sample.stretches == dirty)
        self._number, self._bytes = sample.parts[0 if dirty else 1]
        self._rows = sample.stretches[sample.stretch] == dirty if len(sample.stretches) else np.zeros(0, np.bool_)
        self._read = float(sample.sizes[self._stretches].sum())
        self._drawn = len(self._stretches) / max(self._number, 1)
        others = [sum(number for number, _ in sample.parts), len(sample.stretches)]
        if not versioned:
            others = [sample.parts[0][0], int(sample.stretches.sum())]
        if dirty or versioned:
            others = [max(each - 1, 0) for each in others]
        self._others, self._others_drawn = others
        self._at_least, self._at_most = weights(sample, found.goes)
        self._costs = header_costs(sample)

    def low(self) -> float:
        """The least number of removed bytes, minus added bytes: below 0 if the section grows."""
        if not self._read:
            return 0.0
        known = self._share(self._found.goes, self._at_least)
        unseen = self._unseen(self._at_least, least_unseen)
        cost, doubt = self._cost()
        return self._bytes * (max(known - self._doubt(self._found.goes, self._at_least) + unseen, 0.0) - cost - doubt)

    def high(self) -> float:
        """The greatest number of removed bytes."""
        if not self._read:
            return float(self._bytes)
        goes = self._found.goes | (self._sample.fate == MAY_GO)
        known = self._share(goes, self._at_most)
        unseen = self._unseen(self._at_most, most_unseen)
        cost, doubt = self._cost()
        gone = known + self._doubt(goes, self._at_most) + unseen - max(cost - doubt, 0.0)
        return self._bytes * min(max(gone, 0.0), 1.0)

    def _cost(self) -> tuple[float, float]:
        """The bytes that v2 headers add, as a share of the section, and their error."""
        rows = self._costs > 0
        if not rows.any():
            return 0.0, 0.0
        return self._share(rows, self._costs), self._doubt(rows, self._costs)

    def _share(self, goes: NDArray[np.bool_], weight: NDArray[np.float64]) -> float:
        return float(weight[goes & self._rows].sum()) / self._read

    def _unseen(self, weight: NDArray[np.float64], bound: Callable[..., float]) -> float:
        """The share of the section that unsampled records supersede, from a ``bound`` function."""
        rows = self._found.open & self._rows
        matches = np.minimum(self._found.matches[rows], MOST_MATCHES + 1)
        shares = np.bincount(matches, weight[rows], MOST_MATCHES + 2)[: MOST_MATCHES + 1] / self._read
        if self._others_drawn == self._others:
            return 0.0
        by_matches = [self._found.open & (self._found.matches == k) for k in range(MOST_MATCHES + 1)]
        doubts = np.array([self._doubt(each, weight, by_key=True) for each in by_matches])
        return bound(shares, doubts, self._others_drawn / self._others, self._others)

    def _doubt(self, rows: NDArray[np.bool_], weight: NDArray[np.float64], *, by_key: bool = False) -> float:
        """The error of the share of ``rows``: ranges differ, and with ``by_key`` slices of the keys differ too."""
        rows = rows & self._rows
        left = 1.0 - self._drawn
        drawn, sizes = len(self._stretches), self._sample.sizes[self._stretches]
        share = float(weight[rows].sum()) / self._read
        sums = np.bincount(self._sample.stretch[rows], weight[rows], len(self._sample.stretches))[self._stretches]
        variance = left * drawn / max(drawn - 1, 1) * float(((sums - share * sizes) ** 2).sum())
        # Rare events come in lumps: as large as the largest sampled one, or a whole range if there was none.
        lump = float((sums / np.maximum(sizes, 1)).max()) if share else 1.0
        rare = NOT_SEEN / drawn * lump
        if not by_key:
            return SURE * math.sqrt(variance) / self._read + left * rare
        slices = np.bincount((self._sample.key_hash[rows] >> np.uint64(60)).astype(np.int64), weight[rows], SLICES)
        variance += SLICES / (SLICES - 1) * float(((slices - slices.mean()) ** 2).sum())
        return SURE * math.sqrt(variance) / self._read + rare
