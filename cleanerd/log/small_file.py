"""The small files beside the segments, read whole: checkpoints, indexes, snapshots, identities."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from cleanerd.errors import CleanerdError

if TYPE_CHECKING:
    from pathlib import Path


def read_small_file(path: Path) -> bytes | None:
    """All of ``path``; None when there is no such file.

    Raises:
        CleanerdError: it cannot be read, or is no plain file: a pipe would keep us waiting with the directory locked.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            kind = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(kind):
                what = "Is a directory" if stat.S_ISDIR(kind) else "it is not a plain file"
                raise CleanerdError(f"cannot be read: {what}", where=str(path))
            with open(descriptor, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable("cannot be read", path, error) from error


def unreadable(what: str, path: Path | str, error: OSError) -> CleanerdError:
    """What the system refused, with the way out where that is known."""
    hint = "run cleanerd as the broker's user" if isinstance(error, PermissionError) else None
    return CleanerdError(f"{what}: {error.strerror}", where=str(path), hint=hint)
