"""When tombstones of a clean log can be removed without new writes, from the horizons in its batch headers.

A cleaning knows this from its decision; this module is for logs that another cleaner cleaned. Kafka never checks: its
cleaner returns to a log only when enough of it is dirty.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cleanerd import _kernel
from cleanerd.format.index import TXN_ENTRY
from cleanerd.policy.tombstone import has_horizon, next_horizon_ms, safe_horizon_ms, tombstones
from cleanerd.policy.transaction import COMMIT, AbortedTransactions, OpenTransactions, events_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from cleanerd.policy.replicas import ExpiryBound
    from cleanerd.policy.rules import Rules
    from cleanerd.segments.reading import SegmentReader
    from cleanerd.segments.segment import Segment


def next_purge_ms(
    reader: SegmentReader,
    segments: Sequence[Segment],
    expiry_ms: int,
    progress: Callable[[int], None] = lambda _bytes: None,
    *,
    waits: bool,
) -> int | None:
    """The earliest horizon in ``segments``; ``expiry_ms`` if one has passed, None when there is none (C-47..C-49).

    ``waits``: more than the clock decides about tombstones, so none goes before its own time (U-92).

    A horizon stays in its batch after its tombstones were removed, so one cleaning has to check a passed one. A marker
    without a horizon whose transaction has no batch left waits for a cleaning that sets one, so it is due now (R534-6).

    Raises:
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    earliest: int | None = None
    transactions = OpenTransactions()
    for segment in segments:
        for batches in reader.headers(segment):
            # Any horizon above -1, the past included.
            horizon_ms = batches.base_timestamp
            if waits:
                horizon_ms = safe_horizon_ms(horizon_ms, batches.max_timestamp)
            found = next_horizon_ms(batches.attributes, horizon_ms, -1)
            if found is not None:
                earliest = found if earliest is None else min(earliest, found)
            if _ends_nothing(batches, transactions).any():
                earliest = -1
            progress(batches.consumed)
    return None if earliest is None else max(earliest, expiry_ms)


def held_count(
    reader: SegmentReader,
    segments: Sequence[Segment],
    bound: ExpiryBound,
    now_ms: int,
    rules: Rules,
    max_unpacked_bytes: int,
) -> int:
    """How many tombstones and markers are past their horizon but wait for a replica (U-70, U-79).

    Only batches with such a horizon are decompressed; v0 and v1 batches have none.

    Raises:
        CorruptionError, CleanerdError: a segment cannot be read.
    """
    count = 0

    def counted(data: NDArray[np.uint8], position: int) -> _kernel.Batches:
        nonlocal count
        batches = _kernel.scan_headers(data, position)
        horizon_ms = safe_horizon_ms(batches.base_timestamp, batches.max_timestamp)
        waits = has_horizon(batches.attributes) & (horizon_ms <= now_ms)
        may_go = horizon_ms <= bound.expiry_ms(now_ms)
        if bound.below_offset is not None:
            may_go &= batches.last_offset < bound.below_offset
        for row in np.flatnonzero(waits & ~may_go).tolist():
            if batches.control_type[row] >= 0:
                count += 1
                continue
            begin = int(batches.position[row]) - position
            records = _kernel.decode_chunk(
                data[begin : begin + int(batches.size[row])],
                int(batches.position[row]),
                tombstone_header=rules.flag_header,
                max_unpacked=max_unpacked_bytes,
            ).records
            count += int(np.count_nonzero(tombstones(records.flags, rules.tombstone_mode)))
        return batches

    for segment in segments:
        for _ in reader.chunks(segment, counted):
            pass
    return count


def _ends_nothing(batches: _kernel.Batches, transactions: OpenTransactions) -> NDArray[np.bool_]:
    """[k] bool: a marker without a horizon that follows no data batch of its producer. Call in log order."""
    events = events_of(batches, AbortedTransactions(np.zeros(0, TXN_ENTRY)), 0)
    # Data is treated as committed, so every marker as a COMMIT.
    events = replace(events, kind=np.minimum(events.kind, np.uint8(COMMIT)))
    ended = transactions.ended(events)
    alone: NDArray[np.bool_] = (events.kind == COMMIT) & ~ended & ~has_horizon(batches.attributes[events.batch])
    return alone
