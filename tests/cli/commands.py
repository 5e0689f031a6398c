"""Commands that exist for tests only: each ends in its own way."""

from __future__ import annotations

import os
import signal
import sys
import time

import click
import structlog

from cleanerd.cli.options import Common, common_options
from cleanerd.cli.output import Column
from cleanerd.errors import CleanerdError, ConfigError, CorruptionError, RefusedError

ENDS: dict[str, BaseException] = {
    "config": ConfigError("bad key", where="a.toml:3", hint="did you mean good.key?"),
    "refused": RefusedError("a broker holds the lock", where="/log"),
    "corruption": CorruptionError("a batch of 3 bytes", where="/log/0.log", position=61),
    "error": CleanerdError("no space"),
    "os": FileNotFoundError(2, "No such file or directory", "/log/x"),
    "unexpected": ZeroDivisionError("one by\nnothing"),
    "usage": click.UsageError("LOG_DIR is missing"),
    "abort": click.Abort(),
    "pipe": BrokenPipeError(32, "Broken pipe"),
    "interrupt": KeyboardInterrupt(),
}


@click.command()
@click.argument("how")
@click.option("--code", type=int, default=0)
@common_options
def end(common: Common, how: str, code: int) -> int:
    """End in the requested way."""
    if how in ENDS:
        raise ENDS[how]
    if how == "exit":
        click.get_current_context().exit(code)
    if how in {"SIGINT", "SIGTERM"}:
        try:
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(20)
        except Exception:  # noqa: BLE001 - what code does that isolates a bad partition; a signal must get through
            common.output.line("swallowed")
    return code


@click.command()
@common_options
def say(common: Common) -> None:
    """Write to every channel."""
    structlog.get_logger().debug("a debug line")
    structlog.get_logger().info("an info line", partition="orders-0")
    structlog.get_logger().error("an error line")
    common.output.note("a note")
    common.output.warning("a warning")
    with common.output.progress("working", total=2) as advance:
        advance(1)
    if common.output.as_json:
        common.output.json({"partitions": frozenset({"b", "a"})})
    else:
        common.output.table([Column("TOPIC"), Column("BYTES", right=True)], [["orders", "5"], ["a\x1b[2Jb", "1,000"]])


@click.command()
@click.option("--yes", is_flag=True)
@common_options
def ask(common: Common, yes: bool) -> None:
    """Ask before going on."""
    common.output.line(f"answer {common.output.confirm('Clean?', yes=yes)}")


@click.command()
@common_options
def settings(common: Common) -> None:
    """Print one setting and its origin."""
    loaded = common.load_settings()
    common.output.line(f"{loaded.daemon.log_segment_bytes} {loaded.origins['log.segment.bytes']}")


if __name__ == "__main__":
    from cleanerd.cli import main as main_module

    vars(main_module)["COMMANDS"] = {
        command: (f"tests.cli.commands:{command}", "") for command in ("end", "say", "ask", "settings")
    }
    sys.exit(main_module.run(sys.argv[1:]))
