"""A log directory opened for a command or a Spark driver: one reading of it, and the facts about its broker."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from cleanerd.broker.live_broker import LiveBroker
from cleanerd.broker.lock_file import broker_runs
from cleanerd.broker.mode import SINGLE_TRY, ModeChoice, choose_mode
from cleanerd.config.topic_config import INTERNAL_TOPICS
from cleanerd.resolution.broker_facts import BrokerFacts, broker_facts
from cleanerd.resolution.log_dirs import configured_log_dirs
from cleanerd.resolution.partitions import BesideBrokerPartitions, LivePartitions, OfflinePartitions, Partitions
from cleanerd.segments.log_dir import LogDir, LogDirMemory, read_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.resolution.checkpoint_pair import EarlierReading, FirstReadings
    from cleanerd.state.cleaner_checkpoint import StateStore


@dataclass(frozen=True)
class LogDirSession:
    """One log directory as one reading found it. A later reading makes a new session, with facts of its own.

    ``others``: the other log directories, which may belong to the same broker. ``running``: whether a broker runs on
    the directory. ``earlier``: the first of two readings beside a broker (S-03). ``memory``: what the readings of this
    directory found.
    """

    settings: Settings
    store: StateStore
    log_dir: LogDir
    others: Sequence[Path]
    memory: LogDirMemory
    running: bool
    earlier: EarlierReading | None = None

    @classmethod
    def open(cls, settings: Settings, store: StateStore, path: Path, paths: Sequence[Path]) -> Self:
        """Read the log directory ``path``, one of ``paths``. Raises CleanerdError."""
        memory = LogDirMemory()
        log_dir = read_log_dir(path, memory)
        return cls(settings, store, log_dir, [other for other in paths if other != path], memory, broker_runs(path))

    @property
    def path(self) -> Path:
        return self.log_dir.path

    @cached_property
    def facts(self) -> BrokerFacts:
        """The facts about its broker. Raises CleanerdError."""
        younger = self.earlier is not None
        return broker_facts(self.settings, self.log_dir, self.others, running=self.running, younger=younger)

    def refreshed(self, *, running: bool = False) -> Self:
        """The log directory, read again: under its lock, or beside its ``running`` broker. Raises CleanerdError."""
        return replace(self, log_dir=read_log_dir(self.path, self.memory), running=running)

    def settled(self, notify: Callable[[str], None], first: FirstReadings) -> Self:
        """The directory of a running broker that is not queried, read twice (S-03).

        ``notify`` gets a line before the wait between the readings. ``first``: shared by all log directories, so that
        they wait together.

        Raises:
            CleanerdError: the directory cannot be read.
        """
        earlier, log_dir = first.read_twice(self.path, notify, self.others)
        return replace(self, log_dir=log_dir, running=True, earlier=earlier)

    def choose_mode(self) -> ModeChoice:
        """How the directory can be cleaned now."""
        places = [*self.others, *configured_log_dirs(self.settings)]
        return choose_mode(self.log_dir, places, self.settings.daemon.cleanerd_agent_socket)

    @cached_property
    def on_disk(self) -> OfflinePartitions:
        """The partitions, without a query to the broker. Raises CleanerdError: the facts cannot be read."""
        if self.earlier is not None:
            return BesideBrokerPartitions(self.log_dir, self.facts, self.earlier)
        return OfflinePartitions(self.log_dir, self.facts)

    @contextlib.contextmanager
    def partitions(
        self, choice: ModeChoice, notify: Callable[[str], None], first: FirstReadings
    ) -> Iterator[Partitions]:
        """The partitions, by the mode that ``choice`` found; ``notify`` and ``first`` are as in :meth:`settled`.

        Raises:
            CleanerdError: the broker's configuration cannot be read, or the directory not a second time.
        """
        running = choice.mode == "live"
        if choice.mode == "on-start":
            yield self.settled(notify, first).on_disk
            return
        session = self if self.running == running else replace(self, running=running)
        if not running or choice.socket is None:
            yield session.on_disk
            return
        with LiveBroker(choice.socket, SINGLE_TRY) as broker:
            yield LivePartitions(session.log_dir, session.facts, broker, INTERNAL_TOPICS)
