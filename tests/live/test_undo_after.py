"""S-40 after each broker operation on a cleaned log: restored, or refused with a reason; the log is never wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ResourceType

from cleanerd.format.names import TopicPartition as Name
from tests.brokers.node import cleanerd, names_ending, wait_until
from tests.live.load import create_topics
from tests.live.rounds import Rounds, with_agent
from tests.live.shared_broker import (
    admin_request,
    alter,
    check_broker,
    cleaner_checkpoint,
    delete,
    facts,
    move,
    read,
    set_topic,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]


def nothing(_broker: Broker, _topic: str) -> None:
    """The control: an undo that succeeds."""


def made_again(broker: Broker, topic: str) -> None:
    delete(broker, topic)
    create_topics(broker, [topic])
    write(broker, topic)


def moved(broker: Broker, topic: str) -> None:
    move(broker, topic)
    wait_until("the old directory is deleted", lambda: not [p for d in broker.log_dirs for p in d.glob(f"{topic}-0.*")])


def moved_and_back(broker: Broker, topic: str) -> None:
    """The same directory and file names, but other files."""
    moved(broker, topic)
    moved(broker, topic)


def deleted_inside(broker: Broker, topic: str) -> None:
    """The log start is inside of the first output, which is restored; no client sees records below the start."""
    admin_request(broker, "delete_records", [TopicPartition(topic, 0, 5)])
    wait_until("the log start has moved", lambda: facts(broker, topic).log_start == 5)


def deleted_above(broker: Broker, topic: str) -> None:
    """Everything that was cleaned is deleted."""
    admin_request(broker, "delete_records", [TopicPartition(topic, 0, facts(broker, topic).active.base)])
    wait_until("the segments are deleted", lambda: len(facts(broker, topic).segments) == 1)


def cleaned_by_the_broker(broker: Broker, topic: str) -> None:
    """The broker's cleaner does not know of the cleaning; the write before gives it work."""
    before = cleaner_checkpoint(broker, topic) or 0
    write(broker, topic)
    alter(broker, ResourceType.TOPIC, topic, "min.cleanable.dirty.ratio", "0")
    wait_until("the cleaner has cleaned it", lambda: (cleaner_checkpoint(broker, topic) or 0) > before)
    alter(broker, ResourceType.TOPIC, topic, "min.cleanable.dirty.ratio", "1")


def not_compacted(broker: Broker, topic: str) -> None:
    """The records come back to a topic that keeps everything now."""
    set_topic(broker, topic, "cleanup.policy", "delete")


AFTER: Final[dict[str, tuple[Callable[[Broker, str], None], str, str]]] = {
    "nothing": (nothing, "undone", ""),
    "made-again": (made_again, "refused", "the topic was created again"),
    "moved": (moved, "", "is no longer in"),
    "moved-and-back": (moved_and_back, "refused", "after the cleaning"),
    "deleted-inside": (deleted_inside, "undone", ""),
    "deleted-above": (deleted_above, "refused", "the broker deleted segment"),
    "cleaned-by-the-broker": (cleaned_by_the_broker, "refused", "after the cleaning"),
    "not-compacted": (not_compacted, "undone", ""),
}
"""The operation after the cleaning, the expected result of undo, and its reason."""


@pytest.mark.long
@pytest.mark.parametrize("release", ["4.3", "3.9"])
def test_undo_after_each_change_of_the_log(release: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """S-40: each on its own topic; then the broker starts on every result and serves it."""
    start: StartBroker = request.getfixturevalue(f"broker_{release.replace('.', '')}")
    broker = start(jvm_args=with_agent(), log_dirs=2)
    rounds = Rounds(broker, tmp_path / "state", kept=tmp_path / "kept")
    assert rounds.kept is not None
    rounds.kept.mkdir()
    create_topics(broker, [*AFTER], cleanup_policy="compact,delete", retention_ms="-1")
    before = {topic: write(broker, topic) for topic in AFTER}
    sizes = {topic: sum(each.size for each in facts(broker, topic).segments) for topic in AFTER}
    results = rounds.clean(*(Name(topic, 0) for topic in AFTER))
    assert {result.outcome for result in results} == {"cleaned"}, results
    wait_until("replaced segments are deleted", lambda: not names_ending(broker.log_dirs, ".deleted"))
    for topic, (happen, _, _) in AFTER.items():
        happen(broker, topic)
    seen = {topic: read(broker, topic) for topic in AFTER}
    starts = {topic: facts(broker, topic).log_start for topic in AFTER}
    broker.stop()

    done = cleanerd("undo", broker.log_dirs, tmp_path / "state", "--yes")
    reported = {name.topic: entry for name, entry in done.partitions.items()}
    for topic, (_, outcome, words) in AFTER.items():
        found = reported.get(topic, {"outcome": "", "reason": done.stderr})
        assert (found["outcome"], words in found["reason"]) == (outcome, True), (topic, found)

    broker.start()
    for topic, (_, outcome, _) in AFTER.items():
        assert read(broker, topic) == seen[topic], topic
        assert facts(broker, topic).log_start == starts[topic], topic
        whole = sum(each.size for each in facts(broker, topic).segments) >= sizes[topic]
        assert whole or outcome != "undone", topic
    assert seen["nothing"] == before["nothing"]
    check_broker(broker)
