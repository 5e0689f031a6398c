"""``cleanerd``: finds the command, runs it, and turns every error into one line and an exit code.

Commands are imported when they are called: ``cleanerd --help`` loads neither NumPy nor pydantic. Standard input, output
and error work even if the parent process has closed them.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
from typing import TYPE_CHECKING, Final, NoReturn

import click

from cleanerd import __version__, commit
from cleanerd.cli.commands import CommandGroup, CommandTable
from cleanerd.cli.complete import VARIABLE as COMPLETE
from cleanerd.cli.complete import complete
from cleanerd.cli.output import (
    begin_command,
    detach_stderr,
    flush_result,
    print_error,
    print_json_error,
    print_traceback,
    print_usage_error,
)
from cleanerd.errors import CleanerdError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from click.shell_completion import CompletionItem


def have_streams() -> None:
    """Open ``/dev/null`` for closed descriptors 0 to 2, and give ``sys`` its streams.

    Otherwise the next opened file would get the number of a closed one, and a library's messages would be written into
    it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


COMMANDS: Final[CommandTable] = {
    "run": ("cleanerd.cli.reading_commands:run_daemon", "Run the daemon: keep log directories clean."),
    "plan": ("cleanerd.cli.cleaning_commands:plan", "Show what a cleaning would do with each partition."),
    "clean": ("cleanerd.cli.cleaning_commands:clean", "Clean the partitions of a stopped broker's log directories."),
    "stage": ("cleanerd.cli.cleaning_commands:stage", "Prepare a cleaning beside a running broker, for apply."),
    "apply": ("cleanerd.cli.cleaning_commands:apply", "Swap in staged cleanings, before a broker starts."),
    "undo": ("cleanerd.cli.cleaning_commands:undo", "Restore the segments that --keep-replaced kept."),
    "move-aside": ("cleanerd.cli.cleaning_commands:move_aside", "Move replicas aside that were away for too long."),
    "adopt-state": (
        "cleanerd.cli.cleaning_commands:adopt_state",
        "Keep the state of a log directory on a new disk.",
    ),
    "explain": (
        "cleanerd.cli.cleaning_commands:explain",
        "Show why a partition is or is not cleaned now.",
    ),
    "inspect": ("cleanerd.cli.reading_commands:inspect", "Decode any file that a broker keeps."),
    "verify": (
        "cleanerd.cli.reading_commands:verify",
        "Check segments, partitions and log directories for damage.",
    ),
    "audit": ("cleanerd.cli.reading_commands:audit", "Find every place where a key still occurs."),
    "erase": ("cleanerd.cli.erase_commands:erase", "Erase a key, and prove that it is gone from every replica."),
    "status": ("cleanerd.cli.status:status", "Show the state of the running daemon."),
    "top": ("cleanerd.cli.top:top", "Watch the running daemon."),
    "cluster": ("cleanerd.cli.cluster:cluster", "Compare all daemons of a cluster."),
    "trigger": ("cleanerd.cli.control:trigger", "Have the running daemon clean a partition now."),
    "pause": ("cleanerd.cli.control:pause", "Pause the running daemon, or partitions."),
    "resume": ("cleanerd.cli.control:resume", "End a pause."),
    "retry": ("cleanerd.cli.control:retry", "End a partition's quarantine."),
    "ignore-replica": ("cleanerd.cli.control:ignore_replica", "Stop waiting for brokers that never return."),
    "reload": ("cleanerd.cli.control:reload", "Have the running daemon read its settings again."),
    "delegate": ("cleanerd.cli.setup_commands:delegate", "Keep the broker's own cleaner away from a topic."),
    "undelegate": ("cleanerd.cli.setup_commands:undelegate", "Give a topic back to the broker's own cleaner."),
    "agent": ("cleanerd.cli.setup_commands:agent", "Load the agent that swaps segments in a running broker."),
    "spark": ("cleanerd.cli.spark:spark", "Run commands as Spark jobs, on one machine or many."),
    "doctor": ("cleanerd.cli.reading_commands:doctor", "Check this host; each finding with its fix."),
    "config": ("cleanerd.cli.setup_commands:config", "Show, check or generate settings."),
    "demo": ("cleanerd_lab.demo.run:demo", "Show cleanerd beside a real broker under load."),
    "bench": ("cleanerd_lab.bench.command:bench", "Measure the speed of a cleaning on this machine."),
}
"""Command -> where its click command is, and its line in ``--help``."""

