"""The effective topic configuration: precedence (U-24), synonyms, origins, internal topics (U-11), bad values.

Synonyms, types, ranges and defaults were compared with the output of Kafka 4.3.1 (ServerTopicConfigSynonyms,
LogConfig).
"""

from __future__ import annotations

from typing import Any

import pytest

from cleanerd.config.kafka_values import ConfigValue
from cleanerd.config.topic_config import (
    DEFAULT_ORIGIN,
    INTERNAL_TOPICS,
    TopicConfig,
    read_key,
    require_known_policy,
    resolve_producer_id_expiration_ms,
    resolve_topic_config,
)
from cleanerd.config.topic_keys import BROKER_KEYS, TOPIC_KEYS
from cleanerd.errors import ConfigError, RefusedError
from cleanerd.format.config_keys import ALLOWED_KEYS


def resolve(topic: str = "orders", **layers: Any) -> TopicConfig:
    for layer in ("overrides", "settings_defaults"):
        if layer in layers:
            layers[layer] = {key: read_key(key, *found, topic) for key, found in layers[layer].items()}
    return resolve_topic_config(
        topic, overrides=layers.pop("overrides", {}), topic_configs=layers.pop("topic_configs", {}), **layers
    )


DEFAULTS = {
    "cleanup_policy": frozenset({"delete"}),
    "compaction_strategy": "offset",
    "compaction_strategy_header": "",
    "compaction_strategy_header_encoding": "long",
    "tombstone_mode": "null",
    "tombstone_header": "",
    "tombstone_guard": "horizon",
    "min_cleanable_dirty_ratio": 0.5,
    "min_compaction_lag_ms": 0,
    "max_compaction_lag_ms": 9223372036854775807,
    "delete_retention_ms": 86400000,
    "segment_bytes": 1073741824,
    "segment_index_bytes": 10485760,
    "index_interval_bytes": 4096,
    "max_message_bytes": 1048588,
    "file_delete_delay_ms": 60000,
    "segment_ms": 604800000,
    "retention_ms": 604800000,
    "compression_type": "producer",
    "preallocate": False,
    "remote_storage_enable": False,
}


@pytest.mark.parametrize(("field", "value"), DEFAULTS.items())
def test_defaults_are_kafkas(field: str, value: object) -> None:
    """Without any setting, Kafka's own defaults apply."""
    config = resolve()
    assert getattr(config, field) == value
    assert config.origins[field.replace("_", ".")] == DEFAULT_ORIGIN


LAYERS: list[tuple[str, Any, str]] = [
    ("overrides", {"segment.bytes": ("7001", "--set")}, "--set"),
    ("topic_configs", {"segment.bytes": "7002"}, "topic configuration"),
    ("broker_configs", {"log.segment.bytes": "7003"}, "broker configuration log.segment.bytes"),
    ("broker_defaults", {"log.segment.bytes": "7004"}, "cluster-wide default log.segment.bytes"),
    ("server_properties", {"log.segment.bytes": "7005"}, "server.properties log.segment.bytes"),
    (
        "settings_defaults",
        {"log.segment.bytes": ("7006", "file x.toml log.segment.bytes")},
        "file x.toml log.segment.bytes",
    ),
]


@pytest.mark.parametrize("strongest", range(len(LAYERS)))
def test_precedence(strongest: int) -> None:
    """U-24: with the layers from ``strongest`` down all set, ``strongest`` is used."""
    given = {name: values for name, values, _ in LAYERS[strongest:]}
    config = resolve(**given)
    assert config.segment_bytes == 7001 + strongest
    assert config.origins["segment.bytes"] == LAYERS[strongest][2]


