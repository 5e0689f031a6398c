"""Which log directories answer: asked something small, each in a thread of its own, before anybody reads in it.

A look at one directory reads in the others of its broker too: for the metadata log, for an agent's socket, for replicas
that are being moved. So without this a disk that hangs would hold up the looks at all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path


class AgentProbe:
    """``came_back`` is called with a directory that was silent and answers now.

    ``limits``: `probe_seconds`, `fresh_seconds`. ``probe``: asks a directory something small, in a thread of its own.
    """

    def __init__(
        self,
        came_back: Callable[[Path], None],
        limits: DaemonLimits = DAEMON_LIMITS,
        *,
        probe: Callable[[Path], None] | None = None,
    ) -> None:
        self._came_back = came_back
        self._limits = limits
        self._probe = probe or _touch
        self._threads: dict[Path, WorkerPool] = {}
        self._asked: dict[Path, asyncio.Future[None]] = {}
        self._asked_at: dict[Path, float] = {}
        self._answered_at: dict[Path, float] = {}
        self._silent: set[Path] = set()

    async def silent(self, paths: Collection[Path], seconds: float | None = None) -> frozenset[Path]:
        """Those that do not answer; who was silent before is not waited for. One alone is not asked: its look tells.

        ``seconds``: how long they are waited for, ``probe_seconds`` at most; who has not answered so soon is `pending`.
        """
        if len(paths) > 1:
            since = time.monotonic() - self._limits.fresh_seconds
            due = [path for path in paths if self._answered_at.get(path, -math.inf) < since]
            asked = {path: self._asked.get(path) or self._start_probe(path) for path in due}
            waiting = [each for path, each in asked.items() if path not in self._silent]
            if waiting:
                most = self._limits.probe_seconds
                await asyncio.wait(waiting, timeout=most if seconds is None else min(seconds, most))
            for path, answer in asked.items():
                self._note(path, answer)
        return frozenset(self._silent.intersection(paths))

    def pending(self, paths: Collection[Path]) -> frozenset[Path]:
        """Those that were asked, and have not answered yet."""
        return frozenset(path for path in paths if path in self._asked)

    def forget(self, path: Path) -> None:
        """It is nobody's any more."""
        self._asked.pop(path, None)
        self._asked_at.pop(path, None)
        self._answered_at.pop(path, None)
        self._silent.discard(path)
        if path in self._threads:
            self._threads.pop(path).close()

    def close(self) -> None:
        """Ask nothing more; a thread that hangs is not waited for."""
        for path in tuple(self._threads):
            self.forget(path)

    def _start_probe(self, path: Path) -> asyncio.Future[None]:
        if path not in self._threads:
            self._threads[path] = WorkerPool(1, f"cleanerd-probe-{path.name}")
        self._asked_at[path] = time.monotonic()
        self._asked[path] = self._threads[path].submit(partial(self._probe, path))
        return self._asked[path]

    def _note(self, path: Path, answer: asyncio.Future[None]) -> None:
        if self._asked.get(path) is not answer:
            return  # it was given up meanwhile, or somebody else who waited has noted it
        if answer.done():
            del self._asked[path]
            if answer.exception() is None:  # else no thread could be started: the look will tell of that too
                self._answered_at[path] = time.monotonic()
        elif path not in self._silent and time.monotonic() - self._asked_at[path] >= self._limits.probe_seconds:
            self._silent.add(path)
            answer.add_done_callback(partial(self._answered, path))

    def _answered(self, path: Path, answer: asyncio.Future[None]) -> None:
        if self._asked.get(path) is answer:
            del self._asked[path]
            self._silent.discard(path)
            self._came_back(path)


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):  # the look will say what is wrong with it
        os.statvfs(path)
        os.listdir(path)
