"""Changes that a broker makes to a log between two steps of a request: truncate, move, recreate, take offline, clean.

A pause of the broker's cleaner prevents none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import TopicPartition

from tests.agent.building import changed_source, stopping_build
from tests.agent.live import Live
from tests.agent.log_changes import FOLLOWS_ITS_CONFIGURATION, MOVED_ON, command_agent, cut, released, requested
from tests.agent.raw_client import RefusedError
from tests.agent.stopping import Stopping, stopping_broker
from tests.brokers.node import error_lines, names_ending, wait_until
from tests.live.shared_broker import admin_request, move, read, set_topic
from tests.support.log_dirs import CLEANER_CHECKPOINT, read_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.agent.live import Topic

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

OUTPUT_BYTES: Final = 6_000
"""so that there are several outputs"""
NEVER: Final = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
"""Records may be deleted there, but are not."""
WRITTEN: Final = "            log.writeCheckpoint(offset);\n"
NO_FACTS: Final = """
            if (java.nio.file.Files.exists(
                    java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), log + ".no-facts"))) {
                throw new OutOfMemoryError("a test");
            }
"""


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def stopping(request: pytest.FixtureRequest) -> Iterator[Stopping]:
    """A broker whose agent stops at named moments; at a query about a log it first executes ``TOPIC-0.do``."""

    def build(work_dir: Path) -> Path:
        changed_source(work_dir, "moments", "Checkpoint.java", (WRITTEN, WRITTEN + NO_FACTS))
        return stopping_build(work_dir, *FOLLOWS_ITS_CONFIGURATION)

    with stopping_broker(request.param, build, log_dirs=2) as started:
        yield started


def at_moments(events: Sequence[object], moments: Sequence[str]) -> list[Any]:
    """Each event at each moment; `make test` runs every event at one of the moments."""
    return [
        pytest.param(event, moment, marks=[] if number % len(moments) == place else [pytest.mark.long])
        for number, event in enumerate(events)
        for place, moment in enumerate(moments)
    ]


# -- the events -------------------------------------------------------------------------------------------------------


def recreate(_stopping: Stopping, topic: Topic, ratio: str = "0") -> None:
    """A topic of the same name; the broker's cleaner is eager to clean it, unless another ratio prevents that."""
    log_dirs = topic.broker.log_dirs
    admin_request(topic.broker, "delete_topics", [topic.name])
    wait_until(
        "the topic is deleted", lambda: not [path for each in log_dirs for path in each.glob(f"{topic.name}-0*")]
    )
    topic.latest = (
        Live(topic.broker).topic(topic.name, transactions=False, **{"min.cleanable.dirty.ratio": ratio}).latest
    )


def move_away(_stopping: Stopping, topic: Topic) -> None:
    """Move to the other log directory; the old directory is deleted."""
    move(topic.broker, topic.name)
    wait_until("the old directory is deleted", lambda: not names_ending(topic.broker.log_dirs, "-delete"))


def cut_everything(stopping: Stopping, topic: Topic) -> None:
    cut(stopping, topic, 0)


def delete_for_a_while(_stopping: Stopping, topic: Topic) -> None:
    """Delete by age; the broker's retention, which runs every other second, would delete everything."""
    set_topic(topic.broker, topic.name, "retention.ms", "1")
    set_topic(topic.broker, topic.name, "cleanup.policy", "delete")


# -- swaps ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("happen", "moment"),
    at_moments((recreate, move_away, cut_everything), ("named", "validated", "opened")),
)
def test_another_log(stopping: Stopping, happen: Callable[[Stopping, Topic], None], moment: str) -> None:
    """A-13, U-3: a plan of one log never changes another one, nor do its files harm that."""
    topic = stopping.live.topic(f"{happen.__name__}-{moment}".replace("_", "-"), transactions=False)
    request = topic.request(topic.stage(output_bytes=OUTPUT_BYTES))
    with stopping.at(moment, request) as swap:
        happen(stopping, topic)
    # busy: the broker's cleaner is cleaning the new topic. A client repeats the request and gets "topic_id".
    allowed = {"io_error", "no_staged_file", "topic_id", *(["busy"] if happen is recreate else [])}
    assert swap.code in MOVED_ON | allowed, swap.answer
    assert topic.read() == topic.latest
    released(stopping, topic)


