"""A swap that the broker cannot complete, and a pause of its cleaner that outlives the swap.

How the broker's cleaner, a kill and a new topic of the same name affect it, and how it ends without memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import ResourceType

from tests.agent.building import changed_source, stopping_build
from tests.agent.live import PROPERTIES
from tests.agent.log_changes import NO_LAST_NAME, released, requested, swap_without_a_last_name, topic_in
from tests.agent.raw_client import RefusedError
from tests.agent.stopping import Stopping, stopping_broker
from tests.brokers.node import wait_until
from tests.live.shared_broker import admin_request, alter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.agent.live import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

IN_THE_LOG: Final = "        if (!begun) {\n"
NO_QUERY: Final = """
        if (java.nio.file.Files.exists(
                java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), log + ".no-look"))) {
            throw new OutOfMemoryError("a test");
        }
"""

PAUSED: Final = "                log.pauseCleaning();\n"
NO_MEMORY: Final = """
                java.nio.file.Path place = java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"));
                if (java.nio.file.Files.exists(place.resolve(pause.name + ".no-memory"))) {
                    java.nio.file.Files.createFile(place.resolve(pause.name + ".no-text"));
                    throw new OutOfMemoryError("a test");
                }
"""
RESUMED: Final = "                    log.resumeCleaning();\n"
NOT_RESUMED: Final = """
                    java.nio.file.Path place = java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"));
                    if (java.nio.file.Files.exists(place.resolve(name + ".no-resume"))) {
                        throw new OutOfMemoryError("a test");
                    }
"""
NOT_SENT: Final = """
                    if (java.nio.file.Files.deleteIfExists(place.resolve(name + ".unreported"))) {
                        throw new OutOfMemoryError("a test");
                    }
"""
TEXT: Final = "        return name.toString();\n"
NO_TEXT: Final = """
        if (java.nio.file.Files.exists(
                java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), name + ".no-text"))) {
            throw new OutOfMemoryError("a test");
        }
"""
KEPT: Final = "        pauses.put(partition, pause);\n"
NO_ROOM: Final = """
        if (java.nio.file.Files.exists(
                java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), partition + ".no-room"))) {
            throw new IllegalStateException("a test");
        }
"""


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def stopping(request: pytest.FixtureRequest) -> Iterator[Stopping]:
    """A broker with an eager cleaner, with the build that stops."""

    def build(work_dir: Path) -> Path:
        changed_source(work_dir, "moments", "Attempt.java", (IN_THE_LOG, NO_QUERY + IN_THE_LOG), NO_LAST_NAME)
        pauses = ((PAUSED, PAUSED + NO_MEMORY), (RESUMED, NOT_RESUMED + RESUMED + NOT_SENT))
        changed_source(work_dir, "moments", "Pauses.java", *pauses)
        changed_source(work_dir, "moments", "BrokerLog.java", (TEXT, NO_TEXT + TEXT))
        changed_source(work_dir, "moments", "Session.java", (KEPT, NO_ROOM + KEPT))
        return stopping_build(work_dir, "Evidence.java", ("LISTING_TIMES = 20;", "LISTING_TIMES = 0;"))

    properties = {**PROPERTIES, "log.cleaner.backoff.ms": "300"}
    with stopping_broker(request.param, build, log_dirs=2, properties=properties) as started:
        yield started


def half_way(stopping: Stopping, topic: Topic, kind: str = "log") -> None:
    """The new segment is in, and one of its files keeps a temporary name until the broker restarts."""
    swap_without_a_last_name(stopping, topic, topic.stage(output_bytes=60_000), kind)


def kept(stopping: Stopping, topic: Topic) -> tuple[str, list[str]]:
    """The state of the broker's cleaner for the partition, and its pauses that were not ended."""
    with stopping.live.asking() as agent:
        return agent.ask("log", topic=topic.name, partition=0)["cleaning"], agent.ask("info")["failed_resumes"]


def clean_always(topic: Topic) -> int:
    """Give the broker's own cleaner work there; returns the identity of the first segment's file."""
    topic.fill(transactions=False)
    alter(topic.broker, ResourceType.TOPIC, topic.name, "min.cleanable.dirty.ratio", "0")
    return (topic.directory / f"{0:020d}.log").stat().st_ino


@pytest.mark.long
def test_the_brokers_cleaner_skips_the_partition(stopping: Stopping) -> None:
    """U-34, A-22: it gave its output the names that the new segment still had, and the next start deleted them."""
    topic, other = (topic_in(stopping, each, "half") for each in reversed(stopping.live.broker.log_dirs))
    half_way(stopping, topic)
    assert kept(stopping, topic) == ("paused", [f"{topic.name}-0"])
    topic.fill(transactions=False)
    alter(topic.broker, ResourceType.TOPIC, topic.name, "min.cleanable.dirty.ratio", "0")
    inode = clean_always(other)
    wait_until("another log is cleaned", lambda: (other.directory / f"{0:020d}.log").stat().st_ino != inode)
    assert (topic.directory / f"{0:020d}.log.swap").exists()
    topic.broker.kill()
    topic.broker.start()
    assert topic.read() == topic.latest
    wait_until("the pause has ended", lambda: kept(stopping, topic)[1] == [])


