"""Whether a directory can be used for ``--keep-replaced``, checked without writing there (S-40)."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from cleanerd.errors import ConfigError, RefusedError
from cleanerd.segments.log_dir import META_PROPERTIES


def require_keep_dir(kept: Path, log_dirs: Sequence[Path]) -> None:
    """Refuse a directory that cannot store replaced segments. Reads only.

    Raises:
        ConfigError: it is missing (exit code 3).
        RefusedError: it is in a log directory, or on another file system.
    """
    # Check this before its existence: a message must not suggest creating it in a wrong place.
    place = kept.resolve()
    inside = [path.resolve() for path in log_dirs if place.is_relative_to(path.resolve())]
    inside += [path for path in (place, *place.parents) if (path / META_PROPERTIES).exists()]
    if inside:
        raise RefusedError(
            f"is in the log directory {inside[0]}",
            where=str(kept),
            hint="a broker takes any directory there for a partition; name one outside of every log directory",
        )
    if not kept.is_dir():
        if kept.exists():
            raise ConfigError("is not a directory", where=str(kept), hint="replaced segments are kept in a directory")
        raise ConfigError("does not exist", where=str(kept), hint="create it: replaced segments are kept there")
    for path in log_dirs:
        if path.is_dir() and path.stat().st_dev != place.stat().st_dev:
            raise not_linkable(path, kept, os.strerror(errno.EXDEV))


def on_its_file_system(places: Sequence[Path], log_dir: Path) -> Path:
    """The first of ``places`` on a file system that allows hard links to files of ``log_dir``.

    Raises:
        ConfigError: none of them is.
        RefusedError: none allows hard links, or a candidate is missing.
    """
    device = log_dir.stat().st_dev
    for place in places:
        if place.is_dir() and place.stat().st_dev == device:
            return place
    if not any(place.exists() for place in places):
        raise ConfigError(
            "does not exist",
            where=f"cleanerd.keep.replaced.dir={','.join(map(str, places))}",
            hint=f"make it on the file system of {log_dir}, outside of every log directory",
        )
    configured = ", ".join(map(str, places))
    raise RefusedError(
        f"cleanerd.keep.replaced.dir={configured}: no directory in it is on the file system of {log_dir}",
        where=str(log_dir),
        hint="make one there, outside of every log directory, and name it too",
    )


def not_linkable(log_dir: Path, kept: Path, reason: str) -> RefusedError:
    """The refusal of ``kept``, to which files of ``log_dir`` cannot be hard-linked."""
    return RefusedError(
        f"files of {log_dir} cannot be linked here: {reason}",
        where=str(kept),
        hint="name a directory on the same file system and mount, and run as the files' owner",
    )
