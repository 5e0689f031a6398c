"""Who looks: a thread for each log directory, so that a disk that hangs holds up nobody but itself.

What a look finds is given to ``merge`` on the event loop. One that does not come back in time is given up for the
moment: its directory counts as one that cannot be read, nothing is begun there, and it is asked nothing more until it
answers; then it is as before.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from cleanerd.daemon.looker import DirLook, DirLooker
from cleanerd.daemon.modes import DirMode
from cleanerd.daemon.workers import WorkerDiedError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from pathlib import Path

    from cleanerd.daemon.looker import World
    from cleanerd.format.names import TopicPartition

ANSWER_SECONDS: Final = 60.0
"""A first look at 10,000 partitions takes a few seconds; a disk that needs longer than this does nobody any good."""

_log = structlog.get_logger()


class Looks:
    """``merge`` gets what was found, ``warn`` what went wrong, ``wake`` is called when somebody answers again."""

    def __init__(self, merge: Callable[[DirLook], None], warn: Callable[[str], None], wake: Callable[[], None]) -> None:
        self._merge = merge
        self._warn = warn
        self._wake = wake
        self._lookers: dict[Path, tuple[DirLooker, WorkerPool]] = {}
        self._late: set[Path] = set()

    def attend(self, log_dirs: Collection[Path]) -> list[Path]:
        """These and no others from now on; returns those that are given up."""
        gone = [path for path in self._lookers if path not in log_dirs]
        for path in gone:
            self._lookers.pop(path)[1].close()
            self._late.discard(path)
        for path in log_dirs:
            if path not in self._lookers:
                self._lookers[path] = DirLooker(path), WorkerPool(1, f"cleanerd-look-{path.name}")
        return gone

    async def look(self, world: World, wanted: Mapping[Path, Collection[TopicPartition] | None]) -> None:
        """At these directories, or these partitions of them; returns when all have answered that do."""
        asked = [path for path in wanted if path in self._lookers and path not in self._late]
        await asyncio.gather(*(self._look(path, world, wanted[path]) for path in asked))

    async def ask(self, path: Path, question: Callable[[DirLooker], Any]) -> Any:
        """Something else that is for the thread of a directory.

        Raises:
            WorkerDiedError: the directory is nobody's any more, or does not answer; or what ``question`` raised.
        """
        if path not in self._lookers or path in self._late:
            raise WorkerDiedError(f"{path} does not answer")
        looker, thread = self._lookers[path]
        return await thread.submit(lambda: question(looker))

    def close(self) -> None:
        """No more looks; who hangs is not waited for."""
        for _, thread in self._lookers.values():
            thread.close()

    async def _look(self, path: Path, world: World, names: Collection[TopicPartition] | None) -> None:
        looker, thread = self._lookers[path]
        found = thread.submit(lambda: looker.look(world, names))
        await asyncio.wait([found], timeout=ANSWER_SECONDS)
        if found.done():
            self._take(looker, found)
        elif self._is_current(looker) and path not in self._late:
            self._late.add(path)
            self._merge(_hanging(path))
            found.add_done_callback(partial(self._came_back, looker))

    def _came_back(self, looker: DirLooker, found: asyncio.Future[DirLook]) -> None:
        if self._is_current(looker):
            self._late.discard(looker.path)
            self._take(looker, found)
            self._wake()

    def _take(self, looker: DirLooker, found: asyncio.Future[DirLook]) -> None:
        try:
            look = found.result()
        except WorkerDiedError as error:
            _log.exception("a look failed", log_dir=str(looker.path))
            self._warn(f"a look at {looker.path} failed: {error}")
            return
        if self._is_current(looker):
            self._merge(look)

    def _is_current(self, looker: DirLooker) -> bool:
        mine: Iterable[DirLooker | WorkerPool] = self._lookers.get(looker.path, ())
        return any(each is looker for each in mine)


def _hanging(path: Path) -> DirLook:
    error = f"{path}: did not answer within {ANSWER_SECONDS:.0f} s: does its disk hang? (see the kernel's log)"
    waits = DirMode("on-start", "the directory cannot be looked at", None)
    return DirLook(path, online=False, error=error, mode=waits, choice=None, facts=None, total_bytes=0, free_bytes=0)
