"""Whether the broker's own cleaner skips a topic (U-8), and the settings of a delegated topic's cleaning (U-9)."""

from __future__ import annotations

from typing import Any

import pytest

from cleanerd.config.topic_config import TopicConfig, read_key, resolve_topic_config

RATIO, LAG = "min.cleanable.dirty.ratio", "max.compaction.lag.ms"
BROKER_LAG = "log.cleaner.max.compaction.lag.ms"
FOREVER = str(2**63 - 1)
TIMESTAMP = {"compaction.strategy": ("timestamp", "--set")}


def resolve(**layers: Any) -> TopicConfig:
    layers.setdefault("overrides", TIMESTAMP)
    layers.setdefault("topic_configs", {})
    for layer in ("overrides", "settings_defaults"):
        if layer in layers:
            layers[layer] = {key: read_key(key, *found, "orders") for key, found in layers[layer].items()}
    return resolve_topic_config("orders", **layers)


NEEDED: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"compaction.strategy": "offset", "tombstone.mode": "null"}, False),
    # a guard alone has no effect under offset
    ({"tombstone.guard": "forever"}, False),
    # falls back to offset (R280-7)
    ({"compaction.strategy": "header"}, False),
    ({"compaction.strategy": "timestamp"}, True),
    ({"compaction.strategy": "header", "compaction.strategy.header": "v"}, True),
    ({"tombstone.mode": "flag"}, True),
    ({"tombstone.mode": "header", "tombstone.header": "d"}, True),
]


@pytest.mark.parametrize(("keys", "needed"), NEEDED)
def test_every_strategy_but_kafkas_own_needs_it(keys: dict[str, str], needed: bool) -> None:
    """U-8: `offset` with `tombstone.mode=null` needs none; every other combination does."""
    config = resolve(overrides={key: (text, "--set") for key, text in keys.items()})
    assert config.delegation.state == ("undelegated" if needed else "not needed")
    assert config.delegation.permits is not needed


LAYERS: list[tuple[dict[str, Any], str]] = [
    ({"topic_configs": {RATIO: "1", LAG: FOREVER}}, "delegated"),
    ({"topic_configs": {RATIO: "1.0", LAG: FOREVER}}, "delegated"),
    # unset everywhere: only after a full search
    ({"topic_configs": {RATIO: "1"}, "server_properties": {}}, "delegated"),
    ({"topic_configs": {RATIO: "1"}}, "unknown"),
    # a finite broker default would defeat the ratio, unless the topic says otherwise
    ({"topic_configs": {RATIO: "1"}, "server_properties": {BROKER_LAG: "5"}}, "undelegated"),
    ({"topic_configs": {RATIO: "1"}, "broker_defaults": {BROKER_LAG: "5"}}, "undelegated"),
    ({"topic_configs": {RATIO: "1"}, "broker_configs": {BROKER_LAG: "5"}}, "undelegated"),
    ({"topic_configs": {RATIO: "1", LAG: FOREVER}, "server_properties": {BROKER_LAG: "5"}}, "delegated"),
    ({"topic_configs": {RATIO: "1"}, "broker_configs": {BROKER_LAG: FOREVER}}, "delegated"),
    ({"topic_configs": {RATIO: "1", LAG: "9223372036854775806"}}, "undelegated"),
    ({"topic_configs": {RATIO: "0.99", LAG: FOREVER}}, "undelegated"),
    ({"topic_configs": {LAG: FOREVER}}, "undelegated"),
    # the ratio must be the topic's: the rule names the topic, and a broker's default can change
    ({"topic_configs": {LAG: FOREVER}, "server_properties": {"log.cleaner.min.cleanable.ratio": "1"}}, "undelegated"),
    ({"topic_configs": {RATIO: "one", LAG: FOREVER}}, "undelegated"),
    ({"topic_configs": None}, "unknown"),
    ({"topic_configs": None, "server_properties": {BROKER_LAG: FOREVER}}, "unknown"),
]


@pytest.mark.parametrize(("layers", "state"), LAYERS)
def test_the_settings_that_the_broker_reads_decide(layers: dict[str, Any], state: str) -> None:
    """U-8, row by row."""
    if layers["topic_configs"] and layers["topic_configs"].get(RATIO) == "one":
        layers = {**layers, "overrides": {**TIMESTAMP, RATIO: ("0.5", "--set")}}
    config = resolve(**layers)
    assert config.delegation.state == state, config.delegation.reason
    assert bool(config.delegation.fix) == (state in ("undelegated", "unknown"))


def test_cleanerds_own_settings_prove_nothing() -> None:
    """U-8: the broker's cleaner never reads them. As overrides and as defaults, with and without metadata."""
    overrides = {**TIMESTAMP, RATIO: ("1", "--set"), LAG: (FOREVER, "--set")}
    defaults = {"log.cleaner.min.cleanable.ratio": ("1", "--set"), BROKER_LAG: (FOREVER, "--set")}
    assert resolve(overrides=overrides).delegation.state == "undelegated"
    assert resolve(settings_defaults=defaults, topic_configs={RATIO: "1"}).delegation.state == "unknown"
    assert resolve(overrides=overrides, settings_defaults=defaults, topic_configs=None).delegation.state == "unknown"


