"""A swap stops half-way, and the broker takes the log directory offline (A-24): the served data, and the next start.

And cases that do not go so far: failures before the broker has the new segment, and names that it can wait for.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer

from tests.agent.building import changed_source, stopping_build
from tests.agent.live import attach, is_another_build
from tests.agent.log_changes import (
    FOLLOWS_ITS_CONFIGURATION,
    MOVED_ON,
    NO_LAST_NAME,
    command_agent,
    requested,
    swap_without_a_last_name,
    topic_in,
)
from tests.agent.raw_client import RefusedError
from tests.agent.stopping import Stopped, Stopping, stopping_broker
from tests.brokers.ledger import Partition
from tests.brokers.node import error_lines, names_ending, wait_until
from tests.brokers.readers import read_with_librdkafka
from tests.brokers.traffic import SILENT
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.agent.live import Topic
    from tests.brokers.ledger import Record

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

GIVEN_UP: Final = "log_dir_failed"
RECORDS: Final = 600
NO_ACK_SECONDS: Final = 3.0
FINISHED: Final = '        if (staging.paths().containsKey("txnindex")) {\n            if (exists'
NOT_FINISHED: Final = """
        if (java.nio.file.Files.exists(java.nio.file.Path.of(
                System.getProperty("cleanerd.test.moments"), directory.getFileName() + ".not-finished"))) {
            throw new IOException("not finished");
        }
"""
RENAMED: Final = '            Files.move(path("txnindex", from), '
READ_ONLY: Final = """
            if (java.nio.file.Files.exists(java.nio.file.Path.of(
                    System.getProperty("cleanerd.test.moments"), directory.getFileName() + ".read-only"))) {
                throw new IOException("Read-only file system");
            }
"""


def build(work_dir: Path) -> Path:
    """The agent that stops, obeys commands, and meets the failures that a test plans."""
    changed_source(work_dir, "moments", "Attempt.java", NO_LAST_NAME)
    files = ((FINISHED, NOT_FINISHED + FINISHED), (RENAMED, READ_ONLY + RENAMED))
    changed_source(work_dir, "moments", "CleanedFiles.java", *files)
    return stopping_build(work_dir, *FOLLOWS_ITS_CONFIGURATION)


@pytest.fixture(
    scope="module",
    params=["4.3", pytest.param("3.9", marks=pytest.mark.long), pytest.param("4.4", marks=pytest.mark.long)],
)
def several(request: pytest.FixtureRequest) -> Iterator[Stopping]:
    """A broker with another log directory."""
    with stopping_broker(request.param, build, log_dirs=2) as started:
        yield started


@pytest.fixture(params=["4.3", *(pytest.param(each, marks=pytest.mark.long) for each in ("3.3", "3.9", "4.4"))])
def single(request: pytest.FixtureRequest) -> Iterator[Stopping]:
    """A broker with a single one: it stops with that, as when its own cleaner fails there."""
    with stopping_broker(request.param, build) as started:
        yield started


# -- steps ------------------------------------------------------------------------------------------------------------


@contextmanager
def half_way(stopping: Stopping, topic: Topic) -> Iterator[tuple[Stopped, int]]:
    """A source cannot be renamed once the broker has the new segment, while the block is entered or after it.

    Yields the request, and an offset in the remaining sources. Afterwards the disk works again.
    """
    manifest = topic.stage(output_bytes=60_000)
    group = manifest.groups[0]
    assert len(group.sources) > 2
    obstacle = topic.directory / f"{group.sources[1]:020d}.log.deleted" / "x"
    with stopping.at("locked", topic.request(manifest, (group,))) as swap:
        obstacle.mkdir(parents=True)
        yield swap, group.sources[-1] + 2
    obstacle.rmdir()
    obstacle.parent.rmdir()


def reported(swap: Stopped) -> str:
    """The swap's response: what happened, and why."""
    assert swap.code == GIVEN_UP, swap.answer
    assert isinstance(swap.answer, dict)
    assert swap.answer["done"] == [0]
    text: str = swap.answer["error"]
    assert "DirectoryNotEmptyException" in text
    assert "gives up the log directory" in text
    return text


