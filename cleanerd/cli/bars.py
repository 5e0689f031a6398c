"""Progress bars of one cleaning, one phase after the other."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.cli.output import Output


class Bars:
    """A progress bar for each phase of a cleaning."""

    def __init__(self, output: Output, name: str) -> None:
        self._output = output
        self._name = name
        self._stack = contextlib.ExitStack()
        self._advance: Callable[[int], None] = lambda _bytes: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def phase(self, name: str, total_bytes: int) -> None:
        """Begin the bar of the next phase."""
        self._stack.close()
        self._advance = self._stack.enter_context(self._output.progress(f"{self._name}: {name}", total_bytes))

    def advance(self, done_bytes: int) -> None:
        self._advance(done_bytes)

    def wrote(self, done_bytes: int) -> None:
        """Ignored: the bar shows the bytes read."""
