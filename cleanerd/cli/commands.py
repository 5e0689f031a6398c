"""Groups of verbs; those of :class:`CommandGroup` are imported when they are called: ``--help`` loads none of them."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias, cast

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

VerbTable: TypeAlias = "Mapping[str, tuple[str, str]]"
"""Verb -> where its click command is (``module:name``), and one line for ``--help``; in the order of ``--help``."""


class Subcommands(click.Group):
    """A few verbs of one module, called verbs in its ``--help`` too."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs in the order in which the module has them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, command.get_short_help_str()) for verb, command in self.commands.items()])


class CommandGroup(click.Group, ABC):
    """The verbs of :meth:`table`."""

    @abstractmethod
    def table(self) -> VerbTable:
        """Which verbs there are."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The verbs in the order of ``--help``."""
        return list(self.table())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the verb's module; None for an unknown verb."""
        if cmd_name not in self.table():
            return None
        module, name = self.table()[cmd_name][0].split(":")
        return cast("click.Command", getattr(importlib.import_module(module), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in self.table().items()])