def write(topic: Topic, when: str, patience_seconds: float = PATIENCE_SECONDS) -> dict[bytes, bytes]:
    """The acknowledged ones of ``count`` written records."""
    acknowledged: dict[bytes, bytes] = {}
    refused: list[object] = []

    def note(error: object, message: Any) -> None:
        if error is None:
            acknowledged[message.key()] = message.value()
        else:
            refused.append(error)

    settings = {
        "bootstrap.servers": topic.broker.bootstrap,
        "message.timeout.ms": int(patience_seconds * 1000),
        "acks": "all",
    }
    producer = Producer(settings, logger=SILENT)
    for number in range(RECORDS):
        key = b"%s-%d" % (when.encode(), number)
        producer.produce(topic.name, key=key, value=key * 8, partition=0, on_delivery=note)
        if number % 20 == 19 and not refused:  # many batches, so that they roll segments
            producer.flush(PATIENCE_SECONDS)
    producer.flush(PATIENCE_SECONDS)
    topic.latest |= acknowledged
    return acknowledged


def records(topic: Topic) -> tuple[Record, ...]:
    """All records as a reader finds them, whatever their transaction."""
    name = Partition(topic.name, 0)
    found = read_with_librdkafka(topic.broker.bootstrap, [name], isolation="read_uncommitted")
    assert found.errors == ()
    return found.partitions[name].records


def below(offset: int, found: tuple[Record, ...]) -> dict[bytes, bytes]:
    """Each key's last value below ``offset``."""
    last = {record.key or b"": record for record in found}
    return {key: record.value or b"" for key, record in last.items() if record.offset < offset}


def start_again(topic: Topic) -> None:
    topic.broker.kill()
    topic.broker.start()


def is_new(topic: Topic, inode: int) -> None:
    """The loader took the whole new segment, and no file of a swap is left."""
    assert (topic.directory / f"{0:020d}.log").stat().st_ino == inode
    assert names_ending([topic.directory], ".swap", ".cleaned", ".deleted") == []


def moved_inode(topic: Topic) -> int:
    """Inode of the new log, named ``.cleaned`` when the broker is about to swap."""
    return (topic.directory / f"{0:020d}.log.cleaned").stat().st_ino


# -- the sources cannot be renamed ------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_broker_serves_its_other_log_directories(several: Stopping) -> None:
    """A-24: the response says so; that directory no longer serves or acknowledges; the other directory's logs do."""
    first, second = several.live.broker.log_dirs
    topic, other = topic_in(several, second, "lives-on"), topic_in(several, first, "other")
    assert len(write(topic, "before")) == RECORDS
    with half_way(several, topic) as (swap, _):
        inode = moved_inode(topic)
    reported(swap)
    with several.live.asking() as agent:
        wait_until("its logs are offline", lambda: agent.ask("logs", prefix=topic.name)["logs"] == [])
        assert agent.ask("info")["log_dirs"] == [str(first)]
        wait_until("no pause is left", lambda: agent.ask("info")["failed_resumes"] == [])
        assert agent.ask("info")["pauses"] == []
        assert agent.ask("info")["gives_up_log_dirs"] is True
    assert f"Failed to rename the segments of {topic.name}-0 that segment 0 replaces in dir {second}" in (
        "".join(error_lines(topic.broker.log_text()))
    )
    assert write(topic, "during", NO_ACK_SECONDS) == {}
    assert len(write(other, "during")) == RECORDS
    assert other.read() == other.latest
    start_again(topic)
    assert topic.read() == topic.latest
    is_new(topic, inode)
    assert len(write(topic, "after")) == RECORDS
    assert topic.read() == topic.latest
    assert topic.broker.running


@pytest.mark.long
def test_a_truncation_after_a_half_swap(several: Stopping) -> None:
    """A-24: a truncation that waited for the swap. It truncates the remaining sources, not the new segment.

    Such a log used to continue: of 600 acknowledged records 301 were gone after the next start.
    """
    topic = topic_in(several, several.live.broker.log_dirs[1], "cut")
    order = several.place / f"{topic.name}-0.do"
    before = records(topic)
    with half_way(several, topic) as (swap, offset):
        order.write_text(str(offset))
        cut = threading.Thread(target=lambda: attempt(lambda: requested(topic)))
        cut.start()
        wait_until("the truncation has begun", lambda: not order.exists())
        time.sleep(0.5)  # then it waits for the log's lock
        inode = moved_inode(topic)
    cut.join()
    reported(swap)
    acknowledged = write(topic, "during", NO_ACK_SECONDS)
    start_again(topic)
    assert acknowledged.items() <= below(1 << 62, records(topic)).items()
    assert acknowledged == {}, "no write is acknowledged"
    assert below(offset, before).items() <= below(1 << 62, records(topic)).items()
    is_new(topic, inode)
    written = write(topic, "after")
    assert len(written) == RECORDS
    start_again(topic)
    assert written.items() <= below(1 << 62, records(topic)).items()


