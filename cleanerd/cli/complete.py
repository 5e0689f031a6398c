"""Completion for shells: click writes the script and answers its queries; main() has to call it (docs/install.md)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

VARIABLE: Final = "_CLEANERD_COMPLETE"
"""``bash_source``, ``zsh_source``, ``fish_source``: print the script. Other values are between the script and click."""


def complete(cli: click.Command) -> int:
    """Answer the environment's query; returns the exit code."""
    # Not at the top: every other start would pay for it.
    from click.shell_completion import shell_complete  # noqa: PLC0415

    return shell_complete(cli, {}, "cleanerd", VARIABLE, os.environ[VARIABLE])
