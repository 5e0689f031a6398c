"""OP-11: all values shown of a partition follow from one, and never contradict each other."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.broker.agent_facts import CleanerState
from cleanerd.cleaner.reclaimable import Reclaimable
from cleanerd.cleaner.staged_plan import StagedPlan
from cleanerd.daemon.discovery.log_dir_scan import DirMode
from cleanerd.daemon.partition_scan import FailedScan
from cleanerd.daemon.registry.partition_entry import Quarantine, RetryDelay
from cleanerd.daemon.status.view_parts import explain_answer, log_dir_view, partition_view
from cleanerd.daemon.work.job import Backoff
from cleanerd.errors import Cause
from cleanerd.resolution.kafka_cleaner import kafka_cleaner
from tests.daemon.registries import KEY, NAME, NOW, SAVING, dir_scan, entry_of, partition_scan, registry_with

if TYPE_CHECKING:
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.view import PartitionView

REASONS = {
    "excluded": "excluded by a test",
    "quarantined": "quarantined by a test",
    "hold": "held by a test",
    "refused": "refused by a test",
    "failed": "failed by a test",
    "ratio": "dirty ratio 0.1 is not above 0.5",
}
ANSWER = {"cleaned_now": True, "rule": None, "reason": "", "changes": None}


def shown(registry: PartitionRegistry) -> PartitionView:
    registry.partitions[KEY].touch()
    return partition_view(registry, registry.partitions[KEY])


def exclude(registry: PartitionRegistry) -> PartitionRegistry:
    registry.merge(
        replace(dir_scan(partition_scan()), excluded={NAME: "cleanerd.topics.exclude names it"}, scans=()), NOW
    )
    return registry


def observing() -> PartitionRegistry:
    found = replace(
        dir_scan(partition_scan(), work="observe"), mode=DirMode("observe", "cleanerd.mode is observe", "observe")
    )
    registry = registry_with()
    registry.merge(found, NOW)
    return registry


def test_an_excluded_partition_shows_no_numbers_and_no_cleaning() -> None:
    """It was 0 B large, and "cleaned now, or next. Reason: cleanerd.topics.exclude names it"."""
    registry = registry_with()
    entry_of(registry).saving = SAVING
    entry_of(registry).next_purge_ms = NOW
    entry_of(registry).quarantine = Quarantine("of before", NOW, 1, NOW)
    view = shown(exclude(registry))
    assert (view.phase, view.outlook, view.reason) == ("excluded", "no", "cleanerd.topics.exclude names it")
    assert {
        view.size_bytes,
        view.dirty_bytes,
        view.dirty_ratio,
        view.reclaimable_bytes,
        view.next_purge_ms,
    } == {None}
    assert view.quarantine is None
    report = explain_answer(registry, entry_of(registry), ANSWER)
    assert (report["cleaned_now"], report["daemon"]["outlook"]) == (False, "no")
    assert (report["rule"], report["reason"]) == ("cleanerd.topics.include and exclude", view.reason)


def test_observe_mode_cleans_nothing_now_or_next() -> None:
    registry = observing()
    assert (shown(registry).outlook, shown(registry).reason) == ("observe", "would be cleaned")
    assert explain_answer(registry, entry_of(registry), ANSWER)["cleaned_now"] is False
    entry_of(registry).queued = True
    assert (shown(registry).phase, shown(registry).outlook) == ("queued", "observe")
    registry.begun(KEY, "ratio")
    assert (shown(registry).phase, shown(registry).outlook) == ("cleaning", "observe")


def test_a_new_reading_of_the_log_overrides_the_last_scan() -> None:
    """The scan is up to 15 seconds older than the answer of ``explain``."""
    registry = registry_with(partition_scan(eligible=False, rule="min.cleanable.dirty.ratio", reason=REASONS["ratio"]))
    report = explain_answer(registry, entry_of(registry), ANSWER)
    assert (report["cleaned_now"], report["daemon"]["outlook"], report["reason"]) == (
        True,
        "next",
        "about to be cleaned",
    )
    registry = registry_with()
    report = explain_answer(
        registry, entry_of(registry), {**ANSWER, "cleaned_now": False, "rule": "r", "reason": "clean"}
    )
    assert (report["cleaned_now"], report["daemon"]["outlook"], report["rule"], report["reason"]) == (
        False,
        "no",
        "r",
        "clean",
    )
    registry.pause(None, paused=True)
    report = explain_answer(registry, entry_of(registry), ANSWER)
    assert (report["cleaned_now"], report["rule"], report["reason"]) == (False, "cleanerd pause", "cleaning is paused")


@pytest.mark.parametrize("work", ["stage", "live"])
def test_a_staged_cleaning_takes_effect_at_the_next_start(work: str) -> None:
    registry = registry_with(work=work)  # type: ignore[arg-type]
    assert shown(registry).outlook == ("restart" if work == "stage" else "next")


def test_no_estimate_is_larger_than_the_partition() -> None:
    """4,014,481 bytes reclaimable of 428,474: retention had removed most of the log since the estimate."""
    registry = registry_with(partition_scan(size_bytes=428_474, clean_bytes=0, dirty_bytes=400_000))
    promised = Reclaimable(4_014_481, 3_900_000, 4_100_000, "sample")
    entry_of(registry).saving = replace(SAVING, clean_bytes=0, dirty_bytes=4_200_000, estimate=promised)
    view = shown(registry)
    assert (view.reclaimable_low_bytes, view.reclaimable_bytes, view.reclaimable_high_bytes) == (428_474,) * 3


sizes = st.integers(0, 10_000)
plans = st.builds(
    StagedPlan, created_ms=st.just(NOW), expires_ms=st.just(NOW + 1), first_uncleanable_offset=st.just(20)
)


@st.composite
def registries(draw: st.DrawFn) -> PartitionRegistry:
    """A partition in any combination of states that the daemon may know."""
    clean, dirty, size = draw(sizes), draw(sizes), draw(sizes)
    refused, eligible = draw(st.booleans()), draw(st.booleans())
    found = partition_scan(
        size_bytes=size, clean_bytes=clean, dirty_bytes=dirty, eligible=eligible and not refused, refused=refused,
        reason=REASONS["refused"] if refused else "" if eligible else REASONS["ratio"], rule="rule",
        staged=draw(st.none() | plans),
    )  # fmt: skip
    registry = registry_with(
        found, work=draw(st.sampled_from(["live", "stage", None])), free=draw(st.sampled_from([0, 900]))
    )
    if draw(st.booleans()):
        mode = DirMode("observe", "cleanerd.mode is observe", "observe")
        registry.merge(replace(dir_scan(found), mode=mode), NOW)
    entry = entry_of(registry)
    low, count, high = draw(sizes), draw(sizes), draw(sizes)
    estimate = Reclaimable(*sorted((low, count, high))[1:2], low=min(low, high), high=max(low, high), method="sample")
    entry.saving = draw(st.none() | st.just(replace(SAVING, dirty_bytes=draw(sizes), estimate=estimate)))
    entry.share = draw(st.floats(0, 1))
    if draw(st.booleans()):
        entry.failed = FailedScan(NAME, REASONS["failed"], Cause.ENVIRONMENT)
    if draw(st.booleans()):
        entry.quarantine = Quarantine(REASONS["quarantined"], NOW, 1, NOW + 1)
    if draw(st.booleans()):
        entry.hold = RetryDelay().extended(REASONS["hold"], NOW, Backoff(1, 2))
    entry.queued, entry.paused = draw(st.booleans()), draw(st.booleans())
    entry.trigger = draw(st.none() | st.sampled_from(["ratio", "overdue", "tombstone_removal", "manual"]))
    entry.excluded = draw(st.sampled_from(["", REASONS["excluded"]]))
    return registry


@given(registries(), st.booleans())
def test_state_reason_numbers_and_outlook_never_contradict_each_other(
    registry: PartitionRegistry, cleaned_now: bool
) -> None:
    view = shown(registry)
    assert view.reason
    for phase, reason in REASONS.items():
        if reason in view.reason:
            assert view.phase == (phase if phase in {"excluded", "quarantined", "refused"} else "idle")
    assert (view.outlook == "now") <= (view.phase == "cleaning")
    assert (view.phase in {"excluded", "paused", "refused"}) <= (view.outlook == "no")
    assert ("about to be cleaned" in view.reason) <= (view.outlook in {"next", "restart"})
    assert (view.mode == "observe") <= (view.outlook not in {"now", "next"})
    known = [view.reclaimable_low_bytes, view.reclaimable_bytes, view.reclaimable_high_bytes, view.size_bytes]
    if view.phase == "excluded":
        assert known == [None] * 4
    else:
        numbers = [each for each in known if each is not None]
        assert [0, *numbers] == sorted([0, *numbers])
    report = explain_answer(
        registry, entry_of(registry), {**ANSWER, "cleaned_now": cleaned_now, "reason": "" if cleaned_now else "r"}
    )
    assert report["cleaned_now"] == (report["daemon"]["outlook"] in {"now", "next"})
    assert report["reason"] == report["daemon"]["reason"]
    assert (report["reason"] in REASONS.values()) <= (report["cleaned_now"] is False or view.phase == "quarantined")


@pytest.mark.parametrize(
    ("properties", "info", "runs"),
    [
        ({"log.cleaner.enable": "false"}, {"cleaner": True}, False),
        ({"log.cleaner.enable": "true"}, {"cleaner": False}, False),
        (None, {"cleaner": True}, True),
        (None, {"cleaner": False, "ready": False}, None),
        (None, None, None),
    ],
)
def test_whether_kafkas_cleaner_runs(
    properties: dict[str, str] | None, info: dict[str, bool] | None, runs: bool | None
) -> None:
    """OP-13: its setting decides, then the agent's view of a broker that has started."""
    facts: Any = SimpleNamespace(server_properties=properties)
    agent: Any = None if info is None else SimpleNamespace(**{"ready": True, "kafka_cleaner": None, **info})
    found = kafka_cleaner(facts, agent)
    assert found.runs is runs
    assert bool(found.note) is (runs is False) is bool(found.fix)


