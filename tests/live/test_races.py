"""LT-5: other broker operations on the logs at every step of a cleaning."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from cleanerd.broker.agent_client import AgentClient
from cleanerd.broker.agent_transport import SOCKET
from cleanerd.errors import AgentRefusalError
from cleanerd.format.names import TopicPartition as Name
from tests.brokers.node import names_ending, wait_until
from tests.live.load import WRITINGS, Load, create_topics
from tests.live.moments import MOMENTS, happens_once
from tests.live.rounds import Rounds, with_agent
from tests.live.shared_broker import (
    NO_LAG,
    admin_request,
    alter,
    begin_move,
    check_broker,
    cleaner_checkpoint,
    delete,
    facts,
    info,
    move,
    read,
    set_topic,
    write,
)
from tests.support.log_dirs import read_checkpoint
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd_lab.demo.broker import Broker
    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker, pytest.mark.long]

BUSY: Final = frozenset({
    "source_gone", "source_changed", "evidence_changed", "log_changed", "busy", "not_eligible", "no_log",
    "no_staged_file", "topic_id",
})  # fmt: skip
THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


@dataclass(frozen=True, slots=True)
class Event:
    """A broker operation; ``check`` asserts the result of the cleaning during which it happened."""

    happen: Callable[[Broker, str], None]
    check: Callable[[Rounds, str], None]
    config: tuple[tuple[str, str], ...] = ()
    versioned: bool = False


# -- the events --------------------------------------------------------------------------------------------------------


def throttle(broker: Broker) -> str | None:
    """Wait for the setting that the broker reports; it does not list the setting until it has received it."""
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (found,) = admin.describe_configs([resource]).values()
    entry = found.result(PATIENCE_SECONDS).get(THROTTLE)
    value: str | None = None if entry is None else entry.value
    return value


def move_slowly(broker: Broker, topic: str) -> None:
    alter(broker, ResourceType.BROKER, "1", THROTTLE, "1")
    wait_until("the move is throttled", lambda: throttle(broker) == "1")
    begin_move(broker, topic)
    wait_until("it has begun", lambda: facts(broker, topic).future)


def expire(broker: Broker, topic: str) -> None:
    first = facts(broker, topic).segments[0].base
    set_topic(broker, topic, "retention.bytes", "40000")
    wait_until("a segment went", lambda: facts(broker, topic).segments[0].base > first)


def delete_records(broker: Broker, topic: str) -> None:
    admin_request(broker, "delete_records", [TopicPartition(topic, 0, 5)])


def no_compaction(broker: Broker, topic: str) -> None:
    set_topic(broker, topic, "cleanup.policy", "delete")


def other_sizes(broker: Broker, topic: str) -> None:
    set_topic(broker, topic, "index.interval.bytes", "4096")


def own_cleaner(broker: Broker, topic: str) -> None:
    alter(broker, ResourceType.TOPIC, topic, "min.cleanable.dirty.ratio", "0")
    wait_until("the cleaner has cleaned it", lambda: (cleaner_checkpoint(broker, topic) or 0) > 0)
    alter(broker, ResourceType.TOPIC, topic, "min.cleanable.dirty.ratio", "1")


# -- the expected results ----------------------------------------------------------------------------------------------


def is_deleted(rounds: Rounds, topic: str) -> None:
    """The directory disappears with its staged files; a new topic of the same name is cleaned as usual."""
    assert rounds.results[-1].outcome == "refused"
    assert rounds.swaps == []
    broker = rounds.broker
    wait_until("no staged files are left", lambda: not [p for d in broker.log_dirs for p in d.glob(f"{topic}-0*")])
    create_topics(broker, [topic])
    write(broker, topic)
    assert rounds.clean(Name(topic, 0))[0].outcome == "cleaned"


def wait_until_left(broker: Broker, topic: str) -> None:
    """Wait until the partition's old directory is deleted, with its staged files."""
    wait_until("the old directory is deleted", lambda: not [p for d in broker.log_dirs for p in d.glob(f"{topic}-0.*")])


