"""The plan of a cleaning of an artificial log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.pool import ReaderPool
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd_lab.bench.generate import PARTITION, LogShape, make_log
from tests.cleaner.driver import config, resources

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan

MIB = 1024 * 1024
NOW_MS = 1_800_000_000_000


def plan_of_shape(tmp_path: Path, shape: LogShape, size: int, *, segments: int = 4, **changes: object) -> CleaningPlan:
    """A plan for an artificial log of ``size`` bytes before compression."""
    log = make_log(tmp_path / "log", shape, unpacked_bytes=size, segment_bytes=size // segments)
    return plan_of(log.log_dir, **changes)


def plan_of(path: Path, **wished: object) -> CleaningPlan:
    log_dir = read_log_dir(path)
    options = CleaningOptions(now_ms=NOW_MS, force=True, **wished)  # type: ignore[arg-type]
    found = survey(log_dir, PARTITION, config(PARTITION.topic), StateStore(path.parent / "state"), options)
    with ReaderPool(str(path / str(PARTITION)), workers=1, chunk_bytes=MIB) as pool:
        return make_plan(log_dir, found, resources(map_bytes=1 << 20), options, pool.reader)
