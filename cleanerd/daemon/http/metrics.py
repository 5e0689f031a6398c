"""Makes the daemon's metrics from a :class:`DaemonView` and the clock: a scrape never uses a disk or a lock.

Series of single partitions are limited, because a broker has thousands: the most interesting come first, and one metric
has the number of omitted ones. Sums, counts and the topics' strategies are always complete, so no alert depends on the
limit.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from cleanerd.cleaner.result import Outcome, RemovedRecords
from cleanerd.daemon.http import metric_names, partition_series
from cleanerd.daemon.http.partition_series import is_overdue
from cleanerd.daemon.view import CleaningView, DaemonView, Histogram, PartitionPhase, PartitionView
from cleanerd.humanize import as_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.metrics_core import Metric as Family


DEFAULT_PARTITIONS_MAX: Final = 1000
MOST_HANGING: Final = 10
"""How many hanging transactions have a series: each new one has other labels."""

OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
REASONS: Final = tuple(RemovedRecords.__dataclass_fields__)
_END: Final = b"# EOF\n"  # OpenMetrics requires it

STATES: Final[tuple[str, ...]] = get_args(PartitionPhase)


class Exposition:
    """The content of a scrape, from the current view.

    ``kafka_names``: Kafka's names too. ``partitions_max``: how many partitions have their own series. ``clock`` gives
    seconds since the epoch.
    """

    def __init__(
        self,
        view: Callable[[], DaemonView],
        *,
        kafka_names: bool = True,
        partitions_max: int = DEFAULT_PARTITIONS_MAX,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._view = view
        self._kafka_names = kafka_names
        self._partitions_max = partitions_max
        self._clock = clock

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """Body and content type for an Accept header: Prometheus' text, or OpenMetrics."""
        view, now_ms = self._view(), int(self._clock() * 1000)
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # the version is not a number
            encode, content_type = choose_encoder("")
        # A separate registry, so that no other metric of the process is included.
        registry = CollectorRegistry(auto_describe=False)
        shown = partition_series.most_interesting(view.partitions, self._partitions_max, now_ms)
        registry.register(_ViewCollector(view, now_ms, shown=len(shown), kafka_names=self._kafka_names))
        body = encode(registry)
        rest = body.removesuffix(_END)
        return rest + partition_series.lines(shown).encode() + body[len(rest) :], content_type


class _ViewCollector(Collector):
    """Exports one view, without the series of single partitions."""

    def __init__(self, view: DaemonView, now_ms: int, *, shown: int, kafka_names: bool) -> None:
        self._view = view
        self._now_ms = now_ms
        self._shown = shown
        self._kafka_names = kafka_names

    def collect(self) -> Iterator[Family]:
        """All metric families of the view."""
        view, families = self._view, _Families()
        _daemon(families, view, self._now_ms)
        _totals(families, view)
        _log_dirs(families, view)
        _held_locks(families, view)
        _kafka_cleaners(families, view)
        _held_partitions(families, view, self._now_ms)
        _topics(families, view)
        families.add("cleanerd_partitions_not_exported", (), len(view.partitions) - self._shown)
        if self._kafka_names:
            _kafka(families, view, self._now_ms)
        yield from families.made()


class _Families:
    """Families of ``metric_names``, created with the first sample.

    Of samples with the same labels the first is used.
    """

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}
        self._seen: set[tuple[str, tuple[str, ...]]] = set()

    def add(self, name: str, labels: tuple[str, ...], value: float | None) -> None:
        """Add a sample, unless it is None."""
        labels = tuple(map(as_utf8, labels))
        if value is None or (name, labels) in self._seen:
            return
        self._seen.add((name, labels))
        metric = metric_names.BY_NAME[name]
        family: Any = self._families.get(name)
        if family is None:
            made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            if metric.kind == "info":
                family = InfoMetricFamily(name, metric.help)
            else:
                family = made(name, metric.help, labels=metric.labels)
            self._families[name] = family
        if metric.kind == "info":
            family.add_metric((), dict(zip(metric.labels, labels, strict=True)))
        else:
            family.add_metric(labels, value)

    def histogram(self, name: str, found: Histogram, *labels: str) -> None:
        """Add a histogram: Prometheus needs cumulative counts per bound."""
        metric = metric_names.BY_NAME[name]
        bounds = [*(f"{bound:g}" for bound in found.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(found.counts), strict=True))
        if name not in self._families:
            self._families[name] = HistogramMetricFamily(name, metric.help, labels=metric.labels)
        self._families[name].add_metric(labels, buckets, found.sum)

    def info(self, name: str, *labels: str) -> None:
        self.add(name, labels, 1)

    def made(self) -> Iterator[Family]:
        """The families in the order of the catalogue."""
        return (self._families[metric.name] for metric in metric_names.ALL if metric.name in self._families)


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def dead_workers(view: DaemonView) -> int:
    """The number of workers that died without a replacement."""
    return max(0, view.totals.dead_workers - view.totals.worker_restarts)


