"""Three ways to look at a log directory's partitions: by the disk, beside a broker, by the broker's word."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.apply.live_log import read_live
from cleanerd.apply.mode import LOOK
from cleanerd.cleaner.survey import Survey, Wishes, survey, survey_log
from cleanerd.errors import AgentUnavailableError, CleanerdError, ConfigError, RefusedError
from cleanerd.log.partition import read_partition
from cleanerd.log.topic_config import NEVER_CLEANED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cleanerd.apply.agent_facts import LogFacts
    from cleanerd.apply.live_broker import LiveBroker
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.log_dir import LogDir
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.scope.broker_facts import BrokerFacts


class Way(ABC):
    """How partitions are looked at: what ``kind`` of look it is, and which there are."""

    kind = ""

    def __init__(self, store: StateStore, log_dir: LogDir, facts: BrokerFacts) -> None:
        self.store = store
        self.log_dir = log_dir
        self.facts = facts

    @abstractmethod
    def targets(self) -> dict[TopicPartition, TopicConfig | CleanerdError | None]:
        """The compacted partitions, with what is known of their configuration before they are looked at."""

    @abstractmethod
    def survey(
        self, name: TopicPartition, config: TopicConfig | CleanerdError | None, now_ms: int
    ) -> tuple[Survey, LogDir]:
        """One of them; raises CleanerdError."""

    def settled(self, name: TopicPartition) -> bool:  # noqa: ARG002
        """Whether a second look is not needed to be sure."""
        return True

    def active(self, name: TopicPartition) -> tuple[int, int] | None:  # noqa: ARG002
        """Where the log ended when it was surveyed; None where nobody will ask."""
        return None


class ByDisk(Way):
    """A broker that is down left everything on the disk."""

    kind = "disk"

    def targets(self) -> dict[TopicPartition, TopicConfig | CleanerdError | None]:
        """By the metadata log and settings."""
        by_topic: dict[str, TopicConfig | CleanerdError] = {}
        found: dict[TopicPartition, TopicConfig | CleanerdError | None] = {}
        for name in self.log_dir.partitions:
            if name.topic in NEVER_CLEANED:
                continue
            if name.topic not in by_topic:
                by_topic[name.topic] = self._config(name.topic)
            config = by_topic[name.topic]
            if isinstance(config, CleanerdError) or config.is_compacted:
                found[name] = config
        return found

    def survey(
        self, name: TopicPartition, config: TopicConfig | CleanerdError | None, now_ms: int
    ) -> tuple[Survey, LogDir]:
        """By checkpoint files."""
        if isinstance(config, CleanerdError):
            raise config
        if config is None:
            raise ConfigError("has no configuration", where=str(name))
        log_dir = self.reading(name)
        found = survey(log_dir, name, config, self.store, Wishes(now_ms, unclean=True))
        self.facts.require_same_topic(name, found.log.topic_id)
        return found, log_dir

    def reading(self, name: TopicPartition) -> LogDir:  # noqa: ARG002
        """The checkpoints that count."""
        return self.log_dir

    def _config(self, topic: str) -> TopicConfig | CleanerdError:
        try:
            return self.facts.topic_config(topic)
        except CleanerdError as error:
            return error


class BesideBroker(ByDisk):
    """A broker writes, and nobody asks it: the lower of two readings of its checkpoints counts (S-03)."""

    kind = "beside"

    def __init__(
        self,
        store: StateStore,
        log_dir: LogDir,
        facts: BrokerFacts,
        earlier: LogDir | None,
        ends: Mapping[TopicPartition, tuple[int, int] | None],
    ) -> None:
        super().__init__(store, log_dir, facts)
        self._earlier = earlier
        self._before = ends
        self._now: dict[TopicPartition, tuple[int, int]] = {}

    def reading(self, name: TopicPartition) -> LogDir:
        """The lower of two, 0 while there are no two or the log became shorter."""
        active = read_partition(self.log_dir, name).active
        self._now[name] = (active.base, active.size_bytes)
        before = self._before.get(name)
        sure = self._earlier is not None and before is not None and before <= self._now[name]

        def lower(early: Mapping[TopicPartition, int], late: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
            return {name: min(early.get(name, 0), late.get(name, 0))} if sure else {name: 0}

        earlier = self._earlier or self.log_dir
        return replace(
            self.log_dir,
            high_watermarks=lower(earlier.high_watermarks, self.log_dir.high_watermarks),
            recovery_points=lower(earlier.recovery_points, self.log_dir.recovery_points),
        )

    def settled(self, name: TopicPartition) -> bool:
        """Whether there were two readings."""
        return self._earlier is not None and self._before.get(name) is not None

    def active(self, name: TopicPartition) -> tuple[int, int] | None:
        """Base offset and size of its active segment."""
        return self._now.get(name)


class ByBroker(Way):
    """As the running broker says (U-23)."""

    kind = "live"

    def __init__(self, store: StateStore, log_dir: LogDir, facts: BrokerFacts, broker: LiveBroker) -> None:
        super().__init__(store, log_dir, facts)
        self._broker = broker
        self._silent: AgentUnavailableError | None = None

    def targets(self) -> dict[TopicPartition, TopicConfig | CleanerdError | None]:
        """By the policy that the broker goes by."""
        compacted = {log.name for log in self._broker.logs() if "compact" in log.policy}
        known: dict[str, TopicConfig | None] = {}
        found: dict[TopicPartition, TopicConfig | CleanerdError | None] = {}
        for name in self.log_dir.partitions:
            if name in compacted and name.topic not in NEVER_CLEANED:
                if name.topic not in known:
                    # Only to notice that it changed: what counts is what the broker says of each partition.
                    known[name.topic] = self._hint(name.topic)
                found[name] = known[name.topic]
        return found

    def survey(
        self, name: TopicPartition, config: TopicConfig | CleanerdError | None, now_ms: int
    ) -> tuple[Survey, LogDir]:
        """By the broker's own offsets."""
        told = self._ask(name)
        for reason, holds in {
            "it is being moved to another log directory": told.future,
            "it keeps segments in remote storage (S-49)": told.remote,
            "it is being deleted": told.deleted,
        }.items():
            if holds:
                raise RefusedError(reason, where=str(name))
        config = self.facts.topic_config(name.topic, effective=told.settings, segment_bytes=told.segment_size)
        if not config.is_compacted:
            raise RefusedError("cleanup.policy is not compact", where=str(name))
        log_dir, log = read_live(self.log_dir, name, told)
        return survey_log(log_dir, log, config, self.store, Wishes(now_ms, unclean=True)), log_dir

    def _ask(self, name: TopicPartition) -> LogFacts:
        """Raises AgentUnavailableError at once for everyone after the first that was waited for in vain."""
        if self._silent is not None:
            raise self._silent
        started = time.monotonic()
        try:
            return self._broker.log(name)
        except AgentUnavailableError as error:
            if time.monotonic() - started >= LOOK.answer_seconds:
                self._silent = error
            raise

    def _hint(self, topic: str) -> TopicConfig | None:
        try:
            return self.facts.topic_config(topic)
        except CleanerdError:
            return None
