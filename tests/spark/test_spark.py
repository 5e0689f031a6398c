"""The same bytes with Spark itself: its shuffles, its retries, its workers that die."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.manifest import STAGING
from cleanerd.errors import CorruptionError
from tests.cleaner.driver import NAME, config, resources
from tests.spark.both_engines import all_dirty, assert_same_staged, stage_by_spark, stage_locally
from tests.spark.faults import FirstAttempts
from tests.spark.rich_log import NOW_MS, RichLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BY_HEADER = {"compaction_strategy": "header", "compaction_strategy_header": "version"}
TOPIC = config(**BY_HEADER, segment_bytes=4000, delete_retention_ms=100)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Versions, tombstones that may go, transactions."""
    return RichLog(3, codec=4, transactions=True, keys=900).write(tmp_path / "logs", 5, 25)


@pytest.mark.parametrize("shards", [3, pytest.param(1, marks=pytest.mark.long)])
def test_the_same_bytes(spark: SparkSession, log_dir: Path, shards: int) -> None:
    """OP-2 through every kind of job: versions, transactions, a proof that tombstones may go (U-1)."""
    local = stage_locally(log_dir, all_dirty(NOW_MS), TOPIC)
    assert local.result.removed.tombstone
    assert local.result.removed.aborted
    found = stage_by_spark(spark, log_dir, all_dirty(NOW_MS), TOPIC, shards=shards, split_bytes=900)
    assert_same_staged(local, found)
    assert found.result.passes == shards


@pytest.mark.long
@pytest.mark.parametrize("how", ["raise", *(pytest.param(how, marks=pytest.mark.long) for how in ("kill", "twice"))])
def test_first_attempts_that_fail(spark: SparkSession, log_dir: Path, tmp_path: Path, how: str) -> None:
    """A task of every stage fails once at its end, or all are done twice: the same files, no others."""
    local = stage_locally(log_dir, all_dirty(NOW_MS), TOPIC)
    (tmp_path / "faults").mkdir()
    around = FirstAttempts(tmp_path / "faults", how)
    found = stage_by_spark(spark, log_dir, all_dirty(NOW_MS), TOPIC, shards=2, split_bytes=8000, around=around)
    assert_same_staged(local, found)
    stages = {name.name.rsplit("-", 2)[0] for name in (tmp_path / "faults").iterdir()}
    assert stages >= {"scan", "choose", "settle", "decide", "rewrite", "prove", "guard"}


@pytest.mark.long
def test_damage_is_reported_and_leaves_nothing(spark: SparkSession, log_dir: Path) -> None:
    """A damaged batch: the error of the local engine, and an unchanged log."""
    victim = sorted((log_dir / NAME).glob("*.log"))[1]
    data = bytearray(victim.read_bytes())
    data[-3] ^= 1
    victim.write_bytes(bytes(data))
    local = stage_locally(log_dir, all_dirty(NOW_MS), TOPIC)
    found = stage_by_spark(spark, log_dir, all_dirty(NOW_MS), TOPIC, split_bytes=900)
    assert isinstance(found.result.error, CorruptionError)
    assert (found.result.outcome, found.result.reason) == (local.result.outcome, local.result.reason)
    assert not (log_dir / NAME / STAGING).exists()


@pytest.mark.long
def test_maps_that_are_too_small(spark: SparkSession, log_dir: Path) -> None:
    """U-20: more keys than all maps together take: more shards, the same bytes."""
    given = resources(map_bytes=1, map_load=0.05)
    local = stage_locally(log_dir, all_dirty(NOW_MS), TOPIC, given)
    found = stage_by_spark(spark, log_dir, all_dirty(NOW_MS), TOPIC, given, shards=1)
    assert_same_staged(local, found)
    assert 2 < found.result.passes < 100
    assert json.dumps(found.result.to_json())
