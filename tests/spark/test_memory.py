"""A worker's memory is limited by the setting of its offset map, and by nothing that grows with the log."""

from __future__ import annotations

import multiprocessing
import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd_lab.bench.generate import PARTITION, VERSION_HEADER, LogShape, make_log
from tests.cleaner.driver import config, resources
from tests.spark import both_engines
from tests.spark.faults import MeasuredMemory
from tests.spark.sessions import SHORT, start_session
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from pathlib import Path

MIB = 1 << 20
SHAPE = LogShape("memory", "128 B records, a tenth superseded, random versions", 128, 64, 0.1, versions=True)
TOPIC = config("bench", compaction_strategy="header", compaction_strategy_header=VERSION_HEADER)
OPTIONS = CleaningOptions(now_ms=1_900_000_000_000, force=True, from_start=True)


def log_of(place: Path, mib: int) -> Path:
    return make_log(place / str(mib), SHAPE, unpacked_bytes=mib * MIB, segment_bytes=64 * MIB).log_dir


def cleaned(place: Path, log_dir: Path, map_mib: int) -> tuple[float, float, int]:
    """The largest worker of ``choose`` and of all stages, in MiB; and shards. In this process's session."""
    place.mkdir()
    around = MeasuredMemory(place)
    given = resources(map_bytes=map_mib * MIB, chunk_bytes=MIB)
    both_engines.NAME = str(PARTITION)
    session = start_session("local[1,4]", {**SHORT, "spark.python.worker.reuse": "false"})
    found = both_engines.stage_by_spark(session, log_dir, OPTIONS, TOPIC, given, around=around, split_bytes=64 * MIB)
    assert found.result.outcome == "staged", found.result.reason
    return around.largest("choose"), around.largest(), found.result.passes


def measure(place: Path, answers: Queue[tuple[float, float, int]]) -> None:
    """In a new process, as every task is here: a worker keeps the memory that an earlier task has freed."""
    small, large = log_of(place, 160), log_of(place, 320)
    for number, (log_dir, map_mib) in enumerate([(small, 64), (small, 8), (large, 8)]):
        answers.put(cleaned(place / f"measured-{number}", log_dir, map_mib))


@pytest.mark.long
def test_a_worker_is_bounded_by_its_map(tmp_path: Path) -> None:
    """``log.cleaner.dedupe.buffer.size``: a map of 64 MiB takes more than one of 8.

    A log twice as large takes no more.
    """
    spawn = multiprocessing.get_context("spawn")
    answers: Queue[tuple[float, float, int]] = spawn.Queue()
    process = spawn.Process(target=measure, args=(tmp_path, answers))
    process.start()
    process.join(3 * PATIENCE_SECONDS)  # three cleanings, each with a session and a process a task
    assert process.exitcode == 0
    (with_64, most_64, few), (with_8, most_8, many), (twice, most_twice, more) = (
        answers.get(timeout=PATIENCE_SECONDS) for _ in "123"
    )
    reported = (
        f"choose {with_64=:.0f} {with_8=:.0f} {twice=:.0f}; all {most_64=:.0f} {most_8=:.0f} {most_twice=:.0f} MiB"
    )
    sys.stdout.write(f"\n{reported}; shards {few} {many} {more}\n")
    assert few < many < more
    assert with_64 - with_8 > 20, reported
    assert abs(twice - with_8) < 10, reported
    assert abs(most_twice - most_8) < 20, reported
