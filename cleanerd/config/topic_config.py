"""The effective configuration of one topic, as its broker sees it, and the origin of each value.

Plain values in, a frozen value out; the caller reads them (KRaft metadata, server.properties, cleanerd's settings).

Precedence (U-24, OP-7), highest first:

1. cleanerd's own topic key (``[topics."x"]`` or ``--set topics.x.KEY``): the operator said it, for this topic;
2. the topic's configuration;
3. the broker's own dynamic configuration, 4. the cluster-wide dynamic default, 5. ``server.properties``;
6. cleanerd's own broker-level settings, where set explicitly;
7. Kafka's default.

Layers 3 to 5 are merged first; then a key's broker synonyms are looked up in the result, as the broker does. A
``log.retention.ms`` in ``server.properties`` therefore beats a dynamic ``log.retention.hours``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, cast

from cleanerd.config import delegation, strategy_keys
from cleanerd.config.delegation import Delegation
from cleanerd.config.kafka_values import INT_MAX, ConfigValue, NumberRule, shown
from cleanerd.config.strategy_keys import DEFAULT_EXCLUDE, EXCLUDE_KEY, STRATEGY
from cleanerd.config.topic_keys import (
    BROKER_ONLY_RULES,
    INTERNAL_SEGMENT_BYTES,
    PRODUCER_EXPIRATION,
    REMOTE_STORAGE,
    TOPIC_RULES,
    VENDORS_TIER,
    rule_of_broker_key,
)
from cleanerd.errors import ConfigError, RefusedError

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping

    from cleanerd.config.delegation import InCluster
    from cleanerd.config.kafka_values import ValueRule
    from cleanerd.config.topic_keys import Synonym
    from cleanerd.fsio.state_files import UnreadableState

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"}
)
"""Topics cleaned by ``offset`` and null tombstones, whatever is configured (U-11, R280-12)."""

NEVER_CLEANED: Final = frozenset({"__cluster_metadata"})
"""The controllers' own log, which must not be compacted (U-11)."""

DEFAULT_ORIGIN: Final = "Kafka default"
TOPIC_ORIGIN: Final = "topic configuration"
RUNNING_ORIGIN: Final = "the running broker"
BROKER_ORIGIN: Final = "broker configuration"
CLUSTER_ORIGIN: Final = "cluster-wide default"
PROPERTIES_ORIGIN: Final = "server.properties"
BROKERS_ORIGINS: Final = (TOPIC_ORIGIN, RUNNING_ORIGIN, BROKER_ORIGIN, CLUSTER_ORIGIN, PROPERTIES_ORIGIN)
"""How the origin of a value begins that the broker has, too."""
INTERNAL_ORIGIN: Final = "internal topic"
SAVED_ORIGIN: Final = "saved by cleanerd delegate"

_PROVIDED: Final = "${"
_PROVIDED_HINT: Final = (
    "a config provider fills it in for the broker, and cleanerd cannot: name a copy of the file with the value itself"
)
"""The fix for a value from a broker's ``config.providers`` (KIP-297)."""


_NAMES: Final = {
    key: frozenset({key, *(synonym.name for synonym in rule.synonyms)})
    | ({INTERNAL_SEGMENT_BYTES} if key == "segment.bytes" else set())
    for key, rule in TOPIC_RULES.items()
}
"""The names that can set each topic key. A topic sets few keys, and only these are resolved."""

CONNECT: Final = "--bootstrap-server HOST:PORT"
"""Used if no setting states how Kafka's tools reach the broker."""


