"""``cleanerd spark``: commands that run as Spark jobs, by default with ``--master local[*]``.

A command's body runs in the driver: :func:`spark_command` starts it through ``spark-submit`` with the same command
line. Small jobs on this machine can run without Spark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from cleanerd.cli.commands import CommandGroup, CommandTable
from cleanerd.cli.options import Common, common_options
from cleanerd.host.memory import local_mode
from cleanerd.spark.driver_memory import a_session_fits
from cleanerd.spark.launch import DEFAULT_MASTER, is_driver, is_local, require_packages, submit
from cleanerd.spark.local_threshold import bytes_below, is_little, is_short

COMMANDS: Final[CommandTable] = {
    "clean": ("cleanerd.cli.spark_clean:clean", "Stage a cleaning on many machines; cleanerd apply swaps it in."),
    "audit": ("cleanerd.cli.spark_audit:audit", "Check a cleaning record by record; find where keys still occur."),
    "profile": ("cleanerd.cli.spark_profile:profile", "Count keys, versions, tombstones; what a cleaning would save."),
    "divergence": ("cleanerd.cli.spark_divergence:divergence", "Compare the replicas of several brokers."),
    "snapshot": (
        "cleanerd.cli.spark_snapshot:snapshot",
        "Write the latest state of topics: Parquet or a table.",
    ),
}
"""Command -> where its click command is, and its line in ``--help``."""


class SparkCommands(CommandGroup):
    """The commands below ``spark``."""

    def table(self) -> CommandTable:
        """The commands in the order of ``--help``."""
        return COMMANDS


@click.group("spark", cls=SparkCommands)
def spark() -> None:
    """Commands that run as Spark jobs: on this machine, or on any cluster that sees the log directories."""


def spark_command(
    *,
    alone: Callable[[Mapping[str, Any]], bool] | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Give a command the common options and ``--master --conf``; its body is called in a Spark driver.

    The body gets a :class:`Common` first, as every command does, and neither master nor conf: ``spark_session`` has
    them. ``alone``: whether the options allow running without Spark; None: never. If so, on a local master with little
    to read or no memory for a session, the body is called in this process, with ``spark_session`` None. ``check``
    refuses contradicting options before anything is started.
    """

    def decorated(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def command(common: Common, *, master: str, conf: tuple[str, ...], **options: Any) -> int:
            given = {name: _from_anywhere(value) for name, value in options.items()}
            if is_driver():
                return function(replace(common, noted=None), **given)
            common.load_settings()  # errors there are reported without starting Java
            if check is not None:
                check(options)
            read_bytes = bytes_below(options.get("log_dirs", options.get("dirs", ()))) if is_local(master) else None
            may_be_alone = alone is not None and alone(options) and read_bytes is not None and not conf
            if may_be_alone and (is_little(read_bytes) or not a_session_fits()):
                require_packages()
                with local_mode():
                    return function(common, **given)
            arguments = click.get_current_context().find_root().obj
            script = Path(__file__).parent / "submitted" / "cleanerd_driver.py"
            settings = dict(each.split("=", 1) for each in conf)
            return submit(script, arguments, master=master, conf=settings, is_short=is_short(read_bytes))

        for option in reversed(_OPTIONS):
            option(command)
        return common_options(command)

    return decorated


def _from_anywhere(value: Any) -> Any:
    """``value`` with absolute paths, because executors work in other directories than the driver."""
    if isinstance(value, tuple):
        return tuple(_from_anywhere(each) for each in value)
    return value.absolute() if isinstance(value, Path) else value


def _conf(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
    return values


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--master", default=DEFAULT_MASTER, show_default=True, metavar="URL", help="local[N], spark://..., yarn, ..."
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_conf,
        help="A setting of Spark (spark.executor.memory=4g). Repeatable.",
    ),
)
