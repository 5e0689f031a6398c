"""Transactions: aborted data, markers and their horizons, indexes, open transactions (KIP-98 in a compacted log)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.format.index import TXN_ENTRY
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.differential.cell import Cell, parameters
from tests.differential.cells.transactions import CELLS
from tests.differential.duel import NAME, NO_OFFSET, clean_ours, prepare, put_checkpoint
from tests.differential.history import DAY_MS, NOW, History, Turn, batch, log
from tests.differential.transaction_cells import (
    RETENTION_MS,
    abort,
    commit,
    tx,
)
from tests.kafka.log_spec import Round, ToLoad

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_transaction(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-18, C-19, C-33..C-43, C-48, C-69, S-04, S-56, U-12, R192-1, R192-3: as Kafka's, transaction indexes too."""
    cell.check(judge_43, work)


def test_u12_last_stable_offsets_of_a_follower(judge_43: Judge, work: Path) -> None:
    """U-12: a follower writes last stable offsets that are too high.

    Kafka's cleaner uses them and misses a transaction.

    It treats the missed transaction as committed, which loses a key's value in this case. cleanerd reads all entries.
    """
    full, theirs, ours = (work / side / str(NAME) for side in ("full", "theirs", "ours"))
    sealed = [batch(0, "a=1 b=1"), tx(1, 2, "x=1"), tx(2, 3, "a=2")]
    segments = log(sealed, [abort(1, 4), abort(2, 5), batch(6, "c=1")])[:2]
    judge_43.make(full, segments, now_ms=NOW)
    ours.parent.mkdir()
    (index,) = full.glob("*.txnindex")
    entries = np.frombuffer(index.read_bytes(), TXN_ENTRY).copy()
    assert entries["last_stable_offset"].tolist() == [3, 6], "as the leader has them"
    entries["last_stable_offset"] = 6
    index.write_bytes(entries.tobytes())
    bound = 4
    shutil.copytree(full, ours)
    prepare(ours.parent)
    config = {"delete.retention.ms": str(RETENTION_MS)}
    judge_43.clean(theirs, [Round(NOW, 0, bound)], source=full, config=config)
    history = History(segments, config=config, producer_expiration_ms=20 * DAY_MS)
    result = clean_ours(ours.parent, StateStore(work / "state"), history, Turn(NOW))
    assert result.end_offset == bound
    left = {side: {record.offset for record in judge_43.dump(side).records} for side in (theirs, ours)}
    assert left[theirs] == {1, 3, 6}, "U-26: Kafka has lost a=1 to aborted data"
    assert left[ours] == {0, 1, 6}


@pytest.mark.long
def test_a_transaction_that_ends_a_group(judge_43: Judge, work: Path) -> None:
    """U-13, C-37: the emptied batch that ends a group keeps its marker: without it the transaction would look open.

    Kafka drops the batch in the first cleaning, so its marker is one cleaning ahead; both end with the same.
    """
    full, theirs, ours = (work / side / str(NAME) for side in ("full", "theirs", "ours"))
    segments = log([batch(0, "a=1"), tx(1, 1, "a=2")], 3, [abort(1, 4), batch(5, "c=1 c=2")], [batch(7, "d=1")])
    judge_43.make(full, segments, now_ms=NOW)
    ours.parent.mkdir()
    prepare(ours.parent)
    shutil.copytree(full, ours)
    shutil.copytree(full, theirs)
    config = {"delete.retention.ms": str(RETENTION_MS)}
    history = History(segments, config=config, producer_expiration_ms=1)
    store = StateStore(work / "state")
    found: dict[Path, list[tuple[bool, bool, bool]]] = {theirs: [], ours: []}
    bounds = [3, 7, 7, 7, 7]
    for row, bound in enumerate(bounds):
        now_ms = NOW + row * RETENTION_MS
        judge_43.clean(theirs, [Round(now_ms, 0, bound)], config=config, producer_expiration_ms=1)
        clean_ours(ours.parent, store, history, Turn(now_ms, from_start=True), up_to_offset=bound)
        for side, states in found.items():
            batches = {b.base: b for b in judge_43.dump(side).batches}
            marker = batches.get(4)
            states.append((1 in batches, marker is not None, marker is not None and marker.delete_horizon is not None))
        (loaded,) = judge_43.load([ToLoad(str(work / f"load-{row}" / str(NAME)), source=str(ours))], now_ms=now_ms)
        assert all(producer.txn_first_offset == NO_OFFSET for producer in loaded.producers)
    absent, waits, there = (False, False, False), (False, True, True), (False, True, False)
    assert found[theirs] == [there, waits, absent, absent, absent]
    assert found[ours] == [(True, True, False), there, waits, absent, absent]
    assert {r.offset for r in judge_43.dump(ours).records} == {r.offset for r in judge_43.dump(theirs).records}


def test_committed_data_behind_an_abort_marker(judge_43: Judge, work: Path) -> None:
    """C-19: if the dirty section begins after an abort marker in its segment, Kafka never reads that marker.

    It treats the producer's committed data as aborted, leaves it out of its map, and the older records stay. cleanerd
    removes them.
    """
    full, theirs, ours = (work / side / str(NAME) for side in ("full", "theirs", "ours"))
    sealed = [batch(0, "k=1"), tx(1, 1, "x=1"), abort(1, 2), tx(1, 3, "k=2", sequence=1), commit(1, 4)]
    segments = log(sealed, [batch(5, "c=1")])[:2]
    judge_43.make(full, segments, now_ms=NOW, config={"index.interval.bytes": "0"})
    ours.parent.mkdir()
    shutil.copytree(full, ours)
    prepare(ours.parent)
    put_checkpoint(ours.parent, "cleaner-offset-checkpoint", 3)
    judge_43.clean(theirs, [Round(NOW, 3)], source=full, config={"index.interval.bytes": "0"})
    clean_ours(ours.parent, StateStore(work / "state"), History(segments), Turn(NOW))
    left = {side: {record.offset for record in judge_43.dump(side).records} for side in (theirs, ours)}
    assert left[theirs] == {0, 3, 5}, "U-26: Kafka missed that 3 is committed"
    assert left[ours] == {3, 5}
