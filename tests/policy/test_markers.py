"""U-44: producers for whose data the index and the markers of the log disagree."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.policy.markers import MarkerCheck, MarkerEdges
from cleanerd.policy.transaction import ABORT, ABORTED_DATA, COMMIT, COMMITTED_DATA, TransactionEvents

if TYPE_CHECKING:
    from collections.abc import Sequence

Event = tuple[int, int]


def edges(events: Sequence[Event]) -> MarkerEdges:
    ids = np.array([producer for producer, _ in events], dtype=np.int64)
    return MarkerEdges.of(ids, np.array([kind for _, kind in events], dtype=np.uint8))


def by_hand(log: Sequence[Event]) -> tuple[set[int], set[int]]:
    """Producers that disagree, and those with data without a later marker: event by event."""
    wrong, left = set(), set()
    for at, (producer, kind) in enumerate(log):
        if kind in (COMMITTED_DATA, ABORTED_DATA):
            marker = next((k for p, k in log[at + 1 :] if p == producer and k in (COMMIT, ABORT)), None)
            if marker is None:
                left.add(producer)
            elif (kind == ABORTED_DATA) != (marker == ABORT):
                wrong.add(producer)
    return wrong, left


@pytest.mark.parametrize("seed", range(40))
def test_any_log_cut_anywhere(seed: int) -> None:
    """U-44: the same producers wherever segments end, also if their share comes as JSON."""
    pick = random.Random(seed)
    kinds = [COMMITTED_DATA, ABORTED_DATA, COMMIT, ABORT]
    for _ in range(50):
        log = [(pick.choice((1, 2, 2**62)), pick.choice(kinds)) for _ in range(pick.randint(0, 14))]
        check, at = MarkerCheck(), 0
        while at < len(log):
            end = at + pick.randint(1, 5)
            check.add_chunk(edges(log[at:end]))
            at = end
        wrong, left = by_hand(log)
        assert set(check.open.tolist()) == left, log
        assert set(check.suspects.tolist()) == wrong | left, log


def test_data_without_effect() -> None:
    """U-44: batches without records, and those above the bound, are not compared; their markers count."""
    events = TransactionEvents(
        batch=np.array([0, 1, 2, 3, 4], dtype=np.uint32),
        producer_id=np.array([1, 1, 2, 2, 3], dtype=np.int64),
        kind=np.array([COMMITTED_DATA, ABORT, COMMITTED_DATA, ABORT, COMMITTED_DATA], dtype=np.uint8),
        offset=np.arange(10, 15, dtype=np.int64),
    )
    counts = np.array([0, 1, 1, 1, 1], dtype=np.uint32)
    found = MarkerEdges.of_events(events, counts, (10, 14))
    assert found.contradicted.tolist() == [2], "the batch of producer 1 is empty"
    assert found.aborting.tolist() == [1, 2]
    assert found.committed.tolist() == [], "offset 14 is not below 14"
    assert MarkerEdges.of_events(events, counts, (13, 14)).contradicted.tolist() == [], "offset 12 was deleted"
