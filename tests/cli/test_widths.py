"""Every line for people fits a terminal of 80 columns, whatever the command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import click
import pytest

from cleanerd.cli.main import COMMANDS, cli
from cleanerd.cli.output import Output
from cleanerd.cli.status import print_status, show_history
from tests.cli.clean_log_dirs import NOW, Typist, dirty, good
from tests.daemon.views import busy
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.clean_log_dirs import Shell

WIDTH: Final = 80

ELSEWHERE: Final = {
    "run": "a log, not a result",
    "status": "test_the_status_fits", "top": "test_the_status_fits: the same columns",
    "cluster": "a cluster's brokers", "trigger": "a daemon", "pause": "a daemon", "resume": "a daemon",
    "retry": "a daemon", "ignore-replica": "a daemon", "reload": "a daemon", "delegate": "a broker",
    "undelegate": "a broker", "spark": "their tables are made by Output.table too", "demo": "a broker",
    "bench": "minutes", "move-aside": "a cluster", "adopt-state": "one sentence",
}  # fmt: skip
"""Commands that this module does not run, and what they need."""

COMMAND_LINES: Final = [
    ("plan", "{dir}"),
    ("plan", "{dir}", "--by", "topic"),
    ("plan", "{dir}", "--exact", "--force", "--by", "partition"),
    ("plan", "{dir}", "--strategy", "timestamp"),
    ("explain", "orders-0", "{dir}"),
    ("explain", "payments-settlements-by-version-0", "{dir}"),
    ("inspect", "{dir}"),
    ("inspect", "{dir}/orders-0"),
    ("inspect", "{dir}/orders-0/{first}.log", "--records"),
    ("inspect", "{dir}/cleaner-offset-checkpoint"),
    ("verify", "{dir}"),
    ("verify", "{dir}/orders-0"),
    ("audit", "orders", "{dir}", "--key", "a"),
    ("erase", "plan", "orders", "{dir}", "--key", "a"),
    ("doctor", "{dir}"),
    ("stage", "{dir}", "--force"),
    ("apply", "{dir}"),
    ("clean", "{dir}", "--yes", "--force", "--keep-replaced", "{kept}"),
    ("clean", "{dir}", "--yes"),
    ("undo", "{dir}", "--list"),
    ("undo", "{dir}"),
    ("config", "show"),
    ("config", "check"),
    ("agent", "info", "{dir}"),
]


def log_dir(path: Path) -> Path:
    """Topics with long names, one with a strategy that is not delegated, one damaged, one that is clean."""
    partitions = {f"orders-{number}": dirty() for number in range(3)}
    partitions |= {f"customers-by-region-and-country-{number}": dirty() for number in range(20)}
    partitions |= {"payments-settlements-by-version-0": dirty(), "clean-0": good()}
    damaged = keyed_batch(0, [("a", "1")])
    partitions["damaged-0"] = Partition({0: damaged[:-3] + b"xxx", 1: keyed_batch(1, [("b", "2")])})
    make_log_dir(path, partitions)
    return path


COMPACT: Final = [
    word
    for topic in ("orders", "customers-by-region-and-country", "payments-settlements-by-version", "clean", "damaged")
    for word in ("--set", f"topics.{topic}.cleanup.policy=compact")
]


def too_wide(text: str) -> list[str]:
    """Lines wider than the terminal that could have been wrapped: a path or a name is never broken."""
    # without the characters with which a progress bar erases itself
    lines = [line.rpartition("\x1b[2K")[2] for line in text.splitlines()]
    return [line for line in lines if len(line) > WIDTH and " " in line.strip()]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("NO_COLOR", "1")


def test_every_command_is_in_the_table() -> None:
    assert set(COMMANDS) == {words[0] for words in COMMAND_LINES} | set(ELSEWHERE)


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_every_line_fits(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-20: tables drop columns or continue below, notes and reasons wrap."""
    path = log_dir(root / "logs")
    (root / "kept").mkdir()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    wide: dict[str, list[str]] = {}
    settings = (*COMPACT, "--set", "topics.payments-settlements-by-version.compaction.strategy=timestamp")
    timed = {"plan", "clean", "stage", "explain", "verify", "erase"}
    for words in COMMAND_LINES:
        line = [word.format(dir=path, kept=root / "kept", first=f"{0:020d}") for word in words]
        options = ("--now-ms", NOW) if words[0] in timed else ()
        answer = shell(*line, *options, *settings)
        assert answer.code in {0, 4, 5, 6}, answer.err
        assert "unexpected error" not in answer.err, answer.err
        wide[" ".join(words)] = too_wide(answer.out + answer.err)
    assert {command: lines for command, lines in wide.items() if lines} == {}


COMMON: Final = ["--json", "--config", "--no-config", "--set", "--verbose", "--quiet", "--help"]


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Every command that is not a group, with its context."""
    if not isinstance(command, click.Group):
        yield command, context
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from helps(found, click.Context(found, info_name=name, parent=context))


def test_every_help_fits() -> None:
    """OP-20: no option is wider than a terminal, and the options of every command come last."""
    for command, context in helps(cli, click.Context(cli, info_name="cleanerd", terminal_width=WIDTH)):
        assert too_wide(command.get_help(context)) == []
        options = [each.opts[-1] for each in command.get_params(context) if isinstance(each, click.Option)]
        common = [option for option in options if option in COMMON]
        assert options[len(options) - len(common) :] == common, context.command_path


@pytest.mark.usefixtures("terminal")
def test_a_usage_error_fits(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for words in (("undo",), ("cluster", "status"), ("plan", "--config", "a.toml", "--no-config")):
        answer = shell(*words)
        assert answer.code == 2
        assert "Error: " in answer.err
        assert too_wide(answer.err) == []


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_usage_errors_fit(command: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-20: "Missing argument 'LOG_DIR...': name a log directory, or set ..." is longer than a line."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    answer = shell(command, "--help")
    assert too_wide(answer.out) == []
    assert too_wide(shell(command, "--no-such-option").err) == []
    if command in {"clean", "plan", "verify"}:
        missing = shell(command)
        assert (missing.code, too_wide(missing.err)) == (2, [])


@pytest.mark.usefixtures("terminal")
def test_a_question_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", Typist("y\n"))
    names = ", ".join(f"orders-{number}" for number in range(20))
    assert Output().confirm(f"Move 20 partitions ({names}) to another directory?", yes=False)
    shown = capsys.readouterr().err
    assert (shown.split()[-1], shown[-1]) == ("[y/N]", " ")
    assert too_wide(shown) == []


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("by", ["topic", "partition"])
def test_the_status_fits(by: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    document = busy(120).to_json()
    print_status(Output(), document, document["partitions"], by=by)
    show_history(Output(), document, (), None)
    assert too_wide("".join(capsys.readouterr())) == []
