"""Brokers that never return, so that tombstones do not wait for their replicas (U-78): ``ignored-replicas.json``.

``cleanerd ignore-replica`` makes the daemon write it. Every cleaning with this state directory uses it. If the file
cannot be used, no broker is ignored, and tombstones wait.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cleanerd.fsio.state_files import UnreadableState
from cleanerd.state.document import Document

FILE_NAME: Final = "ignored-replicas.json"


@dataclass(frozen=True, slots=True, order=True)
class _IgnoredReplica:
    cluster_id: str
    broker: int


@dataclass(frozen=True, slots=True)
class _IgnoredReplicas:
    ignored: tuple[_IgnoredReplica, ...] = ()


_DOCUMENT: Final = Document(FILE_NAME, _IgnoredReplicas)


def ignored_replicas(state_dir: Path, cluster_id: str | None, warnings: list[str]) -> frozenset[int]:
    """The ignored brokers of a cluster. ``warnings``: why the file cannot be used."""
    known = _DOCUMENT.load(state_dir, warnings) or _IgnoredReplicas()
    return frozenset(each.broker for each in known.ignored if each.cluster_id == cluster_id)


def change_ignored_replicas(
    state_dir: Path, clusters: Collection[str], brokers: Collection[int], *, ignored: bool
) -> str:
    """Ignore brokers of these clusters, or stop ignoring them. Returns why that failed, or an empty text.

    A damaged file, or one of a newer release, stays as it is: a new one would drop the brokers that it names.
    """
    found = _DOCUMENT.read(state_dir)
    if isinstance(found, UnreadableState):
        return f"{found}" if found.failed else f"{found}; remove the file to begin with an empty list"
    known = set((found or _IgnoredReplicas()).ignored)
    changed = {_IgnoredReplica(cluster, broker) for cluster in clusters for broker in brokers}
    entries = sorted(known | changed if ignored else known - changed)
    return _DOCUMENT.try_write(state_dir, _IgnoredReplicas(tuple(entries)))
