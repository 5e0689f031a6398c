"""Brokers of the releases that the other tests do not start: the agent swaps there as well."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.agent.live import JAR, PROPERTIES, Live
from tests.kafka.judge import fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


@pytest.fixture(params=["3.8", "4.4"])
def release(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A broker with the agent."""
    jars = fetch_jars(request.param)
    work_dir = Path(tempfile.mkdtemp(prefix=f"agent-{request.param}-"))
    broker = Broker(jars.libs, work_dir, version=jars.version, properties=PROPERTIES, jvm_args=[f"-javaagent:{JAR}"])
    try:
        broker.start()
        yield Live(broker)
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


def test_a_plan_is_swapped_in(release: Live) -> None:
    """R-2, A-11, A-20, U-27: a known release with all its members; every group is in, and nothing is missed.

    4.4 has the class that tells its version in another package than 4.3: ``version`` was null there.
    """
    broker = release.broker
    assert f"Kafka version: {broker.version}" in broker.log_text()
    with release.asking() as agent:
        info = agent.ask("info")
        assert (info["version"], info["version_known"]) == (broker.version, True)
        assert (info["capable"], info["missing"], info["why_incapable"]) == (True, [], "")
        topic = release.topic("orders")
        manifest = topic.stage(output_bytes=12_000)
        assert len(manifest.groups) > 1
        point = manifest.groups[-1].end
        result = agent.ask("swap", **topic.request(manifest, checkpoint=point))
        assert result["done"] == [group.base for group in manifest.groups]
        assert (result["warnings"], result["checkpoint"]) == ([], True)
        log = agent.ask("log", topic="orders", partition=0)
        held = {segment[0]: segment[3] for segment in log["segments"]}
        assert {output["base"]: output["ino"] for output in result["outputs"]}.items() <= held.items()
    assert topic.clean_point == point
    assert topic.read() == topic.latest
    broker.kill()
    broker.start()
    assert topic.read() == topic.latest
    assert topic.clean_point == point
