"""One broker per release for all tests of the clients."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A running broker. Every test has its own topics."""
    jars = fetch(request.param)
    work_dir = Path(tempfile.mkdtemp(prefix=f"clients-{request.param}-"))
    found = Broker(jars.libs, work_dir, version=jars.version, properties={"log.retention.check.interval.ms": "600000"})
    try:
        found.start()
        yield found
    finally:
        found.kill()
        shutil.rmtree(work_dir)