_FAILED: Final = 1


class RootCommand(CommandGroup):
    """All commands of ``cleanerd``."""

    def table(self) -> CommandTable:
        """The commands in the order of ``--help``."""
        return COMMANDS

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click, with the nearest command in the message."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"no command {args[0]!r}" + (f"; did you mean {near[0]}?" if near else ""))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands without importing any; after a dash, options."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only a shell that completes needs it

        commands = [
            CompletionItem(command, help=text)
            for command, (_, text) in COMMANDS.items()
            if command.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's call
    if wanted and not context.resilient_parsing:
        from cleanerd.broker.agent_jar import build_of_jar  # noqa: PLC0415 - no other command pays for it

        facts = f"commit {commit() or 'not recorded'}, agent {build_of_jar() or 'missing'}"
        click.echo(f"cleanerd, version {__version__} ({facts})")
        context.exit()


@click.group(cls=RootCommand, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version, the commit and the agent's build, and exit.",
)
def cli() -> None:
    """Compact Apache Kafka's topics in a broker's log directories, and explain what is done."""


class _StoppedBySignal(BaseException):
    """SIGINT or SIGTERM. Not an Exception: code that isolates one damaged partition must not catch it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


def main() -> NoReturn:
    """Entry point of ``cleanerd`` and ``python -m cleanerd``."""
    have_streams()
    # No linear algebra is used: NumPy need not start a thread per processor.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if COMPLETE in os.environ:
        sys.exit(complete(cli))
    code = run(sys.argv[1:])
    detach_stderr()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns the exit code. Does not raise.

    With ``--json`` an error is the result too: one object with ``error``.
    """
    error: dict[str, object]
    begin_command()
    try:
        with _signals_as_exceptions():
            return _invoke(arguments)
    except _StoppedBySignal as stop:
        print_error(f"stopped by {signal.Signals(stop.signal_number).name}")
        return 128 + stop.signal_number
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return _end_at_closed_pipe()
    except click.ClickException as usage:
        print_usage_error(usage)
        code, error = usage.exit_code, {"message": usage.format_message()}
    except click.Abort:
        print_error("aborted")
        code, error = _FAILED, {"message": "aborted"}
    except CleanerdError as known:
        print_error(str(known))
        code, error = known.exit_code, known.to_json()
    except OSError as failed:
        text = f"{failed.filename}: {failed.strerror}" if failed.filename else str(failed)
        code, error = _failed(text, failed, arguments), {"message": text}
    except Exception as bug:  # noqa: BLE001 - the outermost frame: whatever it was, it becomes one line
        text = f"unexpected error: {type(bug).__name__}: {bug}"
        code = _failed(f"{text} (-v shows where; please report it)", bug, arguments)
        error = {"message": text}
    if "--json" in arguments:
        print_json_error({"where": None, "hint": None, **error, "exit_code": code})
    return code


def _invoke(arguments: Sequence[str]) -> int:
    # Not cli.main(): it handles a closed pipe and Ctrl-C itself, both with exit code 1.
    try:
        with cli.make_context("cleanerd", list(arguments), obj=tuple(arguments)) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as leave:
        result = leave.exit_code
    # Now, while errors can be reported: at the interpreter's exit a full disk or a closed pipe would go unnoticed.
    flush_result()
    # A command's exit code is what it returns (an int) or passes to ctx.exit().
    return result if isinstance(result, int) else 0


def _failed(text: str, error: Exception, arguments: Sequence[str]) -> int:
    print_error(text)
    if "-v" in arguments or "--verbose" in arguments:
        print_traceback(error)
    return _FAILED


def _end_at_closed_pipe() -> int:
    # `cleanerd inspect ... | head` is not an error. The interpreter's own flush at exit must not complain either.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


@contextlib.contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """During the block SIGINT and SIGTERM raise; one that was ignored from the start (``nohup``) stays ignored."""

    def stop(signal_number: int, _frame: FrameType | None) -> NoReturn:
        raise _StoppedBySignal(signal_number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
