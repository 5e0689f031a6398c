"""The agent loaded into a running broker, and replaced in it by another build (I-2, A-02, A-03)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.lock_file import broker_process
from cleanerd_lab.demo.broker import Broker
from tests.agent import damage
from tests.agent.building import build, changed_build
from tests.agent.live import JAR, PROPERTIES, Live, attach, build_of, file_facts, is_another_build
from tests.brokers.node import error_lines, wait_until
from tests.kafka.judge import fetch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


@pytest.fixture(scope="module")
def bare() -> Iterator[Live]:
    """A broker started without an agent."""
    jars = fetch("4.3")
    work_dir = Path(tempfile.mkdtemp(prefix="attach-"))
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, properties=PROPERTIES)
    try:
        broker.start()
        yield Live(broker)
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


@pytest.fixture(scope="module")
def attached(bare: Live) -> Live:
    """The same broker with the released agent, or with a build that replaced it."""
    if not bare.socket.is_socket():
        attach(bare, JAR)
        wait_until("the socket", bare.socket.is_socket)
    return bare


@pytest.fixture(scope="module")
def other_build(bare: Live) -> Path:
    """The released agent under another build name."""
    return changed_build(bare.broker.work_dir, "other", "Entry.java", ("SEARCHES = 1200;", "SEARCHES = 1201;"))


def test_attached_twice_it_runs_once(bare: Live) -> None:
    """A-02: the second attach does nothing, whatever its arguments."""
    attach(bare, JAR)
    wait_until("the socket", bare.socket.is_socket)
    first = build_of(bare)
    assert first[2] == "agentmain"
    attach(bare, JAR)
    assert build_of(bare) == first


def test_the_process_is_known_by_the_log_directory(bare: Live) -> None:
    """``agent attach LOG_DIR``: the owner of Java's lock is the process."""
    assert {broker_process(path) for path in bare.broker.log_dirs} == {bare.broker.pid}


def replace_agent(live: Live, jar: Path) -> None:
    """Replace the running build by another one."""
    before = build_of(live)
    attach(live, jar)
    wait_until("the other build", lambda: is_another_build(live, before[0]))


@pytest.mark.long
def test_the_log_manager_is_found_through_a_thread(attached: Live) -> None:
    """F-3, LT-1: without the gauges the agent finds the same LogManager: the same logs, the same abilities."""
    with attached.asking() as agent:
        before = agent.ask("info")
        logs = agent.ask("logs")
    wrong = ("org.apache.kafka.server.metrics.KafkaYammerMetrics", "org.apache.kafka.server.metrics.Nothing")
    replace_agent(attached, changed_build(attached.broker.work_dir, "no-metrics", "Finder.java", wrong))
    with attached.asking() as agent:
        info = agent.ask("info")
        assert (before["found_via"], info["found_via"]) == ("metrics", "threads")
        assert (info["capable"], info["log_dirs"]) == (True, before["log_dirs"])
        assert agent.ask("logs") == logs
    topic = attached.topic("by-thread", transactions=False)
    with attached.asking() as agent:
        assert agent.ask("swap", **topic.request(topic.stage(output_bytes=60_000)))["done"] == [0]
    assert topic.read() == topic.latest


@pytest.mark.long
def test_an_idle_connection_is_closed(attached: Live) -> None:
    """A-32: a line without an end, and an idle connection; in this test after one and three seconds."""
    shorter = (("LINE_SECONDS = 30", "LINE_SECONDS = 1"), ("IDLE_SECONDS = 300", "IDLE_SECONDS = 3"))
    replace_agent(attached, changed_build(attached.broker.work_dir, "impatient", "Connection.java", *shorter))
    with attached.asking() as half, attached.asking() as silent, attached.asking() as idle:
        idle.ask("info")
        half.send(b'{"v":1,"id":1,')
        started = time.monotonic()
        assert half.answer() is None
        assert silent.answer() is None
        assert time.monotonic() - started < 10
        assert idle.ask("info")["ready"] is True, "not idle for long enough"
        started = time.monotonic()
        assert idle.answer() is None
        assert 2 < time.monotonic() - started < 15


