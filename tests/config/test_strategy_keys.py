"""Strategy and tombstones of a topic: their sources, fallbacks, scope (U-5), fingerprint (U-6)."""

from __future__ import annotations

from typing import Any

import pytest

from cleanerd.config.fingerprint import fingerprint, fingerprint_differences
from cleanerd.config.topic_config import TopicConfig, read_key, resolve_topic_config
from cleanerd.errors import ConfigError


def resolve(topic: str = "orders", **layers: Any) -> TopicConfig:
    for layer in ("overrides", "settings_defaults"):
        if layer in layers:
            layers[layer] = {key: read_key(key, *found, topic) for key, found in layers[layer].items()}
    return resolve_topic_config(
        topic, overrides=layers.pop("overrides", {}), topic_configs=layers.pop("topic_configs", {}), **layers
    )


def message(**keys: str) -> dict[str, tuple[str, str]]:
    """Overrides as ``--set`` makes them; ``_`` is ``.``."""
    return {key.replace("_", "."): (text, "--set") for key, text in keys.items()}


def by_default(strategy: str, header: str = "v") -> dict[str, tuple[str, str]]:
    """The daemon's level, from its settings."""
    key = "log.cleaner.compaction.strategy"
    return {key: (strategy, f"--set {key}"), f"{key}.header": (header, f"--set {key}.header")}


WHERE: list[tuple[dict[str, Any], str]] = [
    ({"overrides": message(compaction_strategy="timestamp")}, "--set"),
    ({"topic_configs": {"compaction.strategy": "timestamp"}}, "topic configuration"),
    (
        {"server_properties": {"log.cleaner.compaction.strategy": "timestamp"}},
        "server.properties log.cleaner.compaction.strategy",
    ),
    ({"settings_defaults": by_default("timestamp")}, "--set log.cleaner.compaction.strategy"),
]


@pytest.mark.parametrize(("layers", "origin"), WHERE)
def test_a_strategy_comes_from_every_level(layers: dict[str, Any], origin: str) -> None:
    """R280-1: cleanerd's topic level, the broker's, a broker that knows the names, and the daemon's level."""
    config = resolve(**layers)
    assert config.compaction_strategy == "timestamp"
    assert config.origins["compaction.strategy"] == origin
    assert not config.is_kafkas


def test_the_topic_level_is_stronger_than_the_daemons_key_by_key() -> None:
    """R280-1: settings that the topic lacks come from the daemon; here the header's name."""
    config = resolve(
        overrides=message(compaction_strategy="header"), settings_defaults=by_default("timestamp", "version")
    )
    assert (config.compaction_strategy, config.compaction_strategy_header) == ("header", "version")
    config = resolve(
        overrides=message(compaction_strategy_header="own"), settings_defaults=by_default("header", "version")
    )
    assert (config.compaction_strategy, config.compaction_strategy_header) == ("header", "own")


def test_an_empty_strategy_is_offset_even_with_another_default() -> None:
    """R280-2: empty means offset; it was set for this topic, so the daemon's level does not apply."""
    config = resolve(overrides=message(compaction_strategy=" "), settings_defaults=by_default("timestamp"))
    assert config.compaction_strategy == "offset"
    assert config.origins["compaction.strategy"] == "--set"


@pytest.mark.parametrize("word", ["newest", "Header", "offset,header"])
def test_an_unknown_strategy_names_key_value_and_choices(word: str) -> None:
    """R280-2."""
    with pytest.raises(ConfigError) as raised:
        resolve(topic_configs={"compaction.strategy": word})
    text = f"compaction.strategy of topic orders is '{word}', must be one of: offset, timestamp, header"
    assert raised.value.message == text


@pytest.mark.parametrize("header", ["", "  "])
def test_header_strategy_without_a_header_falls_back_to_offset_with_a_warning(header: str) -> None:
    """R280-7: blank, not only empty; from the topic's level as from the daemon's."""
    config = resolve(overrides=message(compaction_strategy="header", compaction_strategy_header=header))
    assert config.compaction_strategy == "offset"
    assert config.is_kafkas
    assert config.origins["compaction.strategy"] == "fall-back: compaction.strategy.header is blank"
    (warning,) = config.warnings
    assert "compaction.strategy is header (--set)" in warning
    assert "by offset" in warning
    assert resolve(settings_defaults=by_default("header", header)).compaction_strategy == "offset"


