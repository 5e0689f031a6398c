"""The header strategy (KIP-280) on the demonstration's brokers; demo/strategies_report.py prints the results.

::

    delegate_and_race   a topic, ``cleanerd delegate``, producers out of order; a LatestState reads what is not cleaned
    clean               ``cleanerd clean``: the highest version of each key
    read_cleaned        a plain consumer on the cleaned directory
    write_late          old versions, long after the cleaning
    let_kafka_clean     Kafka's own cleaner on the copy, no longer kept away: the highest offset of each key
    clean_a_day_later   late writes lose against the clean part; tombstones are past their horizon
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cleanerd.client.broker_topic import BrokerTopic
from cleanerd.client.latest_state import LatestState
from cleanerd.client.rules import TopicRules
from cleanerd_lab.demo.compare import WrongKeys, wrong_keys
from cleanerd_lab.demo.race import (
    LATER,
    SEGMENT_MS,
    THE_RACE,
    RaceFacts,
    RaceResult,
    RaceUpdate,
    facts,
    late_updates,
    updates,
    write,
)
from cleanerd_lab.demo.reading import read_with_confluent
from cleanerd_lab.demo.traffic import create_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd_lab.demo.broker import Broker
    from cleanerd_lab.demo.command import Command
    from cleanerd_lab.demo.kafka_cleaner import KafkaCleanerBroker
    from cleanerd_lab.demo.reading import ConsumedPartition

TOPIC: Final = "accounts"
TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": str(SEGMENT_MS)}
"""Kafka's cleaner is not excluded here: ``cleanerd delegate`` does that."""
STRATEGY: Final = {"compaction.strategy": "header", "compaction.strategy.header": "version"}
CONFIG: Final = f'[topics."{TOPIC}"]\n' + "".join(f'"{key}" = "{value}"\n' for key, value in STRATEGY.items())
DAY_MS: Final = 24 * 3_600_000
"""Kafka's default of ``delete.retention.ms``."""
_HOUR_MS: Final = 3_600_000

NOT_CLEANED: Final = "not cleaned"
BY_KAFKA: Final = "cleaned by Kafka"
BY_CLEANERD: Final = "cleaned by cleanerd"
PLAIN: Final = "plain consumer"


@dataclass(frozen=True, slots=True)
class View:
    """One reader's result for one state of the log, compared with the model."""

    log: str
    reader: str
    records: int
    wrong: WrongKeys


@dataclass(frozen=True, slots=True)
class Delegated:
    """The settings from ``cleanerd delegate``, and the records written then."""

    changes: dict[str, str]
    facts: RaceFacts


@dataclass(frozen=True, slots=True)
class Compared:
    """``as_promised``: cleanerd left exactly the records that LatestState had named before and the model names.

    ``kafka_by_its_rules``: Kafka left every key's last record, so its wrong keys are not due to a broken cleaner.
    """

    views: tuple[View, ...]
    as_promised: bool
    kafka_by_its_rules: bool

    @property
    def good(self) -> bool:
        """Whether all is right: the versions decide for LatestState and cleanerd."""
        by_version = [view for view in self.views if view.log == BY_CLEANERD or view.reader != PLAIN]
        return self.as_promised and self.kafka_by_its_rules and not any(view.wrong.keys for view in by_version)


@dataclass(frozen=True, slots=True)
class DayLater:
    """After late writes, a day later. ``as_expected``: the log has exactly the records of the model.

    ``tombstones_waiting``: those whose key had a late write, so that the log had another record of it.
    """

    late_writes: int
    late_to_deleted: int
    tombstones_before: int
    tombstones_gone: int
    tombstones_waiting: int
    wrong: WrongKeys
    as_expected: bool

    @property
    def good(self) -> bool:
        """Whether all is right."""
        return self.as_expected and self.wrong.keys == 0


