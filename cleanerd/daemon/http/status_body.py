"""The body of ``/status``, made once per view.

A busy daemon makes a new view every second, in which few of thousands of partitions have changed. Views are immutable
and share unchanged parts, so the text of a partition is reused if it is the same object. The texts take a kilobyte per
partition, so they are kept for a client with regular requests, and not after a single one.
"""

from __future__ import annotations

import gzip
import json
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.daemon.view import DaemonView, PartitionView

_LEVEL: Final = 1  # names repeat often: a higher level takes three times as long and saves a tenth

REGULAR_SECONDS: Final = 150.0
"""A request within this time of the last one is a regular one: clients poll once a minute or more often."""


@dataclass(frozen=True, slots=True)
class StatusBytes:
    """JSON, plain and compressed."""

    plain: bytes
    zipped: bytes
    etag: str


class StatusBody:
    """Makes bodies; for one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requested_at = -math.inf
        self._view: DaemonView | None = None
        self._body: StatusBytes | None = None
        self._texts: dict[int, tuple[PartitionView, str]] = {}
        self._count = 0

    def of(self, view: DaemonView) -> StatusBytes:
        """The body of ``view``: ``view.to_json()`` as text."""
        is_regular = self._note_request()
        if self._body is not None and self._view is view:
            return self._body
        plain = self._text(view, keep=is_regular)
        self._count += 1
        etag = f"{view.started_ms:x}-{view.made_ms:x}-{self._count:x}"
        self._view, self._body = view, StatusBytes(plain, gzip.compress(plain, _LEVEL, mtime=0), etag)
        return self._body

    def plain(self, view: DaemonView) -> bytes:
        """``view.to_json()`` as text, uncompressed."""
        return self._text(view, keep=self._note_request())

    def _note_request(self) -> bool:
        """Returns whether it is a regular one."""
        before, self._requested_at = self._requested_at, self._clock()
        return self._requested_at - before <= REGULAR_SECONDS

    def _text(self, view: DaemonView, *, keep: bool) -> bytes:
        texts: dict[int, tuple[PartitionView, str]] = {}
        for partition in view.partitions:
            known = self._texts.get(id(partition))
            # The pair keeps the object alive, so that no other one can have its id.
            texts[id(partition)] = known or (partition, encode(partition.to_json()))
        self._texts = texts if keep else {}
        head = encode(view.to_json_without_partitions())
        partitions = ",".join(texts[id(partition)][1] for partition in view.partitions)
        return f'{head[:-1]},"partitions":[{partitions}]}}'.encode()


def encode(document: Any) -> str:
    """Compact JSON; values that JSON does not know are converted to text."""
    return json.dumps(document, separators=(",", ":"), default=str)
