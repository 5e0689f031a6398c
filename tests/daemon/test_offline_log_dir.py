"""A real broker one of whose disks fails: it continues without that log directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.agent_transport import SOCKET
from cleanerd.broker.live_broker import LiveBroker, is_offline_log_dir
from cleanerd.errors import NO_LOG, AgentRefusalError
from cleanerd.format.names import TopicPartition
from cleanerd_lab.demo.broker import Broker
from tests.brokers.node import wait_until
from tests.daemon.site import Site
from tests.kafka.fixtures import brokers
from tests.live.load import create_topics
from tests.live.rounds import with_agent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.long

# The broker's periodic writes meet the failure.
SOON = {
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
}


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Two log directories, and the metadata in a third place: a broker ends without them."""
    for start in brokers("4.3"):
        work = tmp_path_factory.mktemp("given-up")
        own = {**SOON, "metadata.log.dir": str(work / "metadata")}
        jars = start.jars
        made = Broker(jars.libs, work, version=jars.version, log_dirs=2, properties=own, jvm_args=with_agent())
        try:
            made.start()
            yield made
        finally:
            made.kill()


@pytest.mark.kafka
@pytest.mark.broker
def test_a_log_directory_fails(broker: Broker, tmp_path: Path) -> None:
    """U-38: the broker has no partition and no lock on that directory any more, and the daemon reports what that means.

    The others are cleaned meanwhile; the broker's restart brings it back.
    """
    create_topics(broker, ["given-up"], partitions=2)
    site = Site(broker, "given-up", tmp_path)
    name = TopicPartition(site.topic, site.hurt)
    kept, failing = broker.log_dirs
    with site.daemon as daemon, LiveBroker(kept / SOCKET) as requested:
        site.write(site.hurt, site.other)
        site.cleaned(site.hurt, site.other)
        facts = requested.log(name)
        assert not is_offline_log_dir(requested.info(), facts)
        away = failing.rename(failing.with_suffix(".away"))

        def is_missing() -> bool:
            try:
                requested.log(name)
            except AgentRefusalError as error:
                return error.code == NO_LOG
            return False

        wait_until("the broker lets go of it", is_missing)
        assert is_offline_log_dir(requested.info(), facts)
        away.rename(failing)
        message = re.compile(f"no broker runs on it, but it runs on {kept}: .*it has given this directory up")
        daemon.until("it is reported", lambda view: message.match(site.log_dir(view, 1)["mode_reason"]) is not None)
        site.write(site.other)
        site.cleaned(site.other)
        broker.stop()
        broker.start()
        site.write(site.hurt)
        site.cleaned(site.hurt)
