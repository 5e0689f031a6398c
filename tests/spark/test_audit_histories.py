"""``spark audit`` compared with dictionaries: random pairs of logs, and the real cleaner on random histories."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cleanerd.spark.audit import AuditQuestion, audit_sides, new_digest_key
from cleanerd.spark.audit_inputs import sides_of
from cleanerd.verify.rules import KeyRules
from tests.cleaner.driver import scratch
from tests.cleaner.strategy_script import HEADER, MARKER, Script, Shape
from tests.cleaner.strategy_world import World
from tests.spark.audit_model import NOW, Pair
from tests.spark.cases import found, judge_cases
from tests.support.length import at_length

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from tests.cleaner.strategy_script import Clean

pytestmark = pytest.mark.long

PAIRS = 200
HISTORIES = 48
SHAPES = [
    Shape(strategy, encoding, mode, guard, expires)
    for strategy, encoding in (("offset", "long"), ("timestamp", "long"), ("header", "long"), ("header", "varlong"))
    for mode in ("null", "flag", "header")
    for guard in ("horizon", "forever")
    for expires in (False, True)
]


def check_pairs(spark: SparkSession, first: int, count: int) -> Counter[str]:
    cases = [Pair(seed).case() for seed in range(first, first + count)]
    reported: Counter[str] = Counter()
    with scratch() as root:
        for seed, (case, judged) in enumerate(zip(cases, judge_cases(spark, root, cases, NOW), strict=True), first):
            assert found(judged) == case.expected, f"pair {seed}: {case.rules} {judged.examples}"
            reported.update(case.expected.keys() or ["right"])
    return reported


def test_pairs(spark: SparkSession) -> None:
    """R280-3..R280-6, R87-1..R87-4, U-1, U-4: every finding, by kind and number, is the model's."""
    reported = check_pairs(spark, 0, PAIRS)
    assert set(reported) == {"right", "lost", "stale", "resurrected", "duplicated", "altered", "no_key"}, reported
    assert min(reported.values()) >= PAIRS // 30, reported


@pytest.mark.timeout(1800)
def test_many_pairs(spark: SparkSession) -> None:
    """The same for longer."""
    for first in range(PAIRS, PAIRS + 6000, 2000):
        check_pairs(spark, first, 2000)


class AuditedWorld(World):
    """Keeps the log from before and after every cleaning, for one audit of all."""

    rounds_of: list[tuple[AuditQuestion, int]]
    kept: Path

    def _clean(self, step: Clean, options: CleaningOptions) -> CleaningResult:
        copy = self.path.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.partition, copy)
        result = super()._clean(step, options)
        if result.outcome == "skipped" or result.error is not None:
            return result
        shape, number = self.shape, len(self.rounds_of)
        shutil.copytree(copy, self.kept / "before" / f"t-{number}")
        shutil.copytree(self.partition, self.kept / "after" / f"t-{number}")
        rules = KeyRules(
            shape.strategy, HEADER if shape.strategy == "header" else None, shape.encoding, shape.mode,
            MARKER if shape.mode == "header" else None, shape.guard,
        )  # fmt: skip
        first_dirty = result.first_dirty_offset
        self.rounds_of.append((AuditQuestion(rules, result.end_offset, first_dirty, self.start), step.now_ms))
        return result


def audited(spark: SparkSession, seeds: range) -> int:
    """Cleanings of the histories ``seeds``, all of which the audit finds right."""
    with scratch() as root:
        AuditedWorld.kept, AuditedWorld.rounds_of = root, []
        for seed in seeds:
            with scratch() as place:
                shape = SHAPES[seed % len(SHAPES)]
                AuditedWorld(place, shape).run(Script(shape, seed, 2, changes=seed % 3 == 0))
        compared, _ = sides_of(root / "before", root / "after")
        arguments = [AuditedWorld.rounds_of[sides.name.partition] for sides in compared]
        # Each cleaning has its own clock; the audit has one, the latest.
        judged = audit_sides(
            spark, compared, [each for each, _ in arguments], now_ms=max(now for _, now in arguments),
            hash_key=new_digest_key(), examples=4,
        )  # fmt: skip
        wrong = {str(each.name): (found(each), each.question, each.examples) for each in judged if each.found}
        assert wrong == {}
        assert sum(each.before.records > each.after.records for each in judged) > len(judged) // 3
        return len(judged)


def test_real_cleanings(spark: SparkSession) -> None:
    """U-28: the real cleaner's result is right, by rules that share no line with it."""
    rounds = audited(spark, range(HISTORIES))
    sys.stdout.write(f"\n{rounds} rounds of real cleanings audited\n")
    assert rounds >= HISTORIES


@pytest.mark.timeout(1800)
def test_many_real_cleanings(spark: SparkSession) -> None:
    """The same for longer."""
    audited(spark, range(HISTORIES, HISTORIES + at_length(300)))
