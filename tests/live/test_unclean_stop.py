"""A log whose recovery point is behind because its broker was killed (U-49)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.format.names import TopicPartition as Name
from tests.live.load import create_topics
from tests.live.rounds import Rounds, with_agent
from tests.live.shared_broker import check_broker, cleaner_checkpoint, facts, read, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]


def test_cleaned_up_to_the_active_segment(broker_43: StartBroker, tmp_path: Path) -> None:
    """U-49: live cleaning uses the broker's own limit, as its cleaner does; another kill loses no cleaned record."""
    # Both: a broker writes the recovery points half a minute after its start, then at the interval.
    never = dict.fromkeys(("log.flush.offset.checkpoint.interval.ms", "log.initial.task.delay.ms"), "3600000")
    broker = broker_43(jvm_args=with_agent(), properties=never)
    create_topics(broker, ["orders"])
    latest = write(broker, "orders")
    broker.kill()
    broker.start()
    found = facts(broker, "orders")
    assert found.recovery_point < found.segments[-2].base < found.active.base
    (result,) = Rounds(broker, tmp_path / "state").clean(Name("orders", 0))
    assert (result.outcome, result.end_offset) == ("cleaned", found.active.base), result.reason
    assert result.removed.superseded > 0
    assert cleaner_checkpoint(broker, "orders") == found.active.base
    broker.kill()
    broker.start()
    assert facts(broker, "orders").active.base == found.active.base
    assert read(broker, "orders") == latest
    check_broker(broker)
