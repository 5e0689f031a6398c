"""cleanerd.daemon.looking.metadata_readings: log directories that are looked at together read one metadata log once."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.looking import facts_cache, metadata_readings
from cleanerd.daemon.looking.facts_cache import FactsCache
from cleanerd.daemon.looking.log_dir_look import LookContext
from cleanerd.daemon.looking.metadata_readings import MetadataReadings
from cleanerd.errors import CleanerdError
from cleanerd.log.clean_point import StateStore
from cleanerd.log.cluster_metadata import ClusterMetadata, read_cluster_metadata
from cleanerd.log.log_dir import read_log_dir
from cleanerd.settings import load_settings
from tests.apply.offline_scene import two_groups
from tests.support.format_bytes import config, metadata_batch, topic
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

ID1, ID2 = (uuid.UUID(int=number) for number in (1, 2))
LOG = "00000000000000000000.log"


class Reads:
    """Counts what is read; the first waits for ``goes_on``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.began, self.goes_on = threading.Event(), threading.Event()
        self.goes_on.set()
        monkeypatch.setattr(metadata_readings, "read_cluster_metadata", self)

    def __call__(self, directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
        self.count += 1
        self.began.set()
        self.goes_on.wait(60)
        return read_cluster_metadata(directory, only_before_ms=only_before_ms)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "disk0" / "__cluster_metadata-0"
    made.mkdir(parents=True)
    (made / LOG).write_bytes(metadata_batch(0, topic("a", ID1)))
    return made


def append(directory: Path, data: bytes) -> None:
    with (directory / LOG).open("ab") as file:
        file.write(data)


def test_who_comes_while_another_reads_waits_for_that(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings, reads, since = MetadataReadings(), Reads(monkeypatch), time.monotonic()
    reads.goes_on.clear()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(readings.read(directory, only_before_ms=None, since=since)))
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    assert reads.began.wait(60)
    reads.goes_on.set()
    for each in threads:
        each.join()
    assert reads.count == 1
    assert [each.found.topics for each in found] == [{"a": ID1}] * 4


def test_what_was_read_before_the_look_was_asked_for_is_too_old(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-23: a topic that was made in between counts."""
    readings, reads = MetadataReadings(), Reads(monkeypatch)
    for only_before_ms in (None, 10**15):
        readings.read(directory, only_before_ms=only_before_ms, since=time.monotonic())
    append(directory, metadata_batch(1, topic("b", ID2)))
    for only_before_ms in (None, 10**15):
        found = readings.read(directory, only_before_ms=only_before_ms, since=time.monotonic()).found
        assert found.topics == {"a": ID1, "b": ID2}
    assert reads.count == 4


def test_where_no_broker_runs_the_same_files_serve_and_no_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-23: beside a broker, which writes all the time, what is so young does not count; without one all does."""
    readings, reads, since = MetadataReadings(), Reads(monkeypatch), time.monotonic()

    def topics(only_before_ms: int | None) -> set[str]:
        return set(readings.read(directory, only_before_ms=only_before_ms, since=since).found.topics)

    assert topics(None) == topics(None) == {"a"}
    assert topics(5000) == {"a"}
    assert reads.count == 2, "beside a broker or not: never the one for the other"
    append(directory, metadata_batch(1, topic("b", ID2), timestamp=9999))
    assert topics(5000) == {"a"}
    assert reads.count == 2
    assert topics(None) == {"a", "b"}
    assert reads.count == 3


def test_what_cannot_be_read_is_tried_again(directory: Path) -> None:
    readings, since = MetadataReadings(), time.monotonic()
    sound = (directory / LOG).read_bytes()
    (directory / LOG).write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    for _ in range(2):
        with pytest.raises(CleanerdError):
            readings.read(directory, only_before_ms=None, since=since)
    (directory / LOG).write_bytes(sound)
    assert readings.read(directory, only_before_ms=None, since=since).found.topics == {"a": ID1}


def test_each_log_directory_learns_of_a_change(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-23: what another one has read before the change is not taken for what lies there now, by none of them."""
    monkeypatch.setattr(facts_cache, "_SHARE", 0)
    roots = [make_log_dir(tmp_path / f"disk{n}", {"a-0": two_groups()}) for n in range(2)]
    readings, reads = MetadataReadings(), Reads(monkeypatch)
    caches = [FactsCache(readings) for _ in roots]
    told = [f"cleanerd.state.dir={tmp_path / 'state'}", "topics.a.cleanup.policy=compact"]
    settings, store = load_settings([], told, {}), StateStore(tmp_path / "state")
    append(directory, metadata_batch(1, config(2, "a", "delete.retention.ms", "1")))

    def seen(context: LookContext, number: int, *, running: bool) -> int:
        facts = caches[number].get(context, read_log_dir(roots[number]), running=running)
        return facts.topic_config("a").delete_retention_ms

    for value, running in ((2, False), (3, True)):
        look = LookContext(settings, roots, store)
        assert [seen(look, number, running=running) for number in (0, 1)] == [value - 1] * 2
        early = LookContext(settings, roots, store)
        caches[0] = FactsCache(readings)
        assert seen(early, 0, running=running) == value - 1
        append(directory, metadata_batch(value, config(2, "a", "delete.retention.ms", str(value))))
        seen(early, 1, running=running)  # may be of the reading from before the change
        assert seen(LookContext(settings, roots, store), 1, running=running) == value
    assert reads.count <= 8
