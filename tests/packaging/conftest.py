"""A user at a terminal, as for the command line's tests."""

from __future__ import annotations

from tests.cli.conftest import root, shell

__all__ = ["root", "shell"]
