"""The comparison fails when it should: small mistakes planted in cleanerd's cleaner, each found by a cell about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cleanerd.broker import partition_snapshot
from cleanerd.cleaner import decide as deciding
from cleanerd.cleaner import evidence, planning, rewrite
from cleanerd.cleaner import index as indexing
from cleanerd.policy import retain as retention
from cleanerd.policy import tombstone
from cleanerd.policy.producer import LastRecords
from cleanerd.policy.transaction import AbortedTransactions, OpenTransactions
from cleanerd.swap import strategy
from tests.differential.cells import (
    first_dirty,
    offsets,
    partial,
    producers,
    tombstones,
    transaction_scenarios,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

CELLS = {
    cell.name: cell
    for cell in (
        *first_dirty.CELLS,
        *offsets.END,
        *offsets.SIZES,
        *partial.CELLS,
        *producers.CELLS,
        *tombstones.CELLS,
        *transactions.CELLS,
        *transaction_scenarios.CELLS,
    )
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """``wrong`` makes the replacement of ``module.name``; ``cell`` finds it."""

    name: str
    module: Any
    wrong: Callable[[Any], Any]
    cell: str


def _result(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The right function with its result changed."""
    return lambda right: lambda *args, **kwargs: change(right(*args, **kwargs))


def _earlier(right: Any) -> Any:
    return lambda attributes, base_timestamp, now_ms: right(attributes, base_timestamp, now_ms - 1)


def _none_beyond(right: Any) -> Any:
    return lambda first, total: right(0 if first == 0 else total, total)


def _without_producers(found: Any) -> Any:
    return LastRecords.of(data_offsets=(), marker_epochs=()), found[1]


def _without_markers(found: Any) -> Any:
    last_records, damaged = found
    return LastRecords.of(data_offsets=last_records.data_offsets.tolist(), marker_epochs=()), damaged


def _every_batch(_: Any) -> Any:
    return lambda _self, batches, **_: np.arange(len(batches))


def _forgetful(_: Any) -> Any:
    """Begins again with every segment (C-33)."""
    return lambda _self, events: right_ended(OpenTransactions(), events)


def _indexed_nevertheless(right: Any) -> Any:
    return lambda chunk, rows: right(chunk, replace(rows, excluded=np.zeros_like(rows.excluded)))


right_ended = OpenTransactions.ended


def _all_dirty(found: Any) -> Any:
    return replace(found, bounds=replace(found.bounds, first_dirty_offset=0))


def _sparse(plan: Any) -> Any:
    return replace(plan, limits=replace(plan.limits, index_interval_bytes=2 * plan.limits.index_interval_bytes))


def _one_less(plan: Any) -> Any:
    return replace(plan, end_offset=plan.end_offset - 1)


MISTAKES = [
    Mistake("new_horizon_ms", rewrite, _result(lambda ms: ms + 1), "at the horizon, zstd"),
    Mistake("expired", evidence, _earlier, "horizon now"),
    Mistake("tombstones", evidence, _result(np.zeros_like), "a batch of one tombstone"),
    Mistake("LONG_MAX", tombstone, lambda right: right - 1, "the last horizon that fits (C-50)"),
    Mistake("bits_from", retention, _none_beyond, "expired tombstones beyond the end stay (C-45.1)"),
    Mistake("read_last_records", planning, _result(_without_producers), "a superseded last batch stays, lz4"),
    Mistake("protected", LastRecords, _every_batch, "only the last batch is protected (C-39.1)"),
    Mistake("protected", LastRecords, _every_batch, "when it expires"),
    Mistake("read_last_records", planning, _result(_without_markers), "only markers are known: the epoch's one stays"),
    Mistake("ended", OpenTransactions, _forgetful, "row: an aborted transaction over two segments"),
    Mistake("ended", OpenTransactions, _result(np.ones_like), "an empty transaction's marker at its horizon"),
    Mistake("ended", OpenTransactions, _result(np.zeros_like), "committed"),
    Mistake("covers", AbortedTransactions, _result(np.zeros_like), "aborted"),
    Mistake("keyed_rows", indexing, _indexed_nevertheless, "aborted data shadows nothing (C-19)"),
    Mistake("end_of_group", deciding, lambda _: lambda actions, __: actions, "the last batch is keyless"),
    Mistake(
        "survey_log", partition_snapshot, _result(_all_dirty), "first dirty inside a batch, between its duplicates (6)"
    ),
    Mistake("make_plan", strategy, _result(_one_less), "inside a batch: 3 keys, up to 3"),
    Mistake("make_plan", strategy, _result(_sparse), "an index entry every 200 bytes"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.name}: {mistake.cell}")
def test_a_planted_mistake_is_noticed(
    judge_43: Judge, work: Path, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    """The cell passes; with the mistake it does not."""
    cell = CELLS[mistake.cell]
    cell.check(judge_43, work / "right")
    # the planted mistake
    monkeypatch.setattr(mistake.module, mistake.name, mistake.wrong(getattr(mistake.module, mistake.name)))
    with pytest.raises(AssertionError):
        cell.check(judge_43, work / "wrong")
