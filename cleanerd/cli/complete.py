"""Completion for shells: click writes the script and answers the questions; main() has to ask it (docs/install.md)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

VARIABLE: Final = "_CLEANERD_COMPLETE"
"""``bash_source``, ``zsh_source``, ``fish_source``: the script. What the script asks with is between it and click."""


def complete(cli: click.Command) -> int:
    """Answer what the environment asks; the result is the exit code."""
    # Not at the top: every other start would pay for it.
    from click.shell_completion import shell_complete  # noqa: PLC0415

    return shell_complete(cli, {}, "cleanerd", VARIABLE, os.environ[VARIABLE])