def _most_overdue_ms(view: DaemonView, now_ms: int) -> int:
    return max((now_ms - (p.overdue_at_ms or now_ms) for p in view.partitions if is_overdue(p, now_ms)), default=0)


def _daemon(families: _Families, view: DaemonView, now_ms: int) -> None:
    families.info("cleanerd_build", view.version)
    families.info("cleanerd_mode", view.mode)
    removals = [p.next_purge_ms for p in view.partitions if p.next_purge_ms is not None and p.phase != "excluded"]
    values: dict[str, float | None] = {
        "cleanerd_start_timestamp_seconds": _seconds(view.started_ms),
        "cleanerd_ready": view.ready,
        "cleanerd_healthy": view.healthy,
        "cleanerd_paused": view.paused,
        "cleanerd_window_open": view.window_open,
        "cleanerd_settings_generation": view.settings_generation,
        "cleanerd_warnings": len(view.warnings),
        "cleanerd_snapshot_timestamp_seconds": _seconds(view.made_ms),
        "cleanerd_last_scan_timestamp_seconds": _seconds(view.last_scan_ms),
        "cleanerd_scan_interval_seconds": view.scan_interval_ms / 1000,
        "cleanerd_workers": view.threads,
        "cleanerd_dead_workers": dead_workers(view),
        "cleanerd_map_utilization_ratio": view.map_utilization,
        "cleanerd_overdue_partitions": sum(is_overdue(p, now_ms) for p in view.partitions),
        "cleanerd_overdue_seconds": _most_overdue_ms(view, now_ms) / 1000,
        "cleanerd_erasure_open": len(view.erasures),
        "cleanerd_erasure_overdue": sum(each.deadline_ms < now_ms for each in view.erasures),
        "cleanerd_wrong_time_partitions": sum(p.has_wrong_times for p in view.partitions),
        "cleanerd_next_tombstone_removal_timestamp_seconds": _seconds(min(removals, default=None)),
        "cleanerd_differing_partitions": view.differing_partitions,
        "cleanerd_fingerprint_changed_partitions": sum(p.fingerprint_changed for p in view.partitions),
    }
    for name, value in values.items():
        families.add(name, (), value)
    _hanging_transactions(families, view, now_ms)
    if view.canary is not None:
        families.add("cleanerd_canary_unverified_partitions", (), view.canary.unverified)
        if view.canary.held_partition is not None:
            labels = (view.canary.held_log_dir or "", view.canary.held_partition, view.canary.finding.partition(":")[0])
            families.add("cleanerd_canary_held", labels, 1)
    running = Counter(each.log_dir for each in view.running)
    for log_dir in view.log_dirs:
        families.add("cleanerd_running_cleanings", (log_dir.path,), running[log_dir.path])


def _hanging_transactions(families: _Families, view: DaemonView, now_ms: int) -> None:
    """The oldest ones, with the labels that an alert needs for the command that aborts one (OP-14)."""
    found = [p.open_transaction for p in view.partitions if p.open_transaction is not None]
    hanging = sorted((each for each in found if each.hangs(now_ms)), key=lambda each: each.since_ms)
    for each in hanging[:MOST_HANGING]:
        labels = (each.producer_id, each.epoch, each.first_offset)
        families.add(
            "cleanerd_hanging_transaction_seconds",
            (each.name.topic, str(each.name.partition), *map(str, labels)),
            (now_ms - each.since_ms) / 1000,
        )


def _held_partitions(families: _Families, view: DaemonView, now_ms: int) -> None:
    """Partitions whose tombstones wait for a replica, by its broker (U-70)."""
    held = [each for each in view.partitions if each.is_held(now_ms)]
    for broker in sorted({broker for each in held for broker in each.waits_for}):
        of_broker = [each for each in held if broker in each.waits_for]
        since = [each.waits_since_ms for each in of_broker if each.waits_since_ms is not None]
        families.add("cleanerd_held_partitions", (str(broker),), len(of_broker))
        counts = [each.tombstones_kept for each in of_broker if each.tombstones_kept is not None]
        if counts:
            families.add("cleanerd_held_tombstones", (str(broker),), sum(counts))
        families.add("cleanerd_held_since_timestamp_seconds", (str(broker),), _seconds(min(since, default=None)))


