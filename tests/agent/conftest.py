"""One broker a release for all of these tests."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.demo.broker import Broker
from tests.agent.live import JAR, PROPERTIES, Live
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.agent.asking import Asking


@pytest.fixture(scope="package", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A broker of each release, started with the agent as anybody would."""
    assert JAR.is_file(), "run make setup: the agent's jar is missing"
    jars = fetch(request.param)
    work_dir = Path(tempfile.mkdtemp(prefix=f"agent-{request.param}-"))
    broker = Broker(
        jars.libs, work_dir, version=jars.version, properties=PROPERTIES, jvm_args=[f"-javaagent:{JAR}"], log_dirs=2
    )
    try:
        broker.start()
        yield Live(broker)
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


@pytest.fixture
def agent(live: Live) -> Iterator[Asking]:
    """A connection to the agent."""
    with live.asking() as asking:
        yield asking