def is_moved(rounds: Rounds, topic: str) -> None:
    """The old directory stays unchanged.

    The new one is cleaned in this cleaning if it is read later, or in the next.
    """
    old, *new = rounds.results
    assert old.outcome == "refused", old.reason
    assert len(rounds.swaps) == len(new)
    wait_until_left(rounds.broker, topic)
    (cleaned,) = new or rounds.clean(Name(topic, 0))
    assert cleaned.outcome == "cleaned", cleaned.reason
    assert cleaned.log_dir != old.log_dir


def is_on_its_way(rounds: Rounds, topic: str) -> None:
    """No swap happens while two directories have the partition (A-13)."""
    broker = rounds.broker
    assert rounds.results[-1].outcome == "skipped", rounds.results[-1].reason
    assert rounds.swaps == []
    alter(broker, ResourceType.BROKER, "1", THROTTLE, None)
    wait_until("the move has ended", lambda: not facts(broker, topic).future)
    wait_until_left(broker, topic)
    assert rounds.clean(Name(topic, 0))[0].outcome == "cleaned"


def is_planned_again(rounds: Rounds, _topic: str) -> None:
    """Missing preconditions are refused, or noticed by cleanerd itself (D-06), and the rest is cleaned."""
    assert rounds.results[-1].outcome in {"cleaned", "unchanged"}, rounds.results[-1].reason
    assert set(rounds.refused) <= BUSY


def is_cleaned_by_either(rounds: Rounds, topic: str) -> None:
    """The same, unless the broker's own cleaner has left no work."""
    if "nothing to clean" not in rounds.results[-1].reason:
        is_planned_again(rounds, topic)


def is_refused_by_log_start(rounds: Rounds, _topic: str) -> None:
    """U-2: the plan of the non-default strategy is refused as log_start, and made again for the remaining log."""
    assert (rounds.results[-1].outcome, rounds.refused_for_good) == ("cleaned", ["log_start"])


def is_cleaned(rounds: Rounds, _topic: str) -> None:
    """Kafka's own cleaner cleans the log as well."""
    assert (rounds.results[-1].outcome, rounds.refused_for_good) == ("cleaned", [])


def is_not_compacted(rounds: Rounds, _topic: str) -> None:
    """No longer eligible by the settings that the broker uses at that time."""
    assert rounds.results[-1].outcome == "refused"
    assert "cleanup.policy is delete, not compact" in rounds.results[-1].reason
    assert rounds.swaps == []


BOTH: Final = (("cleanup.policy", "compact,delete"),)
EVENTS: Final = {
    "topic-deleted": Event(delete, is_deleted),
    "log-dir-moved": Event(move, is_moved),
    "log-dir-moving": Event(move_slowly, is_on_its_way),
    "retention": Event(expire, is_planned_again, BOTH),
    "records-deleted-versioned": Event(
        delete_records, is_refused_by_log_start, (*BOTH, ("max.compaction.lag.ms", NO_LAG)), versioned=True
    ),
    "records-deleted": Event(delete_records, is_cleaned, BOTH),
    "policy-changed": Event(no_compaction, is_not_compacted),
    "index-interval-changed": Event(other_sizes, is_cleaned),
    "own-cleaner": Event(own_cleaner, is_cleaned_by_either),
}
# `make test` runs each event at one moment, and each moment with several events.
FAST: Final = {event: MOMENTS[number % 4] for number, event in enumerate(reversed(EVENTS))}
CASES = [
    pytest.param(event, moment, id=f"{event}-{moment}", marks=[] if FAST[event] == moment else [pytest.mark.long])
    for event in EVENTS
    for moment in MOMENTS
]


