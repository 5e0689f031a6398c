"""Many small partitions judged by one Spark job: a job costs seconds, a partition nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleanerd.spark.audit import AuditQuestion, audit_sides, new_digest_key
from cleanerd.spark.audit_inputs import sides_of
from cleanerd.verify.rules import KeyRules
from tests.support.log_dirs import Partition, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.spark.audit import AuditedPartition

EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Case:
    """Segments before and after by base offset, the query, and the findings by kind."""

    before: Mapping[int, bytes]
    after: Mapping[int, bytes]
    expected: Mapping[str, int]
    rules: KeyRules = field(default_factory=KeyRules)
    clean_end: int | None = 2**40
    first_dirty: int = 0
    log_start: int = 0
    many_cleanings: bool = False

    @property
    def question(self) -> AuditQuestion:
        return AuditQuestion(self.rules, self.clean_end, self.first_dirty, self.log_start, self.many_cleanings)


def judge_cases(spark: SparkSession | None, root: Path, cases: Sequence[Case], now_ms: int) -> list[AuditedPartition]:
    """Run case ``i`` as the partition ``t-i``."""
    for name in ("before", "after"):
        partitions = {f"t-{at}": Partition(getattr(case, name), indexes=False) for at, case in enumerate(cases)}
        make_log_dir(root / name, partitions)
    compared, notes = sides_of(root / "before", root / "after")
    assert notes == []
    questions = [cases[sides.name.partition].question for sides in compared]
    judged = audit_sides(spark, compared, questions, now_ms=now_ms, hash_key=new_digest_key(), examples=EXAMPLES)
    return sorted(judged, key=lambda each: each.name.partition)


def found(judged: AuditedPartition) -> dict[str, int]:
    """Findings by kind, without kinds that have none."""
    return {kind: count for kind, count in judged.findings.items() if count}
