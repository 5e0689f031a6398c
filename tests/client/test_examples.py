"""The example programs, run as a reader would, against both releases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd.client.producer import Producer
from cleanerd.client.rules import TopicRules
from tests.client.broker_topics import config, records_on_disk, topic
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from cleanerd_lab.demo.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

EXAMPLES = Path(__file__).parents[2] / "examples"
VERSIONED = TopicRules(strategy="header", version_header="version")


def run(name: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_example_is_run() -> None:
    """A program that is never run breaks soon."""
    words = Path(__file__).read_text()
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        name for name in (path.name for path in EXAMPLES.glob("*.py")) if f'"{name}"' in words
    }
    assert all(f"`{path.name} " in (EXAMPLES / "README.md").read_text() for path in EXAMPLES.glob("*.py"))


@pytest.mark.long
def test_versions(broker: Broker) -> None:
    """Producer, view over the broker with later updates, view over the files: the highest version, not the last."""
    name = topic(broker)
    assert run("versioned_producer.py", broker.bootstrap, name) == [
        "idempotent: True",
        "written at offset 0",
        "written at offset 1",
        "written at offset 2",
    ]
    reader = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "latest_state.py"), broker.bootstrap, name, "2"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    try:
        assert reader.stdout.readline() == "b'order-1' is b'shipped', version 3\n"
        with Producer(config(broker), VERSIONED) as producer:
            producer.produce(name, b"order-1", b"late", version=2)
            producer.produce(name, b"order-1", None, version=4)
            producer.produce(name, b"order-2", b"placed", version=1)
        assert reader.communicate(timeout=PATIENCE_SECONDS)[0].splitlines() == [
            "b'order-1' is gone, version 4",
            "b'order-2' is now b'placed', version 1",
        ]
    finally:
        reader.kill()
        reader.wait()
    broker.stop()
    try:
        assert run("latest_state_offline.py", name, *map(str, broker.log_dirs)) == [
            f"{name}-0 offset 5: b'order-2' is b'placed', version 1"
        ]
    finally:
        broker.start()


def test_header_tombstones(broker: Broker) -> None:
    name = topic(broker)
    assert run("header_tombstones.py", broker.bootstrap, name) == [
        "0: sets b'customer-1' b'Ada'",
        "1: sets b'customer-2' b'Bob'",
        "2: deletes b'customer-1' b'erased on request 4711'",
        "3: deletes b'customer-2' None",
    ]


def test_flag_tombstones(broker: Broker) -> None:
    name = topic(broker)
    assert run("flag_tombstones.py", broker.bootstrap, name) == [
        "0: sets b'customer-1' b'Ada'",
        "1: sets b'customer-2' b'Bob'",
        "2: deletes b'customer-1' b'erased on request 4711'",
        "left: b'customer-2' b'Bob'",
    ]
    assert [record.attributes for record in records_on_disk(broker, name)] == [0, 0, 0x20]
