"""Two further releases: some cells of every table compared with the classes of 3.6 and of 4.4.

3.6 represents brokers whose log classes were Scala throughout, 4.4 is the newest. Tested are loaders and cleaners, and
the families' differences: a release up to 3.9 keeps message formats v0 and v1, and so does cleanerd for it (U-18). 3.6
makes one index entry per write, not per batch (``releases.INDEXES_BY_WRITE``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.state.cleaner_checkpoint import StateStore
from tests.differential import duel
from tests.differential.cell import Cell, parameters
from tests.differential.cells import offsets, sample, shapes, tombstones, transaction_scenarios
from tests.differential.cells.legacy import CELLS as LEGACY
from tests.differential.cells.legacy import magics
from tests.differential.duel import NAME, clean_ours, prepare
from tests.differential.history import NOW, History, Turn, batch, log
from tests.differential.random_history import random_history
from tests.differential.random_transactions import random_transactions
from tests.differential.releases import DROPS_THE_END, INDEXES_BY_WRITE
from tests.differential.seeds import play_seed
from tests.kafka.log_spec import Round, ToLoad

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _pytest.mark import ParameterSet

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

QUICK = [
    shapes.CELLS[2],
    tombstones.CELLS[1],
    offsets.GAPS[0],
    transaction_scenarios.CELLS[1],
]
WITH_AN_END = 27
HISTORIES = (*range(1, 41), 3005, 3020)
TRANSACTIONS = range(1, 21)
OTHERS = pytest.mark.parametrize("profile", ["3.6", "4.4"])


@pytest.fixture
def judge(request: pytest.FixtureRequest, profile: str) -> Judge:
    """The release; the fixture first checks its version (U-26)."""
    found: Judge = request.getfixturevalue(f"judge_{profile.replace('.', '')}")
    assert found.version().startswith(f"{profile}.")
    return found


def _everything() -> Iterator[ParameterSet]:
    """All comparisons of 3.9, except for the end of the cleanable section and, with 3.6, index entries."""
    for profile in ("3.6", "4.4"):
        for cell in sample.CELLS:
            by_write = profile in INDEXES_BY_WRITE and cell.name.startswith("an index entry every")
            if cell not in offsets.END and not by_write:
                yield pytest.param(profile, cell, id=f"{cell.name}-{profile}")


@OTHERS
@pytest.mark.parametrize("cell", parameters(QUICK))
def test_a_cell_of_every_kind(judge: Judge, work: Path, cell: Cell) -> None:
    """C-53: v2 batches are treated alike, index bytes included."""
    cell.check(judge, work)


@OTHERS
def test_old_formats(judge: Judge, work: Path, profile: str) -> None:
    """U-18: 3.6 keeps the format of v0 and v1, 4.4 converts to v2; the wrong one of the two gives another log."""
    (outcome, *_) = LEGACY[0].check(judge, work)
    assert magics(outcome.before) & {0, 1}
    assert bool(magics(outcome.after) & {0, 1}) == (profile == "3.6")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("profile", "cell"), _everything())
def test_every_cell(judge: Judge, work: Path, cell: Cell) -> None:
    """C-53: apart from that the releases agree."""
    cell.check(judge, work)


@OTHERS
@pytest.mark.parametrize("cell", parameters(LEGACY))
def test_every_old_format(judge: Judge, work: Path, cell: Cell) -> None:
    """C-45.6, C-53, F-3: as the release does it."""
    cell.check(judge, work)


@pytest.mark.timeout(1800)
@OTHERS
def test_random_histories(judge: Judge, work: Path) -> None:
    """C-39.2, C-53: all is equal but 3.6's index entries and the empty batch at the end of the cleanable section."""
    for seed in HISTORIES:
        play_seed(judge, work / "records", seed, random_history(seed), "random history")
    for seed in TRANSACTIONS:
        play_seed(judge, work / "transactions", seed, random_transactions(seed), "random transactional history")


@OTHERS
def test_an_unknown_kept_end_is_found(judge: Judge, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-26: any other batch whose time cleanerd kept would be found."""
    monkeypatch.setattr(duel, "kept_end", lambda *_: set())  # the planted mistake
    with pytest.raises(AssertionError, match="only ours has the empty batches"):
        play_seed(judge, work, WITH_AN_END, random_history(WITH_AN_END), "random history")


@pytest.mark.parametrize("high_watermark", [4, 5])
@pytest.mark.parametrize("profile", ["3.6", "3.9", "4.3", "4.4"])
def test_the_batch_that_ends_the_cleanable_part(judge: Judge, work: Path, profile: str, high_watermark: int) -> None:
    """C-39.2: 3.9 and 4.3 keep it empty (KAFKA-17076), 3.6 drops it, 4.4 too unless the high watermark ends there.

    cleanerd keeps it for every release, and all of them load it.
    """
    segments = log([batch(0, "a=1 b=1"), batch(2, "!=1 !=2")], [batch(4, "z=1")])[:-1]
    ours, theirs = work / "ours" / str(NAME), work / "theirs" / str(NAME)
    ours.parent.mkdir()
    prepare(ours.parent)
    for directory in (ours, theirs):
        judge.make(directory, segments, now_ms=NOW)
    judge.clean(theirs, [Round(NOW, 0, 4, high_watermark)])
    result = clean_ours(ours.parent, StateStore(work / "state"), History(segments, turns=(Turn(NOW),)), Turn(NOW))
    assert result.outcome == "cleaned"
    kept = {side: {(each.base, each.count) for each in judge.dump(side).batches} for side in (ours, theirs)}
    assert kept[ours] == {(0, 2), (2, 0), (4, 1)}
    drops = profile in DROPS_THE_END and (profile != "4.4" or high_watermark > 4)
    assert kept[ours] - kept[theirs] == ({(2, 0)} if drops else set())
    (loaded,) = judge.load([ToLoad(str(ours), clean_shutdown=False, log_start_offset=0)], now_ms=NOW)
    assert (loaded.error, loaded.log_end_offset) == (None, 5)