@pytest.mark.parametrize(("event", "moment"), CASES)
def test_meanwhile(rounds: Rounds, monkeypatch: pytest.MonkeyPatch, event: str, moment: str) -> None:
    """D-06, U-2, A-13: the swap is refused or harmless; the log is never wrong, and no client loses a record."""
    broker, what = rounds.broker, EVENTS[event]
    topic = f"{event}-{moment}"
    create_topics(broker, [topic], **dict(what.config))
    if what.versioned:
        rounds.assignments = (
            f"topics.{topic}.compaction.strategy=header",
            f"topics.{topic}.compaction.strategy.header=version",
        )
    latest = write(broker, topic)
    happened = []
    happens_once(monkeypatch, rounds, moment, lambda: happened.append(what.happen(broker, topic)))
    rounds.clean(Name(topic, 0))
    assert happened, rounds.results[-1]
    what.check(rounds, topic)
    if event != "topic-deleted":
        assert read(broker, topic) == latest
    wait_until("replaced segments are deleted", lambda: not names_ending(broker.log_dirs, ".deleted"))
    check_broker(broker)


def test_the_brokers_own_cleaner_runs_too(broker_43: StartBroker, tmp_path: Path) -> None:
    """Both clean the same logs, some requests are refused, no client loses a record."""
    broker = broker_43(jvm_args=with_agent())
    rounds = Rounds(broker, tmp_path / "state")
    rounds.note_swaps()
    create_topics(broker, [w.topic for w in WRITINGS], min_cleanable_dirty_ratio="0.01", segment_bytes=10_000)
    load = Load(broker)
    deadline = time.monotonic() + 12
    with load:
        while time.monotonic() < deadline and not load.ledger.problems:
            rounds.clean()
    load.check()
    assert rounds.swaps, "U-26"
    checkpoints = read_checkpoint(broker.log_dirs[0] / "cleaner-offset-checkpoint")
    assert all(f"{writing.topic}-0" in checkpoints for writing in WRITINGS), "U-26: the broker's cleaner cleaned"
    assert {result.outcome for result in rounds.results} <= {"cleaned", "unchanged", "skipped", "refused"}, [
        result.reason for result in rounds.results if result.outcome == "quarantined"
    ]
    check_broker(broker)


def test_the_brokers_own_cleaner_is_slow(broker_43: StartBroker, tmp_path: Path, monkeypatch: Any) -> None:
    """LT-7, A-16: throttled, it holds the partition for most of a minute; cleanerd soon answers busy.

    A pause would wait for it without limit.
    """
    broker = broker_43(jvm_args=with_agent(), properties={"log.cleaner.io.max.bytes.per.second": "5000"})
    rounds = Rounds(broker, tmp_path / "state")
    rounds.note_swaps()
    create_topics(broker, ["slow"])
    # Kafka's throttle sleeps only after 300 ms of work, and then for the whole excess.
    latest = write(broker, "slow", 90_000)

    def begin() -> None:
        alter(broker, ResourceType.TOPIC, "slow", "min.cleanable.dirty.ratio", "0")
        # On a slow disk it already sleeps while it reads, on a fast one only while it writes: both mean in progress.
        wait_until("the broker's cleaner is running", lambda: facts(broker, "slow").cleaning == "in_progress")

    happens_once(monkeypatch, rounds, "swap", begin)
    (result,) = rounds.clean(Name("slow", 0))
    assert facts(broker, "slow").cleaning == "in_progress", "U-26, and the answer did not wait for it"
    assert (result.outcome, rounds.swaps) == ("skipped", []), result.reason
    assert {*rounds.refused} <= {"busy", "source_changed", "evidence_changed"}, result.reason
    with AgentClient.connect(broker.log_dirs[0] / SOCKET) as client, pytest.raises(AgentRefusalError) as refused:
        client.call("pause", topic="slow", partition=0)
    assert refused.value.code == "busy"
    assert facts(broker, "slow").cleaning == "in_progress", "U-26, and nor did this one"
    assert info(broker).pauses == []
    assert read(broker, "slow") == latest
