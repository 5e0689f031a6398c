"""Brokers that never return, so that no tombstone waits for their replicas (U-78): ``ignored-replicas.json``.

``cleanerd ignore-replica`` has the daemon write it. Everything that cleans with this state directory follows it. A file
that cannot be used ignores no broker: tombstones wait then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from cleanerd.fsio.json_text import document_bytes
from cleanerd.fsio.state_files import entries_of, require_format, try_write

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

FILE_NAME: Final = "ignored-replicas.json"
_FORMAT: Final = 1


def ignored_replicas(state_dir: Path, cluster_id: str | None, warnings: list[str]) -> frozenset[int]:
    """The ignored brokers of a cluster. ``warnings``: why the file cannot be used."""
    return frozenset(
        broker for cluster, broker in entries_of(state_dir / FILE_NAME, _read, warnings) if cluster == cluster_id
    )


def change_ignored_replicas(
    state_dir: Path, clusters: Collection[str], brokers: Collection[int], *, ignored: bool
) -> str:
    """Ignore brokers of these clusters, or wait for them again. Returns why that was not possible, "" when it was."""
    known = set(entries_of(state_dir / FILE_NAME, _read, []))
    changed = {(cluster, broker) for cluster in clusters for broker in brokers}
    entries = sorted(known | changed if ignored else known - changed)
    document = {
        "format": _FORMAT,
        "ignored": [{"cluster_id": cluster, "broker": broker} for cluster, broker in entries],
    }
    return try_write(state_dir / FILE_NAME, document_bytes(document))


def _read(data: bytes) -> list[tuple[str, int]]:
    """Raises one of ``DAMAGE``: it is not such a file."""
    document = json.loads(data)
    require_format(document, _FORMAT)
    return [(str(each["cluster_id"]), int(each["broker"])) for each in document["ignored"]]