def test_no_warning_without_a_fallback() -> None:
    """A header's name without the header strategy has no effect and is not an error."""
    quiet = {"overrides": message(segment_ms="1000")}
    assert resolve(settings_defaults=by_default("timestamp"), **quiet).warnings == ()
    assert resolve(settings_defaults=by_default("header"), **quiet).warnings == ()


LATE: list[tuple[dict[str, str], list[str]]] = [
    # Kafka's defaults: a day against a week
    ({}, ["delete.retention.ms of orders is 1 d (Kafka default)", "segment.ms 7 d (Kafka default)"]),
    ({"segment_ms": "86400000"}, []),
    ({"segment_ms": "86400001"}, ["segment.ms 1 d (--set)"]),
    ({"segment_ms": "1", "max_compaction_lag_ms": "86400001"}, ["max.compaction.lag.ms 1 d (--set)"]),
    ({"max_compaction_lag_ms": "86400001"}, ["segment.ms 7 d", "and max.compaction.lag.ms 1 d"]),
    ({"delete_retention_ms": "604800000"}, []),
    # it guards indefinitely: nothing to warn about
    ({"tombstone_guard": "forever"}, []),
]


@pytest.mark.parametrize(("keys", "parts"), LATE)
def test_late_data_after_a_tombstone(keys: dict[str, str], parts: list[str]) -> None:
    """R280-13: smaller than either of the two; without a compaction lag there is none that could be larger."""
    warnings = resolve(overrides=message(compaction_strategy="timestamp", **keys)).warnings
    assert len(warnings) == bool(parts)
    assert all(part in warnings[0] for part in parts)
    assert resolve(overrides=message(**keys)).warnings == (), (
        "under offset a tombstone is above the records that it supersedes"
    )


