"""Mistakes planted in the query: each must change a verdict, or the cases prove nothing."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

import pytest

from cleanerd.spark import audit_query
from tests.cleaner.driver import scratch
from tests.spark.audit_model import NOW, Pair
from tests.spark.cases import found, judge_cases
from tests.spark.test_audit_damages import CASES
from tests.verify import scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAIRS = {f"pair {seed}": Pair(seed).case() for seed in range(60)}
LEFT_OVER = "winner.is_tombstone\n            AND left_over > 0 THEN "
MUTANTS = {
    "the first version wins": ("'version', b_version, 'offset'", "'version', -b_version, 'offset'"),
    "no version wins over one": ("b_flags & {HAS_VERSION} != 0", "b_flags & {HAS_VERSION} = 0"),
    "equal versions: the lowest offset": ("offset, 'is_seen', is_seen", "-offset, 'is_seen', is_seen"),
    "aborted records win": ("max(CASE WHEN was_seen AND keyed", "max(CASE WHEN was AND keyed"),
    "the tail wins": ("max(CASE WHEN was_seen AND keyed AND is_below", "max(CASE WHEN was_seen AND keyed"),
    "the tail is left over": ("(is_seen AND keyed AND is_below) AS left_over", "(is_seen AND keyed) AS left_over"),
    "evidence ends with the cleaned part (U-1)": (
        "(was_seen AND keyed) AS rivals",
        "(was_seen AND is_below) AS rivals",
    ),
    "a tombstone goes whatever else there is (U-1)": ("AND NOT (winner.goes_alone AND rivals > 1)", ""),
    "a tombstone may never go": ("WHEN winner.may_go AND", "WHEN false AND"),
    "any tombstone may go": ("'may_go', b_flags & {MAY_GO} != 0", "'may_go', b_flags & {TOMBSTONE} != 0"),
    "what nobody reads is there": ("'is_seen', is_seen,", "'is_seen', stands,"),
    "digests do not count": ("b_high != a_high OR b_low != a_low", "b_high != b_high"),
    "attributes do not count": ("has_other_attributes AND NOT may_lose_attributes", "false"),
    "attributes always count": ("has_other_attributes AND NOT may_lose_attributes", "has_other_attributes"),
    "zeroed flags are as with Kafka": ("a_attributes = 0 AND b_flags & {ATTRIBUTES} = 0", "a_attributes = 0"),
    "open is aborted": (" OR (b_flags & {OPEN} != 0 AND a_flags & {VISIBLE} != 0)", ""),
    "back from the dead is fine": (f"is_seen AND {LEFT_OVER}1L", f"is_seen AND {LEFT_OVER}0L"),
    "an older one is as good": (f"is_seen AND NOT {LEFT_OVER}1L", f"is_seen AND NOT {LEFT_OVER}0L"),
    "losers are never looked for": ("is_dirty AND is_cleaned AND winner.is_seen", "false AND winner.is_seen"),
    "losers are always looked for": ("is_dirty AND is_cleaned AND winner.is_seen", "is_dirty AND winner.is_seen"),
    "the clean part was judged anew (R280-11)": ("{DIRTY} != 0) > 0 AS is_dirty", "{DIRTY} != 0) >= 0 AS is_dirty"),
    "the tail may go": ("AND NOT is_below AND NOT is_seen) AS tail", "AND false) AS tail"),
    "keyless may stay": ("AND is_below AND is_cleaned) AS keyless,", "AND false) AS keyless,"),
    "aborted may be read": ("count_if(is_seen AND was AND NOT was_seen)", "count_if(false)"),
    "anybody may write": ("count_if(stands AND NOT was AND NOT is_damaged)", "count_if(false)"),
    "twice is once": ("THEN afters - 1 ELSE 0 END) AS again", "THEN 0 ELSE 0 END) AS again"),
    "damage is nothing": ("count_if(is_damaged) AS damaged", "count_if(false) AS damaged"),
}


def verdicts_that_differ(spark: SparkSession) -> list[str]:
    cases = {**CASES, **PAIRS}
    with scratch() as root:
        told = judge_cases(spark, root, list(cases.values()), NOW)
    return [
        name
        for (name, case), judged in zip(cases.items(), told, strict=True)
        if found(judged) != {kind: count for kind, count in case.expected.items() if count}
    ]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_mistake_is_noticed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without one everything is as expected."""
    assert scene.NOW == NOW, "one job for all"
    assert verdicts_that_differ(spark) == []
    unnoticed = []
    for name, (old, new) in MUTANTS.items():
        holders = [each for each in ("_JUDGED", "_BY_KEY", "_TOLD") if old in getattr(audit_query, each)]
        assert len(holders) == 1, f"{name}: not in the query any more"
        with monkeypatch.context() as patch:
            patch.setattr(audit_query, holders[0], getattr(audit_query, holders[0]).replace(old, new))
            with contextlib.suppress(TypeError):  # no place to tell: noticed too
                if not verdicts_that_differ(spark):
                    unnoticed.append(name)
        sys.stdout.write(f"planted: {name}\n")
    assert unnoticed == []
