"""Tombstones and their delete horizon (KIP-534: C-45.5, C-47..C-50; R534-1, R534-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd._kernel import FLAG_HAS_VALUE
from cleanerd.format.batch import HAS_DELETE_HORIZON

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LONG_MAX = 2**63 - 1


def tombstones(flags: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """[n] bool from record flags [n] uint8: a null value. A value of length 0 is a value (C-45.4).

    The key does not matter: a record without one goes anyway, except past the cleaned range, where it starts its
    batch's horizon as any null value does (C-48).
    """
    result: NDArray[np.bool_] = (flags & FLAG_HAS_VALUE) == 0
    return result


def has_horizon(attributes: NDArray[np.int16]) -> NDArray[np.bool_]:
    """[b] bool: the batch already carries a delete horizon, which is never moved (C-49)."""
    result: NDArray[np.bool_] = (attributes & HAS_DELETE_HORIZON) != 0
    return result


def expired(attributes: NDArray[np.int16], base_timestamp: NDArray[np.int64], now_ms: int) -> NDArray[np.bool_]:
    """[b] bool: tombstones of the batch may go. At ``now == horizon`` they do (C-45.5, tried on 4.3.1)."""
    result: NDArray[np.bool_] = has_horizon(attributes) & (base_timestamp <= now_ms)
    return result


def new_horizon_ms(now_ms: int, delete_retention_ms: int) -> int:
    """The horizon of batches that get one in this cleaning; -1 when the sum does not fit a long.

    -1 makes the kernel rebuild the batch without the bit, so such tombstones never expire (C-50).
    """
    horizon_ms = now_ms + delete_retention_ms
    return horizon_ms if 0 <= horizon_ms <= LONG_MAX else -1