@pytest.mark.long
@pytest.mark.parametrize(("what", "moment"), at_moments(("source", "evidence"), ("named", "opened")))
def test_truncated_and_extended_again(stopping: Stopping, what: str, moment: str) -> None:
    """U-3: inside a group's last source, or above it, where the decision depends on it; not a fault of the plan."""
    topic = stopping.live.topic(f"cut-{what}-{moment}", transactions=False)
    manifest = topic.stage(output_bytes=OUTPUT_BYTES)
    first, last = manifest.groups[0], manifest.witnesses[-1]
    assert first.end <= last.base
    with stopping.at(moment, topic.request(manifest, (first,))) as swap:
        cut(stopping, topic, first.end - 1 if what == "source" else last.base + 1)
        before = topic.read()
    assert swap.code in MOVED_ON, swap.answer
    assert topic.read() == before
    released(stopping, topic)


@pytest.mark.long
@pytest.mark.parametrize("back", [False, True])
def test_cleanup_policy_changes_around_a_swap(stopping: Stopping, back: bool) -> None:
    """A-13, A-16: while the cleaner is paused for a swap, retention does not begin either; afterwards it does."""
    topic = stopping.live.topic(f"deleting-{back}", transactions=False)
    manifest = topic.stage(output_bytes=OUTPUT_BYTES)
    with stopping.at("opened", topic.request(manifest)) as swap:
        delete_for_a_while(stopping, topic)
        rows = requested(topic)["segments"]
        with pytest.raises(AssertionError):
            wait_until("retention", lambda: requested(topic)["segments"] != rows, seconds=5)
        if back:
            set_topic(topic.broker, topic.name, "cleanup.policy", "compact")
    if not back:
        assert swap.code == "not_eligible"
        wait_until("retention", lambda: requested(topic)["log_start"] > 0)
    else:
        assert isinstance(swap.answer, dict)
        assert swap.answer["done"] == [group.base for group in manifest.groups]
        assert topic.read() == topic.latest
    released(stopping, topic)


@pytest.mark.long
def test_records_are_deleted_below_a_group(stopping: Stopping) -> None:
    """C-15, U-2: the log start is inside an output, or above it, and stays there after a kill."""
    topic = stopping.live.topic("log-start", transactions=False, **NEVER)
    manifest = topic.stage(output_bytes=OUTPUT_BYTES)
    group = manifest.groups[1]
    start = group.base + (group.end - group.base) // 2
    with stopping.at("opened", topic.request(manifest)) as swap:
        admin_request(topic.broker, "delete_records", [TopicPartition(topic.name, 0, start)])
        before = read(topic.broker, topic.name)
    assert isinstance(swap.answer, dict)
    assert swap.answer["done"] == [group.base for group in manifest.groups]
    wait_until("the segments below are deleted", lambda: requested(topic)["segments"][0][0] == group.base)
    assert read(topic.broker, topic.name) == before
    released(stopping, topic)
    wait_until("the log start is on the disk", lambda: log_start_on_disk(topic) == start)
    topic.broker.kill()
    topic.broker.start()
    assert requested(topic)["log_start"] == start
    assert read(topic.broker, topic.name) == before


def log_start_on_disk(topic: Topic) -> int | None:
    """The line of the partition in its log directory's checkpoint."""
    return read_checkpoint(topic.log_dir / "log-start-offset-checkpoint").get(f"{topic.name}-0")


# -- checkpoints -----------------------------------------------------------------------------------------------------


def cleaned(topic: Topic) -> dict[str, Any]:
    """Clean the whole log; returns the request that sends the checkpoint to the broker's cleaner."""
    manifest = topic.stage(output_bytes=OUTPUT_BYTES)
    request = topic.request(manifest)
    with Live(topic.broker).asking() as agent:
        agent.ask("swap", **request)
    base, size, mtime_ms, inode = max(row for row in requested(topic)["segments"] if row[0] < manifest.bound)
    return {
        "topic": topic.name,
        "partition": 0,
        "topic_id": request["topic_id"],
        "dir": request["dir"],
        "offset": manifest.bound,
        "clean": {"base": base, "size": size, "ino": inode, "mtime_ms": mtime_ms},
    }


def cleaners_offsets(topic: Topic) -> set[int]:
    """The checkpoints that the broker's cleaner may use, in any log directory."""
    paths = [log_dir / CLEANER_CHECKPOINT for log_dir in topic.broker.log_dirs]
    found = [read_checkpoint(path).get(f"{topic.name}-0") for path in paths if path.exists()]
    return {offset for offset in found if offset is not None}


