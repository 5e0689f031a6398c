"""Which log directories answer: a small request to each, in its own thread, before a scan.

A scan of one directory also reads the others of its broker: for the metadata log, the agent's socket, replicas that are
being moved. So without this a disk that hangs would delay all scans.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from cleanerd.daemon.limits import DAEMON_LIMITS, DaemonLimits
from cleanerd.daemon.workers import WorkerPool


class AgentProbe:
    """Probes log directories.

    ``came_back`` is called with a silent directory that answers again. ``limits``: `probe_seconds`, `fresh_seconds`.
    ``probe``: sends a small request to a directory, in its own thread.
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
        self._probes: dict[Path, asyncio.Future[None]] = {}
        self._probed_at: dict[Path, float] = {}
        self._answered_at: dict[Path, float] = {}
        self._silent: set[Path] = set()

    async def silent(self, paths: Collection[Path], seconds: float | None = None) -> frozenset[Path]:
        """The directories that do not answer; does not wait for those that were silent before.

        A single directory is not probed, because its scan shows it. ``seconds``: how long to wait, ``probe_seconds`` at
        most; the others are `pending`.
        """
        if len(paths) > 1:
            since = time.monotonic() - self._limits.fresh_seconds
            due = [path for path in paths if self._answered_at.get(path, -math.inf) < since]
            probed = {path: self._probes.get(path) or self._start_probe(path) for path in due}
            waiting = [each for path, each in probed.items() if path not in self._silent]
            if waiting:
                most = self._limits.probe_seconds
                await asyncio.wait(waiting, timeout=most if seconds is None else min(seconds, most))
            for path, answer in probed.items():
                self._note(path, answer)
        return frozenset(self._silent.intersection(paths))

    def pending(self, paths: Collection[Path]) -> frozenset[Path]:
        """The probed directories that have not answered yet."""
        return frozenset(path for path in paths if path in self._probes)

    def forget(self, path: Path) -> None:
        """Drop a directory that is not managed any more."""
        self._probes.pop(path, None)
        self._probed_at.pop(path, None)
        self._answered_at.pop(path, None)
        self._silent.discard(path)
        if path in self._threads:
            self._threads.pop(path).close()

    def close(self) -> None:
        """Stop probing, without waiting for a thread that hangs."""
        for path in tuple(self._threads):
            self.forget(path)

    def _start_probe(self, path: Path) -> asyncio.Future[None]:
        if path not in self._threads:
            self._threads[path] = WorkerPool(1, f"cleanerd-probe-{path.name}")
        self._probed_at[path] = time.monotonic()
        self._probes[path] = self._threads[path].submit(partial(self._probe, path))
        return self._probes[path]

    def _note(self, path: Path, answer: asyncio.Future[None]) -> None:
        if self._probes.get(path) is not answer:
            return  # it was dropped meanwhile, or another waiting thread has noted it
        if answer.done():
            del self._probes[path]
            if answer.exception() is None:  # otherwise no thread could be started, which the scan reports too
                self._answered_at[path] = time.monotonic()
        elif path not in self._silent and time.monotonic() - self._probed_at[path] >= self._limits.probe_seconds:
            self._silent.add(path)
            answer.add_done_callback(partial(self._answered, path))

    def _answered(self, path: Path, answer: asyncio.Future[None]) -> None:
        if self._probes.get(path) is answer:
            del self._probes[path]
            self._silent.discard(path)
            self._came_back(path)


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):  # the scan reports the fault
        os.statvfs(path)
        os.listdir(path)
