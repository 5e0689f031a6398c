"""Pauses survive a restart of the daemon: ``daemon.json`` in the state directory."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from cleanerd.fsio.json_text import document_bytes
from cleanerd.fsio.state_files import (
    DAMAGE,
    describe_damage,
    make_directory,
    read_state_file,
    require_format,
    write_state_file,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

_FILE: Final = "daemon.json"
_FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Pauses:
    """The operators' pauses: all cleaning, or the partitions of these names (``orders-0``)."""

    everything: bool = False
    names: frozenset[str] = frozenset()

    def changed(self, names: Collection[str] | None, *, paused: bool) -> Pauses:
        """With these partitions paused or not, or with None everything."""
        if names is None:
            return replace(self, everything=paused)
        return replace(self, names=self.names.union(names) if paused else self.names.difference(names))


NO_PAUSES: Final = Pauses()


def load_pauses(state_dir: Path) -> tuple[Pauses, str]:
    """The pauses, and a warning: a damaged file is ignored."""
    path = state_dir / _FILE
    try:
        document: dict[str, Any] = json.loads(read_state_file(path))
        require_format(document, _FORMAT)
        return Pauses(bool(document["paused"]), frozenset(str(name) for name in document["paused_partitions"])), ""
    except FileNotFoundError:
        return NO_PAUSES, ""
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except DAMAGE as error:
        reason = describe_damage(error)
    return NO_PAUSES, f"{path}: {reason}; nothing counts as paused"


def save_pauses(state_dir: Path, pauses: Pauses) -> str:
    """Remember them; returns a warning, empty when that worked."""
    document = {"format": _FORMAT, "paused": pauses.everything, "paused_partitions": sorted(pauses.names)}
    try:
        if not state_dir.exists():
            make_directory(state_dir, state_dir.parent.stat())
        write_state_file(state_dir / _FILE, document_bytes(document), state_dir.stat())
    except OSError as error:
        return f"{state_dir / _FILE}: cannot be written ({error.strerror}); pauses end with the daemon"
    return ""