def attempt(do: Callable[[], object]) -> None:
    """Ignore its result: the log may disappear during the request."""
    try:
        do()
    except (RefusedError, ConnectionError):
        return


@pytest.mark.long
def test_a_repeated_request_is_refused(several: Stopping) -> None:
    """A-24, A-25: success is never reported, and no other log of that directory is swapped."""
    second = several.live.broker.log_dirs[1]
    topic, other = (topic_in(several, second, name) for name in ("again", "neighbour"))
    requests = [other.request(other.stage(output_bytes=60_000))]
    with half_way(several, topic) as (swap, _):
        requests.append(swap.request)
    reported(swap)
    with several.live.asking() as agent:
        for request in requests:
            with pytest.raises(RefusedError) as refused:
                agent.ask("swap", **request)
            assert refused.value.code in {GIVEN_UP, "no_log"}
    start_again(topic)
    assert (topic.read(), other.read()) == (topic.latest, other.latest)


def test_a_complete_swap_on_a_file_system_that_became_read_only(several: Stopping) -> None:
    """A-24: there even the rename of a missing file fails. The broker renamed all files, so the swap is complete."""
    topic = topic_in(several, several.live.broker.log_dirs[1], "read-only", transactions=True)
    manifest = topic.stage(output_bytes=60_000)
    group = next(each for each in manifest.groups if "txnindex" in each.files)
    (several.place / f"{topic.name}-0.read-only").touch()
    with several.live.asking() as agent:
        answer = agent.ask("swap", **topic.request(manifest, (group,)))
    assert (answer["done"], answer["warnings"]) == ([group.base], [])
    assert (topic.directory / f"{group.base:020d}.txnindex").exists()


@pytest.mark.long
def test_not_before_the_new_segment_has_all_its_files(several: Stopping) -> None:
    """A-24: a start that finds a ``.cleaned`` name deletes the new segment, whose sources are gone."""
    topic = topic_in(several, several.live.broker.log_dirs[1], "unfinished", transactions=True)
    obstacle = several.place / f"{topic.name}-0.not-finished"
    obstacle.touch()
    with half_way(several, topic) as (swap, _):
        pass
    assert isinstance(swap.answer, dict)
    assert swap.answer.get("done") == [0]
    assert f"the cleaner and retention of {topic.name}-0 stay paused" in str(swap.answer["warnings"])
    assert requested(topic)["cleaning"] == "paused"
    obstacle.unlink()
    with several.live.asking() as agent:
        wait_until("its logs are offline", lambda: agent.ask("logs", prefix=topic.name)["logs"] == [])
        wait_until("no pause is left", lambda: agent.ask("info")["failed_resumes"] == [])
    start_again(topic)
    assert topic.read() == topic.latest
    assert names_ending([topic.directory], ".swap", ".cleaned", ".deleted") == []


@pytest.mark.long
def test_a_broker_with_one_log_directory_halts(single: Stopping) -> None:
    """A-24: the broker halts, as when its own cleaner fails there; the next start finds all of the log."""
    topic = single.live.topic("only", transactions=False)
    assert len(write(topic, "before")) == RECORDS
    with half_way(single, topic) as (swap, _):
        inode = moved_inode(topic)
    wait_until("it halts", lambda: not topic.broker.running)
    if isinstance(swap.answer, dict):  # otherwise the broker was quicker
        reported(swap)
    else:
        assert swap.answer.startswith("lost: ")
    assert f"Failed to rename the segments of {topic.name}-0" in topic.broker.log_text()
    topic.broker.start()
    assert topic.read() == topic.latest
    is_new(topic, inode)
    assert len(write(topic, "after")) == RECORDS
    assert topic.read() == topic.latest


# -- cases that do not take it offline --------------------------------------------------------------------------------