class ReplicaBounds(Protocol):
    """The interface of ``policy.replicas.TopicReplicas``, which the verifying code may not import (U-28)."""

    def of_topic(self, topic_id: uuid.UUID | None) -> ReplicaBounds:
        """The bounds for a log of the topic ``topic_id``."""

    def bound(
        self, partition: int, now_ms: int, ignored: frozenset[int] = frozenset(), first_dirty_offset: int | None = None
    ) -> Any:
        """An ``ExpiryBound``: up to which delete horizon a partition's tombstones may be removed."""

    def is_alone(self, partition: int) -> bool:
        """Whether the partition has a single replica."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The values that decide how a topic's partitions are cleaned.

    ``policy_known`` is False when no source names this topic and ``cleanup_policy`` is only a default: such a topic is
    not cleaned (:func:`require_known_policy`). ``origins``: for each topic key the source of its value.
    ``compaction_strategy_header`` is set whenever the strategy is ``header``, ``tombstone_header`` whenever the mode
    is; otherwise they may be empty. ``warnings``: notes for the operator about these values and their combination
    (R280-7, R280-13, U-25). ``delegation``: whether the broker's cleaner skips the topic (U-8). ``named``: the keys of
    strategy and tombstones that are set for this topic or a glob that matches it; ``delegated_here``: ``cleanerd
    delegate`` was run, according to the state directory; ``delegated_in_cluster``: how the cluster shows that the
    topic has both values that it sets (U-96); ``delegations_unread``: its delegations cannot be read completely.
    ``may_be_kept_away``: the broker's cleaner skips the topic, or this is unknown. ``connect``: the options by which
    Kafka's tools reach the broker. ``is_kept_away``: the broker's cleaner certainly skips the topic, whether
    that is needed or not. ``replicas``: the replicas that tombstones wait for; None: they wait for their delete horizon
    only (U-70).
    """

    topic: str
    cleanup_policy: frozenset[str]
    policy_known: bool
    compaction_strategy: str
    compaction_strategy_header: str
    compaction_strategy_header_encoding: str
    compaction_winner_retention: str
    tombstone_mode: str
    tombstone_header: str
    tombstone_guard: str
    cleanerd_tombstone_replicated: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    file_delete_delay_ms: int
    segment_ms: int
    retention_ms: int
    compression_type: str
    preallocate: bool
    remote_storage_enable: bool
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    delegation: Delegation
    named: frozenset[str] = frozenset()
    delegated_here: bool = False
    delegated_in_cluster: InCluster = ""
    delegations_unread: UnreadableState | None = None
    may_be_kept_away: bool = True
    is_kept_away: bool = False
    connect: str = CONNECT
    replicas: ReplicaBounds | None = field(default=None, compare=False)

    @property
    def is_compacted(self) -> bool:
        """Whether the topic is known to be compacted, with or without deletion by retention."""
        return self.policy_known and "compact" in self.cleanup_policy

    @property
    def is_kafkas(self) -> bool:
        """Whether Kafka's cleaner has the same rules: the strategy is offset, and a tombstone is a null value."""
        return self.compaction_strategy == "offset" and self.tombstone_mode == "null"


@dataclass(frozen=True, slots=True)
class _Layers:
    """The broker's configuration, in the order of precedence, each layer with its name."""

    broker: tuple[tuple[str, Mapping[str, str]], ...]
    settings: Mapping[str, ConfigValue]

    def names(self) -> frozenset[str]:
        """The keys that a layer sets."""
        return frozenset(self.settings).union(*(values for _, values in self.broker))

    def text(self, key: str) -> tuple[str, str] | None:
        """Text and origin of a broker key in the merged broker layers."""
        for origin, values in self.broker:
            if key in values:
                return values[key], f"{origin} {key}"
        return None

    def first(self, synonyms: tuple[Synonym, ...], *, only_settings: bool = False) -> ConfigValue | None:
        """The value of the first synonym that the broker sets; else of the first that cleanerd's settings set."""
        for synonym in () if only_settings else synonyms:
            found = self.text(synonym.name)
            if found is not None:
                value = _parse(synonym.name, synonym.value, *found)
                return ConfigValue(synonym.in_topic_unit(value), found[1])
        for synonym in synonyms:
            if synonym.name in self.settings:
                value, origin = self.settings[synonym.name]
                return ConfigValue(synonym.in_topic_unit(value), origin)
        return None


