"""The series of single partitions: the choice of partitions, and their lines, which are nine tenths of a scrape.

A thousand partitions have ten thousand samples. The client library needs 50 ms of CPU time for them, and this module
10, so it writes the lines directly, the same for Prometheus' text format and OpenMetrics. All other samples use the
library.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from cleanerd.daemon.http.metric_names import PARTITIONS
from cleanerd.humanize import as_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cleanerd.daemon.view import PartitionView


def is_overdue(partition: PartitionView, now_ms: int) -> bool:
    """Whether max.compaction.lag.ms has made it overdue."""
    due = partition.overdue_at_ms
    return due is not None and due <= now_ms and partition.phase != "excluded"


def most_interesting(partitions: Iterable[PartitionView], limit: int, now_ms: int) -> list[PartitionView]:
    """The ``limit`` most interesting partitions.

    Partitions with a fault first, then those in progress, then by reclaimable bytes. Sizes are compared by their powers
    of two, so that small changes do not add and remove series.
    """

    def rank(partition: PartitionView) -> tuple[object, ...]:
        trouble = partition.quarantine is not None
        worry = (
            is_overdue(partition, now_ms)
            or partition.delegated is False
            or partition.fingerprint_changed
            or partition.open_transaction is not None
        )
        return (
            not trouble,
            not worry,
            partition.phase == "excluded",
            partition.phase not in ("cleaning", "staged", "queued"),
            -(partition.reclaimable_bytes or 0).bit_length(),
            -(partition.dirty_bytes or 0).bit_length(),
            partition.topic,
            partition.partition,
            partition.log_dir,
        )

    return heapq.nsmallest(max(0, limit), partitions, key=rank)


def lines(shown: Iterable[PartitionView]) -> str:
    """All families of ``PARTITIONS`` with the samples of ``shown``; a partition that occurs twice is used once."""
    heads = [f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n" for metric in PARTITIONS]
    families: list[list[str]] = [[] for _ in PARTITIONS]
    seen: set[tuple[str, int, str]] = set()
    for partition in shown:
        key = (partition.topic, partition.partition, partition.log_dir)
        if key in seen:
            continue
        seen.add(key)
        log_dir, topic = _escaped(partition.log_dir), _escaped(partition.topic)
        labels = f'{{log_dir="{log_dir}",partition="{partition.partition}",topic="{topic}"}}'
        for metric, family, value in zip(PARTITIONS, families, _values(partition), strict=True):
            if value is not None:
                family.append(f"{metric.name}{labels} {value}\n")
    return "".join(head + "".join(family) for head, family in zip(heads, families, strict=True) if family)


def _values(partition: PartitionView) -> tuple[float | None, ...]:
    """Values in the order of ``PARTITIONS``; None: unknown, no sample."""
    last, quarantine = partition.last_cleaning, partition.quarantine
    return (
        partition.dirty_ratio,
        partition.size_bytes,
        partition.dirty_bytes,
        partition.reclaimable_bytes,
        partition.reclaimable_low_bytes,
        partition.reclaimable_high_bytes,
        partition.first_dirty_offset,
        partition.first_uncleanable_offset,
        _seconds(partition.overdue_at_ms),
        _seconds(partition.next_purge_ms),
        None if last is None else _seconds(last.ended_ms),
        None if quarantine is None else _seconds(quarantine.since_ms),
        None if partition.open_transaction is None else _seconds(partition.open_transaction.since_ms),
    )


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000


def _escaped(label: str) -> str:
    return as_utf8(label).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
