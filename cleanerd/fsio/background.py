"""A thread that reads or writes a file while the caller goes on.

A signal's handler raises an exception in the main thread at any point, also inside ``threading`` and
``concurrent.futures``: their locks are Python code, and one that stays locked stops both threads forever. So this uses
only objects whose methods are not interrupted. Nor does the interpreter wait for the thread at its end: a disk that
hangs would keep the process.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import queue
from typing import TYPE_CHECKING, ParamSpec, TypeAlias, TypeVar

from cleanerd.closeable import Closeable

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
Results: TypeAlias = "queue.SimpleQueue[BaseException | None]"
Calls: TypeAlias = "queue.SimpleQueue[tuple[Callable[[], None], Results] | None]"


class Background(Closeable):
    """Makes calls one after the other in a thread that the first one starts. For one caller."""

    def __init__(self) -> None:
        self._calls: Calls = queue.SimpleQueue()
        self._results: Results = queue.SimpleQueue()
        self._started = False

    def submit(self, call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have the call made after those before it.

        Raises:
            RuntimeError: the system allows no more threads.
        """
        if not self._started:
            arguments = (self._calls,)
            self._started = True  # from here to the end of the next call, no signal is handled
            try:
                _thread.start_new_thread(_make_calls, arguments)
            except RuntimeError:
                self._started = False
                raise
        self._calls.put((functools.partial(call, *args, **kwargs), self._results))

    def result(self) -> None:
        """Wait for the oldest call, of those whose result was not asked for yet.

        Raises:
            BaseException: what the call raised.
        """
        error = self._results.get()
        if error is not None:
            raise error

    def idle(self) -> None:
        """Wait until all calls are made, and drop their results. Needed before a file that they use is closed."""
        if self._started:
            reached: Results = queue.SimpleQueue()
            self._calls.put((_nothing, reached))
            reached.get()
        _drop(self._results)

    def close(self) -> None:
        """Wait for the call that is made now, make no others, and end the thread."""
        _drop(self._calls)
        self.idle()
        self._calls.put(None)
        self._started = False


def _make_calls(calls: Calls) -> None:
    while (found := calls.get()) is not None:
        call, results = found
        try:
            call()
        except BaseException as error:  # noqa: BLE001 it is raised by the caller
            results.put(error)
        else:
            results.put(None)
        del found, call, results


def _nothing() -> None:
    pass


def _drop(waiting: queue.SimpleQueue[T]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.get_nowait()
