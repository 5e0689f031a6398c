"""Entries of the metadata log that are too recent, by a clock that may have jumped (U-23, U-42)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.agent_facts import ReportedConfig
from cleanerd.config.load import load_settings
from cleanerd.host.clock import LastTime, steady_ms, wall_ms
from cleanerd.policy.replicas import UNKNOWN_MS
from cleanerd.resolution.broker_facts import METADATA_AGE_MS, broker_facts
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.last_time import boot_id, save_time
from tests.cli.clean_log_dirs import good, write_metadata
from tests.segments.metadata_logs import ID1
from tests.segments.replica_records import partition
from tests.support.format_bytes import config as config_record
from tests.support.format_bytes import metadata_batch, topic
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MINUTE_MS = 60_000
DAY_MS = 86_400_000


@pytest.mark.parametrize("ahead_ms", [0, DAY_MS])
def test_a_clock_that_jumped_ahead(tmp_path: Path, ahead_ms: int) -> None:
    """By the new time no entry would be too recent any more, and uncommitted ones would be used."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": good()})
    log = write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}}) / f"{0:020d}.log"
    now = wall_ms() - ahead_ms
    old, young = now - METADATA_AGE_MS - MINUTE_MS, now - METADATA_AGE_MS + MINUTE_MS
    log.write_bytes(
        log.read_bytes()
        + metadata_batch(2, config_record(2, "orders", "segment.bytes", "77"), timestamp=old)
        + metadata_batch(3, config_record(2, "orders", "cleanup.policy", "delete"), timestamp=young)
    )
    assert save_time(tmp_path / "state", LastTime(boot_id(), steady_ms(), now)) == ""
    settings = load_settings(assignments=[f"cleanerd.state.dir={tmp_path / 'state'}"])
    facts = broker_facts(settings, read_log_dir(path), [], running=True)
    assert facts.metadata is not None
    assert facts.metadata.topic_configs == {"orders": {"cleanup.policy": "compact", "segment.bytes": "77"}}


BOTH = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": str(2**63 - 1)}
RATIO_ONLY = {"min.cleanable.dirty.ratio": "1"}
HALF = {"min.cleanable.dirty.ratio": "0.5"}


def report(values: dict[str, str], own: Mapping[str, str] | None = None) -> ReportedConfig:
    """Values of a running broker; without ``own``, the topic's settings, by an agent of an earlier release."""
    return ReportedConfig({"cleanup.policy": "compact", **values}, 100, None if own is None else frozenset(own))


@pytest.mark.parametrize(
    ("settled", "young", "reported", "delegated_in_cluster"),
    [
        pytest.param(BOTH, {}, None, "set", id="on disk"),
        pytest.param(BOTH, {}, report(BOTH, BOTH), "set", id="live"),
        pytest.param(RATIO_ONLY, {}, None, "", id="on disk: the ratio alone"),
        pytest.param(None, {}, report(BOTH, RATIO_ONLY), "", id="live: the lag is Kafka's default"),
        pytest.param({}, BOTH, None, "set", id="on disk: delegated just now"),
        pytest.param({}, {}, report(BOTH, BOTH), "set", id="live: delegated just now"),
        pytest.param(BOTH, {}, report(BOTH, {}), "", id="live: undelegated just now, by default values"),
        pytest.param(BOTH, {}, report({**BOTH, **HALF}, BOTH), "", id="live: another ratio"),
        pytest.param(RATIO_ONLY, {}, report(BOTH), "", id="earlier agent: the lag is Kafka's default"),
        pytest.param({}, BOTH, report(BOTH), "set", id="earlier agent: delegated just now"),
        pytest.param(BOTH, {"max.compaction.lag.ms": "9"}, None, "ended", id="on disk: undelegated just now"),
        pytest.param(None, {}, report(BOTH), "reported", id="earlier agent: the metadata log does not show the topic"),
        pytest.param(None, {}, None, "", id="on disk: it does not show it"),
    ],
)
def test_the_values_of_the_topic_itself_show_that_it_is_delegated(
    tmp_path: Path,
    settled: dict[str, str] | None,
    young: dict[str, str],
    reported: ReportedConfig | None,
    delegated_in_cluster: str,
) -> None:
    """U-96: the running broker names the topic's own settings; in the log, what is young counts, as it only refuses."""
    path = make_log_dir(tmp_path / "logs", {"orders-0": good()})
    name = "other" if settled is None else "orders"
    log = write_metadata(path, topics={name: {"cleanup.policy": "compact", **(settled or {})}}) / f"{0:020d}.log"
    if young:
        records = [config_record(2, name, key, value) for key, value in young.items()]
        log.write_bytes(log.read_bytes() + metadata_batch(2, *records, timestamp=wall_ms()))
    facts = broker_facts(load_settings(), read_log_dir(path), [], running=True)
    assert facts.topic_config("orders", reported).delegated_in_cluster == delegated_in_cluster