def resolve_topic_config(
    topic: str,
    *,
    overrides: Mapping[str, ConfigValue],
    topic_configs: Mapping[str, str] | None,
    broker_configs: Mapping[str, str] | None = None,
    broker_defaults: Mapping[str, str] | None = None,
    server_properties: Mapping[str, str] | None = None,
    settings_defaults: Mapping[str, ConfigValue] | None = None,
    strategy_exclude: tuple[str, ...] = DEFAULT_EXCLUDE,
    delegated_in_cluster: InCluster | None = None,
    saved: Mapping[str, str] | None = None,
    saved_unread: UnreadableState | None = None,
    assume_delegated: bool = False,
    topic_origin: str = TOPIC_ORIGIN,
    connect: str = CONNECT,
) -> TopicConfig:
    """The effective configuration of ``topic``.

    Args:
        overrides: cleanerd's own topic keys for this topic, see :func:`read_key`.
        topic_configs: the topic's configuration from KRaft metadata, empty when it sets nothing; None without metadata,
            or if the topic is not in it.
        broker_configs: dynamic configuration of the broker that owns the log directory.
        broker_defaults: cluster-wide dynamic defaults.
        server_properties: the broker's file.
        settings_defaults: cleanerd's broker-level keys that were set explicitly.
        strategy_exclude: globs of topics that a broker-level default strategy does not reach (U-5).
        delegated_in_cluster: how the cluster shows both values of ``cleanerd delegate`` (U-96); None: as in
            ``topic_configs``.
        saved: the effective values of the keys that ``cleanerd delegate`` changed, from before; None when it did not.
        saved_unread: state files that could show a delegation but cannot be read.
        assume_delegated: ``cleanerd.delegation=assumed``.
        topic_origin: the source of ``topic_configs``.
        connect: the options by which Kafka's tools reach the broker, for commands that messages name.

    Raises:
        ConfigError: a value that Kafka would not take, lags that cross, an unknown strategy or tombstone mode (R280-2),
            or a tombstone mode that lacks its header; names the key, the value and its origin.
        RefusedError: the topic is never cleaned (U-11).
    """
    if topic in NEVER_CLEANED:
        raise RefusedError("the controllers' metadata log is never cleaned", where=topic)
    layers = _layers(broker_configs, broker_defaults, server_properties, settings_defaults)
    found = _Resolution(topic, overrides, topic_configs, topic_origin, layers)
    found.resolve(excluded=strategy_keys.is_excluded(topic, strategy_exclude))
    verdict = found.delegation(properties_known=server_properties is not None, assumed=assume_delegated)
    if delegated_in_cluster is None:
        delegated_in_cluster = "set" if delegation.has_both_values(topic_configs or {}) else ""
    found.finish(saved, delegated_in_cluster=delegated_in_cluster != "")
    return TopicConfig(
        topic=topic,
        policy_known=topic_configs is not None or "cleanup.policy" in overrides,
        origins=MappingProxyType(found.origins),
        warnings=found.warnings,
        delegation=verdict if found.delegation_reason else Delegation("not needed"),
        named=found.named,
        delegated_here=saved is not None,
        delegated_in_cluster=delegated_in_cluster,
        delegations_unread=saved_unread,
        may_be_kept_away=topic_configs is None or delegation.is_delegated(topic_configs),
        is_kept_away=verdict.state == "delegated",
        connect=connect,
        **{key.replace(".", "_"): value for key, value in found.values.items()},
    )


def resolve_producer_id_expiration_ms(
    *,
    broker_configs: Mapping[str, str] | None = None,
    broker_defaults: Mapping[str, str] | None = None,
    server_properties: Mapping[str, str] | None = None,
    settings_defaults: Mapping[str, ConfigValue] | None = None,
) -> tuple[int, str]:
    """``producer.id.expiration.ms`` (R192-2), which is not a topic key, and its origin.

    Raises:
        ConfigError: a value that Kafka would reject.
    """
    layers = _layers(broker_configs, broker_defaults, server_properties, settings_defaults)
    rule = BROKER_ONLY_RULES[PRODUCER_EXPIRATION]
    value, origin = layers.first(rule.synonyms) or (rule.default, DEFAULT_ORIGIN)
    return cast("int", value), origin


def read_key(key: str, text: str, origin: str, topic: str | None = None) -> ConfigValue:
    """The value of a topic key or broker key, in that key's unit. ``topic``: for the message.

    Raises:
        ConfigError: a value that Kafka would reject.
    """
    rule = TOPIC_RULES[key].value if key in TOPIC_RULES else rule_of_broker_key(key)[0]
    return ConfigValue(_parse(key, rule, text, origin, topic), origin)


