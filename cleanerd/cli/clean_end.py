"""Up to where a log is clean, for commands that judge a cleaning with their own rules."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from cleanerd.cli.scope import key_rules
from cleanerd.errors import CleanerdError
from cleanerd.segments.cleanable_range import LONG_MAX, log_end_offset
from cleanerd.segments.log_dir import CLEANER_CHECKPOINT, META_PROPERTIES, LogDir, read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.remote import RemotePath
from cleanerd.state.cleaner_checkpoint import CleanerdCheckpoint, StateStore
from cleanerd.state.first_dirty_offset import clean_below, may_be_about
from cleanerd.state.other_places import copied_point
from cleanerd.verify.finding import Findings
from cleanerd.verify.log_dir import Surroundings, read_surroundings
from cleanerd.verify.rules import KAFKAS_RULES, KeyRules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.format.names import TopicPartition
    from cleanerd.spark.logs import Log


class CleanEnds:
    """Up to where logs are clean, by cleanerd's own state and by Kafka's checkpoint (U-10).

    The small files of a log directory are read once per object.
    """

    def __init__(self, settings: Settings) -> None:
        self._store = StateStore(settings.daemon.cleanerd_state_dir, keeps_damaged=True)
        self._surroundings: dict[Path, Surroundings] = {}
        self._log_dirs: dict[Path, LogDir | None] = {}

    def of(self, path: Path, name: TopicPartition, rules: KeyRules) -> int | None:
        """As :meth:`beside`, if the log directory ``path`` was not read yet.

        Raises:
            CleanerdError: a checkpoint of the log directory cannot be read.
        """
        if rules == KAFKAS_RULES and path not in self._surroundings:
            self._surroundings[path] = read_surroundings(path, Findings())
        return self.clean_end(self._surroundings.get(path), path, name, rules)

    def at_most(self, path: Path, name: TopicPartition, rules: KeyRules) -> int | None:
        """As :meth:`of`; if cleanerd's checkpoint no longer fits the log, Kafka's checkpoint or cleanerd's is used.

        This is for comparisons with a copy, which show whether either is wrong. A checkpoint above the end of the log
        is ignored, as in Kafka; then cleanerd's is used.

        Raises:
            CleanerdError: a checkpoint of the log directory cannot be read.
        """
        found = self.of(path, name, rules)
        known = self._stored_checkpoint(path, name)
        if known is None or known[1]:
            return found
        point = known[0].offset
        kafka_offset = self._surroundings[path].of(CLEANER_CHECKPOINT, name) if rules == KAFKAS_RULES else None
        return point if kafka_offset is None or kafka_offset > self._log_end(path, name) else kafka_offset

    def cleaned_before(self, path: Path, copy: Path, name: TopicPartition, rules: KeyRules) -> int:
        """Up to where the log was once clean, by cleanerd's checkpoint and, under Kafka's rules, that of an old copy.

        Raises:
            CleanerdError: a checkpoint of the copy cannot be read.
        """
        known = self._stored_checkpoint(path, name)
        kafka_offset = self.of(copy, name, rules) if rules == KAFKAS_RULES else None
        return max(0 if known is None else known[0].offset, kafka_offset or 0)

    def clean_end(self, around: Surroundings | None, path: Path, name: TopicPartition, rules: KeyRules) -> int | None:
        """Up to where the log ``name`` of the log directory ``path`` is clean; None if that is unknown.

        ``around``: the directory's checkpoints. They are used if Kafka's rules apply.
        """
        kafka_offset = None if around is None or rules != KAFKAS_RULES else around.of(CLEANER_CHECKPOINT, name)
        found = self._stored_checkpoint(path, name)
        # A log that was truncated and has grown again since was not cleaned there: it may have two records of a key.
        return kafka_offset if found is None else clean_below(found[0], kafka_offset, is_valid=found[1])

    def unproven_below(self, path: Path, name: TopicPartition) -> int:
        """The offset below which only another cleaner has cleaned the log ``name``; 0 if none has.

        If only Kafka's checkpoint is known, it is used in full.
        """
        found = self._stored_checkpoint(path, name)
        return (found[0].unproven_below or 0) if found is not None and found[1] else 0

    def _stored_checkpoint(self, path: Path, name: TopicPartition) -> tuple[CleanerdCheckpoint, bool] | None:
        """The stored cleanerd checkpoint of a log of this machine, and whether it fits the log."""
        if isinstance(path, RemotePath) or not (path / str(name)).is_dir():
            return None
        try:
            log_dir = self._log_dir(path)
            if log_dir is None:
                return None
            log = read_partition(log_dir, name)
            state = self._store.load(log_dir, log)
        except CleanerdError:
            return None  # verifying the partition reports its faults
        point = copied_point(self._store, log_dir, log) if state is None else state.cleanerd_checkpoint
        return None if point is None else (point, may_be_about(point, log))

    def _log_end(self, path: Path, name: TopicPartition) -> int:
        """One past the last offset of a log that could be read; of a damaged one, the largest possible offset."""
        log_dir = self._log_dir(path)
        if log_dir is not None:
            with suppress(CleanerdError), SegmentReader.open(str(path / str(name))) as reader:
                return log_end_offset(read_partition(log_dir, name), reader, may_be_torn=True)
        return LONG_MAX

    def _log_dir(self, path: Path) -> LogDir | None:
        if path not in self._log_dirs:
            self._log_dirs[path] = None  # cached, also if it cannot be read
            if (path / META_PROPERTIES).is_file():
                self._log_dirs[path] = read_log_dir(path)
        return self._log_dirs[path]


def clean_end_of_logs(settings: Settings) -> Callable[[Log], int | None]:
    """Up to where a log is clean by :class:`CleanEnds` and the settings' rules; 0: nothing of it by Kafka's."""
    from cleanerd.spark.logs import known_clean_end  # noqa: PLC0415 - needs pyarrow

    ends = CleanEnds(settings)

    def found(log: Log) -> int | None:
        rules = key_rules(settings, log.name.topic)
        end = ends.of(log.log_dir, log.name, rules)
        return known_clean_end(replace(log, rules=rules, clean_end=None)) if end is None else end

    return found
