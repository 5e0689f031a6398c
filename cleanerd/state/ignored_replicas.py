"""Brokers that never return, so that no tombstone waits for their replicas (U-78): ``ignored-replicas.json``.

``cleanerd ignore-replica`` has the daemon write it. Everything that cleans with this state directory follows it. A file
that cannot be used ignores no broker: tombstones wait then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.state.document import Document

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

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
    """Ignore brokers of these clusters, or wait for them again. Returns why that was not possible, "" when it was."""
    known = set((_DOCUMENT.load(state_dir, []) or _IgnoredReplicas()).ignored)
    changed = {_IgnoredReplica(cluster, broker) for cluster in clusters for broker in brokers}
    entries = sorted(known | changed if ignored else known - changed)
    return _DOCUMENT.try_write(state_dir, _IgnoredReplicas(tuple(entries)))
