"""The file system's word that something happened: inotify on log directories and partition directories.

Only a hint that makes the next look come sooner. Nothing depends on it: the service looks at everything every
``log.cleaner.backoff.ms`` anyway, and where watches cannot be had that is all there is.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Final

import structlog
from inotify_simple import INotify, flags

from cleanerd.broker.agent_transport import SOCKET
from cleanerd.broker.lock_file import LOCK_FILE
from cleanerd.format.names import SEGMENT_SUFFIX, TopicPartition, parse_topic_partition_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from inotify_simple import Event

_log = structlog.get_logger()

_MASK: Final = flags.CREATE | flags.DELETE | flags.MOVED_FROM | flags.MOVED_TO | flags.ONLYDIR | flags.DONT_FOLLOW
_FULL: Final = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENOMEM})

_REST_SECONDS: Final = 0.1
"""A swap makes some dozens of events one after the other: they are read together, and most wait for no look."""


class Watcher:
    """Watches directories and says which partition changed; None: the log directory itself, or nobody knows what."""

    def __init__(self, changed: Callable[[Path, TopicPartition | None], None]) -> None:
        self._changed = changed
        self._inotify: INotify | None = None
        # By path as text: there are thousands, and what Path does for each costs more than the watch.
        self._watches: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self._partitions: dict[str, tuple[Path, TopicPartition]] = {}
        self._log_dirs: dict[str, Path] = {}
        self.warning = ""
        self.lost = False
        """Whether something that is to be watched is not: it went away, and may be there again."""

    async def run(self) -> None:
        """Until cancelled. Returns at once where there is no inotify."""
        try:
            self._inotify = INotify()
        except OSError as error:
            self._give_up(error)
            return
        with self._inotify as events:
            while True:
                await _is_readable(events.fileno())
                for event in events.read(timeout=0):
                    self._take(event)
                await asyncio.sleep(_REST_SECONDS)

    def follow(self, log_dirs: Collection[Path], partitions: Iterable[tuple[Path, TopicPartition]]) -> None:
        """Watch these log directories, and these partitions in them, and no others."""
        if self._inotify is None or self.warning:
            return
        self._partitions = {f"{log_dir}/{name}": (log_dir, name) for log_dir, name in partitions}
        self._log_dirs = {str(path): path for path in log_dirs}
        wanted = self._log_dirs.keys() | self._partitions.keys()
        self.lost = False
        for path in self._watches.keys() - wanted:
            self._forget(path)
        for path in wanted - self._watches.keys():
            try:
                watch = self._inotify.add_watch(path, _MASK)
            except OSError as error:
                if error.errno in _FULL:
                    self._give_up(error)
                    return
                self.lost = True  # it went away: the next look tells
            else:
                self._watches[path], self._paths[watch] = watch, path

    def _take(self, event: Event) -> None:
        if event.mask & flags.Q_OVERFLOW:
            for each in {log_dir for log_dir, _ in self._partitions.values()}:
                self._changed(each, None)
            return
        path = self._paths.get(event.wd)
        if path is None:
            return  # told before it was followed no longer
        if event.mask & flags.IGNORED:
            del self._paths[event.wd]
            if self._watches.get(path) == event.wd:
                del self._watches[path]
                self.lost = True
        elif path in self._partitions:
            # Indexes and snapshots come with a segment; what is staged is ours.
            if SEGMENT_SUFFIX in event.name:
                self._changed(*self._partitions[path])
        elif event.name in {LOCK_FILE, SOCKET} or parse_topic_partition_dir(event.name) is not None:
            self._changed(self._log_dirs[path], None)

    def _forget(self, path: str) -> None:
        watch = self._watches.pop(path)
        self._paths.pop(watch, None)
        if self._inotify is not None:
            try:
                self._inotify.rm_watch(watch)
            except OSError:
                return  # the directory is gone, and the watch with it

    def _give_up(self, error: OSError) -> None:
        self.warning = (
            f"inotify: {error.strerror}: changes are noticed every log.cleaner.backoff.ms only (raise "
            "fs.inotify.max_user_watches or max_user_instances)"
        )
        _log.warning("not watching", reason=self.warning)


async def _is_readable(descriptor: int) -> None:
    """Wait until something can be read."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
