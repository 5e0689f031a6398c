"""A replica returns after ``delete.retention.ms`` and becomes leader: no deleted key comes back (U-70)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import fetch_jars
from tests.live.returning_replica import WAITING, OnDisk, Results, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """The results, made once for all ways to clean."""
    with Scenario(fetch_jars("4.3"), tmp_path_factory.mktemp("scene")) as scene:
        yield scene.play()


@pytest.mark.parametrize("topic", ["kafka", "ignoring"])
def test_the_deleted_key_comes_back_by_kafkas_rule(results: Results, topic: str) -> None:
    """Why U-70 exists: after Kafka's cleaner the key is back, and an aborted record is read as committed."""
    assert results.away[topic] == OnDisk(value=False, tombstone=False, aborted=False, marker=False)
    assert results.returned[topic] == OnDisk(value=True, tombstone=False, aborted=True, marker=False)
    assert results.consumed[topic] == {b"k": b"v", b"a": b"aborted", b"b": b"committed"}


@pytest.mark.parametrize("topic", WAITING)
def test_cleanerd_keeps_the_tombstone_until_the_replica_has_it(results: Results, topic: str) -> None:
    """U-70: tombstone and ABORT marker stay until the replica has them, then they are removed."""
    assert results.away[topic] == OnDisk(value=False, tombstone=True, aborted=False, marker=True)
    assert results.returned[topic] == OnDisk(value=True, tombstone=True, aborted=True, marker=True)
    assert results.consumed[topic] == {b"b": b"committed"}
    assert results.after[topic] == OnDisk(value=False, tombstone=False, aborted=False, marker=False)