class StrategyDemo:
    """One topic on the demonstration's broker, and on the copy for Kafka's cleaner."""

    def __init__(self, broker: Broker, kafka: KafkaCleanerBroker, command: Command, *, records: int, seed: int) -> None:
        self._broker = broker
        self._kafka = kafka
        self._command = command
        self._records = records
        self._seed = seed
        self._rules = TopicRules.of_config(STRATEGY)
        self._raced = RaceResult()
        self._promised: dict[int, tuple[bytes | None, bytes | None]] = {}
        self._views: list[View] = []
        self._as_promised = False
        self._late: dict[int, RaceUpdate] = {}

    def delegate_and_race(self) -> Delegated:
        """Create the topic, delegate it, let producers race, and read it with its strategy.

        Raises:
            BrokerError: the broker refused, or did not acknowledge everything.
            CleanerdError: ``cleanerd delegate`` failed.
        """
        bootstrap = self._broker.bootstrap
        create_topics(bootstrap, [TOPIC], TOPIC_CONFIG)
        outcome = json.loads(self._command.run("delegate", TOPIC).stdout)
        batch = updates(self._records, self._seed)
        self._raced.records.update(write(bootstrap, TOPIC, self._rules, batch, THE_RACE))
        with LatestState(BrokerTopic({"bootstrap.servers": bootstrap}, TOPIC, self._rules)) as state:
            state.update()
            self._promised = {record.offset: (record.key, record.value) for record in state.winners()}
            found = {key: record.value for key, record in state.items()}
        read = read_with_confluent(bootstrap, TOPIC)
        self._views = [
            self._view(NOT_CLEANED, PLAIN, len(read.records), last_values(read)),
            self._view(NOT_CLEANED, "LatestState", len(read.records), found),
        ]
        return Delegated({change["key"]: change["after"] for change in outcome["changes"]}, facts(self._raced))

    def clean(self) -> dict[str, Any]:
        """``cleanerd clean`` on the stopped broker's directory; ``--json``'s entry.

        Raises:
            CleanerdError: it failed.
        """
        # Without --force: the ratio that delegate saved decides, not the one that it set.
        return self._command.clean([TOPIC])[0][TOPIC]

    def read_cleaned(self) -> None:
        """Read all remaining records with a plain consumer.

        Raises:
            BrokerError: it could not be read.
        """
        read = read_with_confluent(self._broker.bootstrap, TOPIC)
        self._views.append(self._view(BY_CLEANERD, PLAIN, len(read.records), last_values(read)))
        winners = set(self._raced.winners().values())
        self._as_promised = read.records == self._promised and set(read.records) == winners

    def write_late(self) -> None:
        """Write old versions for some of the keys.

        Raises:
            BrokerError: the broker did not acknowledge everything.
        """
        late = late_updates(self._raced, self._seed)
        self._late = write(self._broker.bootstrap, TOPIC, self._rules, late, LATER)

    def let_kafka_clean(self) -> Compared:
        """Let Kafka's cleaner clean the topic on the copy, read it, stop that broker, and compare all results.

        Raises:
            BrokerError: it did not complete.
        """
        self._kafka.clean([TOPIC])
        read = read_with_confluent(self._kafka.broker.bootstrap, TOPIC)
        self._kafka.broker.stop()
        by_kafka = self._view(BY_KAFKA, PLAIN, len(read.records), last_values(read))
        last_offsets = {update.key: offset for offset, update in sorted(self._raced.records.items())}
        return Compared(
            views=(*self._views[:2], by_kafka, *self._views[2:]),
            as_promised=self._as_promised,
            kafka_by_its_rules=set(read.records) == set(last_offsets.values()),
        )

    def clean_a_day_later(self) -> DayLater:
        """Clean once more as if it were past the tombstones' horizon, start the broker, read, and stop it.

        Raises:
            BrokerError: the broker did not start or stop, or the topic could not be read.
            CleanerdError: the cleaning failed.
        """
        before = self._raced.expected()
        late_keys = {update.key for update in self._late.values()}
        self._raced.records.update(self._late)
        now_ms = time.time_ns() // 1_000_000 + DAY_MS + _HOUR_MS
        # So few late writes do not make the log dirty enough.
        entry = self._command.clean([TOPIC], "--force", "--now-ms", str(now_ms))[0][TOPIC]
        self._broker.start()
        read = read_with_confluent(self._broker.bootstrap, TOPIC)
        self._broker.stop()
        deleted = {key for key, value in before.items() if value is None}
        gone = deleted - late_keys
        left = {offset for key, offset in self._raced.winners().items() if key not in gone}
        counted = (entry["removed"]["tombstone"], entry["tombstones_waiting"])
        return DayLater(
            late_writes=len(self._late) - 1,
            late_to_deleted=len(deleted & late_keys),
            tombstones_before=len(deleted),
            tombstones_gone=counted[0],
            tombstones_waiting=counted[1],
            wrong=wrong_keys(self._raced.expected(), last_values(read)),
            as_expected=set(read.records) == left and counted == (len(gone), len(deleted & late_keys)),
        )

    def _view(self, log: str, reader: str, records: int, found: Mapping[bytes, bytes | None]) -> View:
        return View(log, reader, records, wrong_keys(self._raced.expected(), found))


def last_values(read: ConsumedPartition) -> dict[bytes, bytes | None]:
    """Each key's last value, as a plain consumer uses it."""
    return {key: value for _, (key, value) in sorted(read.records.items()) if key is not None}
