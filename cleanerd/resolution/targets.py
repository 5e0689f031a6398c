"""The partitions of a log directory, with the configuration of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.config.topic_config import TopicConfig, require_known_policy
from cleanerd.errors import CleanerdError, CorruptionError, NotCompactedError
from cleanerd.format.meta import read_partition_metadata
from cleanerd.fsio.plain_file import read_plain
from cleanerd.segments.partition import PARTITION_METADATA

if TYPE_CHECKING:
    import uuid

    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir


@dataclass(frozen=True, slots=True)
class TargetPartition:
    """A partition with its configuration, or with ``error`` if that is invalid or unknown."""

    name: TopicPartition
    config: TopicConfig | None
    error: CleanerdError | None

    def require_config(self) -> TopicConfig:
        """The configuration.

        Raises:
            CleanerdError: there is none; the message explains it.
        """
        if self.config is None:
            raise self.error or CleanerdError("has no configuration", where=str(self.name))
        return self.config


def topic_id_of(log_dir: LogDir, name: TopicPartition) -> uuid.UUID | None:
    """The topic id in the partition's directory, if any; reading the partition reports damage."""
    path = log_dir.path / str(name) / PARTITION_METADATA
    try:
        return read_partition_metadata(read_plain(path), str(path))
    except (OSError, CorruptionError):
        return None


def require_compacted(config: TopicConfig) -> None:
    """Refuse a topic whose ``cleanup.policy`` lacks ``compact``, or is unknown.

    Raises:
        NotCompactedError: the policy is another one.
        ConfigError: no source states it.
    """
    require_known_policy(config)
    if not config.is_compacted:
        raise NotCompactedError(
            f"cleanup.policy is {','.join(sorted(config.cleanup_policy))}, not compact",
            where=config.topic,
            hint=f"its origin: {config.origins['cleanup.policy']}",
        )
