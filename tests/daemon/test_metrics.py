"""cleanerd.daemon.http.metrics: the samples of a snapshot, the limit of series, and promtool's check."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from cleanerd.daemon.http import metric_names
from cleanerd.daemon.http.metrics import Exposition
from cleanerd.daemon.http.partition_series import most_interesting
from cleanerd.daemon.view import DURATION_BOUNDS, DaemonTotals, ErasureView, Histogram, QuarantineView
from tests.daemon.promtool import ROOT, promtool
from tests.daemon.views import (
    GIB,
    HEADER_FINGERPRINT,
    HOUR_MS,
    NOW_MS,
    busy,
    clean,
    log_dir,
    open_since,
    partition,
    view,
)

if TYPE_CHECKING:
    from cleanerd.daemon.view import DaemonView

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(shown: DaemonView, *, accept: str = "", **options: object) -> Samples:
    """All samples by name and labels; a pair that appears twice is an error."""
    exposition = Exposition(lambda: shown, clock=lambda: NOW_MS / 1000, **options)  # type: ignore[arg-type]
    body, _ = exposition.render(accept)
    parse = parse_openmetrics if accept else text_string_to_metric_families
    found: Samples = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def test_every_metric_of_the_catalogue_is_exported_and_no_other() -> None:
    """The documentation, rules and dashboard are checked against the catalogue, so it must be complete and exact."""
    names = {name for name, _ in samples(busy(200))}
    assert names == {name for metric in metric_names.ALL for name in metric.sample_names}


def test_histogram_buckets_include_their_bound() -> None:
    """Prometheus' buckets are cumulative and include their bound; an observation above it is in the next bucket."""
    durations = Histogram.of(DURATION_BOUNDS)
    for seconds in (0.04, 0.1, 0.11, 60_000.0):
        durations = durations.plus(seconds)
    found = samples(view(totals=DaemonTotals(durations=durations)))
    name = "cleanerd_cleaning_duration_seconds"
    counted = [value(found, f"{name}_bucket", le=f"{bound:g}") for bound in DURATION_BOUNDS]
    assert counted == [2, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    assert value(found, f"{name}_bucket", le="+Inf") == value(found, f"{name}_count") == 4
    assert value(found, f"{name}_sum") == pytest.approx(60_000.25)
    assert value(samples(view()), f"{name}_count") == 0, "there from the start"


def test_holds_of_a_brokers_locks() -> None:
    """A-36: by lock, once per agent however many log directories it serves, and of several agents together."""

    def agent(pid: int, *counts: int) -> dict[str, object]:
        held = {"bounds_us": [10_000, 100_000], "counts": list(counts), "sum_us": 2_500_000, "longest_us": 2_000_000}
        return {"pid": pid, "socket": "/a", "held": {"log": held, "cleaner": {**held, "counts": [0, 0, 9]}}}

    first = agent(1, 5, 1, 2)
    older = {"pid": 3, "socket": "/c"}
    shown = view(
        log_dirs=(
            log_dir("/a", agent=first),
            log_dir("/b", agent=first),
            log_dir("/c", agent=older),
            log_dir("/d", agent=agent(2, 1, 0, 0)),
        )
    )
    found = samples(shown)
    name = "cleanerd_lock_held_seconds"
    assert [value(found, f"{name}_bucket", lock="log", le=le) for le in ("0.01", "0.1", "+Inf")] == [6, 7, 9]
    assert value(found, f"{name}_sum", lock="log") == pytest.approx(5.0)
    assert value(found, f"{name}_count", lock="cleaner") == 18
    assert not [key for key in samples(view(log_dirs=(log_dir(agent=older),))) if key[0].startswith(name)]


def test_the_state_of_kafkas_own_cleaner() -> None:
    """OP-13: the worst of the agents; a value that no agent knows has no series."""
    names = ("dead_threads", "idle_seconds", "uncleanable_partitions")

    def found(*agents: dict[str, object] | None) -> list[float | None]:
        dirs = tuple(log_dir(f"/{row}", agent=each) for row, each in enumerate(agents))
        series = samples(view(log_dirs=dirs))
        return [series.get((f"cleanerd_kafka_cleaner_{name}", frozenset())) for name in names]

    state = {"dead_threads": 0, "since_last_run_ms": 15_000, "uncleanable": 2, "uncleanable_names": []}
    well = {"pid": 1, "socket": "/a", "ready": True, "cleaner": True, "kafka_cleaner": state}
    older = {"pid": 2, "socket": "/b", "ready": True, "cleaner": False, "kafka_cleaner": None}
    worse = {**well, "pid": 3, "kafka_cleaner": {**state, "dead_threads": 1, "uncleanable": None}}
    assert found(well, well) == [0, 15, 2]
    assert found(well, worse) == [1, 15, 2]
    assert found(well, older) == [0, 15, 2]
    assert found(older) == [None, None, None]
    assert found(None, {**well, "ready": False}) == [None] * 3


@pytest.mark.parametrize(
    ("runs", "shown"),
    [((True, True), 1), ((True, False), 0), ((None, False), 0), ((None, True), 1), ((None, None), None)],
)
def test_whether_kafkas_own_cleaner_runs(runs: tuple[bool | None, ...], shown: int | None) -> None:
    """OP-13: also without an agent, from the broker's settings; 0 if one log directory's broker does without it."""
    dirs = tuple(log_dir(f"/{row}", agent=None, kafka_cleaner_runs=each) for row, each in enumerate(runs))
    assert samples(view(log_dirs=dirs)).get(("cleanerd_kafka_cleaner_running", frozenset())) == shown


def test_both_formats_have_the_same_samples() -> None:
    shown = busy(40)
    assert samples(shown) == samples(shown, accept="application/openmetrics-text; version=1.0.0")


def test_promtool_is_content_with_our_names() -> None:
    body, _ = Exposition(lambda: busy(40), kafka_names=False).render()
    assert promtool("check", "metrics", stdin=body) == (0, "")


def test_promtool_only_complains_about_kafkas_names_of_kafkas_metrics() -> None:
    """Milliseconds, percent and camel case are Kafka's; the format itself is right."""
    body, _ = Exposition(lambda: busy(40)).render()
    code, message = promtool("check", "metrics", stdin=body)
    assert code == 3
    assert all(line.startswith("kafka_log_") for line in message.splitlines() if line)


def test_kafkas_metrics_have_kafkas_meaning() -> None:
    """The values that existing alerts compare with their limits."""
    held = QuarantineView("torn", NOW_MS - HOUR_MS, 2, None)
    moved = {"bytes_read": 400, "bytes_written": 100}
    slow = clean(started_ms=NOW_MS - 130_000, ended_ms=NOW_MS - 10_000, result=moved)
    found = samples(
        view(
            log_dirs=(log_dir("/a"), log_dir("/b")),
            partitions=(
                partition("x", 0, log_dir="/a", dirty_ratio=0.75, overdue_at_ms=NOW_MS - 90_000),
                partition("x", 1, log_dir="/b", dirty_ratio=0.99, phase="quarantined", quarantine=held, dirty_bytes=77),
                partition("x", 2, log_dir="/b", dirty_ratio=1.0, phase="excluded", overdue_at_ms=0),
            ),
            threads=1,
            map_utilization=0.5,
            history=(clean(ended_ms=NOW_MS - 500_000, started_ms=NOW_MS - 990_000), slow),
            totals=DaemonTotals(dead_workers=3, worker_restarts=2),
        )
    )
    manager, cleaner = "kafka_log_logcleanermanager", "kafka_log_logcleaner"
    assert value(found, f"{manager}_time_since_last_run_ms") == 5_000
    assert value(found, f"{manager}_max_dirty_percent") == 75  # neither the quarantined nor the excluded one
    assert value(found, f"{manager}_uncleanable_partitions_count", logDirectory='"/a"') == 0
    assert value(found, f"{manager}_uncleanable_partitions_count", logDirectory='"/b"') == 1
    assert value(found, f"{manager}_uncleanable_bytes", logDirectory='"/b"') == 77, "as the JMX exporter has it"
    assert value(found, f"{cleaner}_deadthreadcount") == 1
    assert value(found, f"{cleaner}_cleaner_recopy_percent") == 25
    assert value(found, f"{cleaner}_max_clean_time_secs") == 120  # one worker's last cleaning, not an earlier one
    assert value(found, f"{cleaner}_max_compaction_delay_secs") == 90
    assert value(found, f"{cleaner}_max_buffer_utilization_percent") == 50


@pytest.mark.parametrize(
    ("ages_ms", "shown"),
    [([900_000, 900_001, 60_000], {"1"}), ([1_000_000 + number for number in range(12)], set(map(str, range(2, 12))))],
)
def test_hanging_transactions_have_the_labels_of_their_abort_command(ages_ms: list[int], shown: set[str]) -> None:
    """OP-14: those that the coordinator would have ended, the oldest ten; a younger one has no series."""
    partitions = [partition("x", n, open_transaction=open_since(NOW_MS - age, "x", n)) for n, age in enumerate(ages_ms)]
    found = samples(view(partitions=tuple(partitions)))
    name = "cleanerd_hanging_transaction_seconds"
    assert {dict(labels)["partition"] for each, labels in found if each == name} == shown
    for number in shown:
        labels = {
            "topic": "x",
            "partition": number,
            "producer_id": "4711",
            "producer_epoch": "3",
            "start_offset": "1200",
        }
        assert value(found, name, **labels) == ages_ms[int(number)] / 1000


def test_the_beginning_of_open_transactions() -> None:
    """OP-14: the time at which it began, as a series of its partition."""
    partitions = (
        partition("x", 0, open_transaction=open_since(NOW_MS - 60_000)),
        partition("x", 1, open_transaction=open_since(NOW_MS - 3_600_000)),
        partition("x", 2),
    )
    found = samples(view(partitions=partitions))
    series = "cleanerd_partition_open_transaction_timestamp_seconds"
    ages = {dict(labels)["partition"]: NOW_MS / 1000 - at for (name, labels), at in found.items() if name == series}
    assert ages == {"0": 60, "1": 3600}
    rich = [partition("a", number, reclaimable_bytes=2**40) for number in range(3)]
    assert most_interesting([*rich, *partitions], 2, NOW_MS) == list(partitions[:2])


def test_kafkas_names_can_be_switched_off() -> None:
    assert not [name for name, _ in samples(busy(10), kafka_names=False) if name.startswith("kafka_")]


def test_undelegated_topics_and_fingerprints_are_reported_for_every_topic() -> None:
    """U-5, U-8: no limit leaves these out, and one undelegated partition makes its topic undelegated."""
    versioned = {"strategy": "header", "fingerprint": HEADER_FINGERPRINT}
    found = samples(
        view(
            partitions=(
                partition("good", 0, delegated=True, **versioned),
                partition("bad", 0, delegated=True, **versioned),
                partition("bad", 1, delegated=False, **versioned),
                partition("plain", 0),
            )
        ),
        partitions_max=0,
    )
    assert value(found, "cleanerd_topic_delegated", topic="good") == 1
    assert value(found, "cleanerd_topic_delegated", topic="bad") == 0
    assert value(found, "cleanerd_topic_delegated", topic="plain") is None
    strategy = {"topic": "bad", "strategy": "header", "fingerprint": HEADER_FINGERPRINT}
    assert value(found, "cleanerd_topic_strategy_info", **strategy) == 1
    assert value(found, "cleanerd_partitions_not_exported") == 4


def test_a_partition_that_was_never_scanned_has_no_strategy_yet() -> None:
    """A daemon that has just started must not seem to disagree with the others (U-5)."""
    found = samples(view(partitions=(partition("t", 0, strategy="", fingerprint=""),)))
    assert [key for key in found if key[0] == "cleanerd_topic_strategy_info"] == []


def test_quarantine_counts_while_everything_is_paused() -> None:
    held = QuarantineView("torn", NOW_MS, 1, None)
    found = samples(view(paused=True, log_dirs=(log_dir(),), partitions=(partition(phase="paused", quarantine=held),)))
    assert value(found, "cleanerd_quarantined_partitions", log_dir=log_dir().path) == 1
    uncleanable = "kafka_log_logcleanermanager_uncleanable_partitions_count"
    assert value(found, uncleanable, logDirectory=f'"{log_dir().path}"') == 1


def test_times_are_seconds_and_unknown_values_are_absent() -> None:
    one, other = (
        partition("t", 0, next_purge_ms=NOW_MS + 1_500, reclaimable_bytes=None, first_dirty_offset=None),
        partition("t", 1),
    )
    found = samples(view(partitions=(one, other)))
    labels = {"topic": "t", "partition": "0", "log_dir": one.log_dir}
    assert value(found, "cleanerd_partition_next_tombstone_removal_timestamp_seconds", **labels) == NOW_MS / 1000 + 1.5
    assert value(found, "cleanerd_next_tombstone_removal_timestamp_seconds") == NOW_MS / 1000 + 1.5
    assert value(found, "cleanerd_partition_reclaimable_bytes", **labels) is None
    assert value(found, "cleanerd_partition_first_dirty_offset", **labels) is None
    assert value(found, "cleanerd_partition_dirty_ratio", **labels) == 0.25


def test_log_dirs_have_complete_sums_whatever_the_limit() -> None:
    found = samples(busy(300), partitions_max=1)
    counted = sum(v for (name, _), v in found.items() if name == "cleanerd_partitions")
    assert counted == 300
    assert value(found, "cleanerd_partitions_not_exported") == 299
    assert value(found, "cleanerd_log_dir_free_bytes", log_dir="/var/lib/kafka/data-2") == 150 * GIB
    assert value(found, "cleanerd_log_dir_agent", log_dir="/var/lib/kafka/data-3") == 0


def test_a_directory_that_cannot_be_read_has_no_free_space_metric() -> None:
    """With ``cleanerd.disk.reserve`` its 0 bytes were below the reserve: a false alert about an unmounted disk."""
    gone = log_dir(online=False, total_bytes=0, free_bytes=0, reserve_bytes=GIB, error="does not exist")
    found = samples(view(log_dirs=(gone, log_dir("/other"))))
    for name in ("size", "free", "reserve"):
        assert value(found, f"cleanerd_log_dir_{name}_bytes", log_dir=gone.path) is None
        assert value(found, f"cleanerd_log_dir_{name}_bytes", log_dir="/other") is not None
    assert value(found, "cleanerd_log_dir_online", log_dir=gone.path) == 0


def test_counters_start_at_zero() -> None:
    """``increase()`` does not see the first failure when the series begins with it."""
    found = samples(view())
    assert value(found, "cleanerd_cleanings_total", outcome="failed") == 0
    assert value(found, "cleanerd_removed_records_total", reason="tombstone") == 0


def test_dead_workers_are_those_without_a_replacement() -> None:
    found = samples(view(totals=DaemonTotals(dead_workers=5, worker_restarts=5)))
    assert value(found, "cleanerd_dead_workers") == 0
    assert value(found, "cleanerd_worker_deaths_total") == 5


def test_labels_that_need_escaping_come_back_as_they_were() -> None:
    odd = '/data/"x"\\y\nz'
    found = samples(view(log_dirs=(log_dir(odd),), partitions=(partition(log_dir=odd),)))
    assert value(found, "cleanerd_log_dir_online", log_dir=odd) == 1


def test_a_partition_that_appears_twice_breaks_no_scrape() -> None:
    """While a partition moves between directories, a snapshot can contain both copies."""
    found = samples(view(partitions=(partition(size_bytes=1), partition(size_bytes=2))))
    assert (
        value(found, "cleanerd_partition_size_bytes", topic="orders", partition="0", log_dir=partition().log_dir) == 1
    )


@pytest.mark.parametrize("limit", [0, 1, 3, 5, 99])
def test_the_most_interesting_come_first(limit: int) -> None:
    """Failures before dirty partitions before savings; names decide the rest, so that series stay the same."""
    ordered = [
        partition("z", 0, phase="quarantined", quarantine=QuarantineView("torn", 0, 1, None)),
        partition("y", 0, overdue_at_ms=NOW_MS - 1),
        partition("x", 0, phase="queued"),
        partition("w", 0, reclaimable_bytes=1 << 30),
        partition("a", 0, reclaimable_bytes=5_000),
        partition("b", 0, reclaimable_bytes=5_100),  # the same power of two as 5 000
        partition("c", 0, phase="excluded", reclaimable_bytes=1 << 40),
    ]
    assert most_interesting(list(reversed(ordered)), limit, NOW_MS) == ordered[:limit]


def test_a_scrape_of_2000_partitions_is_quick() -> None:
    """Below 100 ms, measured in calls: their number does not depend on a slow or busy machine."""
    shown = busy(2000)
    exposition = Exposition(lambda: shown)
    exposition.render()
    calls: Counter[str] = Counter()
    sys.setprofile(lambda _frame, event, _argument: calls.update((event,)))
    try:
        exposition.render()
    finally:
        sys.setprofile(None)
    assert 0 < calls["call"] + calls["c_call"] < 200_000  # 162,000 took 54 to 90 ms


def test_no_value_is_nan() -> None:
    assert not [key for key, each in samples(view()).items() if math.isnan(each)]


def test_the_documentation_has_every_metric() -> None:
    """docs/metrics.md: a row for each, with its kind, its labels and its meaning."""
    reported = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = [line for line in reported.splitlines() if line.startswith("| `")]
    labels = {metric: ", ".join(f"`{each}`" for each in metric.labels) for metric in metric_names.ALL}
    wanted = [f"| `{each.exported_name}` | {each.kind} | {labels[each]} | {each.help} |" for each in metric_names.ALL]
    assert rows == wanted
    queries = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").partition("## PromQL examples")[2]
    exported = {each.exported_name for each in metric_names.ALL}
    assert set(re.findall(r"\bcleanerd_\w+", queries)) <= exported


def test_open_erasures() -> None:
    """U-88: those past their deadline count in both."""
    first = ErasureView("aa", "orders", NOW_MS - 9, NOW_MS + 600_000)
    found = samples(view(erasures=(first, replace(first, id="bb", deadline_ms=NOW_MS - 1))))
    assert (value(found, "cleanerd_erasure_open"), value(found, "cleanerd_erasure_overdue")) == (2, 1)


def test_held_partitions() -> None:
    """U-70: by the broker that tombstones wait for; partitions that are not past their horizon do not count."""
    held = partition(waits_for=(2, 3), waits_since_ms=NOW_MS - 5000, next_purge_ms=NOW_MS - 1)
    later = partition(number=1, waits_for=(2,), waits_since_ms=NOW_MS - 9000, next_purge_ms=NOW_MS + 600_000)
    other = partition(number=2, waits_for=(2,), waits_since_ms=NOW_MS - 7000, next_purge_ms=NOW_MS)
    found = samples(view(partitions=(held, later, other, partition(number=3))))
    counted = (replace(held, tombstones_kept=5), replace(later, tombstones_kept=70), replace(other, tombstones_kept=2))
    assert not any("held_tombstones" in name for name in found), "U-94: unknown"
    found_kept = samples(view(partitions=counted))
    assert value(found_kept, "cleanerd_held_tombstones", broker="2") == 7
    since = "cleanerd_held_since_timestamp_seconds"
    assert value(found, "cleanerd_held_partitions", broker="2") == 2
    assert value(found, "cleanerd_held_partitions", broker="3") == 1
    assert value(found, since, broker="2") == (NOW_MS - 7000) / 1000
    assert value(found, since, broker="3") == (NOW_MS - 5000) / 1000
