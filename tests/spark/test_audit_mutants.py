"""Mistakes planted in the rules: each must change a verdict, or the cases prove nothing."""

from __future__ import annotations

import contextlib
import inspect
import sys
from types import ModuleType

import pytest

from cleanerd.spark import audit, audit_rules
from tests.cleaner.driver import scratch
from tests.spark.audit_cases import CASES
from tests.spark.audit_model import NOW, Pair
from tests.spark.cases import found, judge_cases
from tests.verify import cleaned_partition

PAIRS = {f"pair {seed}": Pair(seed).case() for seed in range(60)}
GONE_TAIL = "was_seen & is_cleaned & ~is_below & ~is_seen"
MUTANTS = {
    "the first version wins": ('rows["win_version"], rows["win_offset"]', '-rows["win_version"], rows["win_offset"]'),
    "no version wins over one": ('(rows["win_flags"] & RecordFact.HAS_VERSION) != 0', '(rows["win_flags"] & 128) == 0'),
    "equal versions: the lowest offset": ('rows["win_offset"]], rows', '-rows["win_offset"]], rows'),
    "aborted records win": (
        "rows = np.flatnonzero(pairs",
        "was_seen = pairs.is_before\n    rows = np.flatnonzero(pairs",
    ),
    "the tail wins": ("competes, left = was_seen & is_below,", "competes, left = was_seen,"),
    "the tail is left over": ("is_seen & is_below\n    gone", "is_seen\n    gone"),
    "evidence ends with the cleaned records (U-1)": (
        '"rivals": was_seen.astype',
        '"rivals": (was_seen & is_below).astype',
    ),
    "a tombstone may be removed whatever else exists (U-1)": (
        ' & ~(((flags & RecordFact.ALONE) != 0) & (keys["rivals"] > 1))',
        "",
    ),
    "no tombstone may be removed": ("is_missing & (left == 0) & ~may_go", "is_missing & (left == 0)"),
    "any tombstone may be removed": (
        "may_go = ((flags & RecordFact.MAY_GO) != 0)",
        "may_go = ((flags & RecordFact.TOMBSTONE) != 0)",
    ),
    "invisible records count": ('"win_stands": is_seen.', '"win_stands": pairs.is_after[rows].'),
    "digests do not count": ('"altered": is_altered |', '"altered":'),
    "attributes do not count": ("is_altered | (has_other_attributes & ~may_lose_attributes)", "is_altered"),
    "attributes always count": ("(has_other_attributes & ~may_lose_attributes)", "has_other_attributes"),
    "zeroed flags are as with Kafka": (" & ((b_flags & RecordFact.ATTRIBUTES) == 0)", ""),
    "open is aborted": (" | (((b_flags & RecordFact.OPEN) != 0) & is_seen)", ""),
    "a resurrected record is fine": ('report("resurrected", is_missing', 'report("resurrected", False & is_missing'),
    "a stale record is fine": ('report("stale", is_missing', 'report("stale", False & is_missing'),
    "superseded records are never searched": ("twice = dirty &", "twice = False & dirty &"),
    "superseded records are always searched": (' & (keys["is_cleaned"] != 0) & wins', " & wins"),
    "the clean section was judged again (R280-11)": ('keys["is_dirty"] != 0', 'keys["is_dirty"] >= 0'),
    "the tail may be missing": (GONE_TAIL, f"{GONE_TAIL} & False"),
    "keyless may stay": ("== 0) & is_below & is_cleaned,", "== 0) & False,"),
    "aborted may be read": ("is_seen & was & ~was_seen", "is_seen & False"),
    "any record may appear": ("present & ~was & ~is_damaged", "present & False"),
    "twice is once": ("(pairs.afters > 1)", "(pairs.afters > 9)"),
    "damage is nothing": ('"damaged": is_damaged,', '"damaged": is_damaged & False,'),
}


def verdicts_that_differ() -> list[str]:
    cases = {**CASES, **PAIRS}
    with scratch() as root:
        reported = judge_cases(None, root, list(cases.values()), NOW)
    return [
        name
        for (name, case), judged in zip(cases.items(), reported, strict=True)
        if found(judged) != {kind: count for kind, count in case.expected.items() if count}
    ]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_mistake_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a mistake everything is as expected."""
    assert cleaned_partition.NOW == NOW, "one job for all"
    assert verdicts_that_differ() == []
    source, unnoticed = inspect.getsource(audit_rules), []
    for name, (old, new) in MUTANTS.items():
        assert source.count(old) == 1, f"{name}: not in the rules any more"
        planted = ModuleType("planted")
        exec(compile(source.replace(old, new), "planted", "exec"), planted.__dict__)  # noqa: S102 - our own
        with monkeypatch.context() as patch:
            patch.setattr(audit, "JUDGE", planted.JUDGE)
            with contextlib.suppress(TypeError):  # no place to report: noticed too
                if not verdicts_that_differ():
                    unnoticed.append(name)
        sys.stdout.write(f"planted: {name}\n")
    assert unnoticed == []
