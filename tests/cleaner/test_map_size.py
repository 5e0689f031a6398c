"""The size of a map: by the expected keys, within the limit; a wrong estimate costs only time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.map_size import SIZING, MapSize, MapSizing, most_bytes
from cleanerd.errors import CleanerdError
from cleanerd.segments.pool import ReaderPool
from cleanerd_lab.bench.generate import LogShape
from tests.cleaner.driver import Silent
from tests.cleaner.made_plan import plan_of_shape

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.decide import Decision
    from cleanerd.cleaner.plan import CleaningPlan

MIB = 1024 * 1024
OFTEN = LogShape("", "", 128, 64, 0.98)
SELDOM = LogShape("", "", 128, 64, 0.1)


GUESSING = MapSizing(worth_a_guess_bytes=128 * 1024)


def _decision(plan: CleaningPlan, sizing: MapSizing = SIZING) -> Decision:
    with ReaderPool(plan.path, workers=1, chunk_bytes=MIB) as pool:
        return Cleaning(plan, pool, Silent(), sizing).decide()


def test_few_keys_take_a_small_map(tmp_path: Path) -> None:
    """U-19: without space for every offset, if most of them repeat a key; and no key is without space."""
    plan = replace(plan_of_shape(tmp_path, OFTEN, 16 * MIB), map_bytes=64 * MIB)
    size = GUESSING.first_size(plan)
    assert size.shards == 1
    assert 128 * 1024 <= size.bytes < most_bytes(plan) / 8
    assert _decision(plan, GUESSING).passes == 1


def test_many_keys_take_all_that_the_offsets_need(tmp_path: Path) -> None:
    plan = replace(plan_of_shape(tmp_path, SELDOM, 16 * MIB), map_bytes=64 * MIB)
    assert GUESSING.first_size(plan) == MapSize(most_bytes(plan), 1)


def test_a_small_map_is_not_estimated(tmp_path: Path) -> None:
    """Reading samples costs more than a map of a few MiB can save."""
    plan = replace(plan_of_shape(tmp_path, OFTEN, 4 * MIB), map_bytes=64 * MIB)

    def unexpected(*_: object, **__: object) -> float:
        raise AssertionError("samples were read")

    assert MapSizing(distinct_keys=unexpected).first_size(plan) == MapSize(most_bytes(plan), 1)


def test_a_low_estimate_changes_nothing(tmp_path: Path) -> None:
    """U-20: phase 1 starts again with all the memory that the range may need, before keys are cut into shards."""
    plan = replace(plan_of_shape(tmp_path, SELDOM, 16 * MIB), map_bytes=64 * MIB)
    expected = _decision(plan)
    tried: list[MapSize] = []

    class Watched(MapSizing):
        def next_size(self, plan: CleaningPlan, size: MapSize) -> MapSize | None:
            tried.append(size)
            return MapSizing.next_size(self, plan, size)

    found = _decision(plan, Watched(128 * 1024, distinct_keys=lambda *_, **__: 10.0))
    assert tried == [MapSize(128 * 1024, 1)]
    assert found.passes == expected.passes == 1
    for ours, theirs in zip(found.segments, expected.segments, strict=True):
        assert ours.keep.tolist() == theirs.keep.tolist()
        assert ours.actions.tolist() == theirs.actions.tolist()


def test_keys_that_fit_no_number_of_shards_are_an_error(tmp_path: Path) -> None:
    """U-20: shards double up to a limit; then the error names the setting."""
    plan = replace(plan_of_shape(tmp_path, SELDOM, MIB), map_bytes=1, map_load=0.01)
    with pytest.raises(CleanerdError, match="do not fit 4 passes") as error:
        _decision(plan, MapSizing(max_shards=4, distinct_keys=lambda *_: 0.0))
    assert error.value.hint == "raise log.cleaner.dedupe.buffer.size"
