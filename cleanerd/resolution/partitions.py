"""The partitions of a log directory, with the facts for scans and cleanings.

* :class:`OfflinePartitions`: no broker runs on the directory, and its files decide;
* :class:`BesideBrokerPartitions`: a broker runs; the lower of two readings of its checkpoints is used (S-03);
* :class:`LivePartitions`: the running broker's report decides (U-23).

Reasons against cleaning a compacted partition are refused here, with the same message for all.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from cleanerd.broker.live_log import read_live
from cleanerd.broker.partition_snapshot import PartitionSnapshot
from cleanerd.config.topic_config import NEVER_CLEANED, TopicConfig
from cleanerd.errors import AgentUnavailableError, CleanerdError, RefusedError
from cleanerd.resolution.broker_facts import METADATA_AGE_MS, BrokerFacts, being_moved
from cleanerd.resolution.selection import EVERYTHING, PartitionSelection
from cleanerd.resolution.targets import TargetPartition, require_compacted, topic_id_of
from cleanerd.segments.partition import read_partition

if TYPE_CHECKING:
    from cleanerd.broker.agent_facts import LogFacts, ReportedConfig
    from cleanerd.broker.live_broker import LiveBroker
    from cleanerd.format.names import TopicPartition
    from cleanerd.resolution.checkpoint_pair import EarlierReading
    from cleanerd.segments.log_dir import LogDir


class Partitions(ABC):
    """The partitions of one log directory. ``facts``: the facts about its broker's configuration."""

    kind: Literal["disk", "beside", "live"]

    def __init__(self, log_dir: LogDir, facts: BrokerFacts) -> None:
        self.log_dir = log_dir
        self.facts = facts

    @property
    def compacted(self) -> frozenset[TopicPartition] | None:
        """The broker's compacted partitions; None: it is not queried.

        Raises:
            AgentUnavailableError, AgentRefusalError: it does not answer.
        """
        return None

    @abstractmethod
    def targets(self, wanted: PartitionSelection = EVERYTHING) -> list[TargetPartition]:
        """The ``wanted`` partitions, or all compacted ones; cheap: no partition is opened.

        Of the partitions that match a pattern only the compacted ones are returned.

        Raises:
            AgentUnavailableError, AgentRefusalError: the broker does not list them.
        """

    @abstractmethod
    def read(self, name: TopicPartition) -> PartitionSnapshot:
        """The current state of one partition.

        Raises:
            NotCompactedError: its topic is not compacted.
            ConfigError: its topic's configuration is wrong or unknown.
            RefusedError: it is being moved or deleted, is tiered, or belongs to an older topic of that name.
            StalePlanError: the broker changed it meanwhile. AgentUnavailableError, AgentRefusalError: the broker does
            not report it. CorruptionError, CleanerdError: it cannot be read.
        """


class OfflinePartitions(Partitions):
    """The partitions of a stopped broker, from the disk."""

    kind: Literal["disk", "beside", "live"] = "disk"

    def __init__(self, log_dir: LogDir, facts: BrokerFacts) -> None:
        super().__init__(log_dir, facts)
        self._configs: dict[str, TopicConfig | CleanerdError] = {}

    def targets(self, wanted: PartitionSelection = EVERYTHING) -> list[TargetPartition]:
        """From the metadata log and settings."""
        found = []
        for name in self.log_dir.partitions:
            if name.topic in NEVER_CLEANED or (wanted and name not in wanted):
                continue
            config = self._config(name.topic)
            if isinstance(config, CleanerdError):
                found.append(TargetPartition(name, None, config))
            elif name in wanted.named or config.is_compacted:
                found.append(TargetPartition(name, config, None))
        return found

    def read(self, name: TopicPartition) -> PartitionSnapshot:
        """From its files and the checkpoint files."""
        reading = self._read(name, self._require_cleanable(name))
        self.facts.require_same_topic(name, reading.log.topic_id)
        return reading

    def admitted(self, wanted: PartitionSelection = EVERYTHING) -> list[TargetPartition]:
        """The targets, with an error for those that are refused whatever their logs contain."""
        return [self._admitted(target.name) for target in self.targets(wanted)]

    def _admitted(self, name: TopicPartition) -> TargetPartition:
        try:
            config = self._require_cleanable(name)
            self.facts.require_same_topic(name, topic_id_of(self.log_dir, name))
        except CleanerdError as error:
            return TargetPartition(name, None, error.without_frames())
        return TargetPartition(name, config, None)

    def _require_cleanable(self, name: TopicPartition) -> TopicConfig:
        config = self._config(name.topic)
        if isinstance(config, CleanerdError):
            raise config.without_frames()  # drop the last caller's frames: a topic may have thousands of partitions
        if not config.policy_known:
            self._require_old_enough(config.topic)
        require_compacted(config)
        self.facts.require_in_place(name)
        return config

    def _require_old_enough(self, topic: str) -> None:
        metadata = self.facts.metadata
        if metadata is not None and metadata.younger is not None and topic in metadata.younger.topics:
            raise RefusedError(
                f"the topic is younger than {METADATA_AGE_MS // 60_000} minutes: beside a running broker its "
                "configuration does not count yet",
                where=topic,
                hint="try again later",
            )

    def _read(self, name: TopicPartition, config: TopicConfig) -> PartitionSnapshot:
        return PartitionSnapshot(self.log_dir, read_partition(self.log_dir, name), config)

    def _config(self, topic: str) -> TopicConfig | CleanerdError:
        if topic not in self._configs:
            try:
                self._configs[topic] = self.facts.topic_config(topic)
            except CleanerdError as error:
                self._configs[topic] = error.without_frames()
        return self._configs[topic]