@pytest.mark.long
def test_a_new_topic_of_its_name(stopping: Stopping) -> None:
    """A-22: it has a cleaner. Kafka cannot delete a log without its final name: its directory fails."""
    topic = stopping.live.topic("half-again", transactions=False)
    half_way(stopping, topic, "timeindex")
    assert kept(stopping, topic) == ("paused", [f"{topic.name}-0"])
    directory = topic.directory
    admin_request(topic.broker, "delete_topics", [topic.name])
    wait_until("the directory is deleted", lambda: not list(directory.parent.glob(f"{directory.name}*")))
    stopping.live.topic(topic.name, transactions=False)
    wait_until("the pause has ended", lambda: kept(stopping, topic)[1] == [] and kept(stopping, topic)[0] != "paused")


def test_no_memory_to_read_the_result_of_a_swap(stopping: Stopping) -> None:
    """A-24: the agent cannot find out whether the broker has the new segment; it settles that as soon as possible."""
    topic = stopping.live.topic("no-look", transactions=False)
    manifest = topic.stage(output_bytes=6_000)
    before = topic.listing()
    place = stopping.place / f"{topic.name}-0.no-look"
    base = f"{manifest.groups[0].base:020d}"
    obstacle = topic.directory / f"{base}.index.swap" / "x"
    with stopping.at("locked", topic.request(manifest)) as swap:
        obstacle.mkdir(parents=True)
        place.touch()
    assert (swap.code, swap.answer["done"]) == ("io_error", [])  # type: ignore[index]
    assert kept(stopping, topic) == ("paused", [f"{topic.name}-0"])
    assert (topic.directory / f"{base}.log.swap").exists(), "U-26: a start would bring it into the log"
    obstacle.rmdir()
    obstacle.parent.rmdir()
    place.unlink()
    wait_until("the swap is settled", lambda: kept(stopping, topic)[1] == [])
    assert topic.listing() == before
    assert topic.read() == topic.latest


def test_no_memory_when_it_is_paused(stopping: Stopping) -> None:
    """A-22: the broker's cleaner is already paused when it fails; the pause is ended nevertheless.

    The name of the partition needs memory, too, and without it the pause used to stay.
    """
    topic = stopping.live.topic("no-memory", transactions=False)
    request = topic.request(topic.stage(output_bytes=6_000))
    place = stopping.place / f"{topic.name}-0.no-memory"
    place.touch()
    with stopping.live.asking() as agent:
        with pytest.raises(RefusedError, match="could not be paused"):
            agent.ask("swap", **request)
        place.unlink()
        place.with_suffix(".no-text").unlink()
        released(stopping, topic)
        place = place.with_suffix(".no-room")
        place.touch()
        with pytest.raises(RefusedError, match="a test"):
            agent.ask("pause", topic=topic.name, partition=0)
        place.unlink()
        released(stopping, topic)
        assert agent.ask("swap", **request)["warnings"] == []


def test_no_memory_when_it_is_to_be_resumed(stopping: Stopping) -> None:
    """A-22: it is reported and retried until the cleaner is resumed.

    Kafka may also have resumed it and failed to report it.
    """
    topic = stopping.live.topic("no-resume", transactions=False)
    first, second, *_ = (topic.request(m, (g,)) for m in (topic.stage(output_bytes=6_000),) for g in m.groups)
    none = stopping.place / f"{topic.name}-0.no-resume"
    none.touch()
    with stopping.live.asking() as agent:
        assert agent.ask("swap", **first)["warnings"] == []
        assert agent.ask("info")["failed_resumes"] == [f"{topic.name}-0"]
        assert requested(topic)["cleaning"] == "paused"
        none.unlink()
        wait_until("the cleaner is resumed", lambda: agent.ask("info")["failed_resumes"] == [])
        released(stopping, topic)
        none.with_suffix(".unreported").touch()
        assert agent.ask("pause", topic=topic.name, partition=0) == {"paused": True}
        agent.ask("resume", topic=topic.name, partition=0)
        assert not none.with_suffix(".unreported").exists()
        assert agent.ask("info")["failed_resumes"] == []
        released(stopping, topic)
        after = {name: value for name, value in second.items() if name != "witnesses"}
        assert agent.ask("swap", **after)["warnings"] == []
