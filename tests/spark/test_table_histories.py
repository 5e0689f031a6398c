"""A table that is updated through random histories of real cleanings, compared with a dictionary after every step."""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanerd.errors import RefusedError
from cleanerd.spark.logs import find_logs
from cleanerd.spark.tables.merge import merge_into, write_table
from cleanerd.verify.rules import KeyRules
from tests.cleaner.driver import config, scratch
from tests.cleaner.strategy_script import HEADER, MARKER, SHAPES, T0, Change, Clean, MoveStart, Script, Shape, Write
from tests.cleaner.strategy_world import DELETE_RETENTION_MS, FOR_EVER_MS, World, seen
from tests.spark.tables import Tables
from tests.support.length import at_length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.spark.logs import Log

HISTORIES = 8
LONG_HISTORIES = at_length(300)
SKEW_MS = 60_000
REFUSED = {
    "tombstones are removed after": "old",
    "are below the log start": "won",
    "other records are retained": "rules",
    "the records between, with their deletions, are missing": "gap",
}
CASES = {
    "shape": SHAPES,
    "seed": st.integers(0, 2**32),
    "rounds": st.integers(2, 4),
    "moves": st.booleans(),
    "changes": st.sampled_from([False, False, True]),
}


@pytest.fixture(scope="module")
def counts() -> Iterator[Counter[str]]:
    """The counts of all histories; a test of nothing would pass, too."""
    found: Counter[str] = Counter()
    yield found
    sys.stdout.write(f"\ntables: {dict(found)}\n")
    if found["histories"] >= HISTORIES:
        assert found["merged"] > 2 * found["histories"]
        assert found["removed"] > found["histories"]
        assert found["old"] + found["won"] > 0


@pytest.mark.long
@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(**CASES)
def test_histories(counts: Counter[str], shape: Shape, seed: int, rounds: int, moves: bool, changes: bool) -> None:
    """A merge gives the latest state, as a reader of the whole log sees it; otherwise it is refused."""
    run_history(counts, "delta", shape, seed, rounds, moves=moves, changes=changes)


def test_a_strategy_for_a_while(counts: Counter[str]) -> None:
    """Found at random: cleaned by another strategy, which was undone before the next run: it is written again."""
    known = counts["there and back"]
    shape = Shape("timestamp", "long", "null", "horizon", expires=False)
    run_history(counts, "delta", shape, 3728920, 2, moves=False, changes=True)
    assert counts["there and back"] == known + 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@settings(max_examples=LONG_HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(**CASES)
def test_many_histories(
    counts: Counter[str], kind: str, shape: Shape, seed: int, rounds: int, moves: bool, changes: bool
) -> None:
    """The same, for longer."""
    run_history(counts, kind, shape, seed, rounds if kind == "delta" else 2, moves=moves, changes=changes)


def run_history(
    counts: Counter[str], kind: str, shape: Shape, seed: int, rounds: int, *, moves: bool, changes: bool
) -> None:
    pick = random.Random(seed)
    with scratch() as root:
        world = World(root, shape)
        tables = Tables(kind, root)
        now_ms = T0
        chosen_by, cleaned_by = shape.strategy, {shape.strategy}
        with tables.known():
            for step in [*Script(shape, seed, rounds, moves=moves, changes=changes).steps(), None]:
                if isinstance(step, Write):
                    world.write(step)
                elif isinstance(step, MoveStart):
                    world.move_start(step)
                elif isinstance(step, Change):
                    world.change(step)
                elif isinstance(step, Clean):
                    world.clean(step)
                    now_ms = step.now_ms
                    cleaned_by.add(world.shape.strategy)
                if step is None or pick.random() < 0.5:
                    there_and_back = chosen_by == world.shape.strategy and cleaned_by != {chosen_by}
                    bring_up_to_date(counts, tables, world, now_ms, there_and_back=there_and_back)
                    chosen_by, cleaned_by = world.shape.strategy, {world.shape.strategy}
    counts["histories"] += 1


def bring_up_to_date(
    counts: Counter[str], tables: Tables, world: World, now_ms: int, *, there_and_back: bool = False
) -> None:
    """``there_and_back``: it was cleaned by another strategy meanwhile. The log does not show it; its owner knows."""
    logs = logs_of(world)
    opened = tables.target.open()
    # The script's clock is exact, so the allowance for two clocks is subtracted.
    retention_ms = (DELETE_RETENTION_MS if world.shape.expires else FOR_EVER_MS) + SKEW_MS
    if there_and_back or not opened.exists:
        counts["there and back"] += opened.exists
        write_table(None, opened, logs, replace_all=opened.exists, now_ms=now_ms)
    else:
        try:
            (merged,) = merge_into(None, opened, logs, retention_ms=lambda _topic: retention_ms, now_ms=now_ms)
            counts.update(merged=1, written=merged.written, removed=merged.removed)
        except RefusedError as error:
            (why,) = [word for text, word in REFUSED.items() if text in str(error)]
            counts[why] += 1
            write_table(None, tables.target.open(), logs, replace_all=True, now_ms=now_ms)
    assert tables.state() == seen(world._live(world.read()))


def logs_of(world: World) -> list[Log]:
    shape = world.shape
    topic = config(
        compaction_strategy=shape.strategy,
        compaction_strategy_header=HEADER.decode(),
        compaction_strategy_header_encoding=shape.encoding,
        tombstone_mode=shape.mode,
        tombstone_header=MARKER.decode(),
        tombstone_guard=shape.guard,
    )
    return find_logs([world.path], (), lambda _topic: KeyRules.of(topic))
