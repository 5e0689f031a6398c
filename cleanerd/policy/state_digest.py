"""U-90: the digest of a partition's latest state at an offset, equal on all replicas, however they were cleaned.

The state at an offset ``end`` has each key's winner among the committed records from the log start to ``end``
(exclusive), unless that is a tombstone. A cleaning does not remove a winner of its range, so cleanings below ``end`` do
not change the state. Each replica takes ends at or above the base of its active segment, which the broker's cleaner has
not reached. ``end`` is a grid offset, so that replicas of different lengths have common ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

MOST_OFFSETS: Final = 8
"""The most grid offsets of one pass, and the most digests stored per partition."""

START_SHARE: Final = 4
"""If the log does not begin at 0, at most one part in this many of its offsets is left out at the start."""

DIGEST_BITS: Final = 128


@dataclass(frozen=True, slots=True)
class StateDigest:
    """The state at ``end_offset``, without winners below ``begin_offset``: 32 hex digits and the number of ``keys``."""

    begin_offset: int
    end_offset: int
    digest: str
    keys: int

    def to_json(self) -> dict[str, int | str]:
        """Its fields, for ``/status``."""
        return {
            "begin_offset": self.begin_offset,
            "end_offset": self.end_offset,
            "digest": self.digest,
            "keys": self.keys,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> StateDigest:
        """From another daemon's status.

        Raises:
            KeyError, TypeError, ValueError: it is not one.
        """
        found = cls(document["begin_offset"], document["end_offset"], document["digest"], document["keys"])
        if type(found.digest) is not str or len(found.digest) != DIGEST_BITS // 4:
            raise ValueError("not a digest")
        if not all(type(each) is int and each >= 0 for each in (found.begin_offset, found.end_offset, found.keys)):
            raise TypeError("not an offset or a number")
        return found


@dataclass(frozen=True, slots=True)
class DigestDifference:
    """Two or more replicas have different states at the same offset. ``by_replica``: each one's digest."""

    begin_offset: int
    end_offset: int
    by_replica: Mapping[str, StateDigest]


@dataclass(frozen=True, slots=True)
class ReplicaDigests:
    """One replica's digests under these ``rules``, and its current first dirty offset ``first_dirty_offset``."""

    first_dirty_offset: int | None
    rules: str
    digests: Sequence[StateDigest]


def most_aligned(low: int, high: int) -> int:
    """The number in ``low`` to ``high`` (inclusive) with the most trailing zero bits; 0 <= low <= high."""
    if low == 0:
        return 0
    shift = ((low - 1) ^ high).bit_length() - 1
    return high >> shift << shift


def grid_offsets(low: int, high: int, most: int = MOST_OFFSETS) -> list[int]:
    """For each power of two, its largest multiple in ``low`` to ``high`` (inclusive); ascending, at most ``most``.

    Replicas that are read at different times share the coarse ones. Replicas of a log that is no longer written also
    share ``high``. 0 is left out.
    """
    found: list[int] = []
    low = max(low, 1)
    while low <= high:
        found.append(most_aligned(low, high))
        low = found[-1] + 1
    return [*found[: most - 1], found[-1]] if len(found) > most else found


def coarsest_offset(low: int, high: int) -> int | None:
    """The first one of :func:`grid_offsets`; None if there is none."""
    low = max(low, 1)
    return most_aligned(low, high) if low <= high else None


def grid_start(log_start_offset: int, end_offset: int) -> int:
    """From which offset on winners count; equal for log starts that differ little."""
    if log_start_offset >= end_offset:
        return log_start_offset
    return most_aligned(log_start_offset, log_start_offset + (end_offset - log_start_offset) // START_SHARE)


def digest_sum(digests: NDArray[np.uint64]) -> int:
    """The sum modulo 2^128 of digests [2n], low and high word in turn, so the order does not matter."""
    words = digests.reshape(-1, 2)
    halves = (words[:, 0] & 0xFFFFFFFF, words[:, 0] >> 32, words[:, 1] & 0xFFFFFFFF, words[:, 1] >> 32)
    total = sum(int(half.sum(dtype="uint64")) << 32 * place for place, half in enumerate(halves))
    return total % (1 << DIGEST_BITS)


def first_difference(replicas: Mapping[str, ReplicaDigests], own: str | None = None) -> DigestDifference | None:
    """The highest state in which two replicas differ; of each pair, the highest state that both have is compared.

    ``own``: compare only pairs with this replica. States below a replica's first dirty offset are ignored: another
    replica may have copied records that were cleaned above them. So are replicas with other rules.
    """
    cleaned = max((each.first_dirty_offset or 0 for each in replicas.values()), default=0)
    states: dict[str, dict[tuple[int, int], StateDigest]] = {
        name: {(d.end_offset, d.begin_offset): d for d in each.digests if d.end_offset >= cleaned}
        for name, each in replicas.items()
    }
    found: list[DigestDifference] = []
    for one, other in combinations(sorted(states), 2):
        common = states[one].keys() & states[other].keys()
        if not common or own not in {None, one, other} or replicas[one].rules != replicas[other].rules:
            continue
        at = max(common)
        pair = {one: states[one][at], other: states[other][at]}
        if pair[one].digest != pair[other].digest:
            found.append(DigestDifference(at[1], at[0], pair))
    return max(found, key=lambda each: each.end_offset, default=None)
