"""Batches of message format v0 and v1: when their tombstones are removed, and in which format they stay (F-3, R534-4).

These formats have no delete horizon. The age of a tombstone is estimated from the modification times of the segment
files, which a cleaning passes on from the last source to the segment that replaces it (C-65).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cleanerd.policy.retain import BATCH_EXPIRED, BATCH_NO_HORIZON, BATCH_REBUILT
from cleanerd.policy.tombstone import safe_horizon_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cleanerd import _kernel

FIRST_WITHOUT_LEGACY: Final = (4, 0)
"""The first release whose cleaner writes v2 only (KAFKA-13093)."""
METADATA_VERSION: Final = "metadata.version"
FIRST_LEVEL_OF_4_0: Final = 22
"""The feature level of the first metadata version of Kafka 4.0; 3.9 ends at 21."""


def horizon_ms(clean_mtimes_ms: Sequence[int], delete_retention_ms: int, bound_ms: int | None = None) -> int:
    """Tombstones in segments last modified at or before this time may be removed (C-30).

    ``clean_mtimes_ms``: modification times of the segments that begin below the first dirty offset, in order.
    ``bound_ms``: the last time by which every replica has what was written ``delete_retention_ms`` before (U-70).
    """
    horizon = clean_mtimes_ms[-1] - delete_retention_ms if clean_mtimes_ms else 0
    return horizon if bound_ms is None else min(horizon, bound_ms - delete_retention_ms)


def batch_flags(
    batches: _kernel.Batches, *, mtime_ms: int, legacy_horizon_ms: int, waits: bool, convert: bool
) -> NDArray[np.uint8]:
    """[b] uint8 of ``BATCH_*``: how v0 and v1 batches of a segment differ; 0 for v2.

    Their tombstones are removed unless the segment was modified after the horizon (C-35, C-45.6), nor, where they wait
    for replicas (``waits``), before their own time (U-92). With ``convert``, retained batches become v2 (F-3.3) and get
    a delete horizon. Otherwise the format stays (F-3.2), and only a wrapper with messages of another magic is rebuilt
    (KAFKA-4298).
    """
    old = batches.magic < 2
    flags = np.zeros(len(batches), dtype=np.uint8)
    written_ms = np.full(len(batches), mtime_ms)
    if waits:
        written_ms = safe_horizon_ms(written_ms, batches.max_timestamp)
    flags[old & (written_ms <= legacy_horizon_ms)] |= BATCH_EXPIRED
    if convert:
        flags[old] |= BATCH_REBUILT
    else:
        flags[old] |= BATCH_NO_HORIZON
        flags[batches.mixed_magic] |= BATCH_REBUILT
    return flags


def converts(
    version: tuple[int, int] | None,
    supported: tuple[int, int] | None,
    features: Mapping[str, int] | None,
    *,
    zookeeper: bool = False,
) -> tuple[bool, str]:
    """Whether v0 and v1 batches become v2 as in a 4.x broker's cleaner, and the source of that (U-18).

    Args:
        version: the release that the operator configured; None: derive it.
        supported: lowest and highest metadata version level that the broker registered; None: unknown.
        features: the cluster's feature levels; None: unknown.
        zookeeper: the broker's metadata is in ZooKeeper.
    """
    if version is not None:
        return version >= FIRST_WITHOUT_LEGACY, "setting"
    if supported is not None:
        return supported[1] >= FIRST_LEVEL_OF_4_0, "the broker's registration in the cluster metadata"
    level = None if features is None else features.get(METADATA_VERSION)
    if level is not None:
        return level >= FIRST_LEVEL_OF_4_0, "metadata.version of the cluster metadata"
    if zookeeper:
        return False, "ZooKeeper mode, which no release after 3.9 has"
    return True, "default: the broker's release is unknown"