def test_the_lag_of_a_delegated_topic_is_the_one_from_before() -> None:
    """R280-13, U-9: on the topic it is infinite only to stop the broker's cleaner."""
    config = resolve(
        overrides=message(compaction_strategy="timestamp", segment_ms="1000"),
        topic_configs={"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(2**63 - 1)},
        saved={"max.compaction.lag.ms": "90000000"},
    )
    assert "max.compaction.lag.ms 1 d 1 h (saved by cleanerd delegate)" in config.warnings[0]


@pytest.mark.parametrize(
    ("layers", "warned"),
    [
        ({}, False),
        ({"topic_configs": {"compression.type": "producer"}}, False),
        ({"topic_configs": {"compression.type": "zstd"}}, True),
        ({"server_properties": {"compression.type": "lz4"}}, True),
        ({"server_properties": {"compression.type": "lz4"}, "topic_configs": {"compression.type": "producer"}}, False),
    ],
)
def test_flag_mode_and_recompression(layers: dict[str, Any], warned: bool) -> None:
    """U-25: only `compression.type=producer` keeps the bit; it does not matter in the other modes."""
    config = resolve(overrides=message(tombstone_mode="flag"), **layers)
    assert bool(config.warnings) is warned
    assert resolve(overrides=message(tombstone_mode="header", tombstone_header="d"), **layers).warnings == ()


def test_tombstone_mode_header_without_a_header_is_refused() -> None:
    """R87-4: a fallback to null would keep, indefinitely and as values, records that producers meant as tombstones."""
    with pytest.raises(ConfigError) as raised:
        resolve(topic_configs={"tombstone.mode": "header", "tombstone.header": " "})
    assert str(raised.value) == (
        "topic configuration: tombstone.mode of topic orders is header, but tombstone.header is blank (name the header "
        "that marks a tombstone: topics.orders.tombstone.header=NAME)"
    )
    config = resolve(topic_configs={"tombstone.mode": "header"}, overrides=message(tombstone_header="deleted"))
    assert (config.tombstone_mode, config.tombstone_header) == ("header", "deleted")


EXCLUDED = [
    "__consumer_groups",
    "_schemas",
    "connect-offsets",
    "app-store-changelog",
    "app-KSTREAM-REDUCE-repartition",
]


@pytest.mark.parametrize("topic", EXCLUDED)
@pytest.mark.parametrize(
    "level",
    [
        {"settings_defaults": by_default("timestamp")},
        {"server_properties": {"log.cleaner.compaction.strategy": "timestamp"}},
    ],
)
def test_the_default_strategy_excludes_topics_of_other_software(topic: str, level: dict[str, Any]) -> None:
    """U-5: the default of `cleanerd.strategy.exclude`; for a default from any level."""
    config = resolve(topic, **level)
    assert config.compaction_strategy == "offset"
    assert config.origins["compaction.strategy"] == "cleanerd.strategy.exclude"
    assert resolve(topic, strategy_exclude=(), **level).compaction_strategy == "timestamp"


@pytest.mark.parametrize("topic", ["_schemas2", "x_schemas", "changelog", "my-changelog-1", "Connect-offsets"])
def test_the_exclusion_is_by_whole_names_and_case(topic: str) -> None:
    """U-5."""
    assert resolve(topic, settings_defaults=by_default("timestamp")).compaction_strategy == "timestamp"


def test_settings_of_an_excluded_topic_itself_are_used() -> None:
    """U-5: the exclusion is of the default only.

    The header may still come from the default, as the topic requests it.
    """
    config = resolve(
        "_schemas", overrides=message(compaction_strategy="header"), settings_defaults=by_default("timestamp")
    )
    assert (config.compaction_strategy, config.compaction_strategy_header) == ("header", "v")
    assert resolve("_schemas", topic_configs={"compaction.strategy": "timestamp"}).compaction_strategy == "timestamp"


def test_an_excluded_topic_without_any_default_has_kafkas_origin() -> None:
    assert resolve("_schemas").origins["compaction.strategy"] == "Kafka default"


def test_the_fingerprint_of_kafkas_settings_equals_that_of_earlier_releases() -> None:
    """U-6: another text would report a change again on every partition that was ever cleaned."""
    assert fingerprint(resolve()) == "strategy=offset;tombstone.mode=null"


FINGERPRINTS = [
    ({"compaction_strategy": "timestamp"}, "strategy=timestamp;tombstone.mode=null"),
    (
        {"compaction_strategy": "header", "compaction_strategy_header": "v"},
        "strategy=header;header=v;encoding=long;tombstone.mode=null",
    ),
    (
        {"compaction_strategy": "header", "compaction_strategy_header": "v", "tombstone_mode": "flag"},
        "strategy=header;header=v;encoding=long;tombstone.mode=flag",
    ),
    (
        {"tombstone_mode": "header", "tombstone_header": "d"},
        "strategy=offset;tombstone.mode=header;tombstone.header=d",
    ),
    # these have no effect here
    ({"compaction_strategy_header": "v", "tombstone_header": "d"}, "strategy=offset;tombstone.mode=null"),
    ({"compaction_strategy_header_encoding": "varlong"}, "strategy=offset;tombstone.mode=null"),
    ({"compaction_strategy": "header"}, "strategy=offset;tombstone.mode=null"),
    ({"compaction_strategy": "timestamp", "tombstone_guard": "forever"}, "strategy=timestamp;tombstone.mode=null"),
]


@pytest.mark.parametrize(("keys", "expected"), FINGERPRINTS)
def test_the_fingerprint_has_exactly_the_compaction_settings(keys: dict[str, str], expected: str) -> None:
    """U-6."""
    assert fingerprint(resolve(overrides=message(**keys))) == expected


def test_no_header_name_can_forge_another_fingerprint() -> None:
    """U-6: users choose header names; two settings never share a fingerprint."""
    plain = message(compaction_strategy="header", compaction_strategy_header="v")
    forged = message(compaction_strategy="header", compaction_strategy_header="v;encoding=varlong")
    escaped = message(compaction_strategy="header", compaction_strategy_header="v%3Bencoding=varlong")
    prints = {fingerprint(resolve(overrides=keys)) for keys in (plain, forged, escaped)}
    assert len(prints) == 3
    assert all(text.count(";") == 3 for text in prints)


def test_differences_of_fingerprints_name_the_changed_settings() -> None:
    """U-6: `explain` shows what differs from the last cleaning."""
    before = "strategy=offset;tombstone.mode=null"
    after = "strategy=header;header=a=b;encoding=long;tombstone.mode=null"
    assert fingerprint_differences(before, after) == {
        "strategy": ("offset", "header"),
        "header": ("", "a=b"),
        "encoding": ("", "long"),
    }
    assert fingerprint_differences(after, after) == {}
