"""``cleanerd delegate`` and ``undelegate`` on real brokers, and the effect on their own cleaner (U-8, U-9)."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewTopic,
)

from cleanerd.admin.cluster import Cluster
from cleanerd.cli.main import run
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.format.names import TopicPartition
from cleanerd.resolution.targets import topic_id_of
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import state_file_name
from cleanerd.state.delegations import Delegations
from cleanerd_lab.demo.broker import STARTED
from cleanerd_lab.demo.ports import free_port
from tests.brokers.node import wait_until
from tests.daemon.serving import serving
from tests.daemon.views import log_dir, partition, view
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

RATIO, LAG, ROLL = "min.cleanable.dirty.ratio", "max.compaction.lag.ms", "segment.ms"
FOREVER = str(2**63 - 1)
LAG_MS = 3_600_000


@pytest.fixture(params=["broker_43", pytest.param("broker_39", marks=pytest.mark.long)])
def broker(request: pytest.FixtureRequest) -> Broker:
    start: StartBroker = request.getfixturevalue(request.param)
    started = start()
    assert STARTED in started.log_text()
    return started


class Cli:
    """Command lines against one broker, with one state directory."""

    def __init__(self, broker: Broker, state: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._settings = ["--set", f"bootstrap.servers={broker.bootstrap}", "--set", f"cleanerd.state.dir={state}"]
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run([*(str(argument) for argument in arguments), *self._settings])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *arguments: object) -> dict[str, Any]:
        code, out, err = self(*arguments, "--json", "--yes")
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found


def create(broker: Broker, topic: str, **configs: str) -> None:
    keys = {key.replace("_", "."): text for key, text in configs.items()}
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": "compact", **keys})])[topic].result(
        PATIENCE_SECONDS
    )
    # The controller has created it; the broker, which answers queries, learns of it a moment later.
    wait_until(f"the broker knows {topic}", lambda: is_known(broker, topic))


def is_known(broker: Broker, topic: str) -> bool:
    try:
        own(broker, topic)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return False
    return True


def own(broker: Broker, topic: str) -> dict[str, str]:
    """The topic's own settings, as librdkafka sees them: another client than the one under test."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(PATIENCE_SECONDS)
    return {name: entry.value for name, entry in entries.items() if entry.source == 1}


@pytest.mark.long
def test_delegate_and_undelegate_on_a_broker(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U-8: set, saved, idempotent, restored exactly; unrelated keys are never touched."""
    cli = Cli(broker, tmp_path / "state", capsys)
    create(broker, "orders", max_compaction_lag_ms=str(LAG_MS), retention_bytes="7777777")
    create(broker, "plain")
    before = {topic: own(broker, topic) for topic in ("orders", "plain")}

    dry = cli.json("delegate", "orders", "--dry-run")
    assert dry["dry_run"] is True
    assert own(broker, "orders") == before["orders"]
    assert not (tmp_path / "state").exists()

    done = cli.json("delegate", "orders")
    assert done["changes"] == dry["changes"]
    assert {change["key"]: (change["before"], change["after"]) for change in done["changes"]} == {
        RATIO: (None, "1"),
        LAG: (str(LAG_MS), FOREVER),
        ROLL: (None, str(LAG_MS)),
    }
    expected = {**before["orders"], RATIO: "1.0", LAG: FOREVER, ROLL: str(LAG_MS)}
    assert own(broker, "orders") == expected
    (saved,) = Delegations(tmp_path / "state").load()
    assert saved.effective == {RATIO: "0.5", LAG: str(LAG_MS), ROLL: "604800000"}
    assert saved.topic_id
    assert cli.json("delegate", "orders")["action"] == "already delegated"
    assert Delegations(tmp_path / "state").load() == [saved]

    assert cli.json("delegate", "plain")["action"] == "delegated"
    assert set(own(broker, "plain")) - set(before["plain"]) == {RATIO, LAG}
    assert cli.json("undelegate", "plain")["action"] == "undelegated"
    assert own(broker, "plain") == before["plain"]
    assert cli.json("undelegate", "plain")["action"] == "not delegated"

    code, _, err = cli("undelegate", "orders", "--set", "topics.orders.compaction.strategy=timestamp")
    assert code == 4, "no user to ask"
    assert "--yes" in err
    assert own(broker, "orders") == expected
    # U-6: the state files have the topic's name in the broker's own directory.
    (log_dir,) = broker.log_dirs
    name = TopicPartition("orders", 0)
    file = tmp_path / "state" / "partitions" / "here" / state_file_name(name, topic_id_of(read_log_dir(log_dir), name))
    assert not file.name.startswith("name-")
    file.parent.mkdir(parents=True)
    file.write_text(
        json.dumps({"format": 1, "cleanerd_checkpoint": None, "rules": "strategy=timestamp;tombstone.mode=null"})
    )
    code, _, err = cli("undelegate", "orders", "--set", "topics.orders.compaction.strategy=offset")
    assert (code, "orders was last cleaned by timestamp; these settings say offset" in err) == (4, True)
    assert own(broker, "orders") == expected
    assert cli.json("undelegate", "orders")["action"] == "undelegated"
    assert own(broker, "orders") == before["orders"]


@pytest.mark.long
def test_an_error_of_the_broker_is_one_line(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A query does not create unknown topics; refusals and timeouts have their own exit codes."""
    cli = Cli(broker, tmp_path / "state", capsys)
    for command in ("delegate", "undelegate"):
        code, out, err = cli(command, "unknown", "--yes")
        assert (code, out, err) == (3, "", "cleanerd: unknown: no such topic\n")
    assert (
        "unknown"
        not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_SECONDS).topics
    )
    create(broker, "deleting", cleanup_policy="delete")
    code, _, err = cli("delegate", "deleting", "--yes")
    assert (code, len(err.splitlines())) == (3, 1)
    assert "cleanup.policy is delete" in err
    create(broker, "orders")
    assert cli("delegate", "orders", "--yes")[0] == 0
    (tmp_path / "state" / "delegations.json").unlink()
    code, _, err = cli("undelegate", "orders", "--yes")
    assert (code, len(err.splitlines())) == (4, 1)
    assert "not saved here" in err
    with Cluster(broker.bootstrap) as cluster, pytest.raises(RefusedError, match="at least 1") as raised:
        cluster.alter("orders", {ROLL: "-5"}, dry_run=True)
    assert "[Error" not in str(raised.value)


