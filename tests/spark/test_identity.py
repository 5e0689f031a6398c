"""Spark stages what the local engine stages, byte for byte: whatever the rules, the log and the cuts."""

from __future__ import annotations

import pytest

from tests.cleaner.driver import scratch
from tests.cleaner.test_cleaning import World
from tests.spark.inline import InlineJobs
from tests.spark.twins import assert_twins, stage_inline, stage_locally


@pytest.mark.parametrize("seed", range(30))
def test_random_logs(seed: int) -> None:
    with scratch() as root:
        world = World(root, seed, 5, 12)
        topic, wishes, given = world.topic(), world.wishes(), world.means()
        local = stage_locally(world.path, wishes, topic, given)
        jobs = InlineJobs(seed)
        assert_twins(
            local, stage_inline(world.path, wishes, topic, given, jobs=jobs, shards=1 + seed % 4, split_bytes=600)
        )