@pytest.mark.parametrize(
    ("state", "runs", "noted"),
    [
        (CleanerState(0, 15_000, 0), True, ""),
        (CleanerState(), True, ""),
        (CleanerState(1, 15_000, 0), True, "lost 1 thread to an error, 1 left, so nothing compacts"),
        (CleanerState(2, None, 3), False, "lost 2 threads to an error, 0 left"),
        (CleanerState(0, 15_000, 2, ["a-0", "b-1"]), True, "set 2 partitions aside after an error: a-0, b-1, so these"),
        (CleanerState(0, 6 * 3_600_000 + 1, 0), True, "has not checked for work for 6 h"),
        (CleanerState(0, 6 * 3_600_000, 0), True, ""),
        (CleanerState(0, -5, None), True, ""),
    ],
)
def test_the_state_of_kafkas_cleaner(state: CleanerState, runs: bool, noted: str) -> None:
    """OP-13: a dead thread, a quarantined partition, and a cleaner that does nothing are each reported."""
    facts: Any = SimpleNamespace(server_properties={"log.cleaner.threads": "2"})
    info: Any = SimpleNamespace(ready=True, cleaner=True, kafka_cleaner=state)
    found = kafka_cleaner(facts, info)
    assert found.runs is runs
    assert bool(found.note) is bool(noted) is bool(found.fix)
    assert noted in found.note


def test_the_page_shows_that_kafkas_cleaner_is_off() -> None:
    registry = registry_with()
    entry = registry.dirs[KEY[0]]
    facts: Any = SimpleNamespace(server_properties={"log.cleaner.enable": "false"}, node_id=1, cluster_id=None)
    registry.merge(replace(entry, facts=facts), NOW)
    shown = log_dir_view(registry, registry.dirs[KEY[0]])
    assert (shown.kafka_cleaner, shown.kafka_cleaner_runs) == ("is off (log.cleaner.enable is false)", False)
    assert "Kafka's own cleaner is off" in explain_answer(registry, entry_of(registry), ANSWER)["notes"][-1]
