"""The small files beside the segments, read whole: checkpoints, indexes, snapshots, identities."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOT_OURS_TO_GIVE: Final = frozenset({errno.EPERM, errno.EACCES, errno.EINVAL})


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


@contextlib.contextmanager
def if_it_may_be_given() -> Iterator[None]:
    """A change of owner in the block need not succeed.

    Only root gives files away; and nobody can give one to somebody who has no number in this user namespace
    (``PrivateUsers=yes``, containers): there the answer is EINVAL.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _NOT_OURS_TO_GIVE:
            raise
