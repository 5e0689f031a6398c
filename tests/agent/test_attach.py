"""Loaded into a broker that runs already, and replaced in it by another build (I-2, A-02, A-03)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.demo.broker import Broker
from tests.agent import damage
from tests.agent.live import JAR, PROPERTIES, Live, file_facts
from tests.agent.test_races import build
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


@pytest.fixture(scope="module")
def bare() -> Iterator[Live]:
    """A broker that nobody prepared for an agent."""
    jars = fetch("4.3")
    work_dir = Path(tempfile.mkdtemp(prefix="attach-"))
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, properties=PROPERTIES)
    try:
        broker.start()
        yield Live(broker)
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


def attach(live: Live, jar: Path) -> None:
    """Load ``jar``, as the JDK's own tool does."""
    command = ["jcmd", str(live.broker.pid), "JVMTI.agent_load", str(jar), f'"jar={jar}"']
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert "return code: 0" in done.stdout


def build_of(live: Live) -> tuple[str, int, str]:
    with live.asking() as agent:
        info = agent.ask("info")
    return info["build"], live.socket.stat().st_ino, info["loaded"]


def test_attached_twice_it_runs_once(bare: Live) -> None:
    """A-02: the second time does nothing, whatever its arguments."""
    attach(bare, JAR)
    wait_until("the socket", bare.socket.is_socket)
    first = build_of(bare)
    assert first[2] == "agentmain"
    attach(bare, JAR)
    assert build_of(bare) == first


def test_another_build_takes_over(bare: Live) -> None:
    """A-03: the stub of the first jar loads the implementation of the second with a class loader of its own.

    What the checks keep out, the broker takes (section 6): without them a log that lost its last batch goes in.
    """
    before = build_of(bare)
    topic = bare.topic("unchecked", transactions=False)
    manifest = topic.stage(output_bytes=60_000)
    (group,) = manifest.groups
    cut = damage.without_last_batch(group, topic.staged_files(manifest, group))
    lost = {
        record.key or b""
        for record in damage.batches_of(damage.batches(topic.staged_files(manifest, group))[-1])[0].records
    }

    attach(bare, build(bare.broker.work_dir, "unchecked"))
    wait_until("the other build", lambda: bare.socket.is_socket() and build_of(bare)[0] != before[0])
    request = topic.request(manifest, plan=topic.copy_staged(group, cut))
    facts = {kind: file_facts(data) for kind, data in cut.items()}
    request["groups"][0]["sizes"] = {kind: size for kind, (size, _) in facts.items()}
    request["groups"][0]["crc32c"] = {kind: crc for kind, (_, crc) in facts.items()}
    with bare.asking() as agent:
        assert agent.ask("swap", **request)["done"] == [group.base]
    found = topic.read()
    assert {key for key in topic.latest if found.get(key) != topic.latest[key]} == lost
    errors = [line for line in bare.broker.log_text().splitlines() if " ERROR " in line and "Reconfig" not in line]
    assert errors == []


def test_what_is_no_agent_starts_nothing(bare: Live) -> None:
    """A-01: a broken argument is told on stderr, and that is all."""
    before = build_of(bare)
    command = ["jcmd", str(bare.broker.pid), "JVMTI.agent_load", str(JAR), '"jar=/nowhere.jar"']
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    assert build_of(bare) == before
    assert "cleanerd agent: not started" in bare.broker.log_text()
