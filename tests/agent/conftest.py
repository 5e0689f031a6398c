"""One broker per release for all of these tests."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.agent import damage
from tests.agent.live import JAR, PROPERTIES, Live
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.cleaner.manifest import Manifest, ManifestGroup
    from tests.agent.live import Topic
    from tests.agent.raw_client import Asking


@pytest.fixture(scope="package", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def live(request: pytest.FixtureRequest) -> Iterator[Live]:
    """A broker of every release, started with the agent."""
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


@pytest.fixture(scope="module")
def plan(live: Live, request: pytest.FixtureRequest) -> tuple[Topic, Manifest, ManifestGroup]:
    """A topic, a plan with more than one group, and a group with enough data in each of its files.

    The segment borders depend on the speed of the writes, so it may take another topic.
    """
    for number in range(5):
        topic = live.topic(f"{request.module.__name__.rpartition('.')[2]}{number}")
        manifest = topic.stage(output_bytes=12_000)
        for group in reversed(manifest.groups):
            files = topic.staged_files(manifest, group)
            entries = {kind: len(files.get(kind, b"")) // size for kind, size in damage.ENTRY.items()}
            if len(manifest.groups) > 1 and min(entries.values()) >= 2 and damage.thinned(files) is not None:
                return topic, manifest, group
    raise AssertionError("no group with a thinned batch and two entries in each index")


@pytest.fixture(scope="module")
def topic(plan: tuple[Topic, Manifest, ManifestGroup]) -> Topic:
    """A topic that only the previous test has changed."""
    return plan[0]


@pytest.fixture(scope="module")
def manifest(plan: tuple[Topic, Manifest, ManifestGroup]) -> Manifest:
    """One plan with more than one group."""
    return plan[1]


@pytest.fixture(scope="module")
def group(plan: tuple[Topic, Manifest, ManifestGroup]) -> ManifestGroup:
    """A group with enough data in each of its files, and with aborted data that stays."""
    return plan[2]
