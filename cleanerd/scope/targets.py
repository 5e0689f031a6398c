"""Which partitions of a log directory are to be looked at, with the configuration of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError, CorruptionError, NotCompactedError
from cleanerd.format.meta import read_partition_metadata
from cleanerd.log.partition import PARTITION_METADATA
from cleanerd.log.topic_config import INTERNAL_TOPICS, NEVER_CLEANED, TopicConfig, require_known_policy

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence

    from cleanerd.apply.live_broker import LiveBroker
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.log_dir import LogDir
    from cleanerd.scope.broker_facts import BrokerFacts


@dataclass(frozen=True, slots=True)
class Target:
    """A partition to look at; ``error`` instead of its configuration when that is wrong or unknown."""

    name: TopicPartition
    config: TopicConfig | None
    error: CleanerdError | None

    def require_config(self) -> TopicConfig:
        """The configuration.

        Raises:
            CleanerdError: there is none; says why.
        """
        if self.config is None:
            raise self.error or CleanerdError("has no configuration", where=str(self.name))
        return self.config


def compacted_partitions(facts: BrokerFacts, log_dir: LogDir, wanted: Sequence[TopicPartition]) -> list[Target]:
    """The partitions of ``log_dir`` to look at: those in ``wanted``, or all that are known to be compacted.

    A wanted partition that is not compacted, or whose policy nobody stated, is a target with that error.
    """
    targets = []
    for name in log_dir.partitions:
        if (wanted and name not in wanted) or name.topic in NEVER_CLEANED:
            continue
        try:
            config = facts.topic_config(name.topic)
            if wanted:
                _require_compacted(config)
            if config.is_compacted:
                facts.require_same_topic(name, _topic_id(log_dir, name))
        except CleanerdError as error:
            targets.append(Target(name, None, error))
            continue
        if config.is_compacted:
            targets.append(Target(name, config, None))
    return targets


def _topic_id(log_dir: LogDir, name: TopicPartition) -> uuid.UUID | None:
    """The topic id that the partition's directory states, if it does; whoever reads the partition tells of damage."""
    path = log_dir.path / str(name) / PARTITION_METADATA
    try:
        return read_partition_metadata(path.read_bytes(), str(path))
    except (OSError, CorruptionError):
        return None


def _require_compacted(config: TopicConfig) -> None:
    require_known_policy(config)
    if not config.is_compacted:
        raise NotCompactedError(
            f"cleanup.policy is {','.join(sorted(config.cleanup_policy))}, not compact",
            where=config.topic,
            hint=f"it comes from: {config.origins['cleanup.policy']}",
        )


def live_names(broker: LiveBroker, log_dir: LogDir, wanted: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Those that are ``wanted``, or all that the broker compacts but for its internal topics (U-11)."""
    if wanted:
        return [name for name in log_dir.partitions if name in wanted]
    passed_over = INTERNAL_TOPICS | NEVER_CLEANED
    compacted = {log.name for log in broker.logs() if "compact" in log.policy and log.topic not in passed_over}
    return [name for name in log_dir.partitions if name in compacted]