@pytest.mark.parametrize(
    ("records", "bound_ms"),
    [
        pytest.param((), UNKNOWN_MS, id="not in the log"),
        pytest.param((topic("fresh", ID1), partition(ID1, 0, [1, 2], [1])), UNKNOWN_MS, id="two replicas"),
        pytest.param((topic("fresh", ID1), partition(ID1, 0, [1], [1])), None, id="one replica"),
    ],
)
def test_tombstones_of_a_topic_of_the_last_minutes(
    tmp_path: Path, records: tuple[bytes, ...], bound_ms: int | None
) -> None:
    """U-70, U-71: they wait until the log shows its replicas, except with a single one (``bound_ms`` is None)."""
    path = make_log_dir(tmp_path / "logs", {"fresh-0": good()})
    log = write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}}) / f"{0:020d}.log"
    if records:
        log.write_bytes(log.read_bytes() + metadata_batch(2, *records, timestamp=wall_ms()))
    facts = broker_facts(load_settings(), read_log_dir(path), [], running=True)
    replicas = facts.topic_config("fresh").replicas
    assert replicas is not None
    assert replicas.bound(0, wall_ms()).at_ms == bound_ms


@pytest.mark.parametrize("is_shown", [False, True])
def test_the_delegation_of_a_topic_of_the_last_minutes_is_known(tmp_path: Path, is_shown: bool) -> None:
    """U-96: the log's end shows its configuration; only without that a delegation could be forgotten unnoticed."""
    path = make_log_dir(tmp_path / "logs", {"fresh-0": good()})
    log = write_metadata(path, topics={"orders": {"cleanup.policy": "compact"}}) / f"{0:020d}.log"
    if is_shown:
        log.write_bytes(log.read_bytes() + metadata_batch(2, topic("fresh", ID1), timestamp=wall_ms()))
    facts = broker_facts(
        load_settings(assignments=["topics.*.cleanup.policy=compact"]), read_log_dir(path), [], running=True
    )
    warned = [each for name in ("fresh", "orders") for each in facts.topic_config(name).warnings]
    assert any("whether fresh is delegated is unknown" in each for each in warned) != is_shown
    assert not any("orders" in each for each in warned)
    assert not facts.topic_config("__consumer_offsets").warnings, "it is always cleaned by offset"


@pytest.mark.parametrize(
    ("running", "is_found", "waits"),
    [
        pytest.param(True, False, True, id="with a running broker"),
        pytest.param(True, True, False, id="where it is named"),
        pytest.param(False, False, None, id="of a copy"),
    ],
)
def test_a_metadata_log_that_is_not_found(tmp_path: Path, running: bool, is_found: bool, waits: bool | None) -> None:
    """U-70: a running broker in KRaft mode has one, in a directory that is not configured here or does not answer."""
    second = make_log_dir(tmp_path / "second", {"orders-0": good()})
    first = make_log_dir(tmp_path / "first", {})
    log = write_metadata(first, topics={"orders": {"cleanup.policy": "compact"}}) / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + metadata_batch(2, partition(ID1, 0, [1], [1]), timestamp=1))
    silent = () if is_found else (first,)
    others = [first] if is_found else []
    facts = broker_facts(load_settings(), read_log_dir(second), others, running=running, silent=silent)
    replicas = facts.replicas_of("orders")
    now_ms = wall_ms()
    held = None if replicas is None else replicas.bound(0, now_ms).holds(now_ms, now_ms)
    assert held == waits
    assert facts.replicas_note.startswith("tombstones wait") == bool(waits)
