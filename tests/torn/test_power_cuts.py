"""U-32: after a power cut, readers and producers see the same log with and without cleanerd's work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.seeds import drawn
from tests.support.length import at_length
from tests.torn.play import play

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]

FIXED = range(1, 151)
LONG = range(100_001, 100_001 + at_length(1900))
DRAWN = at_length(500)


def _met_with(seen: Counter[str], cases: int) -> None:
    """U-26: cleanings and applies happened, and the cases are as intended; Kafka cannot load a few per cent."""
    assert seen["clean: cleaned"] > cases, seen
    assert seen["apply: cleaned"] > 0.55 * cases, seen
    assert seen["early"] > 0.25 * cases, seen
    assert seen["open transactions"] > 0.5 * cases, seen
    assert seen["shorter than it was"] > 0.6 * cases, seen
    assert seen["refused by Kafka"] < 0.1 * cases, seen
    assert seen["apply: stale"] < 0.05 * cases, seen


def test_power_cuts(judge_43: Judge, work: Path) -> None:
    """U-32: values, open transactions, producers and ends of 150 logs.

    ``python -m tests.torn.play SEED`` repeats one.
    """
    _met_with(play(judge_43, work, FIXED), len(FIXED))


def test_power_cuts_as_kafka_39(judge_39: Judge, work: Path) -> None:
    """Kafka 3.9 recovers them in the same way."""
    play(judge_39, work, range(301, 321))


@pytest.mark.timeout(3600)
def test_many_power_cuts(judge_43: Judge, work: Path) -> None:
    """2,400 of them, 500 with new seeds; LENGTH multiplies both."""
    _met_with(play(judge_43, work, [*LONG, *drawn(DRAWN)]), len(LONG) + DRAWN)
