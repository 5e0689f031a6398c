"""Two ways for ``plan`` to look at a log directory: by what lies on the disk, or by what a running broker says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from cleanerd.apply.live_log import read_live
from cleanerd.cleaner.survey import Survey, Wishes, survey, survey_log
from cleanerd.errors import CleanerdError
from cleanerd.scope.targets import Target, compacted_partitions, live_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cleanerd.apply.live_broker import LiveBroker
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.scope.broker_facts import BrokerFacts


class Look(Protocol):
    """What a plan needs."""

    def targets(self, wanted: Sequence[TopicPartition]) -> list[Target]:
        """The partitions to look at: the ``wanted``, or all that are compacted."""

    def survey(self, target: Target) -> Survey:
        """One of them; raises CleanerdError when it cannot be looked at."""


@dataclass(frozen=True, slots=True)
class DiskLook:
    """By files alone."""

    facts: BrokerFacts
    log_dir: LogDir
    store: StateStore
    wishes: Wishes

    def targets(self, wanted: Sequence[TopicPartition]) -> list[Target]:
        """By the metadata log and settings."""
        return compacted_partitions(self.facts, self.log_dir, wanted)

    def survey(self, target: Target) -> Survey:
        """By checkpoint files."""
        return survey(self.log_dir, target.name, target.require_config(), self.store, self.wishes)


@dataclass(frozen=True, slots=True)
class LiveLook:
    """As ``clean --live`` would see it (U-23)."""

    broker: LiveBroker
    facts: BrokerFacts
    log_dir: LogDir
    store: StateStore
    wishes: Wishes

    def targets(self, wanted: Sequence[TopicPartition]) -> list[Target]:
        """By what the broker goes by."""
        return [self._target(name) for name in live_names(self.broker, self.log_dir, wanted)]

    def survey(self, target: Target) -> Survey:
        """By the broker's own offsets."""
        config = target.require_config()
        log_dir, log = read_live(self.log_dir, target.name, self.broker.log(target.name))
        return survey_log(log_dir, log, config, self.store, replace(self.wishes, unclean=True))

    def _target(self, name: TopicPartition) -> Target:
        try:
            found = self.broker.log(name)
            config = self.facts.topic_config(name.topic, effective=found.settings, segment_bytes=found.segment_size)
        except CleanerdError as error:
            return Target(name, None, error)
        return Target(name, config, None)
