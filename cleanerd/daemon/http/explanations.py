"""Answers of ``/explain`` read files, so few are made at once, and none for a closed connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from cleanerd.daemon.with_timeout import with_timeout

AT_ONCE: Final = 2


class Explanations:
    """``explain`` gets ``TOPIC-N``.

    It runs for two partitions at a time, and never twice at once for the same one. Clients that wait for the same
    partition share one answer. If the last of them disconnects before it begins, it is not made (D-14).
    """

    def __init__(self, explain: Callable[[str], Awaitable[dict[str, Any]]]) -> None:
        self._explain = explain
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._clients: dict[str, int] = {}
        self._begun: set[str] = set()

    async def of(self, name: str, seconds: float) -> dict[str, Any]:
        """The answer for one client, whose handler is cancelled when its connection closes.

        Raises:
            TimeoutError: no answer within ``seconds``.
            CleanerdError: the partition cannot be explained.
        """
        task = self._tasks.get(name)
        if task is None:
            task = self._tasks[name] = asyncio.create_task(self._answer_of(name), name=f"explain {name}")
            task.add_done_callback(lambda ended: self._forget(name, ended))
        self._clients[name] = self._clients.get(name, 0) + 1
        try:
            return await with_timeout(seconds, asyncio.shield(task))
        finally:
            if self._tasks.get(name) is task:
                self._clients[name] -= 1
                if not self._clients[name] and name not in self._begun:
                    task.cancel()
                    self._forget(name, task)

    def stop(self) -> None:
        """Cancel all of them."""
        for task in self._tasks.values():
            task.cancel()

    async def _answer_of(self, name: str) -> dict[str, Any]:
        async with self._turns:
            self._begun.add(name)
            return await self._explain(name)

    def _forget(self, name: str, task: asyncio.Task[dict[str, Any]]) -> None:
        if task.done() and not task.cancelled():
            task.exception()  # retrieve the exception, even if no client waits for it any more
        if self._tasks.get(name) is task:
            del self._tasks[name], self._clients[name]
            self._begun.discard(name)
