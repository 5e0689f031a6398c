"""A shared broker of 4.3 with the agent, for all tests that leave it unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.kafka.fixtures import brokers
from tests.live.rounds import Rounds, with_agent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker

PROPERTIES: Final = {
    "log.segment.delete.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    # Move log directories in small steps, so that the test can slow a move down.
    "replica.fetch.max.bytes": "5000",
}


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with two log directories, shared by all cases."""
    for start in brokers("4.3"):
        yield start(log_dirs=2, jvm_args=with_agent(), properties=PROPERTIES)


@pytest.fixture
def rounds(shared: Broker, tmp_path: Path) -> Rounds:
    rounds = Rounds(shared, tmp_path / "state")
    rounds.note_swaps()
    return rounds
