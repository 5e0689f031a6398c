"""Kafka's own cleaner, audited: its output is right under ``offset``, whatever else it leaves."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cleanerd.spark.audit import AuditQuestion, audit_sides, new_digest_key
from cleanerd.spark.audit_inputs import sides_of
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules
from tests.cleaner.driver import scratch
from tests.kafka.judge import Judge, Round
from tests.spark.cases import found
from tests.verify.histories import HOUR_MS, T0, legacy_log, transactional_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.long]
TRANSACTIONAL = 10
LEGACY = 3
LATER_MS = T0 + 48 * HOUR_MS
CONFIG = {"delete.retention.ms": str(HOUR_MS)}


def test_kafkas_cleaner_is_right(spark: SparkSession) -> None:
    """Transactions, every codec, tombstones before and past their horizon, old formats converted to v2 (C-53).

    For every second log the copy has already been cleaned once: the next cleaning removes tombstones and markers. By
    another strategy the same files are wrong.
    """
    makers = [transactional_log] * TRANSACTIONAL + [legacy_log] * LEGACY
    with scratch() as root, Judge("4.3") as judge:
        ends = []
        for seed, maker in enumerate(makers):
            name = f"t-{seed}"
            for side in ("before", "after"):
                (root / side).mkdir(exist_ok=True)
            judge.make(root / "made" / name, maker(seed), now_ms=T0, producer_expiration_ms=2**31 - 1)
            last = seed % 2 == 1
            source = root / "made" / name
            if last:
                judge.clean(root / "first" / name, [Round(now_ms=LATER_MS - 3 * HOUR_MS)], source=source, config=CONFIG)
                source = root / "first" / name
            (cleaned,) = judge.clean(
                root / "after" / name, [Round(now_ms=LATER_MS, first_dirty_offset=0)], source=source, config=CONFIG
            )
            source.rename(root / "before" / name)
            ends.append(cleaned.end_offset)
        compared, _ = sides_of(root / "before", root / "after")
        arguments = [AuditQuestion(KAFKAS_RULES, ends[sides.name.partition]) for sides in compared]
        key = new_digest_key()
        judged = audit_sides(spark, compared, arguments, now_ms=LATER_MS, hash_key=key, examples=4)
        assert {str(each.name): (found(each), each.examples) for each in judged if each.found} == {}
        dropped = [each.before.records - each.after.records for each in judged[:TRANSACTIONAL]]
        assert all(dropped[::2]), "U-26"
        assert any(dropped[1::2]), "U-26: no tombstone was removed"
        others = [AuditQuestion(KeyRules("timestamp"), each.clean_end) for each in arguments]
        by_time = audit_sides(spark, compared, others, now_ms=LATER_MS, hash_key=key, examples=4)
    wrong = Counter(kind for each in by_time for kind in found(each))
    assert wrong["stale"] > 0, "records come in the order of their times: the cell tests nothing (U-26)"
    assert [each.after.digest for each in by_time] == [each.after.digest for each in judged]
