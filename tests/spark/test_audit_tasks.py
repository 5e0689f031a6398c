"""Two sides audited by tasks, by this process, and in pieces: one verdict, the same digests and places."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cleanerd.spark import judging
from cleanerd.spark.audit import audit_sides
from cleanerd.spark.audit_inputs import sides_of
from cleanerd.spark.audit_rules import hashed
from cleanerd.spark.grouping import Groups
from cleanerd.spark.judging import LIMITS, MemoryLimits
from cleanerd.spark.record_pairs import PairFindings, paired
from cleanerd.spark.record_scan import RecordFact
from tests.cleaner.driver import scratch
from tests.spark.audit_cases import CASES
from tests.spark.audit_model import NOW, Pair
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.audit import AuditedPartition

KEY = bytes(range(16))
ALL = {**CASES, **{f"pair {seed}": Pair(1000 + seed).case() for seed in range(100)}}

FEW = 8
"""One out of this many cases, where each is read many times."""


@pytest.fixture(scope="module")
def places() -> Iterator[Path]:
    """Each case as a partition of one topic."""
    with scratch() as root:
        for name in ("before", "after"):
            partitions = {f"t-{at}": Partition(getattr(case, name), indexes=False)
                          for at, case in enumerate(ALL.values())}  # fmt: skip
            make_log_dir(root / name, partitions)
        yield root


def verdicts(
    root: Path, session: SparkSession | None = None, *, every: int = 1, limits: MemoryLimits = LIMITS
) -> list[AuditedPartition]:
    compared, _ = sides_of(root / "before", root / "after")
    compared = [sides for sides in compared if sides.name.partition % every == 0]
    arguments = [list(ALL.values())[sides.name.partition].question for sides in compared]
    return audit_sides(session, compared, arguments, now_ms=NOW, hash_key=KEY, examples=3, limits=limits)


@pytest.mark.long
def test_by_tasks_and_by_this_process(spark: SparkSession, places: Path) -> None:
    """U-28: findings, counts, digests, places and their texts."""
    ours, theirs = verdicts(places), verdicts(places, spark)
    assert len(ours) == len(ALL)
    assert sum(each.found for each in ours) > 100
    assert ours == theirs


@pytest.mark.parametrize("most", ["records", "keys", "both"])
def test_in_pieces(places: Path, monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    """Data too large for the memory are cut by offset, by key, or both: records in two pieces are still matched."""
    whole = verdicts(places, every=FEW)
    cuts: set[tuple[int, int]] = set()
    judge_locally = judging._judge_shard_locally

    def watched(*given: Any) -> PairFindings:
        pieces, _, shards = given[4]
        cuts.add((pieces, shards))
        return judge_locally(*given)

    monkeypatch.setattr(judging, "_judge_shard_locally", watched)  # to see the cuts: the result must not show them
    limits = MemoryLimits(window_bits=1, waiting_rows=1, slice_rows=1)
    if most != "keys":
        limits = replace(limits, most_records=12)
    if most != "records":
        limits = replace(limits, most_keys=2)
    assert verdicts(places, every=FEW, limits=limits) == whole
    assert (max(pieces for pieces, _ in cuts) > 1) == (most != "keys")
    assert (max(shards for _, shards in cuts) > 1) == (most != "records")


def test_more_of_an_offset_than_fits(places: Path) -> None:
    """No number of pieces makes it smaller: then it is processed nevertheless, and not cut indefinitely."""
    whole = verdicts(places, every=FEW)
    assert verdicts(places, every=FEW, limits=MemoryLimits(most_records=0, most_pieces=4)) == whole


def test_hash_is_that_of_sql(spark: SparkSession) -> None:
    """Digests of an audit stay comparable with those of releases that used Spark's SQL."""
    long = np.array([0, 1, -1, 2**63 - 1, -(2**63), 0x0123456789ABCDEF], np.int64)
    number = np.array([0, -1, 2**31 - 1, -(2**31), 32, 7], np.int32)
    frame = spark.createDataFrame(
        [(at, a, b) for at, (a, b) in enumerate(zip(long.tolist(), number.tolist(), strict=True))],
        "n int, a long, b int",
    )
    found = frame.orderBy("n").selectExpr("xxhash64(a, b) AS h").collect()
    assert [row.h for row in found] == hashed(long, number).view(np.int64).tolist()


def rows(offset: list[int], sides: list[RecordFact], **columns: list[int]) -> dict[str, Any]:
    names = ("key_high", "key_low", "version", "digest_high", "digest_low")
    zeros = np.zeros(len(offset), np.int64)
    found: dict[str, Any] = {"offset": np.array(offset, np.int64), "flags": np.array(sides, np.int32)}
    found |= dict.fromkeys(names, zeros)
    found |= {name: zeros.astype(np.int32) for name in ("attributes", "size", "epoch")}
    return {**found, **{name: np.array(values, found[name].dtype) for name, values in columns.items()}}


def test_pairs() -> None:
    """A record that a side has twice gets the highest value per column; the earlier side has the key."""
    pairs = paired([
        rows([5, 3], [RecordFact.BEFORE, RecordFact.BEFORE | RecordFact.AFTER], key_high=[50, 30], version=[-5, 3]),
        rows([5, 5, 9], [RecordFact.AFTER] * 3, key_high=[51, 49, 90], version=[-7, -6, 9]),
    ])  # fmt: skip
    assert pairs.offset.tolist() == [3, 5, 9]
    assert (pairs.befores.tolist(), pairs.afters.tolist()) == ([1, 1, 0], [1, 2, 1])
    assert pairs.high.tolist() == [30, 50, 90]
    assert pairs.before["version"].tolist()[:2] == [3, -5]
    assert pairs.after["version"].tolist() == [3, -6, 9]
    assert pairs.before_flags.tolist() == [3, 1, 0]


def test_found_adds_up() -> None:
    """Lowest places, each once; bits of digests; counts."""
    one, other = PairFindings(), PairFindings()
    one.record("lost", np.array([9, 3, 7]), 2)
    other.record("lost", np.array([3, 1]), 2, many=5)
    one.digest("d", np.array([1, 2], np.uint64))
    other.digest("d", np.array([2], np.uint64))
    one.add(other, 2)
    assert (one.findings, one.places, one.digests) == ({"lost": 8}, {"lost": [1, 3]}, {"d": 1})
    one.record("stale", np.array([], np.int64), 2)
    assert "stale" not in one.findings


def test_groups_of_equal_halves() -> None:
    """Two keys may have one half of their hash in common, and two partitions the same key."""
    columns = {"part": np.array([1, 0, 1, 1]), "high": np.array([7, 7, 7, 7]), "low": np.array([2, 1, 1, 2]),
               "value": np.array([5, 6, 7, 8])}  # fmt: skip
    groups = Groups.of(columns, ("part", "high", "low"))
    assert groups.sums(("value",))["value"].tolist() == [6, 7, 13]
    assert groups.rows["value"][groups.best([groups.rows["value"]])].tolist() == [6, 7, 8]
    assert groups.best([groups.rows["value"]], groups.rows["value"] > 7).tolist()[:2] == [-1, -1]
    several = {name: column for name, column in columns.items() if name != "part"} | {"part": np.array([0, 1, 0, 1])}
    assert Groups.of(replace_high(several), ("part", "high", "low")).firsts(("part",))["part"].tolist() == [0, 0, 1, 1]


def replace_high(columns: dict[str, Any]) -> dict[str, Any]:
    """Every partition its own: records have to arrive partition by partition."""
    return {**columns, "high": np.array([4, 3, 2, 1])}
