"""A real broker one of whose disks fails, as cleanerd sees it through the agent."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from cleanerd.broker.live_broker import LiveBroker, has_given_up
from cleanerd.errors import NO_LOG, AgentRefusalError
from cleanerd.format.names import parse_topic_partition_dir
from cleanerd_lab.demo.broker import Broker
from tests.agent.live import JAR, PROPERTIES, Live
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


def test_a_log_directory_fails() -> None:
    """U-38: the partition is gone from the broker then, and its log directory is none of those that the broker uses."""
    jars = fetch("4.3")
    with tempfile.TemporaryDirectory(prefix="given-up-") as work:
        broker = Broker(
            jars.libs,
            Path(work),
            version=jars.version,
            properties=PROPERTIES,
            jvm_args=[f"-javaagent:{JAR}"],
            log_dirs=3,
        )
        with broker:
            live = Live(broker)
            topics = [live.topic(f"kept{number}", transactions=False) for number in range(3)]
            # Without the directory of its metadata the broker ends.
            topic = next(each for each in topics if each.log_dir != broker.log_dirs[0])
            name = parse_topic_partition_dir(topic.directory.name)
            assert name is not None
            with LiveBroker(live.socket) as asked:
                facts = asked.log(name)
                assert not has_given_up(asked.info(), facts)
                topic.log_dir.rename(topic.log_dir.with_suffix(".gone"))

                def is_gone() -> bool:
                    try:
                        asked.log(name)
                    except AgentRefusalError as error:
                        return error.code == NO_LOG
                    return False

                wait_until("the broker lets go of it", is_gone)
                assert has_given_up(asked.info(), facts)
            broker.kill()
