"""Shell completion: click writes the script and answers its queries; main() calls this module (docs/install.md)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import click

VARIABLE: Final = "_CLEANERD_COMPLETE"
"""The environment variable: ``bash_source``, ``zsh_source``, ``fish_source`` print the script.

Other values come from the script.
"""


def complete(cli: click.Command) -> int:
    """Answer the environment's query; returns the exit code."""
    # Not at the top: every other start would load it.
    from click.shell_completion import shell_complete  # noqa: PLC0415

    return shell_complete(cli, {}, "cleanerd", VARIABLE, os.environ[VARIABLE])
