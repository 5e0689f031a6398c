"""The agent starts and ends on a failing disk: neither affects the broker's work (R-3, R-10)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.agent.building import changed_build, changed_source
from tests.agent.live import PROPERTIES, Live
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

SELF_TEST: Final = "        broker.runSelfTest(journal);\n"
HANGS: Final = """
        java.nio.file.Path hang = java.nio.file.Path.of(System.getProperty("cleanerd.test.hang"));
        while (java.nio.file.Files.exists(hang)) { // as on a disk that does not answer
            java.nio.file.Path hangs = hang.resolveSibling("hangs");
            if (!java.nio.file.Files.exists(hangs)) {
                java.nio.file.Files.createFile(hangs);
            }
            Threads.pause(100);
        }
"""
MOVE_IN: Final = "        files.moveIn(staging);\n"
NO_ROOM: Final = """
        if (java.nio.file.Files.exists(java.nio.file.Path.of(System.getProperty("cleanerd.test.full")))) {
            throw new IOException("No space left on device");
        }
"""


def test_a_full_disk_during_the_self_test() -> None:
    """R-10: it shows nothing about the release. It kept the agent from swapping until the next attach."""
    jars = fetch("4.3")
    work_dir = Path(tempfile.mkdtemp(prefix="agent-begin-"))
    changed_source(work_dir, "full", "Broker.java", ("= 60_000_000_000L;", "= 1_000_000_000L;"))
    jar = changed_build(work_dir, "full", "Attempt.java", (MOVE_IN, NO_ROOM + MOVE_IN))
    full = work_dir / "full"
    full.touch()
    arguments = [f"-Dcleanerd.test.full={full}", f"-javaagent:{jar}"]
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    try:
        broker.start()
        with Live(broker).asking() as agent:
            reported = agent.ask("info")
            assert (reported["self_test"], reported["capable"]) == ("not_run", True), reported
            assert "No space left" in reported["self_test_detail"]
            full.unlink()
            wait_until("the self-test is repeated", lambda: agent.ask("info")["self_test"] == "passed")
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


@pytest.mark.long
def test_the_jvm_stops_while_the_agent_hangs() -> None:
    """Its shutdown hook waited for the agent's supervising thread, and the JVM waits for its hooks."""
    jars = fetch("4.3")
    work_dir = Path(tempfile.mkdtemp(prefix="agent-end-"))
    jar = changed_build(work_dir, "hanging", "Entry.java", (SELF_TEST, HANGS + SELF_TEST))
    hang = work_dir / "hang"
    arguments = [f"-Dcleanerd.test.hang={hang}", f"-javaagent:{jar}"]
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    try:
        broker.start()
        wait_until("it listens", Live(broker).socket.is_socket)
        hang.touch()
        wait_until("it hangs", hang.with_name("hangs").exists)
        broker.stop()
    finally:
        broker.kill()
        shutil.rmtree(work_dir)