SYNONYMS: list[tuple[str, dict[str, str], object, str]] = [
    ("retention.ms", {"log.retention.hours": "2"}, 7_200_000, "log.retention.hours"),
    ("retention.ms", {"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000, "log.retention.minutes"),
    ("retention.ms", {"log.retention.minutes": "3", "log.retention.ms": "4"}, 4, "log.retention.ms"),
    # any negative value in any unit means indefinitely, not -60000 ms
    ("retention.ms", {"log.retention.minutes": "-1"}, -1, "log.retention.minutes"),
    ("retention.ms", {"log.retention.ms": "-5"}, -1, "log.retention.ms"),
    ("retention.ms", {"log.retention.minutes": "2147483647"}, 128849018820000, "log.retention.minutes"),
    ("segment.ms", {"log.roll.hours": "1"}, 3_600_000, "log.roll.hours"),
    ("segment.ms", {"log.roll.hours": "1", "log.roll.ms": "5"}, 5, "log.roll.ms"),
    ("index.interval.bytes", {"log.index.interval.bytes": "9"}, 9, "log.index.interval.bytes"),
    ("max.message.bytes", {"message.max.bytes": "9"}, 9, "message.max.bytes"),
    ("cleanup.policy", {"log.cleanup.policy": "compact"}, frozenset({"compact"}), "log.cleanup.policy"),
    ("delete.retention.ms", {"log.cleaner.delete.retention.ms": "9"}, 9, "log.cleaner.delete.retention.ms"),
    ("min.cleanable.dirty.ratio", {"log.cleaner.min.cleanable.ratio": "0.1"}, 0.1, "log.cleaner.min.cleanable.ratio"),
    ("min.compaction.lag.ms", {"log.cleaner.min.compaction.lag.ms": "9"}, 9, "log.cleaner.min.compaction.lag.ms"),
    ("max.compaction.lag.ms", {"log.cleaner.max.compaction.lag.ms": "9"}, 9, "log.cleaner.max.compaction.lag.ms"),
    ("file.delete.delay.ms", {"log.segment.delete.delay.ms": "9"}, 9, "log.segment.delete.delay.ms"),
    ("segment.index.bytes", {"log.index.size.max.bytes": "9"}, 9, "log.index.size.max.bytes"),
    ("preallocate", {"log.preallocate": "TRUE"}, True, "log.preallocate"),
]


@pytest.mark.parametrize(("key", "properties", "value", "reported_by"), SYNONYMS)
def test_broker_synonyms(key: str, properties: dict[str, str], value: object, reported_by: str) -> None:
    """The broker keys that replace a missing topic key, their order and units."""
    config = resolve(server_properties=properties)
    assert getattr(config, key.replace(".", "_")) == value
    assert config.origins[key] == f"server.properties {reported_by}"
    assert set(properties) <= BROKER_KEYS


def test_a_topic_key_among_broker_keys_has_no_effect() -> None:
    """``segment.bytes`` in server.properties is not a setting of a broker."""
    assert resolve(server_properties={"segment.bytes": "9999", "retention.ms": "1"}).segment_bytes == 1073741824


def test_layers_are_merged_before_synonyms_are_read() -> None:
    """The broker's way: log.retention.ms of the weakest broker layer beats log.retention.hours of the strongest."""
    config = resolve(broker_configs={"log.retention.hours": "1"}, server_properties={"log.retention.ms": "77"})
    assert config.retention_ms == 77


def test_settings_defaults_do_not_mix_with_the_brokers_layers() -> None:
    """U-24: server.properties' hours beat cleanerd's own milliseconds, though ms is the stronger synonym."""
    config = resolve(
        server_properties={"log.retention.hours": "1"}, settings_defaults={"log.retention.ms": ("77", "--set")}
    )
    assert config.retention_ms == 3_600_000


def test_internal_segment_bytes_of_the_topic_wins_over_its_segment_bytes() -> None:
    """4.x: LogConfig(internal.segment.bytes=100, segment.bytes=2000000) rolls at 100."""
    both = {"internal.segment.bytes": "100", "segment.bytes": "2000000"}
    config = resolve(topic_configs=both)
    assert config.segment_bytes == 100
    assert config.origins["segment.bytes"] == "topic configuration internal.segment.bytes"
    assert resolve(topic_configs=both, overrides={"segment.bytes": ("300", "--set")}).segment_bytes == 300
    assert resolve(server_properties={"internal.segment.bytes": "100"}).segment_bytes == 1073741824
    assert "internal.segment.bytes" in TOPIC_KEYS


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("compact", {"compact"}),
        ("delete", {"delete"}),
        ("compact,delete", {"compact", "delete"}),
        (" delete , compact ", {"compact", "delete"}),
        ("Compact", {"compact"}),
        ("", set()),
    ],
)
def test_cleanup_policy_texts(text: str, policy: set[str]) -> None:
    """C-01; an empty list keeps everything and is not compaction."""
    config = resolve(topic_configs={"cleanup.policy": text})
    assert config.cleanup_policy == policy
    assert config.is_compacted == ("compact" in policy)