def test_a_failure_before_the_broker_has_the_segment(several: Stopping) -> None:
    """A-24: the new segment does not get its ``.swap`` names: everything is as before, and online."""
    topic = topic_in(several, several.live.broker.log_dirs[1], "not-yet")
    manifest = topic.stage(output_bytes=60_000)
    before = topic.listing()
    obstacle = topic.directory / f"{0:020d}.index.swap" / "x"
    with several.at("locked", topic.request(manifest)) as swap:
        obstacle.mkdir(parents=True)
    assert (swap.code, swap.answer["done"]) == ("io_error", [])  # type: ignore[index]
    obstacle.rmdir()
    obstacle.parent.rmdir()
    with several.live.asking() as agent:
        wait_until("the swap is settled", lambda: agent.ask("info")["failed_resumes"] == [])
        assert agent.ask("info")["log_dirs"] == [str(each) for each in several.live.broker.log_dirs]
    assert topic.listing() == before
    assert len(write(topic, "after")) == RECORDS
    assert topic.read() == topic.latest


@pytest.mark.long
@pytest.mark.parametrize("where", ["inside", "above"])
def test_only_its_last_name_is_missing(several: Stopping, where: str) -> None:
    """A-24: the log has no part of the sources, and a later truncation and later writes stay."""
    topic = topic_in(several, several.live.broker.log_dirs[1], f"last-name-{where}")
    manifest = topic.stage(output_bytes=60_000)
    group = manifest.groups[0]
    swap_without_a_last_name(several, topic, manifest)
    with several.live.asking() as agent:
        assert agent.ask("info")["failed_resumes"] == [f"{topic.name}-0"]
    offset = group.sources[-1] + 2 if where == "inside" else group.end + 2
    before = records(topic)
    assert command_agent(several, topic, str(offset))["leo"] == offset
    written = write(topic, "after")
    assert len(written) == RECORDS
    assert (topic.directory / f"{0:020d}.log.swap").exists(), "U-26"
    start_again(topic)
    found = below(1 << 62, records(topic))
    assert written.items() <= found.items()
    # Kafka truncates whole batches: all records of that offset's batch are removed.
    assert below(offset - 2, before).items() <= found.items()
    assert names_ending([topic.directory], ".swap", ".cleaned", ".deleted") == []


# -- the broker takes it offline by itself ----------------------------------------------------------------------------


@pytest.mark.long
def test_its_log_directory_goes_offline(several: Stopping) -> None:
    """A-24, U-38: after the files moved in. The swap is refused, and the next start finds the old segments."""
    second = several.live.broker.log_dirs[1]
    topic = topic_in(several, second, "given-up")
    manifest = topic.stage(output_bytes=6_000)
    before = sealed(topic)
    with several.at("opened", topic.request(manifest)) as swap, several.live.asking() as agent:
        command_agent(several, topic, "give up")
        wait_until("its logs are offline", lambda: agent.ask("logs", prefix=topic.name)["logs"] == [])
        assert str(second) not in agent.ask("info")["log_dirs"]
    assert swap.code in MOVED_ON, swap.answer
    assert sealed(topic) == before
    with several.live.asking() as agent:
        assert agent.ask("info")["pauses"] == []
    start_again(topic)
    assert sealed(topic) == before
    assert topic.read() == topic.latest


def sealed(topic: Topic) -> dict[str, tuple[int, int, int]]:
    """All files but those of the active segment, whose indexes a start rebuilds; no swap file is among them."""
    listing = topic.listing()
    active = max(name[:20] for name in listing)
    assert not [name for name in listing if name.endswith((".cleaned", ".swap"))]
    return {name: facts for name, facts in listing.items() if not name.startswith(active)}


@pytest.mark.long
def test_a_release_that_is_configured_otherwise(several: Stopping, tmp_path: Path) -> None:
    """A-24: an agent that does not find how to do it reports that at once.

    A half-finished swap excludes the cleaner.
    """
    live = several.live
    with live.asking() as agent:
        before = agent.ask("info")["build"]
    stranger = ('"LogDirFailureChannel"', '"AnotherChannel"')
    changed_source(tmp_path, "moments", "FailureChannel.java", stranger)
    attach(live, build(tmp_path))
    wait_until("the other build", lambda: is_another_build(live, before))
    topic = live.topic("otherwise", transactions=False)
    with half_way(several, topic) as (swap, _):
        pass
    assert isinstance(swap.answer, dict)
    assert "DirectoryNotEmptyException" in str(swap.answer["warnings"])
    with live.asking() as agent:
        info = agent.ask("info")
        assert info["gives_up_log_dirs"] is False
        assert any("cannot report failed log directories" in each for each in info["errors"]), info["errors"]
        assert len(info["log_dirs"]) == len(live.broker.log_dirs)
        assert agent.ask("log", topic=topic.name, partition=0)["cleaning"] == "paused"
    start_again(topic)
    assert topic.read() == topic.latest
