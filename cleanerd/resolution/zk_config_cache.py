"""The topic configurations of a broker in ZooKeeper mode: its current report, or its last one.

Up to 3.9 a broker may have its topics' configuration in ZooKeeper, and not on its disks. So cleanerd queries it while
it runs, and otherwise uses the last report, unless the broker ran for long after that (U-40).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.config.delegation import has_both_values
from cleanerd.config.topic_keys import TOPIC_KEYS
from cleanerd.errors import CleanerdError
from cleanerd.host.clock import wall_ms
from cleanerd.humanize import human_ms
from cleanerd.segments.log_dir import HIGH_WATERMARK_CHECKPOINT, LOG_START_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LogDir
from cleanerd.state.places import DirectoryPlaces
from cleanerd.state.zk_topics import CachedTopic, CachedTopics, TopicCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cleanerd.admin.client_config import ClientConfig
    from cleanerd.admin.cluster import Cluster
    from cleanerd.config.load import Settings

QUERY_INTERVAL_MS: Final = 5 * 60_000
"""A running broker is not queried more often, except for topics that it has not reported."""

UNQUERIED_MS: Final = 60 * 60_000
"""If a broker ran for longer than this after its last report, its configuration may be newer and unknown."""

ORIGIN: Final = "the broker's last answer"

NEVER_QUERIED: Final = (
    "ZooKeeper mode: the broker was never queried for its topics, so they are compacted only where the settings say so"
)
QUERY_HINT: Final = "set bootstrap.servers, and run cleanerd plan or the daemon while the broker runs"

_SECONDS: Final = 5.0
# A running broker writes it at least once a minute, and no other process does.
_SIGNS_OF_LIFE: Final = (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT)


@dataclass(frozen=True, slots=True)
class ReportedTopics:
    """``topics`` by name, empty without trusted data; ``warnings``: why, or how old the data is."""

    topics: Mapping[str, CachedTopic]
    warnings: tuple[str, ...]


def is_zookeeper_mode(log_dir: LogDir) -> bool:
    """Whether the log directory belongs to a broker that keeps its cluster's metadata in ZooKeeper."""
    return log_dir.meta.version == 0


def is_stale_metadata(log_dir: LogDir, as_of_ms: int) -> bool:
    """Whether the metadata log of a broker in ZooKeeper mode ends at ``as_of_ms``, long before the broker last ran.

    While a cluster moves to KRaft its controllers write there all the time. If the cluster went back, the log stays
    unchanged, and the broker uses ZooKeeper.
    """
    return is_zookeeper_mode(log_dir) and _last_alive_ms(log_dir) - as_of_ms > UNQUERIED_MS


def cached_topic_configs(
    settings: Settings,
    log_dir: LogDir,
    *,
    running: bool,
    clock_ms: Callable[[], int] = wall_ms,
    connect: Callable[..., Cluster] | None = None,
) -> ReportedTopics:
    """The topics of a broker in ZooKeeper mode.

    Does not raise: obstacles become warnings. ``connect``: as `Cluster`.
    """
    cluster_id, node_id = log_dir.meta.cluster_id, log_dir.meta.node_id
    if cluster_id is None or node_id is None:
        return ReportedTopics({}, ())
    memory = TopicCache(settings.daemon.cleanerd_state_dir)
    place = DirectoryPlaces(settings.daemon.cleanerd_state_dir).name_of(log_dir.place)
    known = memory.of(cluster_id, node_id, place)
    now_ms = clock_ms()
    warnings: list[str] = []
    daemon = settings.daemon
    nameless = daemon.bootstrap_servers is None and daemon.cleanerd_command_config is None
    if running and nameless:
        warnings.append(
            f"{log_dir.path}: ZooKeeper mode keeps no topic configuration on the disk; set "
            "bootstrap.servers=HOST:PORT to query the broker"
        )
    names = sorted({name.topic for name in log_dir.partitions})
    if running and not nameless and (known is None or not _is_fresh(known, names, now_ms)):
        # Passwords, key stores and TLS, which only ZooKeeper mode needs here: every start would pay for them.
        from cleanerd.admin.client_config import read_client_config  # noqa: PLC0415

        try:
            client = read_client_config(daemon.cleanerd_command_config)
            warnings += client.warnings
            servers = daemon.bootstrap_servers
            topics = _query_broker(client, servers, names, cluster_id, node_id, now_ms=now_ms, connect=connect)
            known = memory.save(CachedTopics(cluster_id, node_id, place, now_ms, topics))
        except CleanerdError as error:
            warnings.append(f"{log_dir.path}: the broker could not be queried for its topics' configuration: {error}")
    warnings += memory.warnings
    if known is None:
        return ReportedTopics({}, tuple(warnings))
    alive_ms = _last_alive_ms(log_dir)
    own = [known.topics[name].queried_ms for name in names if name in known.topics]
    ran_on_ms = alive_ms - max(own, default=known.queried_ms)
    if ran_on_ms > UNQUERIED_MS:
        warnings.append(
            f"{log_dir.path}: the broker ran on for {human_ms(ran_on_ms)} after its topics' configuration was last "
            "read, so the last report is ignored; start it and run cleanerd plan with bootstrap.servers set, "
            "or set cleanup.policy in cleanerd's settings"
        )
        return ReportedTopics({}, tuple(warnings))
    topics = {name: topic for name, topic in known.topics.items() if alive_ms - topic.queried_ms <= UNQUERIED_MS}
    return ReportedTopics(topics, tuple(warnings))


def _is_fresh(known: CachedTopics, names: Sequence[str], now_ms: int) -> bool:
    """Whether all of these topics were reported a moment ago; the broker's other log directories have other topics."""
    queried = (known.topics[name].queried_ms if name in known.topics else None for name in names)
    return all(queried_ms is not None and 0 <= now_ms - queried_ms < QUERY_INTERVAL_MS for queried_ms in queried)


def _query_broker(
    client: ClientConfig,
    servers: str | None,
    names: Sequence[str],
    cluster_id: str,
    node_id: int,
    *,
    now_ms: int,
    connect: Callable[..., Cluster] | None,
) -> dict[str, CachedTopic]:
    """Raises CleanerdError: no server is configured or answers, or it is another cluster."""
    # A client library that only ZooKeeper mode needs here.
    from cleanerd.admin.cluster import Cluster, require_bootstrap  # noqa: PLC0415

    servers = require_bootstrap(servers, client)
    with (connect or Cluster)(servers, client, connect_seconds=_SECONDS) as cluster:
        found = cluster.cluster_id()
        if found != cluster_id:
            raise CleanerdError(
                f"the log directory belongs to cluster {cluster_id}, that one is {found}",
                where=f"bootstrap.servers={servers}",
            )
        reported = cluster.topics(list(names), node_id)
    return {
        name: CachedTopic(
            str(facts.topic_id or ""),
            {key: value.effective for key, value in facts.values.items() if key in TOPIC_KEYS},
            now_ms,
            has_both_values(facts.topic_level_configs),
        )
        for name, facts in reported.items()
    }


def _last_alive_ms(log_dir: LogDir) -> int:
    times = [0]
    for name in _SIGNS_OF_LIFE:
        try:
            times.append(os.stat(log_dir.path / name).st_mtime_ns // 1_000_000)
        except OSError:
            continue
    return max(times)