KNOWN: list[tuple[dict[str, Any], bool, bool]] = [
    ({"topic_configs": None}, False, False),
    # a broker's default does not apply to a topic that may have its own policy
    ({"topic_configs": None, "server_properties": {"log.cleanup.policy": "compact"}}, False, False),
    ({"topic_configs": None, "settings_defaults": {"log.cleanup.policy": ("compact", "--set")}}, False, False),
    ({"topic_configs": None, "overrides": {"segment.bytes": ("100", "--set")}}, False, False),
    ({"topic_configs": None, "overrides": {"cleanup.policy": ("compact", "--set")}}, True, True),
    ({"topic_configs": {}}, True, False),
    ({"topic_configs": {}, "server_properties": {"log.cleanup.policy": "compact"}}, True, True),
]


@pytest.mark.parametrize(("layers", "known", "compacted"), KNOWN)
def test_a_policy_is_known_only_when_something_reports_the_topic(
    layers: dict[str, Any], known: bool, compacted: bool
) -> None:
    """An explicit --partition with an unknown policy is an error that lists the three ways to set it."""
    config = resolve("orders.v1", **layers)
    assert (config.policy_known, config.is_compacted) == (known, compacted)
    if known:
        require_known_policy(config)
        return
    with pytest.raises(ConfigError) as raised:
        require_known_policy(config)
    for way in ("cleanerd.metadata.log.dir", '[topics."orders.v1"]', "--set topics.orders.v1.cleanup.policy=compact"):
        assert way in str(raised.value)


BAD: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"topic_configs": {"segment.bytes": "13"}},
        ["segment.bytes", "'13'", "14 or more", "topic configuration", "orders"],
    ),
    ({"topic_configs": {"segment.bytes": "2147483648"}}, ["'2147483648'", "2^31-1"]),
    ({"topic_configs": {"segment.bytes": "128MiB"}}, ["'128MiB'", "whole number"]),
    ({"topic_configs": {"segment.bytes": "1_000"}}, ["'1_000'"]),
    ({"topic_configs": {"segment.bytes": "\u0661\u0660\u0660"}}, ["whole number"]),
    ({"topic_configs": {"segment.bytes": "9" * 5000}}, ["whole number"]),
    ({"topic_configs": {"min.cleanable.dirty.ratio": "1.1"}}, ["'1.1'", "0 to 1"]),
    ({"topic_configs": {"min.cleanable.dirty.ratio": "nan"}}, ["'nan'"]),
    ({"topic_configs": {"cleanup.policy": "compact,erase"}}, ["compact,erase", "list of compact, delete"]),
    ({"topic_configs": {"preallocate": "yes"}}, ["'yes'", "true or false"]),
    ({"topic_configs": {"max.compaction.lag.ms": "0"}}, ["max.compaction.lag.ms", "1 or more"]),
    ({"topic_configs": {"retention.ms": "-2"}}, ["retention.ms", "-1 or more"]),
    # a broker does not start with 0, a topic may have it
    ({"server_properties": {"log.retention.ms": "0"}}, ["log.retention.ms", "1 or more, or -1"]),
    ({"topic_configs": {"tombstone.mode": "bit"}}, ["tombstone.mode of topic orders is 'bit'", "null, flag, header"]),
    ({"topic_configs": {"tombstone.guard": "ever"}}, ["tombstone.guard", "'ever'", "one of: horizon, forever"]),
    (
        {"overrides": {"compaction.strategy.header.encoding": ("int", "--set")}},
        ["--set", "compaction.strategy.header.encoding", "'int'", "one of: long, varlong"],
    ),
    ({"topic_configs": {"compaction.strategy.header": "h" * 1025}}, ["compaction.strategy.header", "1024 bytes"]),
    ({"topic_configs": {"tombstone.header": "\udc80"}}, ["tombstone.header"]),
    ({"server_properties": {"log.retention.hours": "x"}}, ["server.properties log.retention.hours", "'x'"]),
    ({"server_properties": {"log.retention.minutes": "2147483648"}}, ["log.retention.minutes"]),
    ({"overrides": {"segment.bytes": ("1", "environment CLEANERD_X")}}, ["environment CLEANERD_X", "'1'"]),
    ({"settings_defaults": {"log.segment.bytes": ("1", "file a.toml")}}, ["file a.toml", "log.segment.bytes"]),
]


