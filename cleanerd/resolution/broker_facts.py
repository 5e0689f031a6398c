"""The facts about a log directory's broker: its configuration, from files on the disk."""

from __future__ import annotations

import os
import shlex
import uuid
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cleanerd.admin.peers import PeerOffsets, PeerPoints, Peers, find_daemons
from cleanerd.broker.command_line import overrides_of
from cleanerd.cleaner.resources import Resources
from cleanerd.config.delegation import BOTH_VALUES, UNKNOWN_HINT, has_both_values
from cleanerd.config.strategy_keys import STRATEGY
from cleanerd.config.topic_config import (
    INTERNAL_TOPICS,
    RUNNING_ORIGIN,
    TOPIC_ORIGIN,
    TopicConfig,
    resolve_producer_id_expiration_ms,
)
from cleanerd.config.topic_keys import INTERNAL_SEGMENT_BYTES, TOPIC_KEYS
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.format.meta import MetaProperties, read_meta_properties
from cleanerd.format.names import TopicPartition, uuid_to_base64
from cleanerd.fsio.plain_file import read_plain
from cleanerd.host.memory import measured_lately, share_of
from cleanerd.policy import legacy
from cleanerd.policy.replicas import MARGIN_MS, ReplicaFacts, TopicReplicas
from cleanerd.resolution.log_dirs import log_dirs_in, server_properties
from cleanerd.resolution.zk_config_cache import (
    ORIGIN,
    ReportedTopics,
    cached_topic_configs,
    is_stale_metadata,
    is_zookeeper_mode,
)
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.segments.log_dir import META_PROPERTIES, LogDir, incoming_replicas
from cleanerd.state.delegations import Delegations
from cleanerd.state.full_isr import remember_full_isr
from cleanerd.state.ignored_replicas import ignored_replicas
from cleanerd.state.last_time import read_clock
from cleanerd.state.places import DirectoryPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cleanerd.broker.agent_facts import ReportedConfig
    from cleanerd.config.delegation import InCluster
    from cleanerd.config.load import Settings
    from cleanerd.fsio.state_files import UnreadableState
    from cleanerd.segments.metadata_image import ClusterMetadata
    from cleanerd.state.zk_topics import CachedTopic

METADATA_AGE_MS = MARGIN_MS
"""U-23, U-71: newer metadata may be uncommitted."""

_MOST_DIGITS = 300

_HIDDEN_METADATA = (
    "the metadata log of the running broker was not found, or its disk does not answer: set cleanerd.metadata.log.dir"
)


