"""Cost of versions: CPU of the process compared with ``offset`` on the same log, and bytes per key (U-19, R280-8).

Environment: ``BENCH_SIZE`` and ``BENCH_REPEAT`` as in test_speed.py.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from cleanerd._kernel import OffsetMap
from cleanerd_lab.bench.generate import PARTITION, SHAPES, VERSION_HEADER, LogShape, MadeLog, make_log
from cleanerd_lab.bench.whole import WholeClean, clean_copies, start_cost
from tests.bench.sizes import REPEAT, RESULTS, SEGMENTS, SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.bench.process import Cost

MOST_TIMES_OFFSET: Final = 1.5
MOST_BYTES_A_KEY: Final = {"offset": 20, "versions": 30}
STRATEGIES: Final = {
    "timestamp": ("compaction.strategy=timestamp",),
    "header": ("compaction.strategy=header", f"compaction.strategy.header={VERSION_HEADER}"),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """CPU ns per record."""

    log: str
    offset: float
    timestamp: float
    header: float

    def row(self) -> str:
        return (
            f"{self.log:8}{self.offset:8.0f}{self.timestamp:11.0f}{self.timestamp / self.offset:6.2f}x"
            f"{self.header:8.0f}{self.header / self.offset:6.2f}x"
        )


@pytest.fixture(scope="module")
def table() -> Iterator[list[Measured]]:
    rows: list[Measured] = []
    yield rows
    title = f"{'log':8}{'offset':>8}{'timestamp':>11}{'':7}{'header':>8}"
    sys.stdout.write(
        "\n\n" + "\n".join(["CPU ns a record, all with a version header:", title, *(r.row() for r in rows)])
    )


def versioned(shape: LogShape) -> LogShape:
    return LogShape(
        shape.name, shape.label, shape.record_bytes, shape.batch_records, shape.superseded, shape.codec, True
    )


@pytest.mark.bench
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_versions_cost_at_most_half_as_much_again(shape: LogShape, table: list[Measured], tmp_path: Path) -> None:
    """At most 1.5 times the CPU of ``offset`` on the same log."""
    start = start_cost(tmp_path)
    size = max(SIZE_BYTES // SEGMENTS, 65_536)
    log = make_log(tmp_path / "log", versioned(shape), unpacked_bytes=SIZE_BYTES, segment_bytes=size)
    cpu = {name: _cpu(log, tmp_path, start, settings) for name, settings in {"offset": (), **STRATEGIES}.items()}
    measured = Measured(shape.name, **cpu)
    table.append(measured)
    assert max(measured.timestamp, measured.header) <= MOST_TIMES_OFFSET * measured.offset, measured


def _cpu(log: MadeLog, work_dir: Path, start: Cost, settings: tuple[str, ...]) -> float:
    given = ["cleanerd.delegation=assumed", *(f"topics.{PARTITION.topic}.{setting}" for setting in settings)]
    cleaned: WholeClean = clean_copies(log, work_dir, repeat=REPEAT, settings=given)
    assert cleaned.records_read == log.records
    return cleaned.cpu_ns_per_record(start)


@pytest.mark.bench
@pytest.mark.parametrize("versions", [False, True])
def test_bytes_a_key(versions: bool) -> None:
    """U-19: the map's bytes per key when filled up to its load, and its identity bits."""
    memory_bytes = 64 << 20
    offset_map = OffsetMap(memory_bytes, versions=versions)
    most = MOST_BYTES_A_KEY["versions" if versions else "offset"]
    found = offset_map.memory_bytes / offset_map.capacity
    hashes = np.random.default_rng(1).integers(0, 2**64, size=2 * offset_map.capacity, dtype=np.uint64)
    every = np.ones(offset_map.capacity, np.bool_)
    columns = {"version": np.zeros(len(every), np.int64), "has_version": every} if versions else {}
    assert offset_map.put_max(hashes, 0, every, **columns) == len(every), "it has room for the announced number of keys"
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "bytes_a_key.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | {"versions" if versions else "offset": found}) + "\n")
    assert found <= most
    assert offset_map.identity_bits >= 96