@pytest.mark.parametrize(("layers", "message"), BAD)
def test_bad_values_name_key_value_range_and_origin(layers: dict[str, Any], message: list[str]) -> None:
    """A value that Kafka rejects is an error of configuration (exit code 3), not a guess."""
    with pytest.raises(ConfigError) as raised:
        resolve(**layers)
    for part in message:
        assert part in str(raised.value)


@pytest.mark.parametrize("text", ["0.5f", " 0.5 ", ".5", "5e-1", "+0.5d"])
def test_ratio_texts_that_java_accepts(text: str) -> None:
    assert resolve(topic_configs={"min.cleanable.dirty.ratio": text}).min_cleanable_dirty_ratio == 0.5


def test_a_long_bad_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(topic_configs={"segment.bytes": "9" * 5000})
    assert len(str(raised.value)) < 300


def test_a_topic_may_keep_nothing_by_age() -> None:
    assert resolve(topic_configs={"retention.ms": "0"}).retention_ms == 0


def test_a_bad_value_that_is_overridden_is_never_read() -> None:
    """Only the layer in effect is read: the broker itself may accept values that we do not."""
    config = resolve(overrides={"segment.bytes": ("100", "--set")}, topic_configs={"segment.bytes": "new-fangled"})
    assert config.segment_bytes == 100


@pytest.mark.parametrize("where", ["server.properties", "cluster default", "settings"])
def test_contradicting_lags_by_a_default(where: str) -> None:
    """U-48: Kafka cleans such a topic; the warning has both values and their sources."""
    default = {"log.cleaner.max.compaction.lag.ms": "9"}
    layers: dict[str, Any] = {
        "server.properties": {"server_properties": default},
        "cluster default": {"broker_defaults": default},
        "settings": {"settings_defaults": {"log.cleaner.max.compaction.lag.ms": ("9", "--set")}},
    }
    config = resolve(topic_configs={"min.compaction.lag.ms": "10"}, **layers[where])
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (10, 9)
    (warning,) = config.warnings
    assert "min.compaction.lag.ms of topic orders is 10, above max.compaction.lag.ms 9" in warning
    assert config.origins["max.compaction.lag.ms"] in warning


@pytest.mark.parametrize("override", [True, False])
def test_contradicting_lags_of_a_topic_are_refused(override: bool) -> None:
    """U-48: no broker accepts both on one topic, in the cluster or by cleanerd's settings."""
    most = {"overrides": {"max.compaction.lag.ms": ("9", "--set")}} if override else {}
    topic = {"min.compaction.lag.ms": "10"} | ({} if override else {"max.compaction.lag.ms": "9"})
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms of topic orders is 10, above"):
        resolve(topic_configs=topic, **most)


@pytest.mark.parametrize(
    "layers",
    [
        {"overrides": {"remote.storage.enable": ("true", "--set")}},
        {"topic_configs": {"confluent.tier.enable": "true"}},
        {"server_properties": {"confluent.tier.enable": "true"}},
        {
            "overrides": {"remote.storage.enable": ("false", "--set")},
            "topic_configs": {"remote.storage.enable": "true"},
        },
    ],
)
def test_any_setting_makes_a_topic_tiered(layers: dict[str, Any]) -> None:
    """S-49: a vendor's setting, and cleanerd's own; none of them overrides another one."""
    config = resolve(**layers)
    assert config.remote_storage_enable
    assert config.origins["remote.storage.enable"] != DEFAULT_ORIGIN
    assert not resolve(topic_configs={"confluent.tier.enable": "false"}).remote_storage_enable