class ReadMetadata(Protocol):
    """As :func:`read_cluster_metadata`, for the current metadata."""

    def __call__(self, directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
        """The content of the metadata log in ``directory``."""


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """The broker of a log directory. ``metadata`` is None without a KRaft log.

    ``saved``: by topic the values from before ``cleanerd delegate``; ``saved_unread``: unreadable files that may list
    others. ``warnings``: state that could not be used. ``metadata_dir``: the directory of the metadata log.
    ``log_dirs``: the broker's known ones. ``siblings``: those of ``log_dirs`` that the broker uses beside this one,
    without copies of it. ``full_isr``: when the ISR of partitions was last full, from the state directory (U-72).
    ``ignored_replicas``: brokers of the cluster that tombstones do not wait for (U-78). ``zookeeper``: its metadata is
    in ZooKeeper; then ``zk_topics`` is its last report about its topics. ``has_hidden_metadata``: a running broker in
    KRaft mode, whose metadata log was not found or does not answer.
    """

    metadata: ClusterMetadata | None
    node_id: int | None
    server_properties: Mapping[str, str] | None
    settings: Settings
    saved: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    saved_unread: UnreadableState | None = None
    warnings: tuple[str, ...] = ()
    metadata_dir: Path | None = None
    log_dirs: tuple[Path, ...] = ()
    siblings: tuple[Path, ...] = ()
    zookeeper: bool = False
    zk_topics: Mapping[str, CachedTopic] = field(default_factory=dict)
    full_isr: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    ignored_replicas: frozenset[int] = frozenset()
    cluster_id: str | None = None
    peers: PeerPoints | None = None
    peer_log_ends: PeerOffsets = field(default_factory=dict, compare=False)
    has_hidden_metadata: bool = False

    @property
    def zk_warnings(self) -> tuple[str, ...]:
        """The ``warnings`` about the topic configurations of a broker in ZooKeeper mode (U-40)."""
        unread = None if self.saved_unread is None else self.saved_unread.warning
        return tuple(warning for warning in self.warnings if warning != unread)

    @property
    def knows_replicas(self) -> bool:
        """Whether a metadata log shows the replicas, or nothing says that there is a cluster with one."""
        return not (self.zookeeper or self.unknown_replicas)

    @property
    def unknown_replicas(self) -> str:
        """Why the replicas of no topic are known, so that its tombstones wait (U-70), with the cure; "" if they are."""
        if self.metadata is not None:
            return self.metadata.replicas.unread
        return _HIDDEN_METADATA if self.has_hidden_metadata else ""

    @property
    def replicas_note(self) -> str:
        """What holds for tombstones where no metadata log shows the replicas (U-70); empty where one does."""
        if self.unknown_replicas:
            return f"tombstones wait: {self.unknown_replicas}"
        if self.metadata is not None:
            return ""
        where = "in ZooKeeper mode" if self.zookeeper else "without a metadata log"
        return f"{where} tombstones expire by Kafka's rule: they do not wait for replicas that are away"

    @property
    def connect(self) -> str:
        """Options of Kafka's tools to reach the broker: from our settings, else from its ``server.properties``."""
        daemon, words = self.settings.daemon, []
        if daemon.cleanerd_command_config is not None:
            words = ["--command-config", str(daemon.cleanerd_command_config)]
        servers = daemon.bootstrap_servers or _listener(self.server_properties or {}) or "HOST:PORT"
        return shlex.join([*words, "--bootstrap-server", servers])

    def topic_config(self, topic: str, reported: ReportedConfig | None = None) -> TopicConfig:
        """The effective configuration of ``topic`` (U-24), by its files or as a running broker ``reported`` it (U-23).

        Raises:
            ConfigError: a value that Kafka would reject.
        """
        config = self._own_config(topic, reported)
        ignores = config.cleanerd_tombstone_replicated == "ignore"
        replicas = None if ignores else self.replicas_of(topic)
        return config if replicas is None else replace(config, replicas=replicas)

    def replicas_of(self, topic: str) -> TopicReplicas | None:
        """The replicas of the topic's partitions (U-70); empty for a topic that the metadata log does not show yet.

        None without a metadata log, unless a broker writes one elsewhere.
        """
        if self.metadata is None:
            hidden = TopicReplicas(ReplicaFacts({}, unread=self.unknown_replicas), {}, ignored=self.ignored_replicas)
            return hidden if self.has_hidden_metadata else None
        facts = self.metadata.replicas
        topic_id = self.metadata.topics.get(topic) or self.metadata.newest_topics.get(topic)
        return TopicReplicas(
            facts,
            {} if topic_id is None else facts.topics.get(topic_id, {}),
            {} if topic_id is None else self.full_isr.get(topic_id.hex, {}),
            self.ignored_replicas,
            self._peers_of(topic),
            own_id=self.node_id,
            topic_id=topic_id,
            log_ends={broker: ends.get(topic, {}) for broker, ends in self.peer_log_ends.items()},
        )

    def is_replicated(self, name: TopicPartition) -> bool:
        """Whether the metadata log shows more than one replica of the partition."""
        found = self.replicas_of(name.topic)
        state = None if found is None else found.partitions.get(name.partition)
        return state is not None and not state.is_alone

    def _peers_of(self, topic: str) -> Mapping[int, Mapping[int, int] | str] | None:
        """The topic's first dirty offsets at other brokers (U-79)."""
        if self.peers is None:
            return None
        return {
            broker: answer if isinstance(answer, str) else answer.get(topic, {})
            for broker, answer in self.peers.items()
        }

    def _own_config(self, topic: str, reported: ReportedConfig | None) -> TopicConfig:
        sources: dict[str, Any]
        if reported is not None:
            known = {key: value for key, value in reported.values.items() if key in TOPIC_KEYS}
            topic_configs: Mapping[str, str] | None = {**known, INTERNAL_SEGMENT_BYTES: str(reported.segment_bytes)}
            sources = {"topic_origin": RUNNING_ORIGIN}
        else:
            topic_configs = self._of_topic(topic)
            sources = {
                "topic_origin": ORIGIN if topic in self.zk_topics else TOPIC_ORIGIN,
                "assume_delegated": self.settings.daemon.cleanerd_delegation == "assumed",
                **self._broker_layers(),
            }
        config = self.settings.topic_config(
            topic,
            topic_configs,
            delegated_in_cluster=self._delegated_in_cluster(topic, reported),
            saved=self.saved.get(topic),
            saved_unread=self.saved_unread,
            connect=self.connect,
            **sources,
        )
        if topic_configs is None and self._may_be_delegated(config):
            return replace(config, warnings=(*config.warnings, UNKNOWN_HINT.format(topic=topic)))
        return config

    def require_same_topic(self, name: TopicPartition, topic_id: uuid.UUID | None) -> None:
        """Refuse a directory that an older topic of the same name left (U-23: by id).

        Raises:
            RefusedError: the metadata has the name with another id than ``topic_id``.
        """
        known = self.topic_id(name.topic)
        if topic_id is not None and known is not None and topic_id != known:
            raise RefusedError(
                f"belongs to the topic {uuid_to_base64(topic_id)}, but {name.topic} is now {uuid_to_base64(known)}: "
                "it was created again, or the metadata log is another cluster's",
                where=str(name),
                hint="start the broker once: it removes the directory; or see cleanerd.metadata.log.dir",
            )

    def moved_to(self, name: TopicPartition) -> Path | None:
        """The other log directory that the partition's replica is being moved to now."""
        return next((path for path in self.log_dirs if name in incoming_replicas(path)), None)

    def duplicate_of(self, name: TopicPartition) -> Path | None:
        """Another log directory of the broker that also has the partition (U-60)."""
        return next((path for path in self.siblings if os.path.isdir(f"{path}/{name}")), None)

    def not_in_place(self, name: TopicPartition) -> RefusedError | None:
        """Why the partition is not the broker's only copy of its replica.

        A replica is not cleaned while it is being moved: removed records that were already copied would come back in
        the new place. The tombstone that deletes a copied record, and the marker that aborts it, may be removed here
        before they are copied. Kafka pauses its own cleaner for the same reason. If a partition is in two directories
        you may keep either one (U-60).
        """
        place = self.moved_to(name)
        if place is not None:
            return left_by_a_move(name, place) if place in self.log_dirs[:1] else being_moved(name, place)
        twin = self.duplicate_of(name)
        if twin is None:
            return None
        return RefusedError(
            f"is in two log directories of the broker, {self.log_dirs[0]} and {twin}: you may keep either of them",
            where=str(name),
            hint="the broker does not start with both: move one out of its log directory",
        )

    def require_in_place(self, name: TopicPartition) -> None:
        """Refuse a partition of which the broker has more than one copy.

        Raises:
            RefusedError: see :meth:`not_in_place`.
        """
        refused = self.not_in_place(name)
        if refused is not None:
            raise refused

    def resources(self, *, inside: bool = True) -> Resources:
        """A cleaning's limits. ``inside``: several threads may work inside one partition.

        It depends on the currently free memory (U-35): map and batches may get less than the settings say.

        Raises:
            ConfigError: ``producer.id.expiration.ms`` has a value that Kafka would reject.
        """
        daemon = self.settings.daemon
        convert_legacy, profile_origin = self._profile()
        share = share_of(
            measured_lately(),
            threads=daemon.log_cleaner_threads,
            map_bytes=daemon.log_cleaner_dedupe_buffer_size,
            read_buffer_bytes=daemon.cleanerd_read_buffer_bytes,
            max_unpacked_bytes=daemon.cleanerd_max_unpacked_bytes,
            inside=inside,
        )
        return Resources(
            map_bytes=share.map_bytes,
            map_load=daemon.log_cleaner_io_buffer_load_factor,
            map_dir=str(daemon.cleanerd_map_dir or daemon.cleanerd_state_dir) if daemon.cleanerd_map_max_bytes else "",
            map_file_bytes=daemon.cleanerd_map_max_bytes,
            chunk_bytes=daemon.cleanerd_read_buffer_bytes,
            max_unpacked_bytes=share.batch_bytes,
            facts_bytes=share.facts_bytes,
            disk_reserve_bytes=daemon.cleanerd_disk_reserve,
            producer_id_expiration_ms=self.producer_id_expiration_ms(),
            lease_required=daemon.cleanerd_lease_probe == "required",
            plan_max_age_ms=daemon.cleanerd_plan_max_age_ms,
            convert_legacy=convert_legacy,
            profile_origin=profile_origin,
        )

    def producer_id_expiration_ms(self) -> int:
        """How long the broker remembers an idle producer (R192-2).

        Raises:
            ConfigError: ``producer.id.expiration.ms`` has a value that Kafka would reject.
        """
        defaults = self.settings.broker_defaults()
        return resolve_producer_id_expiration_ms(settings_defaults=defaults, **self._broker_layers())[0]

    def topic_id(self, topic: str) -> uuid.UUID | None:
        """The id of a topic of the cluster, if known."""
        if self.metadata is not None:
            return self.metadata.topics.get(topic)
        cached = self.zk_topics.get(topic)
        try:
            return None if cached is None or not cached.topic_id else uuid.UUID(cached.topic_id)
        except ValueError:
            return None

    def _profile(self) -> tuple[bool, str]:
        """Whether batches of message format v0 and v1 become v2, and the source of that (U-18)."""
        metadata = self.metadata
        registration = None if metadata is None or self.node_id is None else metadata.brokers.get(self.node_id)
        return legacy.converts(
            self.settings.daemon.cleanerd_broker_version,
            None if registration is None else registration.features.get(legacy.METADATA_VERSION),
            None if metadata is None else metadata.features,
            zookeeper=self.zookeeper,
        )

    def _of_topic(self, topic: str) -> Mapping[str, str] | None:
        if topic in self.zk_topics:
            return self.zk_topics[topic].values
        if self.metadata is None or topic not in self.metadata.topics:
            return None
        return self.metadata.topic_configs.get(topic, {})

    def _delegated_in_cluster(self, topic: str, reported: ReportedConfig | None) -> InCluster:
        """U-96: how the cluster shows that the topic itself has both values of ``cleanerd delegate``.

        Without the running broker's report of what the topic sets, the end of the metadata log counts, too.
        """
        effective = {} if reported is None else reported.values
        if reported is not None and not has_both_values(effective):
            return ""
        if reported is not None and reported.topic_level is not None:
            return "set" if reported.topic_level >= BOTH_VALUES else ""
        cached = self.zk_topics.get(topic)
        if cached is not None and cached.has_both_values is not None:
            return "set" if cached.has_both_values else ""
        own, newest = self._of_topic(topic), self._newest_of_topic(topic)
        if cached is not None or (own is None and newest is None):
            return "reported" if has_both_values(own or effective) else ""
        if has_both_values((own if newest is None else newest) or {}):
            return "set"
        return "ended" if has_both_values(own or {}) else ""

    def _newest_of_topic(self, topic: str) -> Mapping[str, str] | None:
        if self.metadata is None or topic not in self.metadata.newest_topics:
            return None
        return self.metadata.newest_configs.get(topic, {})

    def _may_be_delegated(self, config: TopicConfig) -> bool:
        """U-96: for a topic without known configuration, whether Kafka's rules would clean it by forgotten settings."""
        if self.cluster_id is None or config.delegated_here or self._newest_of_topic(config.topic) is not None:
            return False
        is_named = STRATEGY in config.named or config.topic in INTERNAL_TOPICS
        return config.is_compacted and config.is_kafkas and not is_named

    def _broker_layers(self) -> dict[str, Any]:
        metadata = self.metadata
        own = metadata.broker_configs.get(self.node_id, {}) if metadata is not None and self.node_id is not None else {}
        return {
            "broker_configs": own,
            "broker_defaults": metadata.broker_default_configs if metadata is not None else {},
            "server_properties": self.server_properties,
        }


def _listener(properties: Mapping[str, str]) -> str | None:
    """``host:port`` of the first listener for clients; without a host it is this machine."""
    roles = {each.strip() for each in properties.get("controller.listener.names", "CONTROLLER").split(",")}
    for listeners in (properties.get("advertised.listeners", ""), properties.get("listeners", "")):
        for name, _, place in (each.strip().partition("://") for each in listeners.split(",")):
            host, _, port = place.rpartition(":")
            if port.isdecimal() and name not in roles:
                return f"{host if host not in ('', '0.0.0.0') else 'localhost'}:{port}"  # noqa: S104 - not bound here
    return None


def being_moved(name: TopicPartition, place: Path | None = None) -> RefusedError:
    """The refusal of a partition whose replica is being moved to another log directory, ``place``."""
    return RefusedError(
        "it is being moved to another log directory" + ("" if place is None else f", {place}"),
        where=str(name),
        hint="wait until the broker has completed the move",
    )


def left_by_a_move(name: TopicPartition, place: Path) -> RefusedError:
    """The refusal of a partition with a ``-future`` directory beside it: brokers do not move within a directory."""
    return RefusedError(
        f"{place} has both the partition's directory and its replacement (-future), which no broker creates",
        where=str(name),
        hint="the broker does not start with both: delete the -future directory",
    )


def broker_facts(
    settings: Settings,
    log_dir: LogDir,
    others: Sequence[Path],
    *,
    running: bool = False,
    younger: bool = False,
    silent: Collection[Path] = (),
    read_metadata: ReadMetadata | None = None,
    query_topics: Callable[..., ReportedTopics] = cached_topic_configs,
    peers: Peers | None = None,
) -> BrokerFacts:
    """Collect the facts about ``log_dir``'s broker.

    ``others``: directories that may belong to the same broker; those of other brokers are ignored. Beside a ``running``
    broker the newest metadata is left out, because it may be uncommitted (U-23). Its command line overrides its
    server.properties (U-24). ``younger``: also read it, into a second result. ``silent``: directories that do not
    answer, in which nothing is read. ``read_metadata``: reads the metadata log, for callers that cache it; not with
    ``younger``. ``query_topics``: as :func:`cached_topic_configs`.

    Raises:
        CorruptionError, CleanerdError: the metadata log or server.properties exists but cannot be read.
        ConfigError: server.properties is another node's, or the metadata log that the settings name another cluster's.
    """
    properties_path = settings.daemon.cleanerd_broker_properties
    properties = None if properties_path is None else _server_properties(properties_path, log_dir, running=running)
    own, siblings = _log_dirs(log_dir, others, properties or {}, silent)
    # By a clock that jumped ahead nothing would be new (U-42); the cleaning itself reports an untrusted clock.
    now_ms = read_clock(settings.daemon.cleanerd_state_dir, []).now_ms()
    read = read_metadata or partial(read_cluster_metadata, younger=younger, margin_ms=METADATA_AGE_MS)
    found = _metadata_logs(settings.daemon.cleanerd_metadata_log_dir, own, log_dir)
    only_before_ms = now_ms - METADATA_AGE_MS if running else None
    metadata, metadata_dir = _newest(log_dir, [(read(path, only_before_ms=only_before_ms), path) for path in found])
    zookeeper = metadata is None and is_zookeeper_mode(log_dir)
    reported = query_topics(settings, log_dir, running=running) if zookeeper else ReportedTopics({}, ())
    facts = BrokerFacts(
        metadata=metadata,
        node_id=log_dir.meta.node_id,
        server_properties=properties,
        settings=settings,
        warnings=reported.warnings,
        metadata_dir=metadata_dir,
        log_dirs=own,
        siblings=siblings,
        zookeeper=zookeeper,
        zk_topics=reported.topics,
        cluster_id=log_dir.meta.cluster_id,
        has_hidden_metadata=running and metadata is None and not zookeeper,
    )
    return _with_state(_with_peers(facts, log_dir, peers or Peers()), log_dir, now_ms)


def _log_dirs(
    log_dir: LogDir, others: Sequence[Path], properties: Mapping[str, str], silent: Collection[Path]
) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The broker's log directories that may have its metadata log, and those that it uses beside ``log_dir``."""
    metadata_path = Path(properties.get("metadata.log.dir", "").strip())
    listed = [path for path in (metadata_path, *log_dirs_in(properties)) if path not in silent]
    places = dict.fromkeys((*others, *(path for path in listed if path.is_absolute() and path != log_dir.path)))
    own = (log_dir.path, *(path for path in places if _is_of_broker(log_dir, path)))
    return own, _siblings(log_dir, own, [*others, *(listed if log_dir.path in listed else ())])


def _newest(
    log_dir: LogDir, copies: Sequence[tuple[ClusterMetadata, Path]]
) -> tuple[ClusterMetadata, Path] | tuple[None, None]:
    """The metadata, and the directory of its log.

    If two directories have a metadata log, one was left behind when ``metadata.log.dir`` changed: the longer one is
    used. In ZooKeeper mode a log left behind by a migration is ignored.
    """
    metadata, path = max(copies, key=lambda copy: copy[0].as_of, default=(None, None))
    if metadata is None or path is None or is_stale_metadata(log_dir, metadata.as_of_ms):
        return None, None
    return metadata, path.parent


def _with_state(facts: BrokerFacts, log_dir: LogDir, now_ms: int) -> BrokerFacts:
    """Add what the state directory knows: delegations, when ISRs were full, ignored replicas."""
    state_dir = facts.settings.daemon.cleanerd_state_dir
    delegations = Delegations(state_dir)
    warnings: list[str] = []
    full_isr: Mapping[str, Mapping[int, int]] = {}
    if facts.metadata is not None:
        place = DirectoryPlaces(state_dir).name_of(log_dir.place)
        full_isr = remember_full_isr(state_dir, place, facts.metadata.replicas, now_ms, warnings)
    ignored = ignored_replicas(state_dir, facts.cluster_id, warnings)
    warnings += [
        f"no tombstone waits for broker {each}: cleanerd ignore-replica --revoke {each} ends that"
        for each in sorted(ignored)
    ]
    return replace(
        facts,
        saved={topic: entry.effective for topic, entry in delegations.of_cluster(facts.cluster_id).items()},
        saved_unread=delegations.unread,
        warnings=(*delegations.warnings, *warnings, *facts.warnings),
        full_isr=full_isr,
        ignored_replicas=ignored,
    )


def _with_peers(facts: BrokerFacts, log_dir: LogDir, peers: Peers) -> BrokerFacts:
    """Add what the daemons of the cluster's other brokers report (U-79)."""
    points = None if facts.metadata is None else peer_points(facts.settings, log_dir, peers)
    warnings = (peers.warning, *facts.warnings) if peers.warning else facts.warnings
    return replace(facts, warnings=warnings, peers=points, peer_log_ends=peers.log_ends)


def peer_points(settings: Settings, log_dir: LogDir, peers: Peers) -> PeerPoints | None:
    """The first dirty offsets of the cluster's other brokers; None if the settings name no daemons (U-79)."""
    daemon = settings.daemon
    named, meta = daemon.cleanerd_cluster_peers, log_dir.meta
    if isinstance(named, int):
        find = partial(find_daemons, named, daemon.bootstrap_servers, daemon.cleanerd_command_config, with_down=False)
        return peers.points(find, meta.cluster_id, meta.node_id)
    return peers.points(named, meta.cluster_id, meta.node_id)


def _metadata_logs(configured: Path | None, own: Sequence[Path], log_dir: LogDir) -> list[Path]:
    """The paths of the metadata log: from the settings, else any of the broker's ``own`` directories.

    Raises:
        ConfigError: it is not where the settings say, or belongs to another cluster.
    """
    found = [path / "__cluster_metadata-0" for path in (own if configured is None else [configured])]
    found = [path for path in found if path.is_dir()]
    if configured is None:
        return found
    _require_same_cluster(configured, log_dir)
    if not found:
        raise ConfigError(
            "has no __cluster_metadata-0",
            where=f"cleanerd.metadata.log.dir={configured}",
            hint="give the broker's metadata.log.dir or, when it has none, the first of its log.dirs",
        )
    return found


def _is_of_broker(log_dir: LogDir, path: Path) -> bool:
    """Whether ``path`` is a log directory of the broker that ``log_dir`` belongs to."""
    meta = meta_of(path)
    own = log_dir.meta
    return meta is not None and (meta.cluster_id, meta.node_id) == (own.cluster_id, own.node_id)


def _siblings(log_dir: LogDir, own: Sequence[Path], together: Sequence[Path]) -> tuple[Path, ...]:
    """The broker's ``own`` directories that it uses beside ``log_dir``.

    A copy has the directory id of its original, but ``log.dirs`` name only the original.
    """
    found = []
    for path in own:
        if path == log_dir.path or path not in together:
            continue
        meta = meta_of(path)
        known = None if meta is None else meta.directory_id
        if known is None or known != log_dir.meta.directory_id:
            found.append(path)
    return tuple(found)


def _require_same_cluster(path: Path, log_dir: LogDir) -> None:
    """Check the configured metadata log: it may be any cluster node's, or a copy, which need not name its owner.

    Otherwise topics without an id would use another cluster's topics of the same name, and all its brokers' settings.

    Raises:
        ConfigError: it belongs to another cluster.
    """
    meta = meta_of(path)
    known = log_dir.meta.cluster_id
    if meta is not None and known is not None and meta.cluster_id not in (None, known):
        raise ConfigError(
            f"belongs to cluster {meta.cluster_id}, {log_dir.path} to {known}",
            where=f"cleanerd.metadata.log.dir={path}",
            hint="name the metadata.log.dir of a node of that cluster",
        )


def meta_of(path: Path) -> MetaProperties | None:
    """The owner that a directory names; None if it does not."""
    try:
        return read_meta_properties(read_plain(path / META_PROPERTIES), str(path / META_PROPERTIES))
    except (OSError, CleanerdError):
        return None


def _server_properties(path: Path, log_dir: LogDir, *, running: bool) -> Mapping[str, str]:
    """Read the broker's server.properties. A file with another node id is ignored, because it is another broker's.

    The command line of a ``running`` broker overrides its file.
    """
    properties = server_properties(path)
    if running:
        properties = {**properties, **overrides_of(log_dir.path)}
    for key in ("node.id", "broker.id"):
        text = properties.get(key, "").strip()
        own = log_dir.meta.node_id
        # Python rejects numbers of thousands of digits.
        if text.isdecimal() and own is not None and (len(text) > _MOST_DIGITS or int(text) != own):
            raise ConfigError(
                f"{key} is {text[:40]}, but {log_dir.path} belongs to node {own}",
                where=str(path),
                hint="see cleanerd.broker.properties",
            )
    return properties
