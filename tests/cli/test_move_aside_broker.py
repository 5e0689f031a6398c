"""A real broker without a directory that was moved aside (U-77)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from cleanerd.admin.cluster import Cluster
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import CHECKPOINTS, read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.move_aside import aside_dir, move_aside
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import resources
from tests.cli.broker_topic import CONFIG, PROPERTIES, produce, read
from tests.cli.clean_log_dirs import Shell
from tests.support.log_dirs import read_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]


def test_it_starts_with_an_empty_log(
    broker_43: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints have no line of the moved directory. The command itself refuses the only replica."""
    broker = broker_43(properties=PROPERTIES)
    (path,) = broker.log_dirs
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1, config=CONFIG)])["t"].result(PATIENCE_SECONDS)
    produce(broker, 0, 500)
    name = TopicPartition("t", 0)
    with Cluster(broker.bootstrap) as cluster:
        known = cluster.replicas(["t", "no-such-topic"])
    assert known.keys() == {name}
    node_id = read_log_dir(path).meta.node_id
    assert node_id is not None
    assert known[name].why_needed(node_id, known[name].topic_id) == "this broker leads it"
    broker.stop()
    refused = Shell(tmp_path, capsys, monkeypatch)("move-aside", path, "--partition", "t-0", "--yes")
    assert (refused.code, "the only replica" in refused.err) == (4, True), refused.err
    with LogDirLock.acquire(path) as lock:
        locked = LockedDir(read_log_dir(path), lock, StateStore(tmp_path / "state"), resources())
        moved = move_aside(locked, name, aside_dir(path, None, [path]))
    assert all("t-0" not in read_checkpoint(path / file) for file in CHECKPOINTS if (path / file).exists())
    broker.start()
    produce(broker, 1000, 100)
    assert min(number for _, number in read(broker).values()) == 1000
    assert sum(each.stat().st_size for each in moved.glob("*.log")) > 500_000
