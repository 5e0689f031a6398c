"""What ``cleanerd delegate`` changed in the cluster, and the values before: ``delegations.json`` (U-8, U-9).

One JSON file in ``cleanerd.state.dir``. ``undelegate`` restores its values. Until then these values decide when
cleanerd cleans the topic.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.fsio.state_files import (
    DAMAGE,
    DAMAGED,
    LOCK_WAIT_SECONDS,
    NewerFormatError,
    UnreadableState,
    set_aside,
)
from cleanerd.state.document import Document

FILE_NAME: Final = "delegations.json"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key of a topic: its value ``before`` (None: not set on the topic), the ``effective`` one, and the new one."""

    before: str | None
    effective: str
    after: str


@dataclass(frozen=True, slots=True)
class SavedDelegation:
    """One delegated topic of one cluster. ``topic_id``, with hyphens, is empty if the broker did not report it."""

    cluster_id: str
    topic: str
    topic_id: str
    delegated_ms: int
    changes: Mapping[str, KeyChange]

    @property
    def effective(self) -> dict[str, str]:
        """The effective values before, for ``resolve_topic_config(saved=...)``."""
        return {key: change.effective for key, change in self.changes.items()}


@dataclass(frozen=True, slots=True)
class _SavedDelegations:
    delegations: tuple[SavedDelegation, ...] = ()


_DOCUMENT: Final = Document(FILE_NAME, _SavedDelegations)


class Delegations:
    """The file of delegations.

    Reading does not raise: unusable files count as absent, see ``warnings`` and ``unread``.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE_NAME
        self.warnings: list[str] = []
        self.unread: UnreadableState | None = None

    def load(self) -> list[SavedDelegation]:
        """Every saved delegation; empty without a usable file.

        ``unread``: there may be others, because the file or a renamed one cannot be used.
        """
        found = _DOCUMENT.read(self.path.parent)
        if isinstance(found, UnreadableState):
            self.unread = found
            self.warnings.append(found.warning)
            return []
        aside = self.path.with_suffix(DAMAGED)
        self.unread = UnreadableState(str(aside), "is damaged (it was set aside)") if os.path.lexists(aside) else None
        return [] if found is None else list(found.delegations)

    def of_cluster(self, cluster_id: str | None) -> dict[str, SavedDelegation]:
        """The delegations of one cluster by topic; of all clusters if the cluster is unknown."""
        return {saved.topic: saved for saved in self.load() if cluster_id in (None, saved.cluster_id)}

    @contextlib.contextmanager
    def changing(self, wait_seconds: float = LOCK_WAIT_SECONDS) -> Iterator[_Changing]:
        """The file, locked for a change; waits for other processes that change it.

        A damaged file is renamed to ``delegations.damaged``, with a warning, because it may have the only copy of the
        old values.

        Raises:
            CleanerdError: the state directory cannot be written. Then nothing may be changed in the cluster either.
            RefusedError: a newer release wrote the file.
        """
        try:
            with _DOCUMENT.locked(self.path.parent, wait_seconds=wait_seconds):
                yield _Changing(self, self._load_for_change())
        except OSError as error:
            raise self._unwritable(error) from error

    def _load_for_change(self) -> Sequence[SavedDelegation]:
        try:
            found = _DOCUMENT.get(self.path.parent)
        except NewerFormatError as error:
            raise RefusedError(str(error), where=str(self.path), hint="use the newer release") from error
        except DAMAGE as error:
            aside = set_aside(self.path)
            self.warnings.append(f"{self.path}: damaged ({error}); set aside as {aside.name} and ignored")
            return ()
        return () if found is None else found.delegations

    def _unwritable(self, error: OSError) -> CleanerdError:
        return CleanerdError(
            f"cannot be written: {error.strerror}",
            where=str(error.filename or self.path),
            hint="the cluster's current settings must be saved before they are changed; see cleanerd.state.dir",
        )


class _Changing:
    """The delegations while the file is locked."""

    def __init__(self, file: Delegations, entries: Sequence[SavedDelegation]) -> None:
        self._file = file
        self._entries = entries

    def find(self, cluster_id: str, topic: str) -> SavedDelegation | None:
        return next((e for e in self._entries if (e.cluster_id, e.topic) == (cluster_id, topic)), None)

    def save(self, saved: SavedDelegation) -> None:
        """Save a topic's delegation, replacing an earlier one. Raises OSError."""
        self._write([*self._without(saved.cluster_id, saved.topic), saved])

    def remove(self, cluster_id: str, topic: str) -> None:
        """Remove a topic's delegation. Raises OSError."""
        self._write(self._without(cluster_id, topic))

    def _without(self, cluster_id: str, topic: str) -> list[SavedDelegation]:
        return [e for e in self._entries if (e.cluster_id, e.topic) != (cluster_id, topic)]

    def _write(self, entries: list[SavedDelegation]) -> None:
        _DOCUMENT.write(self._file.path.parent, _SavedDelegations(tuple(entries)))
        self._entries = entries