def require_known_policy(config: TopicConfig) -> None:
    """Refuse a topic named on the command line if no source states its policy.

    Raises:
        ConfigError: ``config.policy_known`` is False; the message lists the ways to state it.
    """
    if config.policy_known:
        return
    raise ConfigError(
        "cleanup.policy of this topic is unknown",
        where=config.topic,
        hint="name all log directories of the broker: one of them holds the metadata log; or set "
        "cleanerd.metadata.log.dir to the directory with __cluster_metadata-0; "
        f'or put "cleanup.policy" = "compact" under [topics."{config.topic}"] in a --config file; '
        f"or give --set topics.{config.topic}.cleanup.policy=compact; if the topic may be delegated, also set its "
        f"topics.{config.topic}.{STRATEGY}",
    )


def _layers(
    broker_configs: Mapping[str, str] | None,
    broker_defaults: Mapping[str, str] | None,
    server_properties: Mapping[str, str] | None,
    settings_defaults: Mapping[str, ConfigValue] | None,
) -> _Layers:
    broker = (
        (BROKER_ORIGIN, broker_configs or {}),
        (CLUSTER_ORIGIN, broker_defaults or {}),
        (PROPERTIES_ORIGIN, server_properties or {}),
    )
    return _Layers(broker, settings_defaults or {})


