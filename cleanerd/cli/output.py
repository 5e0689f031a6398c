"""The only module that prints: results to stdout; logs, notes and progress to stderr.

A command gets an :class:`Output` and decides *what* to print; colours, terminals, ``NO_COLOR`` and JSON are handled
here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import sys
import textwrap
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cleanerd.errors import RefusedError, system_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence

    import click
    from rich.console import RenderableType

JSON_SCHEMA: Final = 1
"""``"schema"`` of every ``--json`` object: fields may be added, but not removed."""
NONE_COMPACTED: Final = "No partition is known to be compacted."
"""Shown for an empty result. "Known": the metadata log may be elsewhere, or a topic be too new; the notes say so."""
_INDENT: Final = " " * 4
"""The indentation of continued table rows."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table. ``right``: for numbers.

    ``spare``: a terminal too narrow for the row leaves out these columns first, the highest number before the others.
    """

    title: str
    right: bool = False
    spare: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """The destination of a command's result.

    ``as_json``: the command calls :meth:`json` once and none of the text methods.
    """

    as_json: bool = False
    quiet: bool = False

    def line(self, text: str = "") -> None:
        """One line of the result."""
        _write(sys.stdout, _fitted(sys.stdout, printable(text)) + "\n")

    def item(self, label: str, text: str) -> None:
        """One line of a list: text that does not fit the terminal continues below the text, not below the label."""
        indent = " " * (len(label) + 2)
        _write(sys.stdout, _fitted(sys.stdout, printable(f"{label}  {text}"), indent=indent) + "\n")

    def raw(self, text: str) -> None:
        """A result that is a complete document (a generated file), written unchanged."""
        _write(sys.stdout, text)

    def json(self, result: Mapping[str, object]) -> None:
        """The result as one JSON object; ``schema`` comes first."""
        _printed.json = True
        document = {"schema": JSON_SCHEMA, **result}
        _write(sys.stdout, json.dumps(document, indent=2, default=_plain) + "\n")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """Rows under their titles.

        Cells are not cut, because a cut path cannot be copied. A narrow terminal gets no ``spare`` columns. If a row
        still does not fit, its last cell continues below it if it is text. If even the rest is too wide, as with long
        topic names, all rows and the titles continue on further lines. Without a terminal a row is one line.
        """
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        cells = [[printable(cell) for cell in row] for row in rows]
        widths = widths_of(columns, cells)
        used = fitting(columns, widths, width)
        columns, cells = [columns[at] for at in used], [[row[at] for at in used] for row in cells]
        widths = [widths[at] for at in used]
        bands = _bands(columns, widths, width)
        for line in _folded([column.title for column in columns], columns, widths, bands):
            if line:  # all titles can be empty
                _write(sys.stdout, (_bold(line) if colours(sys.stdout) else line) + "\n")
        for row in cells:
            lines = _folded(row, columns, widths, bands)
            if 0 < width < len(lines[-1]) and len(row) > 1 and not columns[-1].right:
                lines = [*_folded([*row[:-1], ""], columns, widths, bands), _below(row[-1], width)]
            _write(sys.stdout, "".join(line + "\n" for line in lines if line))

    def table_of_used(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """As :meth:`table`, without columns that are empty in every row."""
        used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
        self.table([columns[at] for at in used], [[row[at] for at in used] for row in rows])

    def note(self, text: str) -> None:
        """Information that is not the result; silent with ``--quiet``."""
        if not self.quiet:
            _write(sys.stderr, _fitted(sys.stderr, printable(text)) + "\n")

    def warning(self, text: str) -> None:
        """A warning; also with ``--quiet``."""
        _write(sys.stderr, _fitted(sys.stderr, f"warning: {_one_line(text)}") + "\n")

    @contextlib.contextmanager
    def progress(self, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """A bar on stderr while the block runs; yields ``advance(steps)``, which any thread may call.

        Without a terminal on stderr, or with ``--quiet``, there is no bar and ``advance`` does nothing.
        """
        if self.quiet or not sys.stderr.isatty():
            yield lambda _steps: None
            return
        from rich.console import Console  # noqa: PLC0415 - 60 ms that plain output need not pay
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        # transient: at the end the table remains, not the bar.
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(printable(what), total=total)
            yield lambda steps: bar.advance(task, steps)

    def live(self, frames: Iterable[RenderableType], *, seconds: float) -> None:
        """Show the frames one after the other in the same place, each for ``seconds``. For terminals."""
        from rich.console import Console  # noqa: PLC0415 - 60 ms that plain output need not pay
        from rich.live import Live  # noqa: PLC0415

        if isinstance(sys.stdout, io.TextIOWrapper):  # cut text ends with a character that some locales do not have
            sys.stdout.reconfigure(errors="replace")
        with Live(console=Console(), screen=True, auto_refresh=False) as screen:
            for frame in frames:
                screen.update(frame, refresh=True)
                time.sleep(seconds)

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Ask before an irreversible step; ``yes`` is the command's ``--yes``.

        Raises:
            RefusedError: stdin is not a terminal.
        """
        if yes:
            return True
        if not sys.stdin.isatty():
            raise RefusedError("confirmation needed: pass --yes (standard input is not a terminal)")
        _write(sys.stderr, _fitted(sys.stderr, f"{printable(question)} [y/N]") + " ")
        return sys.stdin.readline().strip().lower() in {"y", "yes"}


