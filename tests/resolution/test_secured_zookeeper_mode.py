"""ZooKeeper mode with TLS and a login: the query to the running broker, without a broker."""

from __future__ import annotations

import json
import os
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import pytest

from cleanerd.admin.cluster import AccessDeniedError, KeyValue, TopicFacts
from cleanerd.broker.agent_facts import ReportedConfig
from cleanerd.config.kafka_values import LONG_MAX
from cleanerd.config.load import load_settings
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.resolution.zk_config_cache import UNQUERIED_MS
from cleanerd.resolution.zk_config_cache import cached_topic_configs as cleanerd_topic_configs
from cleanerd.segments.log_dir import read_log_dir
from tests.cli.clean_log_dirs import write_metadata
from tests.support.format_bytes import metadata, metadata_batch
from tests.support.log_dirs import CLUSTER_ID, HIGH_WATERMARKS, make_log_dir
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.segments.log_dir import LogDir

LOGIN = """\
bootstrap.servers=kafka-1:9093
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hunter2";
"""


class Requested:
    """Replaces a connection."""

    def __init__(self, servers: str, client: Any, *, connect_seconds: float) -> None:
        assert connect_seconds > 0
        if client.login is not None and client.login.username == "nobody":
            raise AccessDeniedError("the cluster does not let cleanerd in", where=servers)
        Requested.by = (servers, client.protocol, client.login.password)

    by: tuple[str, str, str] = ("", "", "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def cluster_id(self) -> str:
        return CLUSTER_ID

    def topics(self, names: list[str], node_id: int) -> dict[str, TopicFacts]:
        assert node_id == 1
        policy = {"cleanup.policy": KeyValue("compact", "compact", None)}
        return {name: TopicFacts(name, None, policy | self.more) for name in names}

    more: ClassVar[Mapping[str, KeyValue]] = {}


cached_topics = partial(cleanerd_topic_configs, connect=cast("Any", Requested))


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDir:
    path = make_log_dir(tmp_path / "d1", {"orders-0": two_groups()})
    meta = path / "meta.properties"
    meta.write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER_ID}\n")
    return read_log_dir(path)


def settings(tmp_path: Path, text: str, *more: str) -> Settings:
    path = tmp_path / "client.properties"
    path.write_text(text)
    path.chmod(0o600)
    words = [f"cleanerd.command.config={path}", f"cleanerd.state.dir={tmp_path / 'state'}", *more]
    return load_settings([], words, environ={})


def test_an_old_metadata_log(tmp_path: Path, log_dir: LogDir) -> None:
    """U-40: the cluster had begun to move to KRaft and went back: ZooKeeper has its topics, whatever the log contains.

    During a move, its controllers write to that log twice a second.
    """
    directory = write_metadata(log_dir.path, topics={"orders": {"cleanup.policy": "delete"}})
    none = load_settings([], [f"cleanerd.state.dir={tmp_path / 'none'}"], environ={})
    old = broker_facts(none, log_dir, [])
    assert (old.zookeeper, old.topic_config("orders").policy_known) == (True, False)
    requested = broker_facts(settings(tmp_path, LOGIN), log_dir, [], running=True, query_topics=cached_topics)
    assert requested.topic_config("orders").is_compacted
    alive_ms = os.stat(log_dir.path / HIGH_WATERMARKS).st_mtime_ns // 1_000_000
    with (directory / f"{0:020d}.log").open("ab") as log:
        log.write(metadata_batch(2, metadata(20), timestamp=alive_ms - UNQUERIED_MS + 1000))
    moving = broker_facts(none, log_dir, [])
    assert (moving.zookeeper, moving.topic_config("orders").cleanup_policy) == (False, frozenset({"delete"}))


def test_the_broker_is_queried_with_the_login_of_the_file(tmp_path: Path, log_dir: LogDir) -> None:
    """U-40: the file has the brokers and the login; bootstrap.servers of the settings overrides it."""
    reported = cached_topics(settings(tmp_path, LOGIN), log_dir, running=True)
    assert (reported.topics["orders"].values, reported.warnings) == ({"cleanup.policy": "compact"}, ())
    assert Requested.by == ("kafka-1:9093", "SASL_PLAINTEXT", "hunter2")
    cached_topics(settings(tmp_path, LOGIN, "cleanerd.state.dir=" + str(tmp_path / "s2"), "bootstrap.servers=b:1"),
                log_dir, running=True)  # fmt: skip
    assert Requested.by[0] == "b:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LOGIN + "ssl.cipher.suites=x\n", "ssl.cipher.suites"),
        (LOGIN.replace('"a"', '"nobody"'), "does not let cleanerd in"),
        ("security.protocol=PLAINTEXT\n", "bootstrap.servers is not set"),
    ],
)
def test_an_obstacle_is_a_warning_without_the_password(
    tmp_path: Path, log_dir: LogDir, text: str, message: str
) -> None:
    """The daemon continues, and no password is in its log."""
    reported = cached_topics(settings(tmp_path, text), log_dir, running=True)
    assert reported.topics == {}
    (warning,) = reported.warnings
    assert message in warning
    assert "hunter2" not in warning


