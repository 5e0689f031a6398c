"""Tombstones (KIP-87: R87-1..R87-4) and their delete horizon (KIP-534: C-45.5, C-47..C-50; R534-1, R534-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd._kernel import FLAG_HAS_VALUE, FLAG_TOMBSTONE, FLAG_TOMBSTONE_HEADER
from cleanerd.format.batch import HAS_DELETE_HORIZON

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cleanerd.policy.rules import TombstoneMode

LONG_MAX = 2**63 - 1

LATEST_MS: Final = 10**13
"""In the year 2286: a larger timestamp is in microseconds or nanoseconds."""


def tombstones(
    flags: NDArray[np.uint8], mode: TombstoneMode = "null", legacy: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """[n] bool per record, from record flags [n] uint8; ``legacy`` [n]: it is of format v0 or v1; None: none is.

    Mode ``null``: no value (C-45.4; an empty value is a value). Mode ``flag``: only the bit decides; in v0 and v1, no
    value (R87-2). Mode ``header``: the header, or no value, which stock consumers treat as a tombstone (R87-4). Records
    without a key are included: past the cleaned range they start their batch's horizon (C-48).
    """
    null: NDArray[np.bool_] = (flags & FLAG_HAS_VALUE) == 0
    if mode == "header":
        marked: NDArray[np.bool_] = (flags & FLAG_TOMBSTONE_HEADER) != 0
        return null | marked
    if mode == "flag":
        flagged: NDArray[np.bool_] = (flags & FLAG_TOMBSTONE) != 0
        if legacy is not None:
            flagged[legacy] = null[legacy]
        return flagged
    return null


def nulls_without_flag(flags: NDArray[np.uint8], legacy: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """[n] bool: null values without the flag: no tombstones under ``flag``. KIP-87 forbids producing them (R87-3)."""
    bare: NDArray[np.bool_] = (flags & (FLAG_HAS_VALUE | FLAG_TOMBSTONE)) == 0
    return bare if legacy is None else bare & ~legacy


def has_horizon(attributes: NDArray[np.int16]) -> NDArray[np.bool_]:
    """[b] bool: the batch has a delete horizon, which is never changed (C-49)."""
    result: NDArray[np.bool_] = (attributes & HAS_DELETE_HORIZON) != 0
    return result


def safe_horizon_ms(base_timestamp: NDArray[np.int64], max_timestamp: NDArray[np.int64]) -> NDArray[np.int64]:
    """[b] int64: the horizons of batches that have one and wait for replicas: not before their own time (U-92).

    A host whose clock is behind sets a horizon before the tombstone was written. An ISR that was full in between proves
    nothing.
    """
    return np.maximum(base_timestamp, np.where(max_timestamp < LATEST_MS, max_timestamp, -1))


def expired(
    attributes: NDArray[np.int16], base_timestamp: NDArray[np.int64], expiry_ms: int | NDArray[np.int64]
) -> NDArray[np.bool_]:
    """[b] bool: tombstones of the batch may be removed. ``expiry_ms``: one time for all, or [b].

    A horizon that equals the expiry has passed (C-45.5, tried on 4.3.1).
    """
    result: NDArray[np.bool_] = has_horizon(attributes) & (base_timestamp <= expiry_ms)
    return result


def new_horizon_ms(now_ms: int, delete_retention_ms: int) -> int:
    """The horizon of batches that get one in this cleaning; -1 if the sum exceeds 64 bits.

    With -1 the kernel rebuilds the batch without the bit, so such tombstones never expire (C-50).
    """
    horizon_ms = now_ms + delete_retention_ms
    return horizon_ms if 0 <= horizon_ms <= LONG_MAX else -1


def next_horizon_ms(
    attributes: NDArray[np.int16], base_timestamp: NDArray[np.int64], expiry_ms: int | NDArray[np.int64]
) -> int | None:
    """When the next tombstones or markers of these [b] batches may be removed; None if no horizon is ahead.

    Passed horizons are ignored: they remain in a batch after its tombstones were removed (C-49).
    """
    ahead = base_timestamp[has_horizon(attributes) & (base_timestamp > expiry_ms)]
    return int(ahead.min()) if len(ahead) else None
