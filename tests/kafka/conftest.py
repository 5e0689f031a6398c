"""Sessions of the judges. Missing jars are fetched, never a reason to skip."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def judge_43() -> Iterator[Judge]:
    """Kafka 4.3 as a judge, one JVM for the whole session."""
    with Judge("4.3") as judge:
        yield judge


@pytest.fixture(scope="session")
def judge_39() -> Iterator[Judge]:
    """Kafka 3.9 as a judge, one JVM for the whole session."""
    with Judge("3.9") as judge:
        yield judge
