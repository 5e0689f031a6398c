"""How long the agent holds a log's lock if a producer has created as much state as possible (A-36)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.agent.building import HERE, changed_build
from tests.agent.live import PROPERTIES, Live
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long, pytest.mark.timeout(1500)]

PRODUCERS: Final = int(os.environ.get("HOLDS_PRODUCERS", "1000000"))
SEGMENTS: Final = int(os.environ.get("HOLDS_SEGMENTS", "13000"))
MOST_HELD_US: Final = 10_000
CHANGES: Final = (
    ("return swapIn(log);", "return Measured.of(broker, log);"),
    ('"segment.index.bytes", "4096"', '"segment.index.bytes", "10485760"'),
    ('"index.interval.bytes", "1"', '"index.interval.bytes", "4096"'),
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The agent's measurements in a log with ``PRODUCERS`` and ``SEGMENTS``, in a new broker."""
    work_dir = Path(tempfile.mkdtemp(prefix="agent-holds-"))
    shutil.copytree(HERE / "builds" / "holding", work_dir / "holding-sources")
    jar = changed_build(work_dir, "holding", "SelfTest.java", *CHANGES)
    jars = fetch("4.3")
    arguments = [
        f"-javaagent:{jar}",
        f"-Djava.io.tmpdir={tmp_path_factory.mktemp('jvm')}",
        f"-Dcleanerd.test.producers={PRODUCERS}",
        f"-Dcleanerd.test.segments={SEGMENTS}",
        "-Xmx1g",
        "-XX:TieredStopAtLevel=4",
    ]
    broker = Broker(jars.libs, work_dir, version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    try:
        broker.start()
        wait_until("the agent has measured and listens", Live(broker).socket.exists, seconds=900)
        with Live(broker).asking() as agent:
            info = agent.ask("info")
        assert info["self_test"] == "passed", info["self_test_detail"]
        yield {**json.loads(info["self_test_detail"]), "bounds_us": info["held"]["log"]["bounds_us"]}
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


def test_the_logs_lock_is_held_briefly(measured: dict[str, Any]) -> None:
    """A-36: reading such a log, and a query for each 100,000 of its producers, hold its lock for at most 10 ms.

    The JVM and a busy machine may pause a thread at any time. So each is tried up to twenty times, and one try must be
    short enough; a cost that grows with the log would make every try longer.
    """
    assert measured["bounds_us"][4] == MOST_HELD_US
    assert (measured["looks_too_long"], measured["slices_too_long"]) == (0, 0)
    assert measured["segments"] > SEGMENTS
    assert measured["holds"] >= PRODUCERS // 256


def test_a_query_shows_no_producer(measured: dict[str, Any]) -> None:
    """A-36: the response does not grow with the producers; all of them are found by their ids."""
    assert measured["found"] == PRODUCERS
    assert measured["answer"] < 100 * measured["segments"] + 10_000
