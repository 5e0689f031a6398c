"""What bounds a worker's memory is its map's setting, and nothing that grows with the log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd.bench.generate import PARTITION, VERSION_HEADER, Shape, make_log
from cleanerd.cleaner.survey import Wishes
from tests.cleaner.driver import config, means
from tests.spark import twins
from tests.spark.faults import MeasuredMemory

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MIB = 1 << 20
SHAPE = Shape("memory", "128 B records, a tenth superseded, random versions", 128, 64, 0.1, versions=True)
TOPIC = config("bench", compaction_strategy="header", compaction_strategy_header=VERSION_HEADER)
WISHES = Wishes(now_ms=1_900_000_000_000, force=True, from_start=True)


def log_of(place: Path, mib: int) -> Path:
    return make_log(place / str(mib), SHAPE, unpacked_bytes=mib * MIB, segment_bytes=16 * MIB).log_dir


def test_a_worker_is_bounded_by_its_map(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``log.cleaner.dedupe.buffer.size``: 64 MiB for a map take more than 8 do; a log twice as large takes no more."""
    monkeypatch.setattr(twins, "NAME", str(PARTITION))
    small, large = log_of(tmp_path, 160), log_of(tmp_path, 320)

    def measured(log_dir: Path, map_mib: int) -> tuple[float, float, int]:
        """Largest worker of ``choose`` and of all stages, in MiB; shards."""
        place = tmp_path / f"{log_dir.name}-{map_mib}"
        place.mkdir()
        around = MeasuredMemory(place)
        given = means(map_bytes=map_mib * MIB, chunk_bytes=MIB)
        found = twins.stage_by_spark(spark, log_dir, WISHES, TOPIC, given, around=around, split_bytes=16 * MIB)
        assert found.result.outcome == "staged", found.result.reason
        return around.largest("choose"), around.largest(), found.result.shards

    with_64, _, few = measured(small, 64)
    with_8, all_small, many = measured(small, 8)
    twice, all_large, more = measured(large, 8)
    told = f"{with_64=:.0f} {with_8=:.0f} {twice=:.0f} {all_small=:.0f} {all_large=:.0f} {few=} {many=} {more=}"
    sys.stdout.write(f"\n{told}\n")
    assert few < many < more, told
    assert with_64 - with_8 > 15, told
    assert twice - with_8 < 8, told
    assert all_large - all_small < 0.15 * all_small, told
