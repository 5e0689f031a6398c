"""Tombstones (KIP-87: R87-1..R87-4) and their delete horizon (KIP-534: C-45.5, C-47..C-50; R534-1, R534-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd._kernel import FLAG_HAS_VALUE, FLAG_TOMBSTONE, FLAG_TOMBSTONE_HEADER
from cleanerd.format.batch import HAS_DELETE_HORIZON

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cleanerd.policy.rules import TombstoneMode

LONG_MAX = 2**63 - 1


def tombstones(
    flags: NDArray[np.uint8], mode: TombstoneMode = "null", legacy: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """[n] bool from record flags [n] uint8, record by record; ``legacy`` [n]: it is of format v0 or v1; None: none is.

    ``null``: no value (C-45.4; a value of length 0 is one). ``flag``: the bit alone, whatever the value, in v0 and v1
    no value (R87-2). ``header``: the header says so, or no value, as every stock consumer takes it (R87-4).

    The key does not matter: a record without one goes anyway, except past the cleaned range, where it starts its
    batch's horizon as any null value does (C-48).
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
    """[n] bool: under ``flag`` these are values like any other, and KIP-87 forbids producing them (R87-3)."""
    bare: NDArray[np.bool_] = (flags & (FLAG_HAS_VALUE | FLAG_TOMBSTONE)) == 0
    return bare if legacy is None else bare & ~legacy


def has_horizon(attributes: NDArray[np.int16]) -> NDArray[np.bool_]:
    """[b] bool: the batch already carries a delete horizon, which is never moved (C-49)."""
    result: NDArray[np.bool_] = (attributes & HAS_DELETE_HORIZON) != 0
    return result


def expired(
    attributes: NDArray[np.int16], base_timestamp: NDArray[np.int64], expiry_ms: int | NDArray[np.int64]
) -> NDArray[np.bool_]:
    """[b] bool: tombstones of the batch may go; ``expiry_ms``: one for all, or [b].

    At ``expiry == horizon`` they do (C-45.5, tried on 4.3.1).
    """
    result: NDArray[np.bool_] = has_horizon(attributes) & (base_timestamp <= expiry_ms)
    return result


def new_horizon_ms(now_ms: int, delete_retention_ms: int) -> int:
    """The horizon of batches that get one in this cleaning; -1 when the sum does not fit a long.

    -1 makes the kernel rebuild the batch without the bit, so such tombstones never expire (C-50).
    """
    horizon_ms = now_ms + delete_retention_ms
    return horizon_ms if 0 <= horizon_ms <= LONG_MAX else -1


def next_horizon_ms(
    attributes: NDArray[np.int16], base_timestamp: NDArray[np.int64], expiry_ms: int | NDArray[np.int64]
) -> int | None:
    """When the next tombstones or markers of these [b] batches may go; None when nothing waits for a horizon.

    Horizons that have passed say nothing: they stay in a batch after what they were for is gone (C-49).
    """
    ahead = base_timestamp[has_horizon(attributes) & (base_timestamp > expiry_ms)]
    return int(ahead.min()) if len(ahead) else None
