"""Held tombstones: not removed until their replicas have them, which also triggers the next scan (U-73)."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.directory_snapshot import DirectorySnapshot
from cleanerd.daemon.discovery.facts_cache import FactsCache
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.discovery.metadata_readings import MetadataReadings
from cleanerd.daemon.registry.due import trigger_of
from cleanerd.daemon.registry.partition_entry import PartitionEntry
from cleanerd.format.names import TopicPartition
from cleanerd.policy.replicas import MARGIN_MS, ExpiryBound, ReplicaFacts, Replicas, TopicReplicas
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from tests.cleaner.driver import config
from tests.daemon.registries import partition_scan
from tests.daemon.service import assignments, scan_context
from tests.segments.replica_records import NO_OP, partition
from tests.support.format_bytes import metadata_batch, topic
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.metadata_image import ClusterMetadata

NOW = 1_700_000_000_000
HORIZON = NOW - 60 * MARGIN_MS
BOTH, FIRST = frozenset({1, 2}), frozenset({1})
SHORT = ExpiryBound(HORIZON - 1, (2,), HORIZON)


@pytest.mark.parametrize(
    ("at_ms", "expected"),
    [(None, "tombstone_removal"), (HORIZON, "tombstone_removal"), (HORIZON - 1, None), (-1, None)],
)
def test_it_waits(at_ms: int | None, expected: str | None) -> None:
    """U-73: a removal without effect would be repeated."""
    held = partition_scan(eligible=False, forceable=True, has_clean_part=True, dirty_bytes=0, expiry=ExpiryBound(at_ms))
    entry = PartitionEntry(TopicPartition("orders", 0), "/logs", scan=held, next_purge_ms=HORIZON, removal_known=True)
    assert trigger_of(entry, "live", NOW, is_full=False, plan_max_age_ms=1000) == expected


def seen(expiry: ExpiryBound, next_purge_ms: int | None) -> DirectorySnapshot:
    return DirectorySnapshot(
        1,
        1,
        config(),
        "live/live",
        True,
        NOW + 1000,
        (0, 0),
        expiry=expiry,
        next_purge_ms=next_purge_ms,
    )


@pytest.mark.parametrize(
    ("next_purge_ms", "isr", "as_of_ms", "expected"),
    [
        pytest.param(HORIZON, FIRST, NOW, False, id="as it was"),
        pytest.param(HORIZON, BOTH, NOW, True, id="the replica is back"),
        pytest.param(None, BOTH, NOW, True, id="the replica is back: shown at once"),
        pytest.param(HORIZON, frozenset(), NOW, True, id="another one is missing"),
    ],
)
def test_it_is_scanned_again(next_purge_ms: int | None, isr: frozenset[int], as_of_ms: int, expected: bool) -> None:
    """U-73: because of the current metadata log, although nothing changed in the directory."""
    replicas = Replicas(BOTH, isr, HORIZON, HORIZON)
    topic = replace(config(), replicas=TopicReplicas(ReplicaFacts({}, as_of_ms, as_of_ms), {0: replicas}))
    assert seen(SHORT, next_purge_ms).removal_wait_changed(0, topic, NOW) is expected


@pytest.mark.parametrize(("later_ms", "expected"), [(-1, False), (0, True)])
def test_it_is_scanned_when_the_log_is_past_it(later_ms: int, expected: bool) -> None:
    """U-73: with every replica in the ISR, the metadata log's own time decides."""
    before = ExpiryBound(HORIZON - 1, why="the log is not as far")
    as_of_ms = HORIZON + MARGIN_MS + later_ms
    topic = replace(config(), replicas=TopicReplicas(ReplicaFacts({}, as_of_ms), {0: Replicas(BOTH, BOTH)}))
    assert seen(before, HORIZON).removal_wait_changed(0, topic, NOW) is expected


def test_a_partition_without_held_tombstones_is_not_scanned_again() -> None:
    topic = replace(config(), replicas=TopicReplicas(ReplicaFacts({}, NOW, NOW), {0: Replicas(FIRST, FIRST)}))
    assert not seen(ExpiryBound(), HORIZON).removal_wait_changed(0, topic, NOW)


@pytest.mark.parametrize("isr", [[1, 2, 3], [1, 2]], ids=["full", "short"])
@pytest.mark.parametrize("replicated", ["required", "ignore"])
def test_the_reads_of_scans_of_many_topics(root: Path, isr: list[int], replicated: str) -> None:
    """U-70: waiting for replicas reads no partition and no metadata log more often, whatever the ISR is."""
    count, now_ms = 40, time.time_ns() // 1_000_000
    ids = [uuid.UUID(int=number + 1) for number in range(count)]
    held = encode_batch([Record(b"k", None, now_ms)], delete_horizon=now_ms - 60_000)
    logs = {f"t{each.int}-0": Partition({0: held, 1: b""}, topic_id=each, cleaner_offset=1) for each in ids}
    make_log_dir(root, logs)
    log = root / "__cluster_metadata-0" / f"{0:020d}.log"
    log.parent.mkdir()
    records = [(topic(f"t{each.int}", each), partition(each, 0, [1, 2, 3], isr)) for each in ids]
    values = [value for pair in records for value in pair]
    created = metadata_batch(0, *values, timestamp=now_ms - 3_600_000)
    log.write_bytes(created + metadata_batch(2 * count, NO_OP, timestamp=now_ms - 60_000))
    reads: list[int] = []

    def read(directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
        reads.append(1)
        return read_cluster_metadata(directory, only_before_ms=only_before_ms)

    settings = [f"topics.*.cleanerd.tombstone.replicated={replicated}", "topics.*.cleanup.policy=compact"]
    known = replace(scan_context(root), settings=load_settings([], [*assignments(root), *settings], {}))
    scanner = LogDirScanner(root, FactsCache(MetadataReadings(read), share=0))
    scans = []
    for number in range(3):
        scans.append(len(scanner.scan(replace(known, requested_at=time.monotonic())).scans))
        with log.open("ab") as file:
            file.write(metadata_batch(2 * count + 1 + number, NO_OP, timestamp=now_ms - 60_000))
    assert (scans, len(reads)) == ([count, 0, 0], 3)
