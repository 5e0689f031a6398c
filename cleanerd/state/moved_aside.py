"""The directories to which ``cleanerd move-aside --to`` moved replicas (U-47): ``moved-aside.json``.

An audit searches them. ``LOG_DIR.aside``, the default, needs no entry: it is found by its name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError
from cleanerd.state.document import Document

if TYPE_CHECKING:
    from cleanerd.fsio.state_files import UnreadableState

FILE_NAME: Final = "moved-aside.json"


@dataclass(frozen=True, slots=True)
class _MovedAside:
    directories: tuple[str, ...] = ()


_DOCUMENT: Final = Document(FILE_NAME, _MovedAside)


def default_aside_dir(log_dir: Path) -> Path:
    """``LOG_DIR.aside``, beside the resolved log directory."""
    real = log_dir.resolve()
    return real.with_name(f"{real.name}.aside")


def aside_dirs(state_dir: Path) -> list[Path] | UnreadableState:
    """The recorded directories, resolved."""
    found = _DOCUMENT.read(state_dir)
    if found is None or isinstance(found, _MovedAside):
        return [Path(each) for each in (found or _MovedAside()).directories]
    return found


def record_aside_dir(state_dir: Path, directory: Path) -> None:
    """Record ``directory`` before a replica is moved there.

    Raises:
        CleanerdError: the file cannot be read or written, so an audit would miss the replica.
    """
    try:
        with _DOCUMENT.locked(state_dir):
            known = aside_dirs(state_dir)
            if not isinstance(known, list):
                raise CleanerdError(known.warning, hint=f"remove {state_dir / FILE_NAME}, or leave out --to")
            every = sorted({*map(os.fspath, known), os.path.realpath(directory)})
            _DOCUMENT.write(state_dir, _MovedAside(tuple(every)))
    except OSError as error:
        raise CleanerdError(
            f"cannot be written ({error.strerror}), so an audit would not search {directory}",
            where=str(state_dir / FILE_NAME),
            hint="run as a user who may write there, or leave out --to",
        ) from error
