"""A broker that stops does not wait for its agent (R-3)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.agent.building import changed_build
from tests.agent.live import PROPERTIES, Live
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

TRIAL: Final = "        broker.tryOut(journal);\n"
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


def test_while_the_agent_hangs() -> None:
    """Its hook waited for the thread that looks after the agent, and the JVM waits for its hooks."""
    jars = fetch("4.3")
    work_dir = Path(tempfile.mkdtemp(prefix="agent-end-"))
    jar = changed_build(work_dir, "hanging", "Entry.java", (TRIAL, HANGS + TRIAL))
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
