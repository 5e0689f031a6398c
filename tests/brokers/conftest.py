"""One story a release."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.brokers.story import PROPERTIES, Story
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def story(request: pytest.FixtureRequest) -> Iterator[Story]:
    """The story of a release; its chapters are told when a test asks for them."""
    jars = fetch(request.param)
    work_dir = Path(tempfile.mkdtemp(prefix=f"story-{request.param}-"))
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, log_dirs=2, properties=PROPERTIES)
    told = Story(broker, work_dir)
    try:
        yield told
    finally:
        broker.kill()
        told.close()
        shutil.rmtree(work_dir)
