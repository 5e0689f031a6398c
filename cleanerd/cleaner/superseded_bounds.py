"""Bounds of how much is superseded by records outside of the sample, for any distribution of keys.

A sampled record is superseded in ``m`` other ranges of the log. Each of them is in the sample with the probability
``q``, so ``k`` of them are seen, and ``k`` is binomial. The distribution of ``m`` is unknown: keys may occur once,
equally often, or a few of them everywhere. For every distribution at once: if weights ``b[k]`` satisfy ``sum(b[k] * P(k
| m)) <= P(0 | m)`` for each ``m >= 1`` and ``b[0] <= 0``, the records with ``k`` matches, weighted by ``b[k]``, are on
average no more than those that are superseded unseen. A linear program finds the best such weights, and so those of the
upper bound.
"""

from __future__ import annotations

from math import lgamma
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_MATCHES: Final = 8
"""The most matches of a record that are told apart; more say nothing about records without any."""

_EACH_TO: Final = 24
_MORE: Final = 40
"""How many numbers of ranges are tried: consecutive ones first, then with growing gaps."""

_TINY: Final = 1e-9
_STEPS: Final = 1000


def least_unseen(shares: NDArray[np.float64], doubts: NDArray[np.float64], chance: float, most: int) -> float:
    """The least share of all records that is superseded without a match in the sample.

    Args:
        shares: [``MOST_MATCHES`` + 1], shares of the records by their matches in the sample.
        doubts: [``MOST_MATCHES`` + 1], the error of each share.
        chance: probability that a range is in the sample, 0 or more and below 1.
        most: the number of other ranges.
    """
    if not chance:
        return 0.0
    stretches = _tried(most)
    seen = _binomial(stretches, chance)
    gain = np.concatenate([shares - doubts, -shares - doubts])
    least = _largest(gain, np.concatenate([seen, -seen], axis=1), np.where(stretches >= 1, seen[:, 0], 0.0))
    return min(max(least, 0.0), float(shares[0]))


def most_unseen(shares: NDArray[np.float64], doubts: NDArray[np.float64], chance: float, most: int) -> float:
    """The largest such share; see :func:`least_unseen`."""
    whole = float(shares[0] + doubts[0])
    if not chance:
        return whole
    stretches = _tried(most)
    seen = _binomial(stretches, chance)
    gain = np.concatenate([shares - doubts, -shares - doubts])
    # First all records without a match count as superseded; the weights subtract those that cannot be.
    gain[0], gain[len(shares)] = whole, -whole
    taken = _largest(gain, np.concatenate([seen, -seen], axis=1), np.where(stretches == 0, 1.0, 0.0))
    return min(max(whole - taken, 0.0), whole)


def _tried(most: int) -> NDArray[np.int64]:
    """[m], ascending, without repetition."""
    far = np.geomspace(_EACH_TO, max(most, _EACH_TO), _MORE).astype(np.int64)
    tried = np.concatenate([np.arange(_EACH_TO, dtype=np.int64), far])
    return np.array(sorted({*tried[tried <= most].tolist(), 0, min(1, most)}), dtype=np.int64)


def _binomial(stretches: NDArray[np.int64], chance: float) -> NDArray[np.float64]:
    """[m, ``MOST_MATCHES`` + 1]: the probability that ``k`` of ``m`` matches are in the sample."""
    log_chance, log_other = np.log(chance), np.log1p(-chance)
    result = np.zeros((len(stretches), MOST_MATCHES + 1))
    for row, number in enumerate(stretches.tolist()):
        for k in range(min(number, MOST_MATCHES) + 1):
            ways = lgamma(number + 1) - lgamma(k + 1) - lgamma(number - k + 1)
            result[row, k] = np.exp(ways + k * log_chance + (number - k) * log_other)
    return result


def _largest(gain: NDArray[np.float64], matrix: NDArray[np.float64], limit: NDArray[np.float64]) -> float:
    """The largest ``gain @ x`` with ``matrix @ x <= limit`` and ``x >= 0``; ``limit`` is not negative.

    The simplex method on a table of some tens of rows. If it stops early, its result is a valid bound, but not the
    best. There is no bound if the shares contradict each other by more than their errors.
    """
    rows, columns = matrix.shape
    # If many limits are equal, it could cycle.
    limit = limit + _TINY * np.arange(1, rows + 1)
    table = np.zeros((rows + 1, columns + rows + 1))
    table[:rows, :columns], table[:rows, columns:-1], table[:rows, -1] = matrix, np.eye(rows), limit
    table[-1, :columns] = -gain
    for _ in range(_STEPS):
        column = int(np.argmin(table[-1, :-1]))
        if table[-1, column] >= -_TINY:
            break
        entries = table[:rows, column]
        usable = entries > _TINY
        if not usable.any():
            return 0.0
        row = int(np.argmin(np.where(usable, table[:rows, -1] / np.where(usable, entries, 1.0), np.inf)))
        table[row] /= table[row, column]
        others = table[:, column].copy()
        others[row] = 0.0
        table -= np.outer(others, table[row])
    return float(table[-1, -1])
