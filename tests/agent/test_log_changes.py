"""What else a broker does to a log between two steps of a request: cut, moved, made again, given up, cleaned otherwise.

A pause of the broker's cleaner keeps nothing of that away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import TopicPartition

from tests.agent.building import changed_source, stopping_build
from tests.agent.live import Live
from tests.agent.log_changes import FOLLOWS_ITS_CONFIGURATION, MOVED_ON, cut, released, requested, tell
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
"""So that there are several outputs."""
NEVER: Final = {"cleanup.policy": "compact,delete", "retention.ms": "-1"}
"""Records may be deleted there, and none are."""
WRITTEN: Final = "            log.writeCheckpoint(offset);\n"
NO_FACTS: Final = """
            if (java.nio.file.Files.exists(
                    java.nio.file.Path.of(System.getProperty("cleanerd.test.moments"), log + ".no-facts"))) {
                throw new OutOfMemoryError("a test");
            }
"""


@pytest.fixture(scope="module", params=["4.3", pytest.param("3.9", marks=pytest.mark.long)])
def stopping(request: pytest.FixtureRequest) -> Iterator[Stopping]:
    """A broker whose agent stops at named moments; asked about a log it does first what ``TOPIC-0.do`` says."""

    def build(work_dir: Path) -> Path:
        changed_source(work_dir, "moments", "Checkpoint.java", (WRITTEN, WRITTEN + NO_FACTS))
        return stopping_build(work_dir, *FOLLOWS_ITS_CONFIGURATION)

    with stopping_broker(request.param, build, log_dirs=2) as started:
        yield started


def at_moments(events: Sequence[object], moments: Sequence[str]) -> list[Any]:
    """Each with each; `make test` sees every event at one of the moments."""
    return [
        pytest.param(event, moment, marks=[] if number % len(moments) == place else [pytest.mark.long])
        for number, event in enumerate(events)
        for place, moment in enumerate(moments)
    ]


# -- what happens -----------------------------------------------------------------------------------------------------


def recreate(_stopping: Stopping, topic: Topic, ratio: str = "0") -> None:
    """A topic of the same name; the broker's cleaner is eager to clean it, unless another ratio says so."""
    log_dirs = topic.broker.log_dirs
    admin_request(topic.broker, "delete_topics", [topic.name])
    wait_until("it is gone", lambda: not [path for each in log_dirs for path in each.glob(f"{topic.name}-0*")])
    topic.latest = (
        Live(topic.broker).topic(topic.name, transactions=False, **{"min.cleanable.dirty.ratio": ratio}).latest
    )


def move_away(_stopping: Stopping, topic: Topic) -> None:
    """To the other log directory; the place where it was is deleted."""
    move(topic.broker, topic.name)
    wait_until("the old place is gone", lambda: not names_ending(topic.broker.log_dirs, "-delete"))


def cut_everything(stopping: Stopping, topic: Topic) -> None:
    cut(stopping, topic, 0)


def delete_for_a_while(_stopping: Stopping, topic: Topic) -> None:
    """By its age, of which the broker's retention, that looks every other second, would leave nothing."""
    set_topic(topic.broker, topic.name, "retention.ms", "1")
    set_topic(topic.broker, topic.name, "cleanup.policy", "delete")


# -- swaps ------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("happen", "moment"),
    at_moments((recreate, move_away, cut_everything), ("named", "validated", "opened")),
)
def test_another_log(stopping: Stopping, happen: Callable[[Stopping, Topic], None], moment: str) -> None:
    """A-13, U-3: what was planned of one log never gets into another one, nor does anything of it harm that."""
    topic = stopping.live.topic(f"{happen.__name__}-{moment}".replace("_", "-"), transactions=False)
    request = topic.request(topic.stage(output_bytes=OUTPUT_BYTES))
    with stopping.at(moment, request) as swap:
        happen(stopping, topic)
    # The last is of a request that is sent again because the broker's cleaner has the new topic by then.
    assert swap.code in MOVED_ON | {"io_error", "no_staged_file", "topic_id"}, swap.answer
    assert topic.read() == topic.latest
    released(stopping, topic)


