"""The command line's output on terminals of any kind, and without one."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys

import pytest

from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import REPOSITORY


def all_of(terminal: int) -> str:
    """All output to a closed terminal: a read returns what the kernel has passed on by then."""
    reported = b""
    with os.fdopen(terminal, "rb", buffering=0) as main, contextlib.suppress(OSError):
        while piece := main.read(10_000):
            reported += piece
    return reported.decode()


@pytest.mark.long
@pytest.mark.parametrize(("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_colours_only_on_a_terminal_and_not_with_no_color(environ: dict[str, str], coloured: bool) -> None:
    """The NO_COLOR convention: set and not empty."""
    main, terminal = pty.openpty()
    with os.fdopen(terminal, "wb") as stdout:
        subprocess.run(
            [sys.executable, "-m", "tests.cli.commands", "say"], cwd=REPOSITORY, stdout=stdout,
            stderr=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environ},
            timeout=PATIENCE_SECONDS, check=True,
        )  # fmt: skip
    shown = all_of(main)
    assert ("\x1b[1mTOPIC" in shown) is coloured
    assert "\x1b[2J" not in shown  # even there, no name from a log directory clears the screen


@pytest.mark.long
def test_a_traceback_on_a_terminal_has_no_variables() -> None:
    """An error during a login must not show the password."""
    code = (
        "import structlog; from cleanerd.cli.output import configure_logging\n"
        "configure_logging(verbose=False, quiet=False)\n"
        "def log_in(password):\n    raise ValueError('a bug')\n"
        "try:\n    log_in('sec' + 'ret')\n"
        "except ValueError:\n    structlog.get_logger().exception('a job failed')\n"
    )
    main, terminal = pty.openpty()
    with os.fdopen(terminal, "wb") as stderr:
        subprocess.run(
            [sys.executable, "-c", code], cwd=REPOSITORY, stderr=stderr, timeout=PATIENCE_SECONDS, check=True
        )
    shown = os.read(main, 100_000).decode()
    os.close(main)
    assert "ValueError: a bug" in shown
    assert "secret" not in shown


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_live_in_any_encoding(encoding: str) -> None:
    """A cut cell ends with "…", which Latin-1 does not have: ``top`` ended with an unexpected error."""
    code = (
        "from rich.table import Table; from rich.text import Text; from cleanerd.cli.output import Output\n"
        "table = Table(box=None, width=20)\n"
        "table.add_row(Text('orders-' + 'x' * 40, no_wrap=True, overflow='ellipsis'))\n"
        "Output().live([table], seconds=0)\n"
    )
    main, terminal = pty.openpty()
    with os.fdopen(terminal, "wb") as stdout:
        environ = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": encoding}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, env=environ,
            timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
    shown = ""
    with contextlib.suppress(OSError):  # a closed terminal ends with an error
        while part := os.read(main, 20_000):  # the output arrives in pieces
            shown += part.decode(encoding, errors="replace")
    os.close(main)
    assert done.returncode == 0, done.stderr
    assert "orders-xxxxx" in shown


@pytest.mark.slow
@pytest.mark.parametrize(("extra", "bar"), [([], True), (["--quiet"], False)])
def test_progress_only_on_a_terminal_and_on_stderr(extra: list[str], bar: bool) -> None:
    """Progress bars only on a terminal."""
    main, terminal = pty.openpty()
    with os.fdopen(terminal, "wb") as stderr:
        done = subprocess.run(
            [sys.executable, "-m", "tests.cli.commands", "say", *extra],
            cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=stderr,
            env={**os.environ, "TERM": "xterm"}, text=True, timeout=PATIENCE_SECONDS, check=True,
        )  # fmt: skip
    shown = all_of(main)
    assert ("working" in shown) is bar
    assert "working" not in done.stdout