@pytest.mark.parametrize(
    ("policy", "strategy", "warned"),
    [
        ("compact,delete", "header", True),
        ("compact,delete", "timestamp", True),
        ("compact,delete", "offset", False),
        ("compact", "header", False),
        ("delete", "header", False),
    ],
)
def test_retention_of_a_retained_record(policy: str, strategy: str, warned: bool) -> None:
    """U-61: the retained record may be older than the superseded ones, and retention deletes by segments."""
    config = resolve(
        topic_configs={"cleanup.policy": policy},
        overrides={"compaction.strategy": (strategy, "--set"), "compaction.strategy.header": ("v", "--set")},
    )
    assert any("the broker's retention deletes it" in text for text in config.warnings) is warned
    config = resolve(
        topic_configs={"cleanup.policy": policy},
        overrides={
            "compaction.strategy": (strategy, "--set"),
            "compaction.strategy.header": ("v", "--set"),
            "compaction.winner.retention": ("write-time", "--set"),
        },
    )
    assert not any("the broker's retention deletes it" in text for text in config.warnings), "U-65 keeps it"


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_internal_topics_use_offset_whatever_is_configured(topic: str) -> None:
    """U-11, R280-12: not even the daemon's default reaches them; their policy stays that of the cluster."""
    config = resolve(
        topic,
        overrides={"compaction.strategy": ("header", "--set"), "compaction.strategy.header": ("v", "--set")},
        topic_configs={"cleanup.policy": "compact", "compaction.strategy": "timestamp", "tombstone.mode": "flag"},
        settings_defaults={"log.cleaner.compaction.strategy": ("header", "--set")},
        strategy_exclude=(),
    )
    assert config.compaction_strategy == "offset"
    assert config.compaction_strategy_header == ""
    assert config.tombstone_mode == "null"
    assert config.is_kafkas
    assert config.origins["compaction.strategy"] == "internal topic"
    assert config.is_compacted


def test_the_metadata_log_is_never_touched() -> None:
    """U-11: not even when an operator names it."""
    with pytest.raises(RefusedError, match="never cleaned"):
        resolve("__cluster_metadata", overrides={"cleanup.policy": ("compact", "--set")})


def test_the_reader_of_the_metadata_log_keeps_the_allow_list() -> None:
    """U-24: a key that the allow-list hides would silently become a default here."""
    assert TOPIC_KEYS | BROKER_KEYS <= ALLOWED_KEYS


def test_only_the_allow_list_is_read() -> None:
    """U-24: the metadata log holds credentials too; none of those keys is ever read or kept."""
    config = resolve(topic_configs={"sasl.jaas.config": "secret"}, server_properties={"ssl.key.password": "secret"})
    assert "secret" not in repr(config)
    assert not any("password" in key or "sasl" in key for key in BROKER_KEYS | TOPIC_KEYS)


@pytest.mark.parametrize(
    ("layers", "value", "origin"),
    [
        ({}, 86_400_000, DEFAULT_ORIGIN),
        ({"server_properties": {"producer.id.expiration.ms": "5"}}, 5, "server.properties producer.id.expiration.ms"),
        (
            {
                "broker_defaults": {"producer.id.expiration.ms": "6"},
                "server_properties": {"producer.id.expiration.ms": "5"},
            },
            6,
            "cluster-wide default producer.id.expiration.ms",
        ),
        ({"settings_defaults": {"producer.id.expiration.ms": ConfigValue(7, "--set")}}, 7, "--set"),
    ],
)
def test_producer_id_expiration(layers: dict[str, Any], value: int, origin: str) -> None:
    """R192-2: a broker-level key with the broker's precedence."""
    assert resolve_producer_id_expiration_ms(**layers) == (value, origin)


def test_producer_id_expiration_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 or more"):
        resolve_producer_id_expiration_ms(server_properties={"producer.id.expiration.ms": "0"})


@pytest.mark.parametrize("text", ["${file:/etc/kafka/secrets:lag}", "${env:LAG}"])
def test_a_value_from_a_config_provider_is_refused(text: str) -> None:
    """KIP-297: the broker's value is unknown here, and the message shows the solution."""
    with pytest.raises(ConfigError) as refused:
        resolve(server_properties={"log.cleaner.min.compaction.lag.ms": text})
    assert "a copy of the file with the value itself" in (refused.value.hint or "")
    with pytest.raises(ConfigError) as plain:
        resolve(server_properties={"log.cleaner.min.compaction.lag.ms": "1h"})
    assert plain.value.hint is None
