"""A replica that was away longer than ``delete.retention.ms`` returns and leads: no deleted key comes back (U-70)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.judge import fetch_jars
from tests.live.returning_replica import WAITING, Kept, Scene, Seen

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """The scene, played once for all ways to clean."""
    with Scene(fetch_jars("4.3"), tmp_path_factory.mktemp("scene")) as scene:
        yield scene.play()


@pytest.mark.parametrize("topic", ["kafka", "ignoring"])
def test_it_comes_back_by_kafkas_rule(seen: Seen, topic: str) -> None:
    """What U-70 is for: with Kafka's cleaner the key is back, and what was aborted is read as committed."""
    assert seen.away[topic] == Kept(value=False, tombstone=False, aborted=False, marker=False)
    assert seen.returned[topic] == Kept(value=True, tombstone=False, aborted=True, marker=False)
    assert seen.consumed[topic] == {b"k": b"v", b"a": b"aborted", b"b": b"committed"}


@pytest.mark.parametrize("topic", WAITING)
def test_it_waits(seen: Seen, topic: str) -> None:
    """U-70: tombstone and ABORT marker stay until the replica has them, then they are removed."""
    assert seen.away[topic] == Kept(value=False, tombstone=True, aborted=False, marker=True)
    assert seen.returned[topic] == Kept(value=True, tombstone=True, aborted=True, marker=True)
    assert seen.consumed[topic] == {b"b": b"committed"}
    assert seen.after[topic] == Kept(value=False, tombstone=False, aborted=False, marker=False)
