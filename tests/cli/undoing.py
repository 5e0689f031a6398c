"""Clean a log directory, keep the replaced segments, and undo the cleaning, all by the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.clean_log_dirs import Answer, Shell


def clean_and_keep(shell: Shell, path: Path, *more: object) -> None:
    """Clean and keep."""
    answer = shell.clean(path, "--keep-replaced", shell.root / "kept", *more)
    assert answer.code == 0, answer.err


def undo(shell: Shell, path: Path, *more: object) -> Answer:
    return shell("undo", path, "--yes", "--quiet", *more)
