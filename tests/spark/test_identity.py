"""Tasks and the local engine make byte-identical files of a staged cleaning: for any settings, log and split.

Without Spark: ``inline.py`` replaces its scheduler, runs every task twice and uses either result.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from cleanerd.format.index import read_txn_index
from tests.cleaner.driver import NAME, config, resources, scratch
from tests.cleaner.growing_log import GrowingLog
from tests.spark.both_engines import all_dirty, assert_same_staged, stage_inline, stage_locally
from tests.spark.inline import InlineJobs
from tests.spark.matrix import MODES, STRATEGIES
from tests.spark.rich_log import NOW_MS, RichLog

WAYS: dict[str, dict[str, Any]] = {
    "shuffled": {"shards": 3, "split_bytes": 900},
    "whole": {"whole_bytes": 1 << 40},
}


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 30))])
def test_random_logs(seed: int) -> None:
    """OP-2: by offsets, with every way to select a part of the log."""
    with scratch() as root:
        world = GrowingLog(root, seed, 5, 12)
        topic, options, given = world.topic(), world.options(), world.resources()
        local = stage_locally(world.path, options, topic, given)
        spark = stage_inline(
            world.path, options, topic, given, jobs=InlineJobs(seed), shards=1 + seed % 4, split_bytes=600
        )
        assert_same_staged(local, spark)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(3))
def test_indexes_that_the_markers_correct(seed: int, way: str) -> None:
    """U-44: some indexes have lost their entries."""
    with scratch() as root:
        log = RichLog(seed, transactions=True)
        path = log.write(root / "logs", 5, 25)
        for base in sorted(log.aborted)[:: 1 + seed % 2]:
            (path / NAME / f"{base:020d}.txnindex").write_bytes(b"")
        topic, options = config(segment_bytes=4000), all_dirty(NOW_MS)
        local = stage_locally(path, options, topic, resources())
        spark = stage_inline(path, options, topic, resources(), jobs=InlineJobs(seed), **WAYS[way])
        assert_same_staged(local, spark)
        assert any("the markers in the log decide" in note for note in spark.result.notes), spark.result.notes


@pytest.mark.parametrize("way", WAYS)
def test_an_ambiguous_index(way: str) -> None:
    """U-44: refused for the same reason, with the same solution."""
    with scratch() as root:
        log = RichLog(1, transactions=True)
        path = log.write(root / "logs", 5, 25)
        base = sorted(log.aborted)[1]
        file = path / NAME / f"{base:020d}.txnindex"
        entries = read_txn_index(file.read_bytes(), str(file)).copy()
        entries["first_offset"] = entries["last_offset"]
        file.write_bytes(entries.tobytes())
        local = stage_locally(path, all_dirty(NOW_MS))
        spark = stage_inline(path, all_dirty(NOW_MS), jobs=InlineJobs(1), **WAYS[way])
        assert (local.result.outcome, spark.result.outcome) == ("quarantined", "quarantined")
        assert "but the index says that it begins at offset" in local.result.reason
        assert spark.result.reason == local.result.reason


@pytest.mark.parametrize(("strategy", "mode", "transactions"), list(product(STRATEGIES, MODES, (False, True))))
def test_rules(strategy: str, mode: str, transactions: bool) -> None:
    """OP-2, U-1 for every strategy and kind of tombstone: with any codec, number of shards and dirty section."""
    topic = config(**STRATEGIES[strategy], **MODES[mode], segment_bytes=4000, delete_retention_ms=100)
    dropped: dict[str, int] = {"superseded": 0, "tombstone": 0, "aborted": 0}
    for seed in (0, 1, 2, 4, 7):
        with scratch() as root:
            log = RichLog(seed, codec=seed % 5, transactions=transactions, legacy=seed == 7, keys=(40, 900)[seed % 2])
            start = 25 if seed == 4 else None
            path = log.write(root / "logs", 5, 25, log_start_offset=start)
            wished: dict[str, Any] = {"from_start": True}
            if seed in (1, 4):
                wished = {"from_start": False, "first_dirty_offset": log.offset // 2}
            if seed == 2:
                wished["up_to_offset"] = log.offset // 3
            options = all_dirty(NOW_MS, **wished)
            given = resources(chunk_bytes=(700, 1 << 20)[seed % 2])
            local = stage_locally(path, options, topic, given)
            spark = stage_inline(
                path, options, topic, given, jobs=InlineJobs(seed), shards=(1, 2, 5, 16)[seed % 4], split_bytes=900
            )
            assert_same_staged(local, spark)
            for reason in dropped:
                dropped[reason] += getattr(local.result.removed, reason)
    assert dropped["superseded"]
    assert dropped["tombstone"]
    assert bool(dropped["aborted"]) == transactions
