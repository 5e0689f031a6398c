"""Speed compared with Kafka's own cleaner, on copies of the same logs, in one run (U-30).

CPU time, because the machine is shared, of both whole processes: cleanerd's with fsync and verification, minus a start
on an empty directory; Kafka's in a JVM that is warm, with the options that Kafka's own scripts give a broker. The two
take turns, so that other load affects both, and the least of every is compared.

Environment: ``BENCH_SIZE`` (bytes of every log, uncompressed; default 500MiB), ``BENCH_REPEAT`` (passes, default 4).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd_lab.bench.generate import SHAPES, LogShape, make_log
from cleanerd_lab.bench.whole import clean_copies, start_cost
from cleanerd_lab.bench.yardstick import copy_seconds, floor_seconds
from tests.bench.kafkas import kafkas_clean
from tests.bench.sizes import REPEAT, RESULTS, SEGMENTS, SIZE_BYTES
from tests.kafka.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.bench.process import Cost

LEAST_TIMES_FASTER: Final = {"a80": 6.0, "a10": 6.0, "single": 4.0, "lz4": 3.0, "zstd": 3.0}


@dataclass(frozen=True, slots=True)
class Comparison:
    """One log: CPU ns per record of both (least and median of all passes), and the reference values.

    ``kafka`` is the whole JVM, ``kafka_thread`` the cleaner's thread alone, without its garbage collector.
    """

    log: str
    records: int
    bytes: int
    kafka: float
    kafka_median: float
    kafka_thread: float
    ours: float
    ours_median: float
    floor: float
    wall_seconds: float
    copy_seconds: float

    @property
    def times_faster(self) -> float:
        """Compared with the whole JVM."""
        return self.kafka / self.ours

    @property
    def times_faster_than_thread(self) -> float:
        """Compared with the cleaner's thread alone."""
        return self.kafka_thread / self.ours

    def row(self) -> str:
        return (
            f"{self.log:8}{self.kafka:8.0f}{self.kafka_median:8.0f}{self.kafka_thread:8.0f}"
            f"{self.ours:8.0f}{self.ours_median:8.0f}{self.times_faster:7.1f}x{self.times_faster_than_thread:7.1f}x"
            f"{LEAST_TIMES_FASTER[self.log]:6.0f}x{self.floor:8.0f}{self.ours / self.floor:8.1f}"
            f"{self.wall_seconds / self.copy_seconds:8.1f}"
        )


TITLES: Final = (
    f"{'log':8}{'Kafka':>8}{'median':>8}{'thread':>8}{'ours':>8}{'median':>8}{'faster':>8}{'/ thr.':>8}{'least':>7}"
    f"{'limit*':>8}{'/ limit':>8}{'/ cp**':>8}"
)
NOTES: Final = (
    "CPU ns a record. Kafka: its whole JVM, warm; thread: its cleaner's alone; ours: the whole process less its\n"
    "start. faster, / thr.: Kafka's least, and its thread's, over our least; least: what is asserted of the first.\n"
    "*  reading the log twice and checksumming it once.  ** wall of our whole process over cp of in + out."
)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge("4.3", benchmark=True) as judge:
        yield judge


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Cost:
    return start_cost(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def table() -> Iterator[list[Comparison]]:
    rows: list[Comparison] = []
    yield rows
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "speed.json").write_text(json.dumps({"kafka": [asdict(row) for row in rows]}, indent=2) + "\n")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    sys.stdout.write("\n\n" + "\n".join([TITLES, *(row.row() for row in rows), "", NOTES, f"Load: {load}", ""]))


@pytest.mark.bench
@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_times_faster_than_kafkas_cleaner(
    shape: LogShape, judge: Judge, start: Cost, table: list[Comparison], tmp_path: Path
) -> None:
    """U-30: CPU per record of the whole process, at most a sixth (a fourth, a third) of Kafka's."""
    log = make_log(
        tmp_path / "log", shape, unpacked_bytes=SIZE_BYTES, segment_bytes=max(SIZE_BYTES // SEGMENTS, 65_536)
    )
    kafkas_clean(judge, log, tmp_path)  # warms the JVM up
    ours, theirs = [], []
    for _ in range(REPEAT):
        ours.append(clean_copies(log, tmp_path, repeat=1))
        theirs.append(kafkas_clean(judge, log, tmp_path))
    kafka = [each.process_cpu_ns / log.records for each in theirs]
    least = min(ours, key=lambda clean: clean.cost.cpu_seconds)
    comparison = Comparison(
        log=shape.name,
        records=log.records,
        bytes=log.log_bytes,
        kafka=min(kafka),
        kafka_median=statistics.median(kafka),
        kafka_thread=min(each.cpu_ns for each in theirs) / log.records,
        ours=least.cpu_ns_per_record(start),
        ours_median=statistics.median(clean.cpu_ns_per_record(start) for clean in ours),
        floor=floor_seconds(log.partition_dir, repeat=5) * 1e9 / log.records,
        wall_seconds=least.cost.wall_seconds,
        copy_seconds=copy_seconds(
            [log.partition_dir, tmp_path / "cleaned" / log.partition_dir.name], tmp_path, repeat=REPEAT
        ),
    )
    table.append(comparison)
    assert least.records_read == log.records
    assert comparison.times_faster >= LEAST_TIMES_FASTER[shape.name], comparison
