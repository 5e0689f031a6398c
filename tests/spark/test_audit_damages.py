"""``spark audit`` finds every kind of damage that a cleaner could do, and nothing else (U-28).

Every checksum is right: the fault is in the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cleaner.driver import scratch
from tests.spark.audit_cases import CASES, COMMITTED
from tests.spark.cases import found, judge_cases
from tests.support.logs import encode_marker
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import NOW, T

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cleanerd.spark.audit import AuditedPartition


@pytest.fixture(scope="module")
def judged(spark: SparkSession) -> Iterator[dict[str, AuditedPartition]]:
    with scratch() as root:
        yield dict(zip(CASES, judge_cases(spark, root, list(CASES.values()), NOW), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_damage(judged: dict[str, AuditedPartition], name: str) -> None:
    """U-1, U-2, U-4, U-13, U-14, R280-3..R280-6, R280-11, R87-1..R87-4: reported as its kind, and nothing else is."""
    expected = {kind: count for kind, count in CASES[name].expected.items() if count}
    assert found(judged[name]) == expected, judged[name].examples


def test_place(judged: dict[str, AuditedPartition]) -> None:
    """The example has the record's position: file, byte, number, key."""
    (example,) = judged["kept loser"].examples
    assert (example.kind, example.offset, example.key) == ("duplicated", 5, b"d")
    assert example.file.endswith("/00000000000000000000.log")
    assert (example.position, example.record) == (len(s.SECOND_CLEANED), 0)
    (lost,) = judged["dropped record"].examples
    assert (lost.offset, lost.key, lost.position) == (3, b"a", len(s.FIRST))
    assert "/before/" in lost.file


def test_the_altered_fields_are_named(judged: dict[str, AuditedPartition]) -> None:
    for name in ("value", "key", "timestamp"):
        (example,) = judged[f"altered {name}"].examples
        assert example.what == f"another {name} than before"
    assert "headers" in judged["altered header"].examples[0].what


def test_examples_are_few(judged: dict[str, AuditedPartition]) -> None:
    """All are counted, some are listed, the first among them: the driver never gets more."""
    examples = judged["more than the listed examples"].examples
    assert 4 <= len(examples) <= 8
    assert examples[0].offset == 0
    assert len({example.offset for example in examples}) == len(examples)


def test_zeroed_attributes_are_counted(judged: dict[str, AuditedPartition]) -> None:
    assert judged["attributes zeroed, as Kafka does (U-14)"].zeroed == 1
    assert judged["right"].zeroed == 0


def test_digests(judged: dict[str, AuditedPartition]) -> None:
    """They depend only on the records: not on batches, segments, order."""
    right, again = judged["right"], judged["recompressed, another header of the batch"]
    assert right.after.digest == again.after.digest
    assert right.before.digest == again.before.digest != right.after.digest
    for name in ("altered value", "altered header", "dropped record", "attributes set"):
        assert judged[name].after.digest != right.after.digest
    untouched = judged["the first dirty offset is unknown"]
    assert untouched.before.digest == untouched.after.digest
    assert right.kept_records == right.after.records == right.before.records - 6


def test_marker(judged: dict[str, AuditedPartition]) -> None:
    """A record that exists and that no consumer sees counts as lost."""
    assert encode_marker(2, commit=True, producer_id=9, timestamp=T) == COMMITTED
    assert judged["commit marker missing: its record is invisible"].examples[0].offset == 1
