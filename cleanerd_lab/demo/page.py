"""The output of ``cleanerd demo``: numbered steps, sentences, tables; silent with ``--json``."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Final

from cleanerd.cli.output import Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cleanerd.cli.output import Output


_PART_WIDTH: Final = 80


class Page:
    """Writes each step when it is done."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._step_number = 0

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print the next number and its title; the block does the work."""
        self._step_number += 1
        self.line()
        self.line(f"{self._step_number}. {title}")
        if self._output.as_json:
            self._output.note(f"{self._step_number}. {title}")
        with self._output.progress(title):
            yield

    def part(self, title: str) -> None:
        """A heading above several steps."""
        self.line()
        self.line(f"{title} {'-' * max(0, _PART_WIDTH - len(title) - 1)}")

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows under their titles, with columns of numbers right-aligned."""
        if not self._output.as_json:
            columns = [Column(title, right=_is_number(rows, at)) for at, title in enumerate(titles)]
            self._output.table(columns, rows)
            sys.stdout.flush()

    def row(self, cells: Sequence[str], width: int) -> None:
        """Print one line of a growing table: columns of equal width, right-aligned."""
        self.line("".join(cell.rjust(width) for cell in cells))

    def print(self, text: str) -> None:
        """Lines of a step."""
        for line in text.split("\n"):
            self.line(f"   {line}" if line else "")

    def line(self, text: str = "") -> None:
        if not self._output.as_json:
            self._output.line(text)
            sys.stdout.flush()


def _is_number(rows: Sequence[Sequence[str]], at: int) -> bool:
    return any(row[at][:1].isdigit() or row[at][:1] == "-" for row in rows)
