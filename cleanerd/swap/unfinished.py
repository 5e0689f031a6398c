"""Reasons not to begin a swap: one that is in doubt, or a file that another process holds (S-21, U-34).

A swap that stops between its commit point and the renaming of its sources leaves the new log beside the old one. A
second swap on top of that would make them indistinguishable.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from cleanerd.broker.claim import strange_staging
from cleanerd.cleaner.manifest import STAGING
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.format.names import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from cleanerd.swap.files import PartitionFiles


def refuse_unfinished(files: PartitionFiles, names: Iterable[str]) -> None:
    """S-21, U-34: refuse if any base has a ``.swap`` or ``.cleaned`` file: cleanerd must not resolve it.

    Raises:
        RefusedError: there is one among ``names``.
    """
    unfinished = sorted(name for name in names if name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)))
    if unfinished:
        raise RefusedError(
            f"an unfinished swap: {', '.join(unfinished[:4])}",
            where=str(files.path),
            hint="start the broker once: it resolves them while it loads the log",
        )


def refuse_strange_staging(files: PartitionFiles) -> bool:
    """Refuse a file that has the name of cleanerd's staging directory; returns whether that directory exists.

    Raises:
        RefusedError: there is one.
    """
    status = files.stat(STAGING)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise strange_staging(str(files.path))
    return status is not None


def require_retirable(files: PartitionFiles, names: Iterable[str], present: Collection[str]) -> None:
    """U-34: check that the files to replace can be removed; after the commit point it is too late.

    ``present``: all names in the directory.

    Raises:
        RefusedError: the system does not allow to remove one of ``names``.
    """
    for name in names:
        _require_renamable(files, name)
        gone = name + DELETED_SUFFIX
        status = files.stat(gone) if gone in present else None
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise _refused(files, gone, "it is a directory")
        if status is not None:
            _require_renamable(files, gone)


def _require_renamable(files: PartitionFiles, name: str) -> None:
    try:
        files.require_renamable(name, STAGING)
    except CleanerdError as error:
        raise _refused(files, name, error.message) from error


def _refused(files: PartitionFiles, name: str, reason: str) -> RefusedError:
    return RefusedError(
        f"cannot be replaced: {reason}",
        where=files.where(name),
        hint="it is immutable (see lsattr), or cleanerd may not rename it; nothing was changed",
    )
