"""Histories of topics under strategies through the kernel and the real cleaner, compared with a dictionary (U-4).

Several cycles of writing and cleaning: late writes, every strategy, tombstone mode and encoding, shards, splits by
``--cleanable-to``, by segments and inside of batches, moves of the log start, transactions, old formats, every codec,
cleanings that are stopped between two groups, changes of strategy, compaction lags. And upsets: the log is truncated
for a new leader, by a broker whose cleaner is on or off; the state directory is lost, damaged, of an older or a newer
release. ``strategy_world`` has the properties that must hold.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cleaner.strategy_script import SHAPES, Clean, Entry, Script, Shape, Write
from tests.cleaner.strategy_world import newest, run_history, wrong_keys
from tests.support.length import at_length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HISTORIES = 240
LONG_HISTORIES = at_length(3000)
PUBLISHED_HISTORIES = 500

CASES = {
    "shape": SHAPES,
    "seed": st.integers(0, 2**32),
    "rounds": st.integers(2, 4),
    "stops": st.booleans(),
    "moves": st.booleans(),
    "changes": st.sampled_from([False, False, True]),
    "upsets": st.booleans(),
}


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """The counts of all histories of the module; a test of nothing would pass, too."""
    counts: Counter[str] = Counter()
    yield counts
    sys.stdout.write(f"\n{counts['histories']} histories of real cleanings: {dict(counts)}\n")
    if counts["histories"] >= HISTORIES:
        least = {"rounds": HISTORIES, "exact": HISTORIES // 20, "removed": HISTORIES // 12, "waited": 25, "stopped": 25}
        assert {name: counts[name] for name in least if counts[name] < least[name]} == {}


@pytest.mark.long
@settings(max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(**CASES)
def test_histories(
    seen: Counter[str], shape: Shape, seed: int, rounds: int, stops: bool, moves: bool, changes: bool, upsets: bool
) -> None:
    """R280-4..R280-6, R280-10, R280-11, R87-1..R87-6, U-1, U-2, U-4, U-10: no key twice, no key wrong."""
    run_history(seen, shape, seed, rounds, stops=stops, moves=moves, changes=changes, upsets=upsets)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=LONG_HISTORIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(**CASES)
def test_many_histories(
    seen: Counter[str], shape: Shape, seed: int, rounds: int, stops: bool, moves: bool, changes: bool, upsets: bool
) -> None:
    """The same, for longer."""
    run_history(seen, shape, seed, rounds, stops=stops, moves=moves, changes=changes, upsets=upsets)


def published(entries: Sequence[Entry], first_dirty: int, end: int) -> list[Entry]:
    """KIP-280 as it was published: the map of the dirty section alone, which decides every record."""
    found = newest(entry for entry in entries if first_dirty <= entry.offset < end)
    return [
        entry
        for entry in entries
        if entry.offset >= end
        or (entry.visible and entry.key is not None and (entry.key not in found or entry.rank >= found[entry.key].rank))
    ]


def ours(entries: Sequence[Entry], first_dirty: int, end: int) -> list[Entry]:
    """The same with the clean section in it: of a key that is dirty one record stays."""
    found = newest(entry for entry in entries if entry.offset < end)
    dirty = {entry.key for entry in entries if first_dirty <= entry.offset < end and entry.visible}
    return [
        entry
        for entry in entries
        if entry.offset >= end
        or (entry.visible and entry.key is not None and (entry.key not in dirty or found[entry.key] is entry))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("histories", [PUBLISHED_HISTORIES, pytest.param(2000, marks=pytest.mark.long)])
def test_the_published_algorithm_fails(histories: int) -> None:
    """R280-10: a retained record in the clean section and a late superseded one: KIP-280's own algorithm keeps both.

    Its rate is printed.
    """
    shape = Shape("header")
    outcomes: Counter[str] = Counter()
    for seed in range(histories):
        for name, algorithm in (("published", published), ("ours", ours)):
            twice, wrong = _rounds_of(Script(shape, seed, rounds=3, moves=False), algorithm)
            outcomes[f"{name}: a key twice"] += bool(twice)
            outcomes[f"{name}: a key wrong"] += bool(wrong)
            outcomes[f"{name}: fails"] += bool(twice or wrong)
    rate = outcomes["published: fails"] / histories
    reported = f"KIP-280 as published fails in {rate:.1%} of {histories} histories"
    sys.stdout.write(f"\n{reported}: {dict(outcomes)}\n")
    assert outcomes["ours: fails"] == 0
    assert rate > 0.2


def _rounds_of(script: Script, algorithm: object) -> tuple[set[bytes], set[bytes]]:
    """Keys that appear twice, and wrong keys, after any of the script's cleanings."""
    log: list[Entry] = []
    written: list[Entry] = []
    clean_to = 0
    twice, wrong = set(), set()
    for step in script.steps():
        if isinstance(step, Write):
            log += step.entries
            written += step.entries
        elif isinstance(step, Clean) and step.up_to > (0 if step.from_start else clean_to):
            log = algorithm(log, 0 if step.from_start else clean_to, step.up_to)  # type: ignore[operator]
            clean_to = max(clean_to, step.up_to)
            found = wrong_keys(log, written, clean_to)
            twice.update(found[0])
            wrong.update(found[1])
    return twice, wrong
