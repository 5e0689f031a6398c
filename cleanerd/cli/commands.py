"""Groups of commands; a :class:`CommandGroup` imports a command when it is called, so ``--help`` imports none."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeAlias, cast

import click

CommandTable: TypeAlias = "Mapping[str, tuple[str, str]]"
"""Command -> where its click command is (``module:name``), and its line in ``--help``; in the order of ``--help``."""


class Subcommands(click.Group):
    """A group of a few commands in one module; ``--help`` lists them in its order."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands in the order of their module."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str()) for name, command in self.commands.items()])


class CommandGroup(click.Group, ABC):
    """A group with the commands of :meth:`table`."""

    @abstractmethod
    def table(self) -> CommandTable:
        """The table of commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names of the commands in the order of ``--help``."""
        return list(self.table())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command's module; None for an unknown command."""
        if cmd_name not in self.table():
            return None
        module, name = self.table()[cmd_name][0].split(":")
        return cast("click.Command", getattr(importlib.import_module(module), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table().items()])