@pytest.mark.parametrize(
    ("own_ratio", "own_lag", "shown"),
    [
        pytest.param("1", None, "", id="the lag is Kafka's default"),
        pytest.param(None, None, "", id="both are the broker's"),
        pytest.param("1.0", str(LONG_MAX), "set", id="delegated"),
    ],
)
def test_a_broker_default_does_not_look_delegated(
    tmp_path: Path, log_dir: LogDir, own_ratio: str | None, own_lag: str | None, shown: str
) -> None:
    """U-96: the broker reports effective values; what the topic itself sets is stored beside them."""

    class Both(Requested):
        more: ClassVar = {
            "min.cleanable.dirty.ratio": KeyValue(own_ratio, "1", "1"),
            "max.compaction.lag.ms": KeyValue(own_lag, str(LONG_MAX), None),
        }

    query, known = partial(cleanerd_topic_configs, connect=cast("Any", Both)), settings(tmp_path, LOGIN)
    for running in (True, False):
        facts = broker_facts(known, log_dir, [], running=running, query_topics=query)
        assert facts.topic_config("orders").min_cleanable_dirty_ratio == 1.0
        assert facts.topic_config("orders").delegated_in_cluster == shown
    (values,) = [topic.values for topic in facts.zk_topics.values()]
    assert facts.topic_config("orders", ReportedConfig(values, 100)).delegated_in_cluster == shown
    file = tmp_path / "state" / "topics.json"
    stored = json.loads(file.read_text())
    del stored["brokers"][0]["topics"]["orders"]["has_both_values"]
    file.write_text(json.dumps(stored))
    earlier = broker_facts(known, log_dir, [], query_topics=query)
    assert earlier.topic_config("orders").delegated_in_cluster == "reported", "stored by an earlier release"


def test_each_log_directory_of_a_broker_queries_its_own_topics(tmp_path: Path, log_dir: LogDir) -> None:
    """U-40, U-46: a recent answer for another directory, or a copy, does not apply to it, and is not forgotten."""
    path = make_log_dir(tmp_path / "d2", {"users-0": two_groups()})
    (path / "meta.properties").write_text((log_dir.path / "meta.properties").read_text())
    reported = settings(tmp_path, LOGIN)
    assert set(cached_topics(reported, log_dir, running=True).topics) == {"orders"}
    assert set(cached_topics(reported, read_log_dir(path), running=True).topics) == {"users"}
    assert set(cached_topics(reported, log_dir, running=False).topics) == {"orders"}
    copy = tmp_path / "copy"
    shutil.copytree(log_dir.path, copy)
    assert cached_topics(reported, read_log_dir(copy), running=False).topics == {}


def test_the_age_of_an_answer_counts_by_topic(tmp_path: Path, log_dir: LogDir) -> None:
    """U-40: for hours only its other log directory was queried; a policy may have changed."""
    path = make_log_dir(tmp_path / "d2", {"users-0": two_groups()})
    (path / "meta.properties").write_text((log_dir.path / "meta.properties").read_text())
    reported, users = settings(tmp_path, LOGIN), read_log_dir(path)
    cached_topics(reported, log_dir, running=True)
    now_ns = time.time_ns() + 2 * UNQUERIED_MS * 1_000_000
    cached_topics(reported, users, running=True, clock_ms=lambda: now_ns // 1_000_000)
    for each in (log_dir, users):
        os.utime(each.path / HIGH_WATERMARKS, ns=(now_ns, now_ns))
    assert set(cached_topics(reported, users, running=False).topics) == {"users"}
    old = cached_topics(reported, log_dir, running=False)
    assert (old.topics, "ran on for 2 h" in old.warnings[0]) == ({}, True)
    found = cached_topics(reported, log_dir, running=True, clock_ms=lambda: now_ns // 1_000_000)
    assert set(found.topics) == {"orders"}


def test_a_partition_that_came_from_another_log_directory(tmp_path: Path, log_dir: LogDir) -> None:
    """U-40: the broker is queried at once for its topic; an answer for a topic that left and returned is old."""
    other = make_log_dir(tmp_path / "d2", {"users-0": two_groups()})
    reported = settings(tmp_path, LOGIN)
    assert set(cached_topics(reported, log_dir, running=True).topics) == {"orders"}
    shutil.move(other / "users-0", log_dir.path)
    both = read_log_dir(log_dir.path)
    assert set(cached_topics(reported, both, running=True).topics) == {"orders", "users"}

    now_ns = time.time_ns() + 2 * UNQUERIED_MS * 1_000_000
    shutil.move(log_dir.path / "orders-0", other)
    users = read_log_dir(log_dir.path)
    assert "users" in cached_topics(reported, users, running=True, clock_ms=lambda: now_ns // 1_000_000).topics
    shutil.move(log_dir.path / "users-0", other)
    shutil.move(other / "orders-0", log_dir.path)
    os.utime(log_dir.path / HIGH_WATERMARKS, ns=(now_ns, now_ns))
    old = cached_topics(reported, read_log_dir(log_dir.path), running=False)
    assert (old.topics, "ran on for 2 h" in old.warnings[0]) == ({}, True)


def test_log_directories_that_query_at_the_same_time(tmp_path: Path, log_dir: LogDir) -> None:
    """U-40: every scan thread queries for its own; the last one to store keeps the answers of the other."""
    path = make_log_dir(tmp_path / "d2", {"users-0": two_groups()})
    (path / "meta.properties").write_text((log_dir.path / "meta.properties").read_text())
    reported = settings(tmp_path, LOGIN)

    class Slow(Requested):
        def topics(self, names: list[str], node_id: int) -> dict[str, TopicFacts]:
            if names == ["users"]:
                cached_topics(reported, log_dir, running=True)
            return super().topics(names, node_id)

    cleanerd_topic_configs(reported, read_log_dir(path), running=True, connect=cast("Any", Slow))
    assert set(cached_topics(reported, log_dir, running=False).topics) == {"orders"}
    assert set(cached_topics(reported, read_log_dir(path), running=False).topics) == {"users"}
