"""One Spark session for all tests, because starting one takes longer than most of them. One S3 server per module."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from tests.support.system_calls import system_call

pytest.importorskip("pyspark")

from cleanerd.host.memory import Memory
from cleanerd.spark import driver_memory, local_threshold, retries, stores
from tests.spark import registry_server, s3
from tests.spark.sessions import ONE_SORT_OF_WORKERS, SHORT, start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.registry_server import RegistryServer
    from tests.spark.s3 import Store
    from tests.spark.tables import Tables


@pytest.fixture
def with_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Give this process this many bytes, on two cores."""

    def set_it(size_bytes: int) -> None:
        memory = Memory(size_bytes, "memory.max of the cgroup /c")
        # No test may limit the memory or the cores of its own process, which also runs the others.
        monkeypatch.setattr(driver_memory, "measure", lambda: memory)
        monkeypatch.setattr(local_threshold, "measured_lately", lambda: memory)
        system_call(monkeypatch, "sched_getaffinity", lambda _process: {0, 1})

    return set_it


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """``local[2]``, with up to four attempts at a task."""
    own = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}
    session = start_session("local[2,4]", {**SHORT, **ONE_SORT_OF_WORKERS, **own})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    store, stop = s3.start()
    values = {
        "AWS_ENDPOINT_URL": store.endpoint, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": s3.SECRET,
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for key, value in values.items():
            patch.setenv(key, value)
        yield store
        stop()
        stores._system.cache_clear()


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Without faults and without requests yet; pauses before a repeated request are short."""
    monkeypatch.setenv(retries.PAUSE_SECONDS, "0.001")
    server.fault = None
    server.requests.clear()
    yield server
    server.fault, server.page = None, 0


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """A schema registry; pauses before a repeated request are short."""
    monkeypatch.setenv(retries.PAUSE_SECONDS, "0.001")
    found, stop = registry_server.start()
    yield found
    stop()


@pytest.fixture(params=["delta", "iceberg"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """One table per kind, not created yet."""
    found = _tables(request.param, tmp_path)
    with found.known():
        yield found


@pytest.fixture
def delta(tmp_path: Path) -> Tables:
    """A Delta table, for tests of what both kinds have in common."""
    return _tables("delta", tmp_path)


def _tables(kind: str, root: Path) -> Tables:
    from tests.spark.tables import Tables  # noqa: PLC0415 - its libraries take seconds, and most files need none

    return Tables(kind, root)