def print_error(text: str) -> None:
    """Print the error as one line."""
    _write(sys.stderr, _fitted(sys.stderr, f"cleanerd: {_one_line(text)}") + "\n")


def print_usage_error(error: click.ClickException) -> None:
    """Print it as click does, with long lines wrapped for a terminal."""
    text = io.StringIO()
    error.show(text)
    for line in printable(text.getvalue()).splitlines():
        _write(sys.stderr, _fitted(sys.stderr, line) + "\n")


@dataclass(slots=True)
class _PrintedState:
    """What this command line has already printed; ``--json`` allows one object. ``lost``: why stderr failed."""

    json: bool = False
    lost: str = ""


_printed = _PrintedState()


def begin_command() -> None:
    """Begin another command line in the same process, with nothing printed yet."""
    _printed.json = False


def print_json_error(error: Mapping[str, object]) -> None:
    """The JSON result of a command that failed before it had one; nothing if stdout is unusable."""
    if _printed.json:
        return
    with contextlib.suppress(OSError, ValueError):
        Output(as_json=True).json({"error": error})
        sys.stdout.flush()


def _one_line(text: str) -> str:
    """Escape line ends: a name with one must not look like a separate message."""
    return printable(" ".join(text.splitlines()))


def print_traceback(error: BaseException) -> None:
    """Print the traceback, for ``-v``."""
    _write(sys.stderr, "".join(traceback.format_exception(error)))


