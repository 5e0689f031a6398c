"""F-8: logs with deleted indexes, which the broker rebuilds when it loads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.torn.play import play_lost

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = [pytest.mark.kafka, pytest.mark.long]


def test_lost_indexes(judge_43: Judge, work: Path) -> None:
    """F-8, U-12: cleaned before the broker starts, 60 logs have the same values, producers and ends as without that."""
    seen = play_lost(judge_43, work, range(200_001, 200_061))
    assert seen["clean: cleaned"] > 60, seen
    assert seen["lost entries"] > 20, "U-26"


def test_lost_indexes_as_kafka_39(judge_39: Judge, work: Path) -> None:
    """Kafka 3.9 rebuilds them in the same way."""
    play_lost(judge_39, work, range(200_101, 200_121))
