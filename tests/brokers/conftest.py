"""One lifecycle per release."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.brokers.lifecycle import PROPERTIES, Lifecycle
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="package", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def lifecycle(request: pytest.FixtureRequest) -> Iterator[Lifecycle]:
    """The lifecycle of a release; its steps run on demand."""
    jars = fetch(request.param)
    work_dir = Path(tempfile.mkdtemp(prefix=f"lifecycle-{request.param}-"))
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, log_dirs=2, properties=PROPERTIES)
    made = Lifecycle(broker, work_dir)
    try:
        yield made
    finally:
        broker.kill()
        made.close()
        shutil.rmtree(work_dir)
