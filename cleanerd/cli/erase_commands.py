"""The command lines of ``cleanerd erase``. What each does is in ``cli/erase_*.py``; see ``cleaning_commands.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cleanerd.cli.commands import Subcommands
from cleanerd.cli.lazy_command import lazy_command
from cleanerd.cli.options import common_options, now_option
from cleanerd.cli.selecting import existing_dirs

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@click.group("erase", cls=Subcommands)
def erase() -> None:
    """Erase a key from a topic, and prove for the whole cluster that it is gone."""


def _key_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--base64", "as_base64", is_flag=True, help="The key is given in base64."),
        click.option("--hex", "as_hex", is_flag=True, help="The key is given as hexadecimal digits."),
        click.option("--key", required=True, metavar="K", help="The key."),
        click.argument("topic", metavar="TOPIC"),
    ):
        function = option(function)
    return function


@erase.command("plan", short_help="Where a key is on this host, and what removes it by when.")
@common_options
@_key_options
@existing_dirs("log_dirs", "[LOG_DIR...]", required=False)
@now_option
@lazy_command("cleanerd.cli.erase_plan:plan")
def erase_plan() -> None:
    """Show every copy of a key of TOPIC on this host, and what removes it by when at the latest.

    Without LOG_DIR it searches the directories of cleanerd.log.dirs. "no bound" means that an event need not happen;
    the line names what gives a bound. Changes nothing. Exit code 5 when a place could not be searched.
    """