def test_a_checkpoint_is_sent(stopping: Stopping) -> None:
    """A-20: the control for the tests below. A request without the last clean batch is accepted, too."""
    topic = stopping.live.topic("told", transactions=False)
    request = cleaned(topic)
    with stopping.at("checkpoint", request, "checkpoint") as reported:
        pass
    assert reported.answer == {"offset": request["offset"]}
    assert cleaners_offsets(topic) == {request["offset"]}
    with stopping.live.asking() as agent:
        earlier = {name: value for name, value in request.items() if name != "clean"}
        assert agent.ask("checkpoint", **{**earlier, "offset": request["clean"]["base"]})
    assert cleaners_offsets(topic) == {request["clean"]["base"]}


@pytest.mark.parametrize(("what", "moment"), at_moments(("moved", "cut", "recreated"), ("pausing", "checkpoint")))
def test_a_checkpoint_of_another_log(stopping: Stopping, what: str, moment: str) -> None:
    """S-50: the other log is not clean below it: the checkpoint is not set, or is removed."""
    topic = stopping.live.topic(f"told-{what}-{moment}", transactions=False)
    request = cleaned(topic)
    with stopping.at(moment, request, "checkpoint") as reported:
        if what == "cut":
            cut(stopping, topic, request["clean"]["base"] + 1)
        elif what == "moved":
            move_away(stopping, topic)
        else:
            recreate(stopping, topic, "1")  # otherwise its cleaner reaches the same offset by itself
    # A request that met the broker's cleaner, which briefly holds every log, is repeated, and finds another topic id.
    codes = {"cut": {"evidence_changed"}, "moved": {"log_changed"}, "recreated": {"log_changed", "topic_id"}}
    assert reported.code in codes[what], reported.answer
    assert request["offset"] not in cleaners_offsets(topic)


def test_a_checkpoint_for_another_segment(stopping: Stopping) -> None:
    """S-50: any of its facts may differ; and a checkpoint that is set already stays."""
    topic = stopping.live.topic("another", transactions=False)
    request = cleaned(topic)
    with stopping.live.asking() as agent:
        assert agent.ask("log", topic=topic.name, partition=0)["compares_clean"] is True
        agent.ask("checkpoint", **request)
        for name in request["clean"]:
            wrong = {**request["clean"], name: request["clean"][name] + 1}
            with pytest.raises(RefusedError) as refused:
                agent.ask("checkpoint", **{**request, "clean": wrong})
            assert refused.value.code == "evidence_changed"
    assert cleaners_offsets(topic) == {request["offset"]}


# -- the end ----------------------------------------------------------------------------------------------------------


def test_the_broker_logged_no_errors(stopping: Stopping) -> None:
    """U-27, R-3: except for those that Kafka's own code logs at a move between log directories."""
    text = stopping.live.broker.log_text()
    assert "Kafka Server started" in text
    assert [line for line in error_lines(text) if "AssignmentsManager" not in line] == []


@pytest.mark.long
def test_a_broker_that_stops(stopping: Stopping) -> None:
    """K-8: it closes its logs one after the other, and a swap that comes a moment later is done nevertheless."""
    topic = stopping.live.topic("closed", transactions=False)
    manifest = topic.stage(output_bytes=OUTPUT_BYTES)
    with stopping.at("opened", topic.request(manifest)) as swap:
        command_agent(stopping, topic, "close")
    assert isinstance(swap.answer, dict)
    assert swap.answer["done"] == [group.base for group in manifest.groups]
    topic.broker.kill()
    topic.broker.start()
    assert topic.read() == topic.latest


def test_an_error_after_a_checkpoint_was_sent(stopping: Stopping) -> None:
    """S-50, A-27: it is for another log by then; it is removed after an Error too, and no swap happens any more."""
    topic = stopping.live.topic("told-erring", transactions=False)
    request = cleaned(topic)
    with stopping.at("checkpoint", request, "checkpoint") as reported:
        cut(stopping, topic, request["clean"]["base"] + 1)
        (stopping.place / f"{topic.name}-0.no-facts").touch()
    (stopping.place / f"{topic.name}-0.no-facts").unlink()
    assert reported.code == "internal"
    assert request["offset"] not in cleaners_offsets(topic)
    released(stopping, topic)
    with stopping.live.asking() as agent:
        assert agent.ask("info")["accepting_swaps"] is False
        with pytest.raises(RefusedError) as refused:
            agent.ask("swap", **topic.request(topic.stage(output_bytes=OUTPUT_BYTES)))
        assert refused.value.code == "stopped"
