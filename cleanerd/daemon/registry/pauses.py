"""Stores pauses over a restart of the daemon: ``daemon.json`` in the state directory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cleanerd.fsio.state_files import UnreadableState
from cleanerd.state.document import Document


@dataclass(frozen=True, slots=True)
class Pauses:
    """The operators' pauses: all cleaning, or the partitions of these names (``orders-0``)."""

    everything: bool = False
    names: frozenset[str] = frozenset()

    def changed(self, names: Collection[str] | None, *, paused: bool) -> Pauses:
        """The pauses after pausing or resuming these partitions, or with None everything."""
        if names is None:
            return replace(self, everything=paused)
        return replace(self, names=self.names.union(names) if paused else self.names.difference(names))


NO_PAUSES: Final = Pauses()


@dataclass(frozen=True, slots=True)
class _PausesFile:
    paused: bool
    paused_partitions: tuple[str, ...]


_DOCUMENT: Final = Document("daemon.json", _PausesFile)


def load_pauses(state_dir: Path) -> tuple[Pauses, str]:
    """The pauses, and a warning. With a file whose pauses are unknown, everything is paused (D-22)."""
    found = _DOCUMENT.read(state_dir)
    if isinstance(found, UnreadableState):
        if found.failed:
            return NO_PAUSES, f"{found.where}: {found.reason}; no partition is paused"
        return Pauses(everything=True), f"{found.where}: {found.reason}; everything is paused until cleanerd resume"
    return NO_PAUSES if found is None else Pauses(found.paused, frozenset(found.paused_partitions)), ""


def save_pauses(state_dir: Path, pauses: Pauses) -> str:
    """Store them; returns a warning, or an empty text."""
    problem = _DOCUMENT.try_write(state_dir, _PausesFile(pauses.everything, tuple(sorted(pauses.names))))
    return problem and f"{problem}; pauses end with the daemon"
