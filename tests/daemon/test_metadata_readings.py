"""cleanerd.daemon.discovery.metadata_readings: log directories that are scanned together read one metadata log once."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.discovery.facts_cache import FactsCache
from cleanerd.daemon.discovery.log_dir_scan import ScanContext
from cleanerd.daemon.discovery.metadata_readings import MetadataReadings
from cleanerd.errors import CleanerdError, MachineError
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.support.format_bytes import config, metadata_batch, topic
from tests.support.log_dirs import make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.resolution.broker_facts import BrokerFacts
    from cleanerd.segments.metadata_image import ClusterMetadata

ID1, ID2 = (uuid.UUID(int=number) for number in (1, 2))
LOG = "00000000000000000000.log"


class Reads:
    """Counts the readings; the first waits for ``continues``."""

    def __init__(self) -> None:
        self.count = 0
        self.began, self.continues = threading.Event(), threading.Event()
        self.continues.set()

    def __call__(self, directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
        self.count += 1
        if not self.began.is_set():
            self.began.set()
            self.continues.wait(60)
        return read_cluster_metadata(directory, only_before_ms=only_before_ms)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "disk0" / "__cluster_metadata-0"
    made.mkdir(parents=True)
    (made / LOG).write_bytes(metadata_batch(0, topic("a", ID1)))
    return made


@pytest.fixture
def scan(tmp_path: Path) -> Callable[..., ScanContext]:
    """Request the metadata for log directories of these names, one after the other."""
    settings = load_settings([], [f"cleanerd.state.dir={tmp_path / 'state'}"], {})
    store = StateStore(tmp_path / "state")
    return lambda *names: ScanContext(settings, [tmp_path / name for name in names], store)


def append(directory: Path, data: bytes) -> None:
    with (directory / LOG).open("ab") as file:
        file.write(data)


def test_concurrent_readings_share_one(directory: Path) -> None:
    reads, since = Reads(), time.monotonic()
    readings = MetadataReadings(reads)
    reads.continues.clear()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(readings.read(directory, only_before_ms=None, since=since)))
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    assert reads.began.wait(60)
    reads.continues.set()
    for each in threads:
        each.join()
    assert reads.count == 1
    assert [each.found.topics for each in found] == [{"a": ID1}] * 4


def test_a_reading_from_before_the_request_is_too_old(directory: Path) -> None:
    """U-23: a topic that was created in between is found."""
    readings = MetadataReadings(reads := Reads())
    for only_before_ms in (None, 10**15):
        readings.read(directory, only_before_ms=only_before_ms, since=time.monotonic())
    append(directory, metadata_batch(1, topic("b", ID2)))
    for only_before_ms in (None, 10**15):
        found = readings.read(directory, only_before_ms=only_before_ms, since=time.monotonic()).found
        assert found.topics == {"a": ID1, "b": ID2}
    assert reads.count == 4


def test_the_same_files_are_used_without_a_broker(directory: Path) -> None:
    """U-23: a broker writes all the time, so its newest data are ignored; without a broker they are used."""
    reads, since = Reads(), time.monotonic()
    readings = MetadataReadings(reads)

    def topics(only_before_ms: int | None) -> set[str]:
        return set(readings.read(directory, only_before_ms=only_before_ms, since=since).found.topics)

    assert topics(None) == topics(None) == {"a"}
    assert topics(5000) == {"a"}
    assert reads.count == 2, "with a broker or without: never the one for the other"
    append(directory, metadata_batch(1, topic("b", ID2), timestamp=9999))
    assert topics(5000) == {"a"}
    assert reads.count == 2
    assert topics(None) == {"a", "b"}
    assert reads.count == 3


def test_a_failed_reading_is_tried_again(directory: Path) -> None:
    readings, since = MetadataReadings(), time.monotonic()
    sound = (directory / LOG).read_bytes()
    (directory / LOG).write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    for _ in range(2):
        with pytest.raises(CleanerdError):
            readings.read(directory, only_before_ms=None, since=since)
    (directory / LOG).write_bytes(sound)
    assert readings.read(directory, only_before_ms=None, since=since).found.topics == {"a": ID1}


def test_a_hanging_reading_does_not_block_later_ones(directory: Path) -> None:
    """The disk hung and another one was mounted in its place: the reading of the first one never returns."""
    readings = MetadataReadings(reads := Reads(), patience_seconds=0.1)
    reads.continues.clear()
    hangs = threading.Thread(target=lambda: readings.read(directory, only_before_ms=None, since=0.0))
    hangs.start()
    assert reads.began.wait(60)
    found: list[set[str]] = []

    def read() -> None:
        found.append(set(readings.read(directory, only_before_ms=None, since=0.0).found.topics))

    comes = threading.Thread(target=read, daemon=True)
    comes.start()
    comes.join(PATIENCE_SECONDS)
    reads.continues.set()
    hangs.join()
    assert found == [{"a"}]


def test_each_log_directory_learns_of_a_change(directory: Path, tmp_path: Path) -> None:
    """U-23: none of them uses data that another one read before the change."""
    roots = [make_log_dir(tmp_path / f"disk{n}", {"a-0": two_groups()}) for n in range(2)]
    readings = MetadataReadings(reads := Reads())
    caches = [FactsCache(readings, share=0) for _ in roots]
    reported = [f"cleanerd.state.dir={tmp_path / 'state'}", "topics.a.cleanup.policy=compact"]
    settings, store = load_settings([], reported, {}), StateStore(tmp_path / "state")
    append(directory, metadata_batch(1, config(2, "a", "delete.retention.ms", "1")))

    def seen(context: ScanContext, number: int, *, running: bool) -> int:
        facts = caches[number].get(context, read_log_dir(roots[number]), running=running)
        return facts.topic_config("a").delete_retention_ms

    for value, running in ((2, False), (3, True)):
        scan = ScanContext(settings, roots, store)
        assert [seen(scan, number, running=running) for number in (0, 1)] == [value - 1] * 2
        early = ScanContext(settings, roots, store)
        caches[0] = FactsCache(readings, share=0)
        assert seen(early, 0, running=running) == value - 1
        append(directory, metadata_batch(value, config(2, "a", "delete.retention.ms", str(value))))
        seen(early, 1, running=running)  # may be from the reading before the change
        assert seen(ScanContext(settings, roots, store), 1, running=running) == value
    assert reads.count <= 8


class Failing:
    """Reading fails once, because of a disk error or too many open files."""

    def __init__(self) -> None:
        self.fails = False

    def __call__(self, directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
        if self.fails:
            self.fails = False
            raise MachineError("the metadata log cannot be read: Too many open files", where=str(directory))
        return read_cluster_metadata(directory, only_before_ms=only_before_ms)


def test_a_metadata_log_unreadable_for_a_moment(
    directory: Path, tmp_path: Path, scan: Callable[..., ScanContext]
) -> None:
    """U-23: the broker is stopped, so no file changes any more; its last metadata are still used."""
    failing, log_dir = Failing(), read_log_dir(make_log_dir(tmp_path / "disk0", {"a-0": two_groups()}))
    cache = FactsCache(MetadataReadings(failing), share=0)
    append(directory, metadata_batch(1, config(2, "a", "cleanup.policy", "compact")))
    assert cache.get(scan("disk0"), log_dir, running=False).topic_config("a").is_compacted
    append(directory, metadata_batch(2, config(2, "a", "cleanup.policy", "delete")))
    failing.fails = True
    assert cache.get(scan("disk0"), log_dir, running=False).topic_config("a").is_compacted
    assert "Too many open files" in cache.warnings[0]
    assert not cache.get(scan("disk0"), log_dir, running=False).topic_config("a").is_compacted
    assert cache.warnings == ()


def test_a_directory_of_another_broker_in_the_same_place(
    directory: Path, tmp_path: Path, scan: Callable[..., ScanContext]
) -> None:
    """U-23: the disk was replaced by one of another cluster; the metadata log, on another disk, is unchanged."""
    roots = [make_log_dir(tmp_path / f"disk{n}", {"a-0": two_groups()}) for n in range(2)]
    cache = FactsCache()

    def facts(number: int) -> BrokerFacts:
        return cache.get(scan("disk0", "disk1"), read_log_dir(roots[number]), running=False)

    assert facts(1).metadata_dir == directory.parent
    meta = roots[1] / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=another-"))
    own = roots[1] / directory.name
    own.mkdir()
    (own / LOG).write_bytes(b"damaged" * 20)
    with pytest.raises(CleanerdError):
        facts(1)
    (own / LOG).unlink()
    own.rmdir()
    assert (facts(1).metadata, facts(1).log_dirs) == (None, (roots[1],))


def test_a_directory_that_becomes_one_of_the_same_broker(
    directory: Path, tmp_path: Path, scan: Callable[..., ScanContext]
) -> None:
    """S-21: otherwise the daemon would not search it for replicas that are being moved."""
    roots = [make_log_dir(tmp_path / f"disk{n}", {"a-0": two_groups()}) for n in range(2)]
    cache, log_dir = FactsCache(), read_log_dir(roots[0])
    meta = roots[1] / "meta.properties"
    text = meta.read_text()
    meta.unlink()
    context = scan("disk0", "disk1")
    assert cache.get(context, log_dir, running=False).log_dirs == (roots[0],)
    meta.write_text(text)
    assert set(cache.get(context, log_dir, running=False).log_dirs) == set(roots)


def test_a_scan_that_was_requested_long_ago(directory: Path, tmp_path: Path, scan: Callable[..., ScanContext]) -> None:
    """U-23: its disk hung for an hour; data that another scan read an hour ago are too old."""
    log_dir = read_log_dir(make_log_dir(tmp_path / "disk0", {"a-0": two_groups()}))
    now = time.monotonic() - 3600
    readings, context = MetadataReadings(clock=lambda: now), scan("disk0")
    readings.read(directory, only_before_ms=10**15, since=0.0)
    now = time.monotonic()
    append(directory, metadata_batch(1, config(2, "a", "cleanup.policy", "compact")))
    late = replace(context, requested_at=time.monotonic() - 3601)
    assert FactsCache(readings, share=0).get(late, log_dir, running=True).topic_config("a").is_compacted


def test_a_reading_that_hung_does_not_block_readings_for_days(
    directory: Path, tmp_path: Path, scan: Callable[..., ScanContext]
) -> None:
    """U-23: reading may take a hundredth of the time; a disk that hung for an hour would forbid it for four days."""
    log_dir, now = read_log_dir(make_log_dir(tmp_path / "disk0", {"a-0": two_groups()})), [1000.0]
    context = scan("disk0")

    def hangs(given: Path, *, only_before_ms: int | None) -> ClusterMetadata:
        now[0] += 3600
        return read_cluster_metadata(given, only_before_ms=only_before_ms)

    def clock() -> float:
        return now[0]

    cache = FactsCache(MetadataReadings(hangs, clock=clock), clock=clock)
    cache.get(context, log_dir, running=False)
    append(directory, metadata_batch(1, config(2, "a", "cleanup.policy", "compact")))
    now[0] += 601
    assert cache.get(context, log_dir, running=False).topic_config("a").is_compacted
