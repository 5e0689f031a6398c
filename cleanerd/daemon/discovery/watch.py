"""Watches log directories and partition directories with inotify.

An event is a hint that makes the next scan come sooner. Nothing depends on it: the service scans everything every
``log.cleaner.backoff.ms``, also without watches.
"""

from __future__ import annotations

import asyncio
import errno
import math
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeAlias

import structlog
from inotify_simple import Event, INotify, flags

from cleanerd.broker.agent_transport import SOCKET
from cleanerd.broker.lock_file import LOCK_FILE
from cleanerd.daemon.log_events import LogEvent
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, parse_topic_partition_dir

_log = structlog.get_logger()

_IN_PARTITION: Final = (
    flags.CREATE | flags.DELETE | flags.MOVED_TO | flags.MOVE_SELF | flags.ONLYDIR | flags.DONT_FOLLOW
)
"""A swap renames each file several times: of the two names of a rename the new one is enough."""
_IN_LOG_DIR: Final = flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO | flags.MOVE_SELF | flags.ONLYDIR
_FULL: Final = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENOMEM})

_Place: TypeAlias = tuple[str, TopicPartition | None]
"""A watched directory: a log directory and a partition in it; None: the log directory itself."""

PAUSE_SECONDS: Final = 0.1
"""A swap causes some dozens of events: they are read together, and most need no scan."""

RETRY_SECONDS: Final = 600.0
"""Interval of retries after a system limit was reached: the operator may have raised it."""


class Watcher:
    """Watches directories and reports which partition changed; None: the log directory itself, or unknown."""

    def __init__(
        self,
        changed: Callable[[Path, TopicPartition | None], None],
        *,
        rest_seconds: float = PAUSE_SECONDS,
        again_seconds: float = RETRY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        make: Callable[[], INotify] = INotify,
    ) -> None:
        """``again_seconds``: when to try again after a system limit. ``make``: raises OSError."""
        self._changed = changed
        self._rest_seconds = rest_seconds
        self._again_seconds = again_seconds
        self._clock = clock
        self._make = make
        self._inotify: INotify | None = None
        self._watches: dict[_Place, int] = {}
        self._places: dict[int, _Place] = {}
        self._log_dirs: dict[str, Path] = {}
        self.warning = ""
        self._lost = self._unsure = False
        self._again_at = math.inf

    @property
    def has_lost_watches(self) -> bool:
        """Whether a watch is missing: its directory may exist again, or a limit may be raised."""
        return self._lost or self._clock() >= self._again_at

    async def run(self) -> None:
        """Report changes until cancelled; without inotify, as soon as it is available."""
        while True:
            try:
                self._inotify = self._make()
                break
            except OSError as error:
                self._disable(error)
                await asyncio.sleep(self._again_seconds)
        self._lost = True  # nothing is watched yet
        with self._inotify as events:
            while True:
                await _is_readable(events.fileno())
                for event in events.read(timeout=0):
                    self._handle_event(event)
                await asyncio.sleep(self._rest_seconds)

    def follow(self, log_dirs: Collection[Path], partitions: Collection[tuple[str, TopicPartition]]) -> None:
        """Watch exactly these log directories, and these partitions with the text of their log directory."""
        if self._inotify is None or (self.warning and self._clock() < self._again_at):
            return
        self._log_dirs = {str(path): path for path in log_dirs}
        wanted: set[_Place] = {*partitions, *((path, None) for path in self._log_dirs)}
        for place in self._watches.keys() - wanted:
            self._forget(place)
        missing = wanted if self._unsure else wanted - self._watches.keys()
        self.warning, self._again_at = "", math.inf
        self._lost = False
        for place in missing:
            try:
                self._add(self._inotify, place)
            except OSError as error:
                if error.errno in _FULL:
                    self._disable(error)
                    return
                self._lost = True  # it disappeared: the next scan reports it
        self._unsure = False

    def _add(self, inotify: INotify, place: _Place) -> None:
        """Add a watch; does nothing for an existing one. Raises OSError."""
        path, name = place
        # The operator may name a link; a partition is never a link.
        directory, kinds = (path, _IN_LOG_DIR) if name is None else (f"{path}/{name}", _IN_PARTITION)
        watch = inotify.add_watch(directory, kinds)
        if self._watches.get(place) != watch:
            if place in self._watches:
                self._forget(place)
            self._watches[place], self._places[watch] = watch, place

    def _handle_event(self, event: Event) -> None:
        if event.mask & flags.Q_OVERFLOW:
            # The removal of a directory, with its watch, may be among the dropped events.
            self._lost = self._unsure = True
            for each in self._log_dirs.values():
                self._changed(each, None)
            return
        place = self._places.get(event.wd)
        if place is None:
            return  # an event from before the watch was removed
        path, name = place
        if event.mask & flags.IGNORED:
            del self._places[event.wd]
            if self._watches.get(place) == event.wd:
                del self._watches[place]
                self._lost = True
        elif event.mask & flags.MOVE_SELF:
            self._moved(place)
        elif name is not None:
            # Indexes and snapshots come with a segment; staged files are cleanerd's own.
            if SEGMENT_SUFFIX in event.name:
                self._changed(self._log_dirs[path], name)
        elif event.name in {LOCK_FILE, SOCKET} or parse_topic_partition_dir(event.name) is not None:
            self._changed(self._log_dirs[path], None)

    def _moved(self, place: _Place) -> None:
        """The directory was renamed because its topic is deleted. Another one may have this name by now."""
        self._forget(place)
        self._lost = True
        path, name = place
        if name is None:
            for each in [each for each in self._watches if each[0] == path]:
                self._forget(each)
            self._changed(self._log_dirs[path], None)

    def _forget(self, place: _Place) -> None:
        watch = self._watches.pop(place)
        self._places.pop(watch, None)
        if self._inotify is not None:
            try:
                self._inotify.rm_watch(watch)
            except OSError:
                return  # the directory was deleted, and the watch with it

    def _disable(self, error: OSError) -> None:
        self.warning = (
            f"inotify: {error.strerror}: changes are noticed every log.cleaner.backoff.ms only (raise "
            "fs.inotify.max_user_watches or max_user_instances; it is tried again every ten minutes)"
        )
        self._again_at = self._clock() + self._again_seconds
        _log.warning(LogEvent.WATCH_UNAVAILABLE, reason=self.warning)


async def _is_readable(descriptor: int) -> None:
    """Wait until the descriptor is readable."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
