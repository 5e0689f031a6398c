"""The options that every command has, in one decorator."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from cleanerd.cli.default_config import DEFAULT_CONFIG, NO_CONFIG, default_config
from cleanerd.cli.lazy_command import LazyCommand
from cleanerd.cli.output import Output, configure_logging
from cleanerd.cli.selecting import complete_setting
from cleanerd.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.config.load import Settings

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Common:
    """The common options; the first argument of every command.

    ``config_by_default``: ``config_paths`` is this host's file, because none were given. ``noted``: notes about the
    settings that were already printed; None for a process that prints none, because its parent did.
    """

    output: Output
    config_paths: tuple[Path, ...]
    assignments: tuple[str, ...]
    verbose: bool
    config_by_default: bool = False
    noted: set[str] | None = field(default_factory=set)

    def load_settings(self) -> Settings:
        """The effective settings: files, environment and ``--set``. Notes about them are printed once.

        Raises:
            ConfigError: an unknown key or an invalid value, with its origin; or this host's file or the state directory
                cannot be used.
        """
        from cleanerd.config.check import wrong_state_dir  # noqa: PLC0415
        from cleanerd.config.load import load_settings  # noqa: PLC0415 - pydantic takes its time
        from cleanerd.config.unused import unused_note  # noqa: PLC0415

        try:
            settings = load_settings(self.config_paths, self.assignments)
        except ConfigError as error:
            if self.config_by_default and error.where is not None and error.where.startswith(str(self.config_paths[0])):
                way_out = f"this file is read by default; {NO_CONFIG} ignores it"
                error.hint = way_out if error.hint is None else f"{error.hint}; {way_out}"
            raise
        wrong = wrong_state_dir(settings)
        if wrong is not None:
            raise wrong
        if self.config_by_default:
            self._print(self.output.note, f"settings are read from {self.config_paths[0]} ({NO_CONFIG} ignores it)")
        for text in settings.stray:
            self._print(self.output.warning, text)
        self._print(self.output.note, unused_note(settings))
        return settings

    def log_dirs(self, named: tuple[Path, ...]) -> tuple[Path, ...]:
        """The log directories in ``named``, else those of the settings, as for ``cleanerd run``.

        Raises:
            UsageError: neither names any.
            ConfigError: the settings are invalid, or the broker's properties cannot be read.
        """
        from cleanerd.resolution.log_dirs import log_dirs_of  # noqa: PLC0415

        if named:
            return named
        settings = self.load_settings()
        if not (settings.daemon.cleanerd_log_dirs or settings.daemon.cleanerd_broker_properties):
            raise click.UsageError("Missing argument 'LOG_DIR...': name a log directory, or set cleanerd.log.dirs.")
        return log_dirs_of(settings)

    def _print(self, how: Callable[[str], None], text: str | None) -> None:
        if text is not None and self.noted is not None and text not in self.noted:
            self.noted.add(text)
            how(text)


def common_options(function: Callable[..., R]) -> Callable[..., R]:
    """Give a command ``--json --config --no-config --set -v --quiet`` and, as its first argument, a :class:`Common`."""

    @functools.wraps(function)
    def command(
        *,
        as_json: bool,
        config_paths: tuple[Path, ...],
        no_config: bool,
        assignments: tuple[str, ...],
        verbose: bool,
        quiet: bool,
        **options: object,
    ) -> R:
        if config_paths and no_config:
            raise click.UsageError(f"give --config or {NO_CONFIG}, not both")
        if verbose and quiet:
            raise click.UsageError("give -v or --quiet, not both")
        if isinstance(function, LazyCommand):
            function.load()
        # A module that logs imports structlog at its top; if it is not loaded nothing logs, and 70 ms are saved.
        if "structlog" in sys.modules:
            configure_logging(verbose=verbose, quiet=quiet)
        by_default = () if config_paths or no_config else default_config()
        common = Common(
            Output(as_json=as_json, quiet=quiet), config_paths or by_default, assignments, verbose, bool(by_default)
        )
        return function(common, **options)

    # Last in --help, because click shows the first declared options at the end.
    own = vars(command).pop("__click_params__", [])
    for option in reversed(_OPTIONS):
        option(command)
    vars(command)["__click_params__"] += own
    return command


def _assignment(_context: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if "=" not in value:
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
    return values


now_option: Final = click.option(
    "--now-ms", type=click.IntRange(min=0), metavar="MS", help="Use this time instead of the clock's."
)
"""For commands that judge by the time."""

FEW_PARTITIONS: Final = 20
"""Up to this number each partition has its own row; more are shown by topic."""

by_option: Final = click.option(
    "--by",
    type=click.Choice(["topic", "partition"]),
    help="A row for each topic with work, or for each partition. Default: by partition, up to "
    f"{FEW_PARTITIONS} of them.",
)
top_option: Final = click.option(
    "--top", type=click.IntRange(min=0), metavar="N", help="At most N rows, the largest savings first. Default: all."
)
"""For commands that list partitions by how much a cleaning would save."""

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--json", "as_json", is_flag=True, help='Print the result as JSON ("schema": 1).'),
    click.option(
        "--config",
        "config_paths",
        multiple=True,
        metavar="FILE",
        type=click.Path(path_type=Path, readable=False),
        help="Settings file (TOML), or a directory of them, read in sorted order. Repeatable; later ones win. Default: "
        f"{DEFAULT_CONFIG}, if it exists.",
    ),
    click.option(NO_CONFIG, "no_config", is_flag=True, help=f"Do not read {DEFAULT_CONFIG}."),
    click.option(
        "--set",
        "assignments",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_assignment,
        shell_complete=complete_setting,
        help="One setting; it overrides files and environment. Repeatable.",
    ),
    click.option("-v", "--verbose", "verbose", is_flag=True, help="More log lines; tracebacks of unexpected errors."),
    click.option("--quiet", is_flag=True, help="Errors and the result only: no progress, no notes."),
)
