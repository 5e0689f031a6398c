"""Removes the state of deleted partitions (S-51), except the rules of a topic that still exists (U-6).

A partition that moved to another log directory has no state there until it is cleaned. Until then only the old
directory's file shows by which rules its records were retained.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cleanerd.config.fingerprint import KAFKAS_FINGERPRINT
from cleanerd.errors import CleanerdError
from cleanerd.format.meta import read_partition_metadata
from cleanerd.format.names import TopicPartition
from cleanerd.fsio.safe_open import MAX_FACTS_BYTES, MAX_IDENTITY_BYTES, plain_name, read_whole
from cleanerd.fsio.small_file import read_small_file
from cleanerd.fsio.state_files import DAMAGE, opened, write_state_file
from cleanerd.segments.log_dir import LogDir, incoming_replicas, read_log_dir
from cleanerd.segments.partition import PARTITION_METADATA
from cleanerd.state.cleaner_checkpoint import STATE, PartitionState, StateStore, state_file_name
from cleanerd.state.document import validated
from cleanerd.state.last_settings import LastSettings, RulesInState

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class OtherPlacesOfTopic:
    """Where a topic may still exist: in the broker's other ``log_dirs``, or in the cluster (``topic_id``).

    ``all_seen``: all log directories were read, and the cluster's topics are known; otherwise any topic may exist.
    """

    log_dirs: tuple[Path, ...] = ()
    topic_id: Callable[[str], uuid.UUID | None] = lambda _: None
    all_seen: bool = True


@dataclass(frozen=True, slots=True)
class _NamedState(RulesInState):
    """The fields of a state file that name the partition and its rules."""

    topic: str = ""
    partition: int = -1


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The number of removed files, and of deleted partitions whose rules were kept."""

    removed: int = 0
    kept: int = 0


def delete_gone_state(store: StateStore, log_dir: LogDir, elsewhere: OtherPlacesOfTopic) -> SweepResult:
    """Remove the state of partitions that ``log_dir`` no longer has.

    A partition is gone if its directory does not exist or belongs to a topic with another id (S-51): topic ids are
    never reused. Unreadable files stay. If the topic still exists, a file with other rules than Kafka's is reduced to
    these, and removed once the partition's new log directory has a file with its rules (U-6). A topic without an id
    cannot be distinguished from a later one of the same name, so all its files are removed.
    """
    sweep = _StateSweep(store, elsewhere)
    removed = kept = 0
    place = store.directory(log_dir)
    try:
        with opened(place, store.root) as directory:
            for file in sorted(name for name in os.listdir(directory) if name.endswith(".json")):
                try:
                    data = read_whole(file, dir_fd=directory, max_bytes=MAX_FACTS_BYTES)
                    state = validated(_NamedState, data)
                    name = TopicPartition(plain_name(state.topic), state.partition)
                    if not _is_gone(log_dir.path, name, file):
                        continue
                    if sweep.has_to_stay(name, file, state.fingerprint):
                        kept += 1
                        # The other fields concern a log that does not exist any more.
                        cut = PartitionState(None, None, None, rules=state.fingerprint)
                        rest = STATE.to_bytes(cut, topic=name.topic, partition=name.partition)
                        if data != rest:
                            write_state_file(place / file, rest, store.owner(log_dir), store.root)
                    else:
                        os.unlink(file, dir_fd=directory)
                        removed += 1
                except (OSError, CleanerdError, *DAMAGE):
                    continue
    except OSError:
        pass  # it does not exist yet
    return SweepResult(removed, kept)


class _StateSweep:
    """One sweep's view of the other log directories; each is read once."""

    def __init__(self, store: StateStore, elsewhere: OtherPlacesOfTopic) -> None:
        self._store = store
        self._memory = LastSettings(store.root)
        self._elsewhere = elsewhere
        self._names: dict[Path, str] = {}

    def has_to_stay(self, name: TopicPartition, file: str, rules: str | None) -> bool:
        """Whether the state file of a gone partition is the only source of its ``rules``, a fingerprint."""
        if rules in {None, KAFKAS_FINGERPRINT} or file == state_file_name(name, None):
            return False
        found = False
        for path in self._elsewhere.log_dirs:
            try:
                is_gone = _is_gone(path, name, file)
                if not is_gone and self._is_listed_in(path, file):
                    return False
                found = found or not is_gone or name in incoming_replicas(path)
            except (OSError, CleanerdError):
                found = True  # unknown
        topic_id = self._elsewhere.topic_id(name.topic)
        return found or not self._elsewhere.all_seen or file == state_file_name(name, topic_id)

    def _is_listed_in(self, path: Path, file: str) -> bool:
        if path not in self._names:
            self._names[path] = self._store.directory(read_log_dir(path)).name
        return isinstance(self._memory.of_partition(self._names[path], os.path.splitext(file)[0]), str)


def _is_gone(log_dir: Path, name: TopicPartition, file: str) -> bool:
    """Whether ``log_dir`` no longer has the partition of the state file ``file``."""
    partition = log_dir / str(name)
    try:
        os.stat(partition)  # from Python 3.14 on, Path.exists() hides a disk error
    except FileNotFoundError:
        return True
    metadata = read_small_file(partition / PARTITION_METADATA, max_bytes=MAX_IDENTITY_BYTES)
    if metadata is None:
        return False
    topic_id = read_partition_metadata(metadata, str(partition / PARTITION_METADATA))
    return file not in {state_file_name(name, topic_id), state_file_name(name, None)}
