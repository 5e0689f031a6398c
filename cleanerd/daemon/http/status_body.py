"""The body of ``/status``, made once for each view.

A busy daemon makes a new view every second, and of its thousands of partitions a few have changed. Views are immutable
and share what is unchanged, so a partition that is the same object has the same text.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cleanerd.daemon.view import DaemonView, PartitionView

_LEVEL: Final = 1  # repeated names are most of it: more effort takes three times as long for a tenth less


@dataclass(frozen=True, slots=True)
class StatusBytes:
    """JSON, plain and packed."""

    plain: bytes
    zipped: bytes
    etag: str


class StatusBody:
    """Makes bodies; one thread at a time."""

    def __init__(self) -> None:
        self._view: DaemonView | None = None
        self._body: StatusBytes | None = None
        self._texts: dict[int, tuple[PartitionView, str]] = {}
        self._count = 0

    def of(self, view: DaemonView) -> StatusBytes:
        """That of ``view``: ``view.to_json()``, as text."""
        if self._body is not None and self._view is view:
            return self._body
        plain = self.plain(view)
        self._count += 1
        etag = f"{view.started_ms:x}-{view.made_ms:x}-{self._count:x}"
        self._view, self._body = view, StatusBytes(plain, gzip.compress(plain, _LEVEL, mtime=0), etag)
        return self._body

    def plain(self, view: DaemonView) -> bytes:
        """``view.to_json()`` as text, without the packing."""
        texts: dict[int, tuple[PartitionView, str]] = {}
        for partition in view.partitions:
            known = self._texts.get(id(partition))
            # The pair keeps the object alive, so no other one can have its id meanwhile.
            texts[id(partition)] = known or (partition, encode(partition.to_json()))
        self._texts = texts
        head = encode(view.to_json_without_partitions())
        partitions = ",".join(texts[id(partition)][1] for partition in view.partitions)
        return f'{head[:-1]},"partitions":[{partitions}]}}'.encode()


def encode(document: Any) -> str:
    """Compact JSON; values that JSON does not know become their text."""
    return json.dumps(document, separators=(",", ":"), default=str)