def _join_lists(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """``a,b`` for a list: people and other tools read the log lines."""
    for key, value in event.items():
        if isinstance(value, list | tuple):
            event[key] = ",".join(map(str, value))
    return event


def configure_logging(*, verbose: bool, quiet: bool) -> None:
    """Structlog to stderr: readable on a terminal, ``key=value`` lines elsewhere.

    Levels: from info; with ``verbose`` from debug; with ``quiet`` errors only.
    """
    import structlog  # noqa: PLC0415 - not needed for --help

    level = 10 if verbose else 40 if quiet else 20
    # The console renderer shows tracebacks itself, by default with all local variables, including passwords; a log line
    # gets them as one field.
    renderers: list[Any] = (
        [structlog.dev.ConsoleRenderer(colors=colours(sys.stderr), exception_formatter=structlog.dev.plain_traceback)]
        if sys.stderr.isatty()
        else [
            structlog.processors.format_exc_info,
            _join_lists,
            structlog.processors.LogfmtRenderer(key_order=("timestamp", "level", "event")),
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=_Stderr()),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


class _Stderr:
    """The current ``sys.stderr``: a progress bar replaces it, and log lines must appear above the bar."""

    def write(self, text: str) -> int:
        with _written(sys.stderr):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with _written(sys.stderr):
            sys.stderr.flush()


def colours(stream: Any) -> bool:
    """Colours only on a terminal, and never when ``NO_COLOR`` has a value."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def printable(text: str) -> str:
    """``text`` without control characters for a terminal: other users chose the names in log directories."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def widths_of(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    """The largest width of each column's title and cells."""
    return [max(map(len, cells)) for cells in zip([column.title for column in columns], *rows, strict=True)]


def fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """The indexes of the columns that a terminal of ``width`` shows: without as many ``spare`` ones as needed.

    0: no terminal, all columns. A last column of text needs only the width of its title, because it can continue below.
    """
    used = list(range(len(columns)))
    taking = list(widths)
    if not columns[-1].right:
        taking[-1] = len(columns[-1].title)
    while width and sum(taking[at] + 2 for at in used) - 2 > width:
        most = max(used, key=lambda at: columns[at].spare)
        if not columns[most].spare:
            break
        used.remove(most)
    return used


def _bands(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[range]:
    """Groups of columns that are printed side by side; a last text column continues below and has no width here."""
    taking = list(widths) if columns[-1].right else [*widths[:-1], len(columns[-1].title)]
    bands, start, used = [], 0, 0
    for at, column_width in enumerate(taking):
        if width and at > start and used + 2 + column_width > width:
            bands.append(range(start, at))
            start, used = at, len(_INDENT)
        used += column_width + (2 if at > start else 0)
    return [*bands, range(start, len(columns))]


def _folded(
    cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], bands: Sequence[range]
) -> list[str]:
    """A row as lines, one per band; all except the first are indented."""
    lines = [
        _aligned([cells[at] for at in band], [columns[at] for at in band], [widths[at] for at in band])
        for band in bands
    ]
    return [_INDENT + line if line and number else line for number, line in enumerate(lines)]


def _aligned(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column.right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _below(cell: str, width: int) -> str:
    return _INDENT + _wrapped(cell, max(1, width - len(_INDENT)), indent="").replace("\n", f"\n{_INDENT}")


def _fitted(stream: Any, text: str, *, indent: str | None = None) -> str:
    """A line wrapped for a terminal with indented continuations, without breaking words. Unchanged elsewhere."""
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    if not 0 < width < len(text):
        return text
    indent = " " * (len(text) - len(text.lstrip(" ")) + 2) if indent is None else indent
    return "\n".join(_wrapped(line, width, indent=indent) for line in text.split("\n"))


def _wrapped(text: str, width: int, *, indent: str) -> str:
    # A word may be a path, so it is not broken.
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"


def _plain(value: object) -> object:
    """Values for ``json``: sets become sorted lists, dataclasses objects, NumPy scalars numbers, others text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "item"):
        return value.item()
    return str(value)


def flush_result() -> None:
    """Flush the printed output.

    Raises:
        MachineError: it cannot be written, for example to a full disk.
    """
    with _written(sys.stdout):
        sys.stdout.flush()


def _write(stream: Any, text: str) -> None:
    # A file name that is not UTF-8 contains lone surrogates: print them escaped.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    with _written(stream):
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


@contextlib.contextmanager
def _written(stream: Any) -> Iterator[None]:
    """Name the stream in errors, because a full disk here is not a disk with logs.

    Messages on stderr accompany the result: if they cannot be written the work continues, and the exit code stays.
    """
    try:
        yield
    except OSError as error:
        if stream is sys.stderr:
            _printed.lost = error.strerror or str(error)
            return
        if isinstance(error, BrokenPipeError):
            raise
        raise system_error("the result cannot be printed", "standard output", error) from error


def lost_lines() -> list[str]:
    """Whether lines of the log or notes were lost since the last call, and why."""
    why, _printed.lost = _printed.lost, ""
    return [f"lines of the log are lost: standard error takes nothing ({why})"] if why else []


def detach_stderr() -> None:
    """Prevent the interpreter from flushing stderr at its end, which would change the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