def _totals(families: _Families, view: DaemonView) -> None:
    totals = view.totals
    families.histogram("cleanerd_cleaning_duration_seconds", totals.durations)
    by_label: dict[str, tuple[Mapping[str, float], tuple[str, ...]]] = {
        "cleanerd_cleanings": (totals.cleanings, OUTCOMES),
        "cleanerd_removed_records": (totals.removed_records, REASONS),
        "cleanerd_cleaning_seconds": (totals.seconds, ()),
    }
    for name, (counted, known) in by_label.items():
        # Zeros from the start: increase() misses a counter's first step if its series begins with it.
        for label in dict.fromkeys((*known, *counted)):
            families.add(name, (label,), counted.get(label, 0))
    values = {
        "cleanerd_read_records": totals.read_records,
        "cleanerd_kept_records": totals.kept_records,
        "cleanerd_key_passes": totals.key_passes,
        "cleanerd_before_bytes": totals.bytes_before,
        "cleanerd_after_bytes": totals.bytes_after,
        "cleanerd_read_bytes": totals.bytes_read,
        "cleanerd_written_bytes": totals.bytes_written,
        "cleanerd_swaps": totals.swaps,
        "cleanerd_refused_swaps": totals.refused_swaps,
        "cleanerd_malformed_versions": totals.malformed_versions,
        "cleanerd_throttled_seconds": totals.throttled_seconds,
        "cleanerd_observed": totals.observed,
        "cleanerd_state_errors": totals.state_errors,
        "cleanerd_clock_jumps": totals.clock_jumps,
        "cleanerd_worker_deaths": totals.dead_workers,
        "cleanerd_worker_restarts": totals.worker_restarts,
    }
    for name, value in values.items():
        families.add(name, (), value)


def _by_log_dir(view: DaemonView) -> dict[str, list[PartitionView]]:
    """By log directory, including directories without partitions and directories known from partitions only."""
    found: dict[str, list[PartitionView]] = defaultdict(list, {each.path: [] for each in view.log_dirs})
    for partition in view.partitions:
        found[partition.log_dir].append(partition)
    return found


def _log_dirs(families: _Families, view: DaemonView) -> None:
    for log_dir in view.log_dirs:
        labels = (log_dir.path,)
        families.add("cleanerd_log_dir_online", labels, log_dir.online)
        families.info("cleanerd_log_dir_mode", log_dir.path, log_dir.mode)
        families.add("cleanerd_log_dir_agent", labels, log_dir.agent is not None)
        if log_dir.online:  # otherwise unknown, and 0 free bytes would look like a full disk
            families.add("cleanerd_log_dir_size_bytes", labels, log_dir.total_bytes)
            families.add("cleanerd_log_dir_free_bytes", labels, log_dir.free_bytes)
            families.add("cleanerd_log_dir_reserve_bytes", labels, log_dir.reserve_bytes)
    for path, partitions in _by_log_dir(view).items():
        states = Counter(partition.phase for partition in partitions)
        for state in STATES:
            families.add("cleanerd_partitions", (path, state), states[state])  # type: ignore[index]
        families.add("cleanerd_quarantined_partitions", (path,), len(_quarantined(partitions)))
        families.add("cleanerd_dirty_bytes", (path,), sum(p.dirty_bytes or 0 for p in partitions))
        families.add("cleanerd_reclaimable_bytes", (path,), sum(p.reclaimable_bytes or 0 for p in partitions))
        families.add("cleanerd_reclaimable_low_bytes", (path,), sum(p.reclaimable_low_bytes or 0 for p in partitions))
        families.add("cleanerd_reclaimable_high_bytes", (path,), sum(p.reclaimable_high_bytes or 0 for p in partitions))
        families.add("cleanerd_max_dirty_ratio", (path,), _max_dirty_ratio(partitions))


def _agents(view: DaemonView) -> list[Mapping[str, Any]]:
    """The agents' reports; one agent may serve several log directories."""
    known = (each.agent for each in view.log_dirs if each.agent is not None)
    return list({(agent.get("pid"), agent.get("socket")): agent for agent in known}.values())


