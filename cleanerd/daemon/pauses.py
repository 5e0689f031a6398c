"""What was paused stays paused when the daemon is started again: ``daemon.json`` in the state directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from cleanerd.log.clean_point import make_directory, write_state_file

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = "daemon.json"
_FORMAT: Final = 1


def load_pauses(state_dir: Path) -> tuple[bool, set[str], str]:
    """Whether everything is paused, which partitions are, and a warning: a damaged file counts as absent."""
    path = state_dir / _FILE
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
        if document["format"] == _FORMAT:
            return bool(document["paused"]), {str(name) for name in document["paused_partitions"]}, ""
        reason = f"format {document['format']}"
    except FileNotFoundError:
        return False, set(), ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error)
    return False, set(), f"{path}: damaged or not readable ({reason}); nothing counts as paused"


def save_pauses(state_dir: Path, *, paused: bool, names: set[str]) -> str:
    """Remember them; returns a warning, empty when that worked."""
    document = {"format": _FORMAT, "paused": paused, "paused_partitions": sorted(names)}
    try:
        if not state_dir.exists():
            make_directory(state_dir, state_dir.parent.stat())
        write_state_file(state_dir / _FILE, json.dumps(document, indent=1).encode(), state_dir.stat())
    except OSError as error:
        return f"{state_dir / _FILE}: cannot be written ({error.strerror}); pauses end with the daemon"
    return ""
