"""``verify`` on topics with a strategy: the real cleaner's result is right, and every kind of fault is found."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from cleanerd.verify.partition import VerifyRequest, verify_partition
from cleanerd.verify.rules import KeyRules
from tests.cleaner.driver import NAME, scratch
from tests.cleaner.strategy_cases import NOW, batches, rec
from tests.cleaner.strategy_script import HEADER, MARKER, Script, Shape
from tests.cleaner.strategy_world import World
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.cleaner.survey import CleaningOptions
    from tests.cleaner.strategy_script import Clean

BY_HEADER = KeyRules("header", b"version")
FOREVER = KeyRules("header", b"version", tombstone_guard="forever")


def rules_of(shape: Shape) -> KeyRules:
    return KeyRules(shape.strategy, HEADER, shape.encoding, shape.mode, MARKER, shape.guard)


class VerifiedWorld(World):
    """Every cleaning is verified against a copy from before it."""

    verified = 0

    def _clean(self, step: Clean, options: CleaningOptions) -> CleaningResult:
        copy = self.path.parent / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.partition, copy)
        result = super()._clean(step, options)
        question = VerifyRequest(
            now_ms=step.now_ms,
            producer_expiration_ms=1,
            log_start=self.start,
            clean_below=result.end_offset if step.first_dirty is None and result.outcome != "skipped" else None,
            against=copy,
            rules=rules_of(self.shape),
        )
        found = verify_partition(self.partition, question).findings
        assert [finding for finding in found.in_order() if finding.rule in KEY_RULES] == []
        self.verified += 1
        return result


KEY_RULES = {"C-45", "C-45.2", "R280-9", "R534-6", "U-1", "U-14"}


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["header", "timestamp", "offset"])
@pytest.mark.parametrize("mode", ["null", "flag", "header"])
def test_a_cleaned_log_passes_verification(strategy: str, mode: str) -> None:
    """U-28: another implementation of the same rules, cleaning by cleaning."""
    verified = 0
    for seed in range(14):
        shape = Shape(strategy, mode=mode, expires=seed % 2 == 0, guard="forever" if seed % 7 == 0 else "horizon")
        with scratch() as root:
            log = VerifiedWorld(root, shape)
            log.run(Script(shape, seed, rounds=3, moves=seed % 3 == 0))
            verified += log.verified
    assert verified > 20


def verified(root: Path, before: bytes, after: bytes, rules: KeyRules, *, end: int) -> list[str]:
    """The rules that ``after`` breaks as a cleaning of ``before``."""
    new = make_log_dir(root / "new", {NAME: Partition({0: after, end: b""})}) / NAME
    old = make_log_dir(root / "old", {NAME: Partition({0: before, end: b""})}) / NAME
    question = VerifyRequest(now_ms=NOW, clean_below=end, against=old, rules=rules)
    return [finding.rule for finding in verify_partition(new, question).findings.in_order()]


def batch(*records: Record, at: int = 0, horizon: int | None = None) -> bytes:
    return encode_batch(list(records), base_offset=at, delete_horizon=horizon)


KEY = (rec("k", 9), rec("k", 1))
EXPIRED = batch(rec("k", 9, value=None), horizon=NOW)
EMPTY = batch(at=1)
OTHER = batch(rec("x", 1), at=1)


@pytest.mark.parametrize(
    ("before", "after", "rules", "broken"),
    [
        pytest.param(batches(*KEY), batches(*KEY)[: len(batches(KEY[0]))] + EMPTY, BY_HEADER, [], id="by version"),
        pytest.param(batches(*KEY), batches(KEY[1], first=1), KeyRules(), [], id="by offset"),
        pytest.param(batches(*KEY), batches(*KEY), BY_HEADER, ["C-45"], id="C-45: both are there"),
        pytest.param(
            batches(*KEY), batches(KEY[1], first=1), BY_HEADER, ["R534-6", "R280-9"], id="R280-4: the later one"
        ),
        pytest.param(batches(*KEY), EMPTY, BY_HEADER, ["R280-9"], id="none"),
        pytest.param(EXPIRED + OTHER, OTHER, BY_HEADER, [], id="U-1: alone, and expired"),
        pytest.param(EXPIRED + OTHER, OTHER, FOREVER, ["U-1"], id="U-4"),
        pytest.param(EXPIRED + batches(KEY[1], first=1), EMPTY, BY_HEADER, ["U-1"], id="U-1: with its loser"),
        pytest.param(EXPIRED + batches(rec("k", value=None), first=1), EMPTY, KeyRules(), ["R280-9"], id="no horizon"),
        pytest.param(
            batch(rec("k", flag=True), horizon=NOW) + OTHER, OTHER, KeyRules(tombstone_mode="flag"), [], id="R87-2"
        ),
        pytest.param(batch(rec("k", flag=True), horizon=NOW) + OTHER, OTHER, KeyRules(), ["R280-9"], id="R87-1"),
        pytest.param(
            batch(rec("k", value=None), horizon=NOW) + OTHER,
            OTHER,
            KeyRules(tombstone_mode="flag"),
            ["R280-9"],
            id="R87-3: a null without the flag is a value",
        ),
        pytest.param(
            batch(rec("k", marker=b"1"), horizon=NOW) + OTHER,
            OTHER,
            KeyRules(tombstone_mode="header", tombstone_header=b"deleted"),
            [],
            id="R87-4",
        ),
    ],
)
def test_rules(tmp_path: Path, before: bytes, after: bytes, rules: KeyRules, broken: list[str]) -> None:
    """R280-4..R280-6, R87-1..R87-4, U-1, U-4: the same files are right by one strategy and wrong by another."""
    assert verified(tmp_path, before, after, rules, end=2) == broken