# the agent's code for each damage, and the broker's result without the check
TAKEN = {
    "cut inside the last batch": damage.LOG["cut"],
    "last batch missing": damage.without_last_batch,
    "random bytes": damage.LOG["random"],
    "one byte flipped": damage.LOG["flipped"],
    "zero length": damage.LOG["empty"],
    "first offset changed": damage.FOREIGN["base offset"],
    "index position off by one": damage.INDEX["position"],
    "index cut": damage.INDEX["cut"],
    "index of zeros": damage.INDEX["zeros"],
    "time index too high": damage.TIMEINDEX["last too high"],
}


TAKEN_CASES = [
    pytest.param(harm, id=name.replace(" ", "-"), marks=[] if number < 2 else [pytest.mark.long])
    for number, (name, harm) in enumerate(TAKEN.items())
]


@pytest.fixture(scope="module")
def credulous(attached: Live) -> Live:
    """A-03: the stub of the first jar loads another jar's implementation with a class loader of its own."""
    replace_agent(attached, build(attached.broker.work_dir, "unchecked"))
    return attached


@pytest.mark.long
@pytest.mark.parametrize("harm", TAKEN_CASES)
def test_a_build_without_the_check_accepts_the_swap(
    credulous: Live, request: pytest.FixtureRequest, harm: damage.Damage
) -> None:
    """A damage that test_refusals.py sees refused passes in a build without the check, without a log line."""
    topic = credulous.topic(f"taken-{request.node.callspec.id}", transactions=False)
    manifest = topic.stage(output_bytes=60_000)
    (group,) = manifest.groups
    sound = topic.staged_files(manifest, group)
    damaged = harm(group, sound)
    swap = topic.request(manifest, plan=topic.copy_staged(group, damaged))
    facts = {kind: file_facts(data) for kind, data in damaged.items()}
    swap["groups"][0]["sizes"] = {kind: size for kind, (size, _) in facts.items()}
    swap["groups"][0]["crc32c"] = {kind: crc for kind, (_, crc) in facts.items()}
    with credulous.asking() as agent:
        assert agent.ask("swap", **swap)["done"] == [group.base]
        reported = {base: size for base, size, _, _ in agent.ask("log", topic=topic.name, partition=0)["segments"]}
    assert reported[group.base] == len(damaged["log"]), "it serves this"
    assert (topic.directory / f"{group.base:020d}.log").read_bytes() == damaged["log"]
    if harm is damage.without_last_batch:
        lost = {record.key or b"" for record in damage.batches_of(damage.batches({"log": sound["log"]})[-1])[0].records}
        found = topic.read()
        assert {key for key in topic.latest if found.get(key) != topic.latest[key]} == lost
    assert error_lines(credulous.broker.log_text()) == []


def test_a_broken_agent_argument_is_reported(attached: Live) -> None:
    """A-01: a broken argument is reported on stderr, with no other effect."""
    before = build_of(attached)
    command = ["jcmd", str(attached.broker.pid), "JVMTI.agent_load", str(JAR), '"jar=/nowhere.jar"']
    subprocess.run(command, check=True, timeout=PATIENCE_SECONDS, capture_output=True)
    assert build_of(attached) == before
    assert "cleanerd agent: not started" in attached.broker.log_text()


@pytest.mark.long
@pytest.mark.parametrize("option", ["sokket=/x", "transport=tcp", "socket=/tmp/cleanerd.sock"])
def test_a_build_that_cannot_run_does_not_replace_the_agent(attached: Live, other_build: Path, option: str) -> None:
    """A-02: the running build used to be stopped first.

    Then the new one did not start, or had no place for its socket.
    """
    before = build_of(attached)
    reported = attached.broker.log_text().count("cleanerd agent: not started")
    attach(attached, other_build, option)
    wait_until(
        "the error is logged", lambda: attached.broker.log_text().count("cleanerd agent: not started") > reported
    )
    assert build_of(attached) == before
