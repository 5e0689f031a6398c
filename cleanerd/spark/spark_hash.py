"""``xxhash64(long, int)`` as Spark's SQL has it, on columns: what the digests of an audit are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_SEED: Final = np.uint64(42)
"""Spark's."""


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
