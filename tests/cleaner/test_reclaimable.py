"""The savings of a cleaning, from a sample: the exact decision's result is within the bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.reclaimable import Reclaimable, describe_reclaimable, estimate_reclaimable, of_sample
from cleanerd.cleaner.sample import draw_sample
from cleanerd.cleaner.superseded_bounds import MOST_MATCHES, least_unseen, most_unseen
from cleanerd.cleaner.survey import CleaningOptions, Survey, survey
from cleanerd.errors import CleanerdError
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.segments.pool import ReaderPool
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd_lab.bench.generate import PARTITION
from tests.cleaner.driver import Silent, config, resources
from tests.cleaner.made_log import NOW_MS, Written, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from cleanerd.cleaner.plan import CleaningPlan

RECORDS, BATCH = 24_000, 32
DRAWS = 3
BATCHES = RECORDS // BATCH
SMALL = np.full(BATCHES, 70)


def _uniform(dice: np.random.Generator) -> Written:
    return Written(dice.integers(0, RECORDS // 3, RECORDS), BATCH, SMALL)


def _hot(dice: np.random.Generator) -> Written:
    return Written(dice.zipf(1.2, RECORDS) % 1_000_000, BATCH, SMALL)


def _once(dice: np.random.Generator) -> Written:
    return Written(dice.permutation(RECORDS), BATCH, SMALL)


def _bursts(dice: np.random.Generator) -> Written:
    return Written(np.repeat(dice.integers(0, RECORDS, RECORDS // 8), 8), BATCH, SMALL)


def _written_twice(_dice: np.random.Generator) -> Written:
    return Written(np.arange(RECORDS) % (RECORDS // 2), BATCH, SMALL)


def _large_values_of_few(dice: np.random.Generator) -> Written:
    keys = dice.permutation(RECORDS).reshape(BATCHES, BATCH)
    large = dice.random(BATCHES) < 0.02
    keys[large] = RECORDS + dice.integers(0, 5, (int(large.sum()), BATCH))
    return Written(keys.reshape(-1), BATCH, np.where(large, 3000, 70))


def _tombstones(dice: np.random.Generator) -> Written:
    sizes = np.where(dice.random(BATCHES) < 0.3, -1, 70)
    return Written(dice.integers(0, RECORDS // 3, RECORDS), BATCH, sizes, horizons=True)


def _only_tombstones(dice: np.random.Generator) -> Written:
    """Of keys that come once: they are removed by their horizon, and by nothing else."""
    sizes = np.where(dice.random(BATCHES) < 0.5, -1, 70)
    return Written(dice.permutation(RECORDS), BATCH, sizes, horizons=True)


def _single(dice: np.random.Generator) -> Written:
    count = RECORDS // 3
    return Written(dice.integers(0, count // 4, count), 1, np.full(count, 120))


def _versions(dice: np.random.Generator) -> Written:
    keys = dice.integers(0, RECORDS // 5, RECORDS)
    return Written(keys, BATCH, SMALL, versions=dice.integers(0, 10**9, RECORDS))


def _transactions(dice: np.random.Generator) -> Written:
    """A third of them aborted, and their markers behind all."""
    keys = dice.integers(0, RECORDS // 3, RECORDS)
    return Written(keys, BATCH, SMALL, aborted=dice.random(BATCHES) < 0.3, producers=5)


def _only_aborted(dice: np.random.Generator) -> Written:
    """Of keys that come once: a record is removed with its transaction."""
    return Written(dice.permutation(RECORDS), BATCH, SMALL, aborted=dice.random(BATCHES) < 0.5, producers=5)


def _a_producer_a_batch(dice: np.random.Generator) -> Written:
    """The last batch of every producer stays, emptied: headers are most of such a log."""
    count = RECORDS // 8
    return Written(
        dice.integers(0, count // 8, count), 1, np.full(count, 40), aborted=dice.random(count) < 0.4, producers=count
    )


def _headers_of_expired_producers(dice: np.random.Generator) -> Written:
    """Batches that cleanings kept for producers that have expired since; nine of ten batches have no record."""
    count = RECORDS // 4
    return Written(dice.permutation(count), 1, np.full(count, 70), producers=count, emptied=dice.random(count) < 0.9)


def _v1(dice: np.random.Generator) -> Written:
    return Written(dice.integers(0, RECORDS // 3, RECORDS), BATCH, SMALL, magic=1)


def _v0_once(dice: np.random.Generator) -> Written:
    """Nothing is removed, and as v2 the log would be larger."""
    return Written(dice.permutation(RECORDS), BATCH, SMALL, magic=0)


def _v1_that_grows(dice: np.random.Generator) -> Written:
    """Retained records become larger as v2, which reduces the savings."""
    once = RECORDS * 6 // 10
    keys = np.concatenate([dice.permutation(once), RECORDS + dice.integers(0, 99, RECORDS - once)])
    return Written(keys, BATCH, SMALL, magic=1)


def _v1_tombstones(dice: np.random.Generator) -> Written:
    sizes = np.where(dice.random(BATCHES) < 0.3, -1, 70)
    return Written(dice.integers(0, RECORDS // 3, RECORDS), BATCH, sizes, magic=1)


def _v1_wrappers(dice: np.random.Generator) -> Written:
    return Written(dice.integers(0, RECORDS // 3, RECORDS), BATCH, SMALL, magic=1, codec=1)


def _v0_wrappers(dice: np.random.Generator) -> Written:
    return Written(dice.integers(0, RECORDS // 3, RECORDS), BATCH, SMALL, magic=0, codec=1)


LOGS: tuple[Callable[[np.random.Generator], Written], ...] = (
    _uniform, _hot, _once, _bursts, _written_twice, _large_values_of_few, _tombstones, _only_tombstones, _single,
    _versions, _transactions, _only_aborted, _a_producer_a_batch, _headers_of_expired_producers, _v1, _v0_once,
    _v1_that_grows, _v1_tombstones, _v1_wrappers, _v0_wrappers,
)  # fmt: skip


def _read(path: Path, log: Written, dirty_from: float, **settings: object) -> tuple[LogDir, Survey]:
    log_dir = read_log_dir(write_log(path / "log", log))
    versions = {"compaction_strategy": "header", "compaction_strategy_header": "v"} if log.versions is not None else {}
    first = int(dirty_from * len(log.value_bytes)) * log.offsets_a_batch
    options = CleaningOptions(now_ms=NOW_MS, force=True, first_dirty_offset=first)
    topic = config(PARTITION.topic, **versions, **settings)
    return log_dir, survey(log_dir, PARTITION, topic, StateStore(path / "state"), options)


def _plan_and_truth(path: Path, log: Written, dirty_from: float, **settings: object) -> tuple[CleaningPlan, int]:
    log_dir, found = _read(path, log, dirty_from, **settings)
    with ReaderPool(str(found.log.path), workers=1, chunk_bytes=1 << 20) as pool:
        options = CleaningOptions(now_ms=NOW_MS, force=True)
        plan = make_plan(log_dir, found, resources(map_bytes=1 << 23), options, pool.reader)
        cleaning = Cleaning(plan, pool, Silent())
        cleaning.decide()
        return plan, max(cleaning.saved_bytes(), 0)


def _drawn(plan: CleaningPlan, part: int, draw: int) -> Reclaimable:
    size = sum(source.segment.size_bytes for source in plan.sources)
    other = replace(plan, hash_key=bytes([draw]) * 16)
    sample = draw_sample(other, budget_bytes=size // part, stretch_bytes=4096, advance=lambda _: None)
    assert sample.sizes.sum() <= 1.5 * size / part
    return of_sample(sample, versioned=plan.rules.versioned)


@pytest.mark.slow
@pytest.mark.parametrize("dirty_from", [pytest.param(0.0, marks=pytest.mark.long), 0.6])
@pytest.mark.parametrize("made", LOGS, ids=lambda made: made.__name__.strip("_"))
def test_the_exact_value_is_within_the_bounds(
    tmp_path: Path, made: Callable[[np.random.Generator], Written], dirty_from: float
) -> None:
    """U-41: for any keys and sample size; at most one of six samples may miss."""
    plan, truth = _plan_and_truth(tmp_path, made(np.random.default_rng(1)), dirty_from)
    drawn = [_drawn(plan, part, draw) for part in (3, 12) for draw in range(DRAWS)]
    assert sum(each.low <= truth <= each.high for each in drawn) >= 2 * DRAWS - 1
    assert all(each.low <= each.bytes <= each.high for each in drawn)


def test_tombstones_that_a_guard_for_versions_keeps_by_offset_too(tmp_path: Path) -> None:
    """U-41, U-4: tombstone.guard=forever has no effect by offset: they are removed, and nothing else is."""
    log = _only_tombstones(np.random.default_rng(1))
    plan, truth = _plan_and_truth(tmp_path, log, 0.0, tombstone_guard="forever")
    assert all(0 < each.low <= truth <= each.high for each in [_drawn(plan, 3, draw) for draw in range(2)])


def test_clean_records_supersede_each_other_by_version(tmp_path: Path) -> None:
    """U-41, R280-10: if the clean section has several records of a key that was written again."""
    dice = np.random.default_rng(1)
    log = Written(dice.integers(0, 1000, RECORDS), BATCH, SMALL, versions=dice.integers(0, 10**9, RECORDS))
    plan, truth = _plan_and_truth(tmp_path, log, 0.9)
    drawn = [_drawn(plan, 2, draw) for draw in range(2)]
    assert all(each.low <= truth <= each.high for each in drawn)


def test_the_bounds_are_narrow_with_a_sufficient_sample(tmp_path: Path) -> None:
    """U-41: a third of a log shows the removed share within a few hundredths, of unique keys and of hot ones."""
    for made, most in ((_once, 0.1), (_hot, 0.2), (_bursts, 0.1)):
        plan, _ = _plan_and_truth(tmp_path / made.__name__, made(np.random.default_rng(1)), 0.0)
        size = sum(source.segment.size_bytes for source in plan.sources)
        drawn = _drawn(plan, 3, 0)
        assert (drawn.high - drawn.low) / size < most


def test_the_whole_dirty_section_is_read_if_it_fits(tmp_path: Path) -> None:
    """U-41: then no removal is missed, and only the clean section is sampled."""
    plan, truth = _plan_and_truth(tmp_path, _uniform(np.random.default_rng(1)), 0.9)
    size = sum(source.segment.size_bytes for source in plan.sources)
    drawn = _drawn(plan, 4, 0)
    assert drawn.low <= truth <= drawn.high
    assert (drawn.high - drawn.low) / size < 0.1


def test_a_small_log_is_computed_exactly(tmp_path: Path) -> None:
    """U-41: one within the budget; and the same when it is not to be cleaned now."""
    log_dir, found = _read(tmp_path, _uniform(np.random.default_rng(1)), 0.0, min_compaction_lag_ms=0)
    plan, truth = _plan_and_truth(tmp_path / "again", _uniform(np.random.default_rng(1)), 0.0)
    options = CleaningOptions(now_ms=NOW_MS, force=True)
    size = sum(source.segment.size_bytes for source in plan.sources)
    wide = resources(map_bytes=1 << 23)
    exact = estimate_reclaimable(log_dir, found, wide, options, budget_bytes=size)
    assert (exact.bytes, exact.low, exact.high, exact.method) == (truth, truth, truth, "exact")
    read: list[int] = []
    drawn = estimate_reclaimable(log_dir, found, wide, options, budget_bytes=size // 4, advance=read.append)
    assert drawn.method == "sample"
    assert drawn.low <= truth <= drawn.high
    # Besides the samples only the bytes between an index entry and their beginnings are read.
    assert drawn.read_bytes <= sum(read) <= 1.6 * drawn.read_bytes
    assert drawn.read_bytes <= 1.1 * size / 4


def test_damage_is_reported(tmp_path: Path) -> None:
    """A sample of a damaged log is not used."""
    log_dir, found = _read(tmp_path, _uniform(np.random.default_rng(1)), 0.0)
    segment = next(iter(sorted(found.log.path.glob("*.log"))))
    data = bytearray(segment.read_bytes())
    for at in range(100, len(data), 4096):
        data[at] ^= 0xFF
    with segment.open("r+b") as file:
        file.write(data)
    options = CleaningOptions(now_ms=NOW_MS, force=True)
    with pytest.raises(CleanerdError):
        estimate_reclaimable(log_dir, found, resources(), options, budget_bytes=found.log.segments[0].size_bytes)


def _bounds(shares: NDArray[np.float64], doubts: NDArray[np.float64], chance: float) -> tuple[float, float]:
    return least_unseen(shares, doubts, chance, 1000), most_unseen(shares, doubts, chance, 1000)


@pytest.mark.parametrize("chance", [0.02, 0.25, 0.8])
@pytest.mark.parametrize(
    "mixture",
    [{0: 1.0}, {1: 1.0}, {0: 0.5, 1: 0.5}, {3: 1.0}, {0: 0.3, 2: 0.3, 40: 0.4}, {500: 1.0}],
    ids=str,
)
def test_unseen_bounds_hold_for_every_mixture(mixture: dict[int, float], chance: float) -> None:
    """U-41: shares as they are expected, with no doubt and with some."""
    dice = np.random.default_rng(1)
    of = np.array(list(mixture))[np.searchsorted(np.cumsum(list(mixture.values()))[:-1], dice.random(200_000))]
    seen = dice.binomial(of, chance)
    shares = np.bincount(np.minimum(seen, MOST_MATCHES + 1), minlength=MOST_MATCHES + 2)[: MOST_MATCHES + 1] / len(of)
    truth = float(((of > 0) & (seen == 0)).mean())
    doubts = 4 * np.sqrt(np.maximum(shares, 1e-5) / len(of))
    low, high = _bounds(shares, doubts, chance)
    assert low - 1e-6 <= truth <= high + 1e-6
    wide = _bounds(shares, 10 * doubts, chance)
    assert wide[0] <= low + 1e-6
    assert wide[1] >= high - 1e-6


def test_bounds_of_unsampled_keys_meet_with_a_large_sample() -> None:
    """Half of the keys come twice, and half of the log was read."""
    shares = np.zeros(MOST_MATCHES + 1)
    shares[:2] = 0.75, 0.25
    low, high = _bounds(shares, np.full(MOST_MATCHES + 1, 1e-6), 0.5)
    assert low == pytest.approx(0.25, abs=0.01)
    assert high == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    ("count", "low", "high", "words"),
    [
        (1_503_238_553, 1_400_000_000, 1_606_477_106, "~1.4 GiB ± 0.1"),
        (0, 0, 0, "~0 B"),
        (500, 0, 1000, "~500 B ± 500 B"),
        (1024 * 1024, 0, 1024**3, "~1.0 MiB ± 1023.0 MiB"),
        (1024 * 1024, 1024 * 1024 - 1, 1024 * 1024 + 1, "~1.0 MiB ± 0.1"),
    ],
)
def test_an_estimate_as_text(count: int, low: int, high: int, words: str) -> None:
    """The error has the unit of the number, unless that would be unreadable; it is never shown as zero."""
    assert Reclaimable(count, low, high, "sample").describe() == words
    assert describe_reclaimable(1536, 1536, 1536, exact=True) == "1.5 KiB"


def test_later_writes_make_it_less_certain() -> None:
    """Each new record supersedes at most one other of about its size."""
    exact = Reclaimable(50, 50, 50, "exact")
    assert exact.grown(0, 100) == Reclaimable(50, 50, 50, "sample")
    assert exact.grown(20, 100) == Reclaimable(60, 50, 70, "sample")