@pytest.mark.long
@pytest.mark.parametrize(("what", "moment"), at_moments(("source", "evidence"), ("named", "opened")))
def test_cut_and_grown_again(stopping: Stopping, what: str, moment: str) -> None:
    """U-3: inside of a group's last source, or above it, where the decision looked as well; no fault of the plan."""
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
    """A-13, A-16: while it is paused for a swap retention does not begin either, and afterwards it does."""
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
    """C-15, U-2: the log start lies inside of an output, or above it, and stays there through a kill."""
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
    wait_until("it is written down", lambda: log_start_on_disk(topic) == start)
    topic.broker.kill()
    topic.broker.start()
    assert requested(topic)["log_start"] == start
    assert read(topic.broker, topic.name) == before


def log_start_on_disk(topic: Topic) -> int | None:
    """The line of the partition in its log directory's checkpoint."""
    return read_checkpoint(topic.log_dir / "log-start-offset-checkpoint").get(f"{topic.name}-0")


# -- clean points -----------------------------------------------------------------------------------------------------


def cleaned(topic: Topic) -> dict[str, Any]:
    """A cleaning of all there is; returns the request that tells the broker's cleaner of it."""
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
    """The clean points that the broker's cleaner may go by, in whatever log directory."""
    paths = [log_dir / CLEANER_CHECKPOINT for log_dir in topic.broker.log_dirs]
    found = [read_checkpoint(path).get(f"{topic.name}-0") for path in paths if path.exists()]
    return {offset for offset in found if offset is not None}


def test_a_clean_point_is_sent(stopping: Stopping) -> None:
    """A-20: so that the tests below can fail. Somebody who does not say what is clean is believed, too."""
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
def test_a_clean_point_of_another_log(stopping: Stopping, what: str, moment: str) -> None:
    """S-50: below it nobody has cleaned, or not there: it is not told, or taken back."""
    topic = stopping.live.topic(f"told-{what}-{moment}", transactions=False)
    request = cleaned(topic)
    with stopping.at(moment, request, "checkpoint") as reported:
        if what == "cut":
            cut(stopping, topic, request["clean"]["base"] + 1)
        elif what == "moved":
            move_away(stopping, topic)
        else:
            recreate(stopping, topic, "1")  # else its cleaner comes to the same offset by itself
    # What met the broker's cleaner, which glances at every log, is asked again, and finds a topic of another id.
    codes = {"cut": {"evidence_changed"}, "moved": {"log_changed"}, "recreated": {"log_changed", "topic_id"}}
    assert reported.code in codes[what], reported.answer
    assert request["offset"] not in cleaners_offsets(topic)


def test_another_segment_than_was_cleaned(stopping: Stopping) -> None:
    """S-50: by any of its numbers; and a point that is there already stays."""
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
    """U-27, R-3: but for what a move between log directories makes Kafka's own code say."""
    text = stopping.live.broker.log_text()
    assert "Kafka Server started" in text
    assert [line for line in error_lines(text) if "AssignmentsManager" not in line] == []


@pytest.mark.long
def test_a_broker_that_stops(stopping: Stopping) -> None:
    """K-8: its logs are closed one after the other, and a swap that comes a moment later goes in all the same."""
    topic = stopping.live.topic("closed", transactions=False)
    manifest = topic.stage(output_bytes=OUTPUT_BYTES)
    with stopping.at("opened", topic.request(manifest)) as swap:
        tell(stopping, topic, "close")
    assert isinstance(swap.answer, dict)
    assert swap.answer["done"] == [group.base for group in manifest.groups]
    topic.broker.kill()
    topic.broker.start()
    assert topic.read() == topic.latest


def test_an_error_when_a_clean_point_was_sent(stopping: Stopping) -> None:
    """S-50, A-27: of another log by then; it is taken back after an Error too, and nothing is swapped any more."""
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