def _kafka_cleaners(families: _Families, view: DaemonView) -> None:
    """OP-13: whether the brokers' own cleaners run, and their figures if agents report them; the worst of each."""
    runs = [each.kafka_cleaner_runs for each in view.log_dirs if each.kafka_cleaner_runs is not None]
    if runs:
        families.add("cleanerd_kafka_cleaner_running", (), all(runs))
    agents = [agent for agent in _agents(view) if agent.get("ready")]
    states = [state for agent in agents if (state := agent.get("kafka_cleaner")) is not None]
    for name, key, per in (
        ("cleanerd_kafka_cleaner_dead_threads", "dead_threads", 1),
        ("cleanerd_kafka_cleaner_idle_seconds", "since_last_run_ms", 1000),
        ("cleanerd_kafka_cleaner_uncleanable_partitions", "uncleanable", 1),
    ):
        values = [value for state in states if (value := state[key]) is not None]
        if values:
            families.add(name, (), max(values) / per)


def _held_locks(families: _Families, view: DaemonView) -> None:
    """How long agents held their brokers' locks (A-36)."""
    found: dict[str, Histogram] = {}
    for agent in _agents(view):
        for lock, held in agent.get("held", {}).items():
            bounds = tuple(bound / 1_000_000 for bound in held["bounds_us"])
            counted = Histogram(bounds, tuple(held["counts"]), held["sum_us"] / 1_000_000)
            known = found.get(lock)
            if len(counted.counts) != len(bounds) + 1 or (known is not None and known.bounds != bounds):
                continue  # an agent of another build counts differently
            found[lock] = counted if known is None else known.with_all_of(counted)
    for lock, held in found.items():
        families.histogram("cleanerd_lock_held_seconds", held, lock)


def _quarantined(partitions: Iterable[PartitionView]) -> list[PartitionView]:
    """Quarantined partitions, including those that show as paused while all cleaning is paused."""
    return [each for each in partitions if each.quarantine is not None and each.phase != "excluded"]


def _max_dirty_ratio(partitions: Iterable[PartitionView]) -> float:
    may_be_cleaned = (each for each in partitions if each.phase != "excluded" and each.quarantine is None)
    return max((each.dirty_ratio or 0.0 for each in may_be_cleaned), default=0.0)


def _topics(families: _Families, view: DaemonView) -> None:
    delegated: dict[str, bool] = {}
    for partition in view.partitions:
        if partition.fingerprint:  # otherwise it was not scanned yet, or is left to Kafka
            families.info("cleanerd_topic_strategy", partition.topic, partition.strategy, partition.fingerprint)
        if partition.delegated is not None:
            delegated[partition.topic] = delegated.get(partition.topic, True) and partition.delegated
    for topic, is_delegated in delegated.items():
        families.add("cleanerd_topic_delegated", (topic,), is_delegated)


def _last_cleanings(view: DaemonView) -> list[CleaningView]:
    """The newest cleanings that rewrote something, one per worker: Kafka shows the last one of each thread."""
    done = (each for each in view.history if each.result.get("outcome") in ("cleaned", "staged", "unchanged"))
    return heapq.nlargest(max(1, view.threads), done, key=lambda each: each.ended_ms)


def _kafka(families: _Families, view: DaemonView, now_ms: int) -> None:
    last = _last_cleanings(view)
    read = sum(int(each.result.get("bytes_read", 0)) for each in last)
    written = sum(int(each.result.get("bytes_written", 0)) for each in last)
    since = view.started_ms if view.last_scan_ms is None else view.last_scan_ms
    values = {
        "kafka_log_logcleanermanager_time_since_last_run_ms": max(0, now_ms - since),
        "kafka_log_logcleanermanager_max_dirty_percent": 100 * _max_dirty_ratio(view.partitions),
        "kafka_log_logcleaner_deadthreadcount": dead_workers(view),
        "kafka_log_logcleaner_cleaner_recopy_percent": 100 * written / read if read else 0,
        "kafka_log_logcleaner_max_clean_time_secs": max((e.ended_ms - e.started_ms for e in last), default=0) / 1000,
        "kafka_log_logcleaner_max_compaction_delay_secs": _most_overdue_ms(view, now_ms) / 1000,
        "kafka_log_logcleaner_max_buffer_utilization_percent": 100 * view.map_utilization,
    }
    for name, value in values.items():
        families.add(name, (), value)
    for path, partitions in _by_log_dir(view).items():
        left, label = _quarantined(partitions), (_as_jmx(path),)
        families.add("kafka_log_logcleanermanager_uncleanable_partitions_count", label, len(left))
        families.add("kafka_log_logcleanermanager_uncleanable_bytes", label, sum(p.dirty_bytes or 0 for p in left))


def _as_jmx(path: str) -> str:
    """A log directory as the JMX exporter writes it: with the quotes of the MBean's name."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"').replace("*", "\\*").replace("?", "\\?") + '"'
