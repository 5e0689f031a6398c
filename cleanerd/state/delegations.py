"""What ``cleanerd delegate`` changed in the cluster, and the values before: ``delegations.json`` (U-8, U-9).

One JSON file in ``cleanerd.state.dir``. ``hand-back`` restores its values; until then these values, not the broker's,
decide when cleanerd cleans the topic.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from cleanerd import __version__
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.fsio.json_text import document_bytes
from cleanerd.fsio.state_files import (
    DAMAGE,
    DAMAGED,
    LOCK_WAIT_SECONDS,
    NewerFormatError,
    UnreadableState,
    locked,
    make_directory,
    owner_of,
    read_entries,
    read_state_file,
    require_format,
    set_aside,
    write_state_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

FORMAT: Final = 1
FILE_NAME: Final = "delegations.json"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key of a topic: ``before`` on the topic (None: was not set there), ``effective`` before, and what was set."""

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
        """The values that counted before, for ``resolve_topic_config(saved=...)``."""
        return {key: change.effective for key, change in self.changes.items()}


class Delegations:
    """The file. Reading never fails: what cannot be used counts as absent, see ``warnings`` and ``unread``."""

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE_NAME
        self.warnings: list[str] = []
        self.unread: UnreadableState | None = None

    def load(self) -> list[SavedDelegation]:
        """Every saved delegation; empty without a usable file.

        ``unread``: there may have been others, because the file or one that was set aside cannot be used.
        """
        found = read_entries(self.path, _read)
        if isinstance(found, UnreadableState):
            self.unread = found
            self.warnings.append(found.warning)
            return []
        aside = self.path.with_suffix(DAMAGED)
        self.unread = UnreadableState(str(aside), "is damaged (it was set aside)") if os.path.lexists(aside) else None
        return found

    def of_cluster(self, cluster_id: str | None) -> dict[str, SavedDelegation]:
        """Those of one cluster by topic; of all clusters when it is not known which one it is."""
        return {saved.topic: saved for saved in self.load() if cluster_id in (None, saved.cluster_id)}

    @contextlib.contextmanager
    def changing(self, wait_seconds: float = LOCK_WAIT_SECONDS) -> Iterator[_Changing]:
        """The file, locked for a change; waits for other processes that change it.

        A damaged file is set aside as ``delegations.damaged``, with a warning: it may be all that is left of what was
        set before.

        Raises:
            CleanerdError: the state directory cannot be written. Then nothing may be changed in the cluster either.
            RefusedError: a newer release wrote the file.
        """
        directory = self.path.parent
        try:
            make_directory(directory, owner_of(directory))
            with locked(self.path.with_suffix(".lock"), directory.stat(), wait_seconds=wait_seconds):
                yield _Changing(self, self._load_for_change())
        except OSError as error:
            raise self._unwritable(error) from error

    def _load_for_change(self) -> list[SavedDelegation]:
        try:
            data = read_state_file(self.path)
        except FileNotFoundError:
            return []
        try:
            return _read(data)
        except NewerFormatError as error:
            raise RefusedError(str(error), where=str(self.path), hint="use the newer release") from error
        except DAMAGE as error:
            aside = set_aside(self.path)
            self.warnings.append(f"{self.path}: damaged ({error}); set aside as {aside.name}, counts as absent")
            return []

    def _unwritable(self, error: OSError) -> CleanerdError:
        return CleanerdError(
            f"cannot be written: {error.strerror}",
            where=str(error.filename or self.path),
            hint="what is set in the cluster now must be saved before it is changed; see cleanerd.state.dir",
        )


class _Changing:
    """The delegations while the file is locked."""

    def __init__(self, file: Delegations, entries: list[SavedDelegation]) -> None:
        self._file = file
        self._entries = entries

    def find(self, cluster_id: str, topic: str) -> SavedDelegation | None:
        return next((e for e in self._entries if (e.cluster_id, e.topic) == (cluster_id, topic)), None)

    def save(self, saved: SavedDelegation) -> None:
        """Save it, in place of what was saved of the topic. Raises OSError."""
        self._write([*self._without(saved.cluster_id, saved.topic), saved])

    def remove(self, cluster_id: str, topic: str) -> None:
        """Forget a topic. Raises OSError."""
        self._write(self._without(cluster_id, topic))

    def _without(self, cluster_id: str, topic: str) -> list[SavedDelegation]:
        return [e for e in self._entries if (e.cluster_id, e.topic) != (cluster_id, topic)]

    def _write(self, entries: list[SavedDelegation]) -> None:
        document = {"format": FORMAT, "cleanerd": __version__, "delegations": [asdict(entry) for entry in entries]}
        data = document_bytes(document)
        write_state_file(self._file.path, data, self._file.path.parent.stat())
        self._entries = entries


def _read(data: bytes) -> list[SavedDelegation]:
    document = json.loads(data)
    require_format(document, FORMAT)
    return [_entry(entry) for entry in document["delegations"]]


def _entry(entry: dict[str, Any]) -> SavedDelegation:
    return SavedDelegation(
        cluster_id=str(entry["cluster_id"]),
        topic=str(entry["topic"]),
        topic_id=str(entry["topic_id"]),
        delegated_ms=int(entry["delegated_ms"]),
        changes={
            str(key): KeyChange(
                before=None if change["before"] is None else str(change["before"]),
                effective=str(change["effective"]),
                after=str(change["after"]),
            )
            for key, change in entry["changes"].items()
        },
    )
