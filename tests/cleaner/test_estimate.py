"""The number of keys of a log, estimated from a few samples, and the pass that the estimate saves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.cleaner import estimate
from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.estimate import MARGIN, distinct_keys, extrapolate, first_shards
from cleanerd.cleaner.index import ChunkDecoding, DirtyIndex
from cleanerd.cleaner.map_size import MapPass, MapSizing
from cleanerd.segments.pool import ReaderPool
from cleanerd_lab.bench.generate import PARTITION, LogShape, make_log
from tests.cleaner.driver import Silent
from tests.cleaner.made_plan import MIB, plan_of, plan_of_shape

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan


def _true_keys(plan: CleaningPlan) -> int:
    with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool:
        ample = replace(plan, map_bytes=64 * MIB)
        decision = Cleaning(ample, pool, Silent()).decide()
    assert decision.passes == 1
    return decision.map_entries


@pytest.mark.long
@pytest.mark.parametrize("codec", [0, 3, 4])
@pytest.mark.parametrize("superseded", [0.002, 0.1, 0.5, 0.8, 0.99, 0.9999])
def test_uniform_keys(tmp_path: Path, superseded: float, codec: int) -> None:
    """U-20: within a fifth of the real number, from all keys distinct to a handful of them, compressed or not."""
    plan = plan_of_shape(tmp_path, LogShape("", "", 128, 64, superseded, codec=codec), 16 * MIB)
    assert distinct_keys(plan) == pytest.approx(_true_keys(plan), rel=0.2)


@pytest.mark.parametrize("size", [1, 20_000, 300_000])
def test_tiny_logs(tmp_path: Path, size: int) -> None:
    """Less than one batch per sample, and no range is counted twice."""
    plan = plan_of_shape(tmp_path, LogShape("", "", 128, 64, 0.5), size, segments=1)
    assert distinct_keys(plan) == pytest.approx(_true_keys(plan), rel=0.3)


def test_part_of_a_segment(tmp_path: Path) -> None:
    """U-20: only the dirty range counts, which begins and ends inside of segments."""
    make_log(tmp_path / "log", LogShape("", "", 128, 64, 0.01), unpacked_bytes=16 * MIB, segment_bytes=6 * MIB)
    for first, end in ((30_000, 110_000), (10_000, 30_000), (100_000, None)):
        plan = plan_of(tmp_path / "log", first_dirty_offset=first, up_to_offset=end)
        assert distinct_keys(plan) == pytest.approx(_true_keys(plan), rel=0.25)


def test_no_or_wrong_indexes(tmp_path: Path) -> None:
    """Without indexes segments are sampled at their beginnings; positions inside of a batch give nothing."""
    plan = plan_of_shape(tmp_path, LogShape("", "", 128, 64, 0.1), 16 * MIB, segments=16)
    expected = _true_keys(plan)
    indexes = sorted((tmp_path / "log" / str(PARTITION)).glob("*.index"))
    for path in indexes[::2]:
        content = np.frombuffer(path.read_bytes(), ">i4").copy()
        content[1::2] += 1
        path.write_bytes(content.tobytes())
    for path in indexes[1::2]:
        path.unlink()
    assert distinct_keys(plan) == pytest.approx(expected, rel=0.3)
    for path in (tmp_path / "log" / str(PARTITION)).glob("*.log"):
        path.write_bytes(bytes(path.stat().st_size))
    assert distinct_keys(plan) == 0, "phase 1 will report the damage"
    assert first_shards(plan, 1) == 1


def _stretches(total: int, *, hot: int, fresh: int, repeats: int) -> list[np.ndarray[tuple[int], np.dtype[np.uint64]]]:
    """Distinct keys of ``total`` samples: the ``hot`` ones in all, ``fresh`` ones that come in ``repeats``."""
    everywhere = np.arange(hot, dtype=np.uint64)
    return [
        np.concatenate([everywhere, np.arange(fresh, dtype=np.uint64) + np.uint64(hot + row // repeats * fresh)])
        for row in range(total)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("hot", "fresh"), [(1000, 0), (1000, 10), (1000, 100), (0, 1000), (0, 30)])
def test_hot_keys_and_new_ones(hot: int, fresh: int) -> None:
    """If a few keys make most records and the others never come back, the others are most of the keys."""
    everything = _stretches(1000, hot=hot, fresh=fresh, repeats=1)
    true = len(np.unique(np.concatenate(everything)))
    assert true * 0.85 <= extrapolate(everything[::32], 1000.0) <= true * 1.05


def test_a_complete_sample_adds_nothing() -> None:
    """When everything was sampled, the sampled keys are all keys."""
    everything = _stretches(8, hot=5, fresh=7, repeats=2)
    assert extrapolate(everything, 8.0) == 5 + 4 * 7


def test_no_unnecessary_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-20: enough shards from the start, hardly more than needed: every index pass is the first of its shard."""
    plan = replace(plan_of_shape(tmp_path, LogShape("", "", 128, 64, 0.3), 16 * MIB), map_bytes=256 * 1024)
    passes = _count_passes(monkeypatch)
    with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool:
        decision = Cleaning(plan, pool, Silent()).decide()
    assert passes == list(range(decision.passes))
    capacity = int(256 * 1024 * 0.85 / 16)
    assert decision.map_entries / capacity <= decision.passes <= MARGIN * 1.2 * decision.map_entries / capacity + 1


def test_a_low_estimate_costs_time_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-20: a map that fills up doubles the shards, and phase 1 starts again."""
    plan = replace(plan_of_shape(tmp_path, LogShape("", "", 128, 64, 0.3), 4 * MIB), map_bytes=128 * 1024)
    with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool:
        right = Cleaning(plan, pool, Silent()).decide()
        passes = _count_passes(monkeypatch)
        again = Cleaning(plan, pool, Silent(), MapSizing(distinct_keys=lambda _plan: 1.0)).decide()
    assert passes == [0, 0, *range(again.passes)]
    assert again.passes == 4
    assert again.map_entries == right.map_entries
    for one, other in zip(right.segments, again.segments, strict=True):
        assert np.array_equal(one.keep, other.keep)


def test_nothing_is_read_when_all_offsets_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upper bound without cost: every offset may be a key."""
    plan = plan_of_shape(tmp_path, LogShape("", "", 128, 64, 0.3), 1 * MIB)
    offsets = plan.end_offset - plan.first_dirty_offset
    monkeypatch.delattr(estimate, "distinct_keys")
    assert first_shards(plan, offsets) == 1
    with pytest.raises(NameError):
        first_shards(plan, offsets - 1)


def _count_passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The shard of every index pass from now on."""
    passes: list[int] = []
    build = DirtyIndex.build

    def counted(index: DirtyIndex, decoder: ChunkDecoding, keys: MapPass) -> None:
        passes.append(keys.shard)
        build(index, decoder, keys)

    monkeypatch.setattr(DirtyIndex, "build", counted)  # an unnecessary pass leaves no trace
    return passes