@pytest.mark.long
def test_the_brokers_cleaner_keeps_away_from_a_delegated_topic(
    broker_43: StartBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U-8: a topic with a compaction lag is not cleaned, another one is.

    Without delegation it would be cleaned at once; after ``undelegate`` it is. The segments roll in both, as
    ``segment.ms`` has replaced the lag.
    """
    broker = broker_43(properties={"log.cleaner.backoff.ms": "200", "log.cleaner.max.compaction.lag.ms": "1000"})
    cli = Cli(broker, tmp_path / "state", capsys)
    for topic in ("ours", "theirs"):
        create(broker, topic, min_cleanable_dirty_ratio="0.01", delete_retention_ms="1000")
    cli.json("delegate", "ours")
    wait_until("the broker has it from the controller", lambda: own(broker, "ours").get(ROLL) == "1000")
    _write_until(broker, lambda: _cleaned(broker, "theirs"))
    for _ in range(4):
        _write(broker)
    (log_dir,) = broker.log_dirs
    segments = sorted(path.name for path in (log_dir / "ours-0").glob("*.log"))
    assert len(segments) > 2, "it rolls"
    assert not _cleaned(broker, "ours")
    cli.json("undelegate", "ours")
    _write_until(broker, lambda: _cleaned(broker, "ours"))


def _write(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for topic in ("ours", "theirs"):
        for number in range(20):
            producer.produce(topic, key=f"k{number % 3}", value=str(number), partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    time.sleep(1.1)


def _write_until(broker: Broker, done: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < deadline, broker.log_text()[-2000:]
        _write(broker)


def _cleaned(broker: Broker, topic: str) -> bool:
    """The broker's own cleaner has cleaned the partition, as its checkpoint shows."""
    (log_dir,) = broker.log_dirs
    path = log_dir / "cleaner-offset-checkpoint"
    rows = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return any(row[0] == topic and int(row[2]) > 0 for row in rows)


def test_metadata_of_a_delegated_topic_proves_it(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """U-8, U-9: plan reads the values that delegate sets from the stopped broker's disk."""
    cli = Cli(broker, tmp_path / "state", capsys)
    create(broker, "orders", min_cleanable_dirty_ratio="0.3")
    rules = ("--set", "topics.orders.compaction.strategy=timestamp", "--quiet")

    def row() -> dict[str, Any]:
        broker.stop()
        code, out, err = cli("plan", broker.log_dirs[0], "--partition", "orders-0", "--json", *rules)
        assert code == 0, err
        (found,) = json.loads(out)["partitions"]
        return dict(found)

    cli.json("delegate", "orders")
    found = row()
    assert found["delegation"] == "delegated"
    assert found["origins"][RATIO] == "saved by cleanerd delegate"
    broker.start()
    cli.json("undelegate", "orders")
    assert row()["delegation"] == "undelegated"


def test_no_broker_answers() -> None:
    """One clear error after the configured time, and no lines of the client's own."""
    started = time.monotonic()
    with pytest.raises(CleanerdError, match=r"bootstrap.servers=127.0.0.1:\d+: no broker answers within 1 s"):
        Cluster(f"127.0.0.1:{free_port()}", connect_seconds=1)
    assert time.monotonic() - started < 100


def test_no_servers_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["delegate", "orders"]) == 3
    assert "bootstrap.servers is not set" in capsys.readouterr().err


@pytest.mark.long
def test_daemons_are_found_by_the_brokers_hosts(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """OP-25: by ``bootstrap.servers`` and a port; no broker is down."""
    cli = Cli(broker, tmp_path / "state", capsys)
    create(broker, "orders")
    with Cluster(broker.bootstrap) as cluster:
        assert cluster.assigned_brokers() == set(cluster.brokers())
        cluster_id = cluster.cluster_id()
    ours = view(partitions=(partition("orders", 0),), log_dirs=(replace(log_dir(), cluster_id=cluster_id),))
    with serving(ours) as served:
        code, out, err = cli("cluster", "status", "--port", served.port)
        assert code == 0, out + err
        assert "1 daemon of 1 answered" in out
        assert "brokers that are down" not in out
        served.stage.shown = view(log_dirs=(replace(log_dir(), cluster_id="another"),))
        code, out, err = cli("cluster", "status", "--port", served.port)
        assert code == 4
        assert "is of another cluster: another" in out
