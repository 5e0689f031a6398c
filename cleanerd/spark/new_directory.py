"""A new directory that is written completely or not at all."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

from cleanerd.errors import ConfigError, system_error

_TIMES: Final = 4


def exists_already(target: Path) -> ConfigError:
    """The error for an existing ``target``."""
    return ConfigError("exists already", where=str(target), hint="name a new directory")


def make_new_directory(target: Path) -> None:
    """Create ``target`` and missing directories above it.

    Raises:
        ConfigError: it exists.
        CleanerdError: it cannot be created.
    """
    try:
        target.mkdir(parents=True)
    except FileExistsError:
        raise exists_already(target) from None
    except OSError as error:
        raise system_error("cannot be made", str(target), error) from error


def remove_attempts(place: Path) -> None:
    """Remove the directory in which tasks wrote; raises OSError.

    A late second attempt may still write, so this is repeated a few times.
    """
    for _ in range(_TIMES):
        with contextlib.suppress(OSError):
            shutil.rmtree(place)
            return
    shutil.rmtree(place)
