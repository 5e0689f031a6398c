"""The matrix of strategies, codecs and shapes: each cell cleaned by a real Spark session, and by the local engine.

``python -m tests.spark.matrix MASTER PLACE NUMBER...`` runs cells in a new process, which can have another session than
the tests': one line per cell, and exit code 1 when one of them differs from the local engine's result in a byte.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.cleaner.driver import config
from tests.spark.both_engines import all_dirty, assert_same_staged, stage_by_spark, stage_locally
from tests.spark.rich_log import NOW_MS, RichLog
from tests.spark.sessions import ON_A_CLUSTER, SHORT, start_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
SHARDS: Final = (1, 3, 16)
MASTERS: Final = ("local[1]", "local[2]")
STRATEGIES: Mapping[str, Mapping[str, object]] = {
    "offset": {},
    "timestamp": {"compaction_strategy": "timestamp"},
    "header": {"compaction_strategy": "header", "compaction_strategy_header": "version"},
}
MODES: Mapping[str, Mapping[str, object]] = {
    "null": {},
    "flag": {"tombstone_mode": "flag"},
    "header": {"tombstone_mode": "header", "tombstone_header": "deleted"},
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination; ``number`` is its index in :data:`CELLS`, and the seed of its log."""

    number: int
    strategy: str
    mode: str
    codec: str
    transactions: bool
    shards: int

    def __str__(self) -> str:
        name = f"{self.strategy}-{self.mode}-{self.codec}-{self.shards}"
        return f"{name}-transactions" if self.transactions else name


CELLS: Final = [
    Cell(number, *values) for number, values in enumerate(product(STRATEGIES, MODES, CODECS, (False, True), SHARDS))
]


@dataclass(frozen=True, slots=True)
class Dropped:
    """What was removed in a cell: without any of it the cell would test little."""

    superseded: int
    tombstone: int
    aborted: int


def check(session: SparkSession, cell: Cell, place: Path) -> Dropped:
    """Clean the cell's log by both engines; ``place`` is a directory that is created and removed.

    Raises: AssertionError: other bytes.
    """
    topic = config(**STRATEGIES[cell.strategy], **MODES[cell.mode], segment_bytes=12_000, delete_retention_ms=100)
    log = RichLog(
        cell.number, codec=CODECS[cell.codec], transactions=cell.transactions, keys=(40, 100)[cell.number % 2]
    )
    try:
        path = log.write(place / "logs", 2, 30)
        # Half of them with a clean section, whose records only compete.
        first = log.offset // 2 if cell.number % 4 > 1 else 0
        options = all_dirty(NOW_MS, from_start=not first, first_dirty_offset=first or None)
        local = stage_locally(path, options, topic)
        found = stage_by_spark(session, path, options, topic, shards=cell.shards, split_bytes=4000)
        assert_same_staged(local, found)
        assert local.result.outcome == "staged"
        assert found.result.passes == cell.shards
        dropped = local.result.removed
        return Dropped(dropped.superseded, dropped.tombstone, dropped.aborted)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def pairwise() -> list[tuple[str, Cell]]:
    """A few (master, cell) in which every two values of any two dimensions meet, each chosen for the most new pairs."""
    every = [(master, cell) for master in MASTERS for cell in CELLS]
    missing = set().union(*map(pairs, every))
    chosen = []
    while missing:
        used = Counter(master for master, _ in chosen)
        best = max(every, key=lambda each: (len(pairs(each) & missing), -used[each[0]]))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def pairs(run: tuple[str, Cell]) -> set[object]:
    """Every two of its values, with their dimensions."""
    return set(combinations(enumerate((run[0], *astuple(run[1])[1:])), 2))


def enough(cells: Iterable[Cell], dropped: Iterable[Dropped]) -> None:
    """Assert that the cells were useful: everything removable was removed in some cell that allows it."""
    for cell, gone in zip(cells, dropped, strict=True):
        assert gone.superseded, cell
        assert bool(gone.aborted) == cell.transactions, cell
    assert sum(gone.tombstone for gone in dropped)


def run(session: SparkSession, cells: Sequence[Cell], place: Path) -> list[Dropped]:
    """All ``cells``; raises AssertionError at the first that is not right."""
    dropped = []
    for cell in cells:
        try:
            dropped.append(check(session, cell, place / str(cell)))
        except AssertionError as error:
            raise AssertionError(f"cell {cell.number} ({cell}): {error}") from error
    return dropped


def main() -> int:
    """The main function of a new process."""
    master, place, *numbers = sys.argv[1:]
    cells = [CELLS[int(number)] for number in numbers]
    session = start_session(master, SHORT if master.startswith("local") else ON_A_CLUSTER)
    started = time.monotonic()
    try:
        dropped = run(session, cells, Path(place))
    except AssertionError:
        traceback.print_exc()
        return 1
    finally:
        session.stop()
    reported = {"dropped": [astuple(each) for each in dropped], "seconds": time.monotonic() - started}
    sys.stdout.write(json.dumps(reported) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())


def in_a_child(master: str, cells: Sequence[Cell], place: Path, timeout: float) -> list[Dropped]:
    """Run the cells in a session of another process; its first failure becomes this one's."""
    command = [sys.executable, "-m", "tests.spark.matrix", master, str(place), *(str(cell.number) for cell in cells)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    report = json.loads(done.stdout)
    sys.stdout.write(f"\n{master}: {len(cells)} cells in {report['seconds']:.0f} s\n")
    return [Dropped(*each) for each in report["dropped"]]