class _Resolution:
    """The keys of one topic while they are resolved: their values and origins, and the warnings about them.

    ``named``: the keys of strategy and tombstones that are set for the topic. ``delegation_reason``: the setting that
    Kafka's cleaner would not follow, as ``key=value``; empty if it decides as cleanerd does.
    """

    def __init__(
        self,
        topic: str,
        overrides: Mapping[str, ConfigValue],
        topic_configs: Mapping[str, str] | None,
        topic_origin: str,
        layers: _Layers,
    ) -> None:
        self._topic = topic
        self._overrides = overrides
        self._known_configs = topic_configs
        self._topic_configs = topic_configs or {}
        self._is_delegated = delegation.is_delegated(self._topic_configs)
        self._topic_origin = topic_origin
        self._layers = layers
        self._on_topic = overrides.keys() | self._topic_configs.keys()
        self.named = frozenset(strategy_keys.KEYS & self._on_topic)
        self.values: dict[str, Any] = {key: rule.default for key, rule in TOPIC_RULES.items()}
        self.origins = dict.fromkeys(self.values, DEFAULT_ORIGIN)
        self.warnings: tuple[str, ...] = ()
        self.delegation_reason = ""

    def resolve(self, *, excluded: bool) -> None:
        """Find each key's value. ``excluded``: no default strategy reaches the topic (U-5)."""
        fixed = strategy_keys.KEYS if self._topic in INTERNAL_TOPICS else ()
        set_names = self._layers.names().union(self._on_topic, fixed)
        for key, names in _NAMES.items():
            if not names.isdisjoint(set_names):
                self.values[key], self.origins[key] = self._overrides_or(key, excluded=excluded)
        self._apply_tiers()
        self.warnings = strategy_keys.apply_fallbacks(self._topic, self.values, self.origins)
        if self.warnings:
            self.named -= {STRATEGY}  # the operator did not set the fallback
        for key, kafkas in ((STRATEGY, "offset"), (strategy_keys.TOMBSTONE_MODE, "null")):
            if not self.delegation_reason and self.values[key] != kafkas:
                self.delegation_reason = f"{key}={self.values[key]}"

    def delegation(self, *, properties_known: bool, assumed: bool) -> Delegation:
        """Whether the broker's cleaner skips the topic (U-8)."""
        return delegation.delegation_of(
            self._topic,
            self.delegation_reason,
            self._known_configs,
            broker_lag=self._layers.text(delegation.BROKER_MAX_LAG),
            properties_known=properties_known,
            assumed=assumed,
        )

    def finish(self, saved: Mapping[str, str] | None, *, delegated_in_cluster: bool) -> None:
        """Apply what depends on the delegation, and check the combination. ``saved``: from before the delegation."""
        if self._is_delegated and (self.delegation_reason or saved is not None):
            self._apply_delegated_keys(saved or {})
        elif self._is_delegated and not delegated_in_cluster and STRATEGY not in self.named:
            self.warnings += (delegation.HINT.format(topic=self._topic),)
        self.warnings += self._crossed_lags()
        self.warnings += strategy_keys.cautions(self._topic, self.values, self.origins)

    def _overrides_or(self, key: str, *, excluded: bool) -> ConfigValue:
        """The value that cleanerd's settings give the topic; else what the broker would use."""
        if key in strategy_keys.KEYS and self._topic in INTERNAL_TOPICS:
            return ConfigValue(TOPIC_RULES[key].default, INTERNAL_ORIGIN)
        return self._overrides[key] if key in self._overrides else self._without_override(key, excluded=excluded)

    def _without_override(self, key: str, *, excluded: bool = False) -> ConfigValue:
        rule, name, value_rule, origin = TOPIC_RULES[key], key, TOPIC_RULES[key].value, self._topic_origin
        if key == "segment.bytes" and INTERNAL_SEGMENT_BYTES in self._topic_configs:
            # 4.x: the topic's internal key has precedence over segment.bytes and the broker's; it has no synonym and no
            # minimum.
            name, value_rule = INTERNAL_SEGMENT_BYTES, NumberRule(1, INT_MAX)
        if name in self._topic_configs:
            value = _parse(name, value_rule, self._topic_configs[name], origin, self._topic)
            # A running broker reports this key for every topic, set or not, so do not name it then.
            is_plain = name == key or origin == RUNNING_ORIGIN
            return ConfigValue(value, origin if is_plain else f"{origin} {name}")
        default = self._layers.first(rule.synonyms)
        if default is None:
            return ConfigValue(rule.default, DEFAULT_ORIGIN)
        # The header alone does not select a strategy: a topic with strategy `header` may take its name from the
        # default.
        return ConfigValue(rule.default, EXCLUDE_KEY) if key == STRATEGY and excluded else default

    def _apply_tiers(self) -> None:
        """S-49: a topic is tiered if any source says so: cleanerd's settings, the topic, or a vendor's setting.

        So cleanerd's settings can declare a topic tiered, but cannot override a tiered one.
        """
        for key in (REMOTE_STORAGE, VENDORS_TIER):
            value, origin = self._without_override(key)
            if value and not self.values[REMOTE_STORAGE]:
                self.values[REMOTE_STORAGE] = True
                self.origins[REMOTE_STORAGE] = origin if key in origin or key == REMOTE_STORAGE else f"{origin} {key}"
        del self.values[VENDORS_TIER]

    def _apply_delegated_keys(self, saved: Mapping[str, str]) -> None:
        """U-9: ratio and lag of a delegated topic make the broker's cleaner skip it.

        They do not time cleanerd's cleanings. cleanerd's own settings decide, else what ``delegate`` found before it
        changed them, else Kafka's defaults.
        ``min.compaction.lag.ms`` does not change, because delegation does not set it and readers rely on it.
        """
        for key in (delegation.RATIO, delegation.MAX_LAG):
            if key in self._overrides:
                continue
            found = self._layers.first(TOPIC_RULES[key].synonyms, only_settings=True)
            if found is None and key in saved:
                found = read_key(key, saved[key], SAVED_ORIGIN, self._topic)
            self.values[key], self.origins[key] = found or (TOPIC_RULES[key].default, DEFAULT_ORIGIN)

    def _crossed_lags(self) -> tuple[str, ...]:
        """U-48: if a default makes the lags cross, no cleaning is delayed, as in Kafka.

        Records that are too new wait; the deadline passes.

        Raises:
            ConfigError: both are set for the topic itself, which no broker accepts.
        """
        least, most, topic = "min.compaction.lag.ms", "max.compaction.lag.ms", self._topic
        if self.values[least] <= self.values[most]:
            return ()
        values = f"{self.values[least]}, above {most} {self.values[most]} ({self.origins[most]})"
        crossed = f"{least} of topic {topic} is {values}"
        if {least, most} <= self._on_topic:
            _reject(crossed, self.origins[least])
        cured = f"set {most} of the topic to {self.values[least]} or more"
        late = f"it is cleaned up to records of that age, so the deadline of {most} cannot be kept"
        return (f"{crossed}: {late}; {cured}",)


def _parse(key: str, rule: ValueRule, text: str, origin: str, topic: str | None = None) -> object:
    try:
        return rule.read(text)
    except ValueError as error:
        about = f" of topic {topic}" if topic else ""
        hint = _PROVIDED_HINT if _PROVIDED in text else None
        _reject(f"{key}{about} is {shown(text)}, must be {error}", origin, hint)


def _reject(message: str, origin: str, hint: str | None = None) -> NoReturn:
    raise ConfigError(message, where=origin, hint=hint)
