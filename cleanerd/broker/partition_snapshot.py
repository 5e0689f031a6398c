"""A partition that was read once: its log, its configuration, and the offsets to use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions, Survey, survey_log

if TYPE_CHECKING:
    from cleanerd.broker.agent_facts import LogFacts
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.format.names import TopicPartition
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.segments.partition import PartitionLog
    from cleanerd.state.cleaner_checkpoint import StateStore


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One partition, read once by ``resolution/partitions.py``.

    ``log_dir`` has the offsets to use for this partition, which differ from the checkpoint files beside a running
    broker. ``running``: a broker has the log open. ``broker``: that broker's report about the partition, None if it was
    not queried. ``settled``: the offsets are certain without a second reading (S-03).
    """

    log_dir: LogDir
    log: PartitionLog
    config: TopicConfig
    running: bool = False
    broker: LogFacts | None = None
    settled: bool = True

    @property
    def name(self) -> TopicPartition:
        """The partition that was read."""
        return self.log.name

    def survey(self, store: StateStore, options: CleaningOptions) -> Survey:
        """Survey it (C-02 .. C-11).

        A running broker has removed its clean shutdown file, and the end of its log may be torn. So only data below the
        recovery point is used, with or without ``--unclean`` (U-32).

        Raises:
            CorruptionError, CleanerdError: it cannot be read.
            OutOfRangeError: the options are outside of the log.
        """
        options_now = replace(options, unclean=True) if self.running and not options.unclean else options
        return survey_log(self.log_dir, self.log, self.config, store, options_now)
