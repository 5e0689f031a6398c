"""Threads that look take turns, as long as no disk keeps them waiting.

What a look does is Python, but for calls to the system of some microseconds. Each of these gives the interpreter's lock
to whoever waits for it; so with several threads at once nearly every call of each is followed by a wait and a change of
threads, which costs more than the look. One that looks alone for a moment does not wait. A disk that has to be waited
for is another matter: whoever finds that it was has no turns for a while, and keeps none from others.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TURN_SECONDS: Final = 0.01
"""So long one looks alone while others wait."""

PATIENCE_SECONDS: Final = 0.25
"""Nobody waits longer for a turn: whoever has it is kept waiting by a disk."""

FREE_SECONDS: Final = 1.0
"""So long a thread looks whenever it can, once a disk made it wait, or a turn did not come."""

_HAND_OVER_SECONDS: Final = 0.0005
"""Who waits has woken up by then, and has the turn before it is asked for again."""

_WAITED: Final = 2.0
"""A turn that took so many times the CPU time that it used was spent waiting."""


class Turns:
    """What the threads of all log directories have in common."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting = 0
        """How many threads wait for a turn."""

    @contextlib.contextmanager
    def of_a_thread(self) -> Iterator[Turn]:
        """For as long as the block looks at one partition after the other."""
        turn = Turn(self)
        turn.begin()
        try:
            yield turn
        finally:
            turn.end()


class Turn:
    """What one thread knows of its turn, and whether it has one."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.is_held = False
        self._until = self._began = self._cpu = 0.0

    def begin(self) -> None:
        """Wait for it, not for long."""
        turns = self._turns
        turns.waiting += 1
        self.is_held = turns.lock.acquire(timeout=PATIENCE_SECONDS)
        turns.waiting -= 1
        self._began, self._cpu = time.monotonic(), time.thread_time()
        self._until = self._began + (TURN_SECONDS if self.is_held else FREE_SECONDS)

    def pass_on(self) -> None:
        """To be called after each partition: when the time is up and others wait it is somebody else's turn."""
        if time.monotonic() < self._until:
            return
        if self.is_held and not self._turns.waiting:
            self._began, self._cpu = time.monotonic(), time.thread_time()
            self._until = self._began + TURN_SECONDS
        elif self.end():
            self._until = time.monotonic() + FREE_SECONDS
        else:
            time.sleep(_HAND_OVER_SECONDS)
            self.begin()

    def end(self) -> bool:
        """Nobody's turn now; whether it was spent waiting."""
        if not self.is_held:
            return False
        self.is_held = False
        self._turns.lock.release()
        return time.monotonic() - self._began > _WAITED * (time.thread_time() - self._cpu)