class BesideBrokerPartitions(OfflinePartitions):
    """A broker runs, but is not queried: the lower of two readings of its checkpoints is used (S-03)."""

    kind = "beside"

    def __init__(self, log_dir: LogDir, facts: BrokerFacts, earlier: EarlierReading) -> None:
        super().__init__(log_dir, facts)
        self._earlier = earlier

    def _read(self, name: TopicPartition, config: TopicConfig) -> PartitionSnapshot:
        # The log's end comes first: whether the log was truncated decides which offsets are used.
        active = read_partition(self.log_dir, name).active
        log_dir = self._earlier.lower_of(self.log_dir, name, (active.base, active.size_bytes))
        log = read_partition(log_dir, name)
        return PartitionSnapshot(log_dir, log, config, running=True, settled=self._earlier.knows(name))


@dataclass(frozen=True, slots=True)
class ResolvedTopics:
    """A topic's configuration, and its inputs: the broker's facts, and the broker's report."""

    facts: BrokerFacts
    reported: ReportedConfig
    config: TopicConfig


class LivePartitions(Partitions):
    """As the running broker reports (U-23); ``passed_over``: topics that are returned only by name (U-11).

    ``resolved``: the last result by topic, for callers that read many partitions. A topic's partitions have the same
    configuration, so it is resolved and stored once. ``known_by_files``: the same for the configurations from the
    files, with the facts that they were made from. ``since``: see :meth:`LiveBroker.compacted`.
    """

    kind = "live"

    def __init__(
        self,
        log_dir: LogDir,
        facts: BrokerFacts,
        broker: LiveBroker,
        passed_over: frozenset[str] = frozenset(),
        resolved: dict[str, ResolvedTopics] | None = None,
        known_by_files: dict[str, tuple[BrokerFacts, TopicConfig | None]] | None = None,
        since: float = math.inf,
    ) -> None:
        super().__init__(log_dir, facts)
        self._since = since
        self._broker = broker
        self._resolved = {} if resolved is None else resolved
        self._known_by_files = {} if known_by_files is None else known_by_files
        self._passed_over = passed_over | NEVER_CLEANED
        self._silent: AgentUnavailableError | None = None

    @cached_property
    def compacted(self) -> frozenset[TopicPartition]:
        return self._broker.compacted(self._since)

    def targets(self, wanted: PartitionSelection = EVERYTHING) -> list[TargetPartition]:
        """From the broker's own policy. The configurations from the files only show changes."""
        meant = wanted.named
        if wanted.names - meant or not wanted:
            usual = {name for name in self.compacted if name.topic not in self._passed_over}
            meant |= usual & wanted.names if wanted else usual
        names = [name for name in self.log_dir.partitions if name in meant]
        known = {topic: self._hint(topic) for topic in {name.topic for name in names}}
        return [TargetPartition(name, known[name.topic], None) for name in names]

    def read(self, name: TopicPartition) -> PartitionSnapshot:
        """With the broker's own offsets."""
        facts = self._fetch(name)
        _refuse_unfit(name, facts)
        config = self._config(name.topic, facts)
        require_compacted(config)
        log_dir, log = read_live(self.log_dir, name, facts, self._broker.patience)
        return PartitionSnapshot(log_dir, log, config, running=True, broker=facts)

    def _config(self, topic: str, facts: LogFacts) -> TopicConfig:
        known = self._resolved.get(topic)
        if known is None or known.facts is not self.facts or known.reported != facts.config:
            config = self.facts.topic_config(topic, facts.config)
            known = self._resolved[topic] = ResolvedTopics(self.facts, facts.config, config)
        return known.config

    def _fetch(self, name: TopicPartition) -> LogFacts:
        """The broker's report. With a single try, wait once: after one timeout nothing else is requested."""
        if self._silent is not None:
            raise self._silent.without_frames()
        started = time.monotonic()
        try:
            return self._broker.log(name)
        except AgentUnavailableError as error:
            patience = self._broker.patience
            if patience.tries == 1 and time.monotonic() - started >= patience.answer_seconds:
                self._silent = error.without_frames()
            raise

    def _hint(self, topic: str) -> TopicConfig | None:
        known = self._known_by_files.get(topic)
        if known is None or known[0] is not self.facts:
            try:
                config = self.facts.topic_config(topic)
            except CleanerdError:
                config = None
            known = self._known_by_files[topic] = self.facts, config
        return known[1]


def _refuse_unfit(name: TopicPartition, facts: LogFacts) -> None:
    """A-13: refuse it, as far as that can be checked before reading.

    Raises:
        RefusedError: the partition is being moved.
    """
    if facts.future:
        raise being_moved(name)
    if facts.remote:
        raise RefusedError("it keeps segments in remote storage", where=str(name))
    if facts.deleted:
        raise RefusedError("it is being deleted", where=str(name))
