"""Every metric that the daemon exports: name, kind, labels, help. ``metrics.py`` fills them from a view.

Names are without the suffixes ``_total`` and ``_info``. cleanerd's own metrics are in base units. Kafka's have the
names that the usual rules of the JMX exporter give its MBeans, so existing alerts keep working.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Kind = Literal["gauge", "counter", "info", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric family: its name, kind, labels and help text."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()

    @property
    def exported_name(self) -> str:
        """The name of its samples; for a histogram, of its buckets."""
        return self.name + {"gauge": "", "counter": "_total", "info": "_info", "histogram": "_bucket"}[self.kind]

    @property
    def sample_names(self) -> tuple[str, ...]:
        """All names of its samples."""
        of_histogram = (f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum")
        return of_histogram if self.kind == "histogram" else (self.exported_name,)


def _gauge(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, "gauge", help_text, labels)


def _counter(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, "counter", help_text, labels)


def _info(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, "info", help_text, labels)


def _histogram(name: str, help_text: str, *labels: str) -> Metric:
    return Metric(name, "histogram", help_text, labels)


KAFKA: Final = (
    _gauge(
        "kafka_log_logcleanermanager_time_since_last_run_ms",
        "Milliseconds since the cleaner last scanned all log directories.",
    ),
    _gauge(
        "kafka_log_logcleanermanager_max_dirty_percent",
        "Dirty ratio, in percent, of the dirtiest partition that may be cleaned.",
    ),
    _gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Partitions in quarantine after an error.",
        "logDirectory",
    ),
    _gauge(
        "kafka_log_logcleanermanager_uncleanable_bytes",
        "Dirty bytes of the partitions in quarantine.",
        "logDirectory",
    ),
    _gauge("kafka_log_logcleaner_deadthreadcount", "Worker threads that are dead now."),
    _gauge(
        "kafka_log_logcleaner_cleaner_recopy_percent",
        "Bytes written in percent of bytes read, in the last cleaning of each worker thread.",
    ),
    _gauge(
        "kafka_log_logcleaner_max_clean_time_secs",
        "Longest of the last cleanings of all worker threads, in seconds.",
    ),
    _gauge(
        "kafka_log_logcleaner_max_compaction_delay_secs",
        "How long the most overdue partition is past its max.compaction.lag.ms, in seconds.",
    ),
    _gauge(
        "kafka_log_logcleaner_max_buffer_utilization_percent",
        "Highest fill level of an offset map in its last cleaning, in percent.",
    ),
)

DAEMON: Final = (
    _info("cleanerd_build", "The version of cleanerd; always 1.", "version"),
    _info("cleanerd_mode", "cleanerd.mode: auto, live, on-start or observe.", "mode"),
    _gauge("cleanerd_start_timestamp_seconds", "Time at which the daemon started."),
    _gauge("cleanerd_ready", "1 when every log directory was scanned since the start."),
    _gauge("cleanerd_healthy", "1 while the daemon does its work, 0 when it cannot."),
    _gauge("cleanerd_paused", "1 while all cleaning is paused by an operator."),
    _gauge(
        "cleanerd_canary_held",
        "1 while nothing is cleaned because a verification found this (cleanerd.canary).",
        "log_dir",
        "partition",
        "finding",
    ),
    _gauge("cleanerd_canary_unverified_partitions", "Partitions cleaned since the canary last verified them."),
    _gauge("cleanerd_window_open", "1 while cleanerd.windows allows cleanings to begin."),
    _gauge("cleanerd_settings_generation", "1 at the start, and one more with each reload that took effect."),
    _gauge("cleanerd_warnings", "Number of warnings on the status page."),
    _gauge("cleanerd_snapshot_timestamp_seconds", "Time at which these metrics were collected."),
    _gauge("cleanerd_last_scan_timestamp_seconds", "Time at which the scheduler last scanned every partition."),
    _gauge("cleanerd_scan_interval_seconds", "How often it scans every partition (log.cleaner.backoff.ms)."),
    _gauge("cleanerd_workers", "Worker threads that should run (log.cleaner.threads)."),
    _gauge("cleanerd_dead_workers", "Worker threads that died and were not restarted yet."),
    _gauge("cleanerd_running_cleanings", "Cleanings that run now.", "log_dir"),
    _gauge(
        "cleanerd_kafka_cleaner_running",
        "1 if the broker runs Kafka's cleaner, 0 if its settings or its agent show that it does not.",
    ),
    _gauge("cleanerd_kafka_cleaner_dead_threads", "Threads of the broker's own cleaner that died of an error."),
    _gauge("cleanerd_kafka_cleaner_idle_seconds", "How long ago the broker's own cleaner last checked for work."),
    _gauge(
        "cleanerd_kafka_cleaner_uncleanable_partitions", "Partitions that it does not clean any more after an error."
    ),
    _gauge("cleanerd_map_utilization_ratio", "Highest fill level of an offset map in its last cleaning."),
    _gauge("cleanerd_overdue_partitions", "Partitions past their max.compaction.lag.ms."),
    _gauge("cleanerd_overdue_seconds", "How long the most overdue partition has been past its max.compaction.lag.ms."),
    _gauge("cleanerd_erasure_open", "Erasure requests that are not certified on this host yet."),
    _gauge("cleanerd_erasure_overdue", "Open erasure requests past their deadline."),
    _gauge(
        "cleanerd_wrong_time_partitions",
        "Partitions with timestamps that are not in milliseconds: no deadline can be known there.",
    ),
    _gauge(
        "cleanerd_hanging_transaction_seconds",
        "How long a transaction has been open that limits the cleaning of a partition: the oldest ten of those that "
        "are open for more than 15 minutes.",
        "topic",
        "partition",
        "producer_id",
        "producer_epoch",
        "start_offset",
    ),
    _gauge(
        "cleanerd_next_tombstone_removal_timestamp_seconds",
        "Time at which tombstones or markers of an idle partition are removed next.",
    ),
    _gauge(
        "cleanerd_held_partitions",
        "Partitions with tombstones or markers past their delete horizon that wait for this broker.",
        "broker",
    ),
    _gauge(
        "cleanerd_held_tombstones",
        "Largest number of tombstones and markers that wait in these partitions, by their last cleanings.",
        "broker",
    ),
    _gauge(
        "cleanerd_held_since_timestamp_seconds",
        "Time at which that broker left the ISR of the first of these partitions.",
        "broker",
    ),
    _gauge(
        "cleanerd_differing_partitions",
        "Partitions whose latest state differs from that of another replica; needs cleanerd.cluster.peers.",
    ),
    _gauge("cleanerd_fingerprint_changed_partitions", "Partitions whose last cleaning used another strategy."),
    _gauge(
        "cleanerd_partitions_not_exported",
        "Partitions without time series of their own (above cleanerd.metrics.partitions.max).",
    ),
)

TOTALS: Final = (
    _counter("cleanerd_cleanings", "Cleanings that ended, by outcome; in observe mode there are none.", "outcome"),
    _counter("cleanerd_observed", "Partitions whose saving was computed without cleaning them (observe mode)."),
    _counter("cleanerd_cleaning_seconds", "Time spent in cleanings, by phase.", "phase"),
    _histogram("cleanerd_cleaning_duration_seconds", "Duration of completed cleanings."),
    _histogram(
        "cleanerd_lock_held_seconds",
        "How long the broker's agent held a lock of the broker: log (appends wait for it) or cleaner.",
        "lock",
    ),
    _counter("cleanerd_read_records", "Records that cleanings read."),
    _counter("cleanerd_kept_records", "Records that cleanings kept."),
    _counter(
        "cleanerd_key_passes",
        "Passes over the log to find the keys: more than one per cleaning if the keys do not fit the offset map.",
    ),
    _counter("cleanerd_removed_records", "Records that cleanings removed, by reason.", "reason"),
    _counter("cleanerd_before_bytes", "Bytes below the active segments of the cleaned logs, before their cleanings."),
    _counter("cleanerd_after_bytes", "Bytes below the active segments of the cleaned logs, after their cleanings."),
    _counter("cleanerd_read_bytes", "Bytes read by cleanings."),
    _counter("cleanerd_written_bytes", "Bytes written by cleanings."),
    _counter("cleanerd_swaps", "Groups of segments that were swapped in."),
    _counter("cleanerd_refused_swaps", "Requests for a swap that the broker's agent refused."),
    _counter(
        "cleanerd_malformed_versions",
        "Records with a malformed version header; they are treated as records without a version.",
    ),
    _counter("cleanerd_throttled_seconds", "Time that cleanings waited for their read and write limits."),
    _counter("cleanerd_state_errors", "State files that were damaged, or could not be read or written."),
    _counter("cleanerd_clock_jumps", "Forward jumps of the wall clock; cleanerd does not follow them for an hour."),
    _counter("cleanerd_worker_deaths", "Worker threads that died."),
    _counter("cleanerd_worker_restarts", "Worker threads started to replace dead ones."),
)

LOG_DIRS: Final = (
    _gauge("cleanerd_log_dir_online", "1 while the log directory can be read, 0 when it cannot.", "log_dir"),
    _info(
        "cleanerd_log_dir_mode",
        "How cleaned segments are swapped in: live, on-start, offline, observe.",
        "log_dir",
        "mode",
    ),
    _gauge("cleanerd_log_dir_agent", "1 when the broker's agent answers.", "log_dir"),
    _gauge("cleanerd_log_dir_size_bytes", "Size of the log directory's file system, while it can be read.", "log_dir"),
    _gauge("cleanerd_log_dir_free_bytes", "Free bytes of that file system, while it can be read.", "log_dir"),
    _gauge("cleanerd_log_dir_reserve_bytes", "Bytes that cleaning leaves free (cleanerd.disk.reserve).", "log_dir"),
    _gauge("cleanerd_partitions", "Compacted partitions, by state.", "log_dir", "state"),
    _gauge("cleanerd_quarantined_partitions", "Partitions in quarantine, paused ones included.", "log_dir"),
    _gauge("cleanerd_dirty_bytes", "Bytes that were not cleaned yet and may be cleaned.", "log_dir"),
    _gauge("cleanerd_reclaimable_bytes", "What cleaning the log directory would save, exact or estimated.", "log_dir"),
    _gauge("cleanerd_reclaimable_low_bytes", "What cleaning the log directory would save at least.", "log_dir"),
    _gauge("cleanerd_reclaimable_high_bytes", "What cleaning the log directory would save at most.", "log_dir"),
    _gauge("cleanerd_max_dirty_ratio", "Dirty ratio of the dirtiest partition that may be cleaned.", "log_dir"),
)

TOPICS: Final = (
    _info(
        "cleanerd_topic_strategy",
        "The fingerprint of the topic's strategy settings; all daemons of a cluster must agree.",
        *("topic", "strategy", "fingerprint"),
    ),
    _gauge(
        "cleanerd_topic_delegated",
        "1 if Kafka's cleaner skips the topic, 0 if not; for topics that need it.",
        "topic",
    ),
)

_PARTITION: Final = ("topic", "partition", "log_dir")

PARTITIONS: Final = (
    _gauge("cleanerd_partition_dirty_ratio", "Dirty bytes divided by clean and dirty bytes together.", *_PARTITION),
    _gauge("cleanerd_partition_size_bytes", "Size of the whole log.", *_PARTITION),
    _gauge("cleanerd_partition_dirty_bytes", "Bytes that were not cleaned yet and may be cleaned.", *_PARTITION),
    _gauge("cleanerd_partition_reclaimable_bytes", "What a cleaning would save, exact or estimated.", *_PARTITION),
    _gauge("cleanerd_partition_reclaimable_low_bytes", "What a cleaning would save at least.", *_PARTITION),
    _gauge("cleanerd_partition_reclaimable_high_bytes", "What a cleaning would save at most.", *_PARTITION),
    _gauge("cleanerd_partition_first_dirty_offset", "The first dirty offset: the log is clean below it.", *_PARTITION),
    _gauge("cleanerd_partition_first_uncleanable_offset", "The log may be cleaned up to this offset.", *_PARTITION),
    _gauge(
        "cleanerd_partition_due_timestamp_seconds", "Time at which max.compaction.lag.ms makes it due.", *_PARTITION
    ),
    _gauge(
        "cleanerd_partition_next_tombstone_removal_timestamp_seconds",
        "Time at which its tombstones or markers may be removed.",
        *_PARTITION,
    ),
    _gauge("cleanerd_partition_last_cleaning_timestamp_seconds", "Time at which its last cleaning ended.", *_PARTITION),
    _gauge(
        "cleanerd_partition_quarantine_timestamp_seconds",
        "Time since which it is in quarantine, if it is.",
        *_PARTITION,
    ),
    _gauge(
        "cleanerd_partition_open_transaction_timestamp_seconds",
        "Time at which the open transaction began that limits its cleaning, if one does.",
        *_PARTITION,
    ),
)

ALL_METRICS: Final = (*DAEMON, *TOTALS, *LOG_DIRS, *TOPICS, *PARTITIONS)
ALL: Final = (*ALL_METRICS, *KAFKA)
BY_NAME: Final[Mapping[str, Metric]] = MappingProxyType({metric.name: metric for metric in ALL})