@pytest.mark.parametrize(("layers", "state"), LAYERS)
def test_the_operators_confirmation_fills_gaps_and_overrides_nothing(layers: dict[str, Any], state: str) -> None:
    """`cleanerd.delegation=assumed`: a known contrary setting has precedence."""
    if layers["topic_configs"] and layers["topic_configs"].get(RATIO) == "one":
        return
    assumed = resolve(**layers, assume_delegated=True).delegation.state
    assert assumed == ("assumed" if state == "unknown" else state)


def test_reasons_name_the_setting_the_numbers_and_the_way_out() -> None:
    delegation = resolve(topic_configs={RATIO: "1"}, server_properties={BROKER_LAG: "5"}).delegation
    assert delegation.reason == (
        "compaction.strategy=timestamp needs delegation (Kafka's cleaner must skip the topic), but server.properties "
        "log.cleaner.max.compaction.lag.ms is '5', which outweighs min.cleanable.dirty.ratio"
    )
    assert delegation.fix == "run cleanerd delegate orders"
    assert "min.cleanable.dirty.ratio is not set on the topic" in resolve().delegation.reason
    assert "cleanerd.delegation=assumed" in resolve(topic_configs=None).delegation.fix
    flag = resolve(overrides={"tombstone.mode": ("flag", "--set")}).delegation
    assert flag.reason.startswith("tombstone.mode=flag needs")


DELEGATED = {RATIO: "1", LAG: FOREVER}
ELIGIBLE: list[tuple[dict[str, Any], tuple[float, str], tuple[int, str]]] = [
    # cleanerd's own configuration, topic level and daemon level
    (
        {"overrides": {**TIMESTAMP, RATIO: ("0.2", "--set")}, "saved": {RATIO: "0.3", LAG: "7"}},
        (0.2, "--set"),
        (7, "saved by cleanerd delegate"),
    ),
    (
        {
            "settings_defaults": {"log.cleaner.min.cleanable.ratio": ("0.4", "--set x")},
            "saved": {RATIO: "0.3", LAG: "7"},
        },
        (0.4, "--set x"),
        (7, "saved by cleanerd delegate"),
    ),
    # otherwise the values that delegate saved
    ({"saved": {RATIO: "0.3", LAG: "7"}}, (0.3, "saved by cleanerd delegate"), (7, "saved by cleanerd delegate")),
    # otherwise Kafka's defaults, not the broker's: on a host without the saved values
    ({}, (0.5, "Kafka default"), (2**63 - 1, "Kafka default")),
    (
        {"server_properties": {"log.cleaner.min.cleanable.ratio": "0.9"}},
        (0.5, "Kafka default"),
        (2**63 - 1, "Kafka default"),
    ),
]


@pytest.mark.parametrize(("layers", "ratio", "lag"), ELIGIBLE)
def test_the_ratio_of_a_delegated_topic_is_ignored(
    layers: dict[str, Any], ratio: tuple[float, str], lag: tuple[int, str]
) -> None:
    """U-9: with the broker's 1, neither cleaner would ever clean a delegated topic."""
    config = resolve(topic_configs=DELEGATED, **layers)
    assert config.delegation.state == "delegated"
    assert (config.min_cleanable_dirty_ratio, config.origins[RATIO]) == ratio
    assert (config.max_compaction_lag_ms, config.origins[LAG]) == lag


def test_other_values_of_a_delegated_topic_stay_the_brokers() -> None:
    """U-9 is about the values that delegation sets. The minimum lag is a promise, segment.ms decides when it rolls."""
    config = resolve(topic_configs={**DELEGATED, "min.compaction.lag.ms": "60000", "segment.ms": "5"}, saved={})
    assert (config.min_compaction_lag_ms, config.segment_ms) == (60000, 5)


def test_a_topic_of_kafkas_strategy_is_delegated_only_by_us() -> None:
    """An operator's own ratio of 1 on an offset topic means never; one that ``delegate`` set does not."""
    plain = {"overrides": {}, "topic_configs": DELEGATED}
    assert resolve(**plain).min_cleanable_dirty_ratio == 1
    assert resolve(**plain, saved={RATIO: "0.3", LAG: "7"}).min_cleanable_dirty_ratio == 0.3
    assert resolve(**plain, saved={RATIO: "0.3", LAG: "7"}).delegation.state == "not needed"
    # undelegated by hand: the saved values are outdated
    since = {"overrides": {}, "topic_configs": {RATIO: "0.8"}}
    assert resolve(**since, saved={RATIO: "0.3", LAG: "7"}).min_cleanable_dirty_ratio == 0.8
