"""A broker's metadata log, read once for all of its log directories that are scanned together.

Each of them has its own scan thread and uses the same log, which has a record per partition of the cluster. A reading
that another thread began after a scan was requested is recent enough for that scan.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.segments.cluster_metadata import MetadataLog
from cleanerd.shared_reading import SharedReading

if TYPE_CHECKING:
    from cleanerd.segments.metadata_image import ClusterMetadata

PATIENCE_SECONDS: Final = 20.0
"""A thread that waits longer for another's reading reads itself: a different disk may be mounted by now."""

Files = tuple[tuple[str, int, int], ...]
"""Name, bytes and time of each file of a metadata log."""


@dataclass(frozen=True, slots=True)
class MetadataReading:
    """A reading, and its duration. ``files``: those of the log just before; None: it did not exist."""

    found: ClusterMetadata
    files: Files | None
    began_at: float
    took_seconds: float


class MetadataReadings:
    """Shared by scan threads: a thread that waits for another's reading would have read the same files."""

    def __init__(
        self,
        read: Callable[..., ClusterMetadata] | None = None,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``read``: as :meth:`read_again`. ``patience_seconds``: how long to wait for another thread."""
        self._read_log = read or self.read_again
        self._logs: dict[Path, MetadataLog] = {}
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._shared: dict[tuple[Path, bool], SharedReading[MetadataReading]] = {}

    def read(self, directory: Path, *, only_before_ms: int | None, since: float) -> MetadataReading:
        """As :meth:`MetadataLog.read`.

        ``since``: monotonic seconds. Another thread's reading is used if it began at that time or later: of the same
        files, or of files that differ only in batches from ``only_before_ms`` on.

        Raises:
            CorruptionError, UnsupportedLogError, CleanerdError: as that does.
        """
        with self._lock:
            shared = self._shared.setdefault((directory, only_before_ms is None), SharedReading(self._clock))
        return shared.get(
            lambda: self._read(directory, only_before_ms),
            since=since,
            patience_seconds=self._patience_seconds,
            serves=lambda last: only_before_ms is not None or last.files == files_of(directory),
        )

    def read_again(self, directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
        """As :meth:`MetadataLog.read`, which goes on from the last reading of that log."""
        log = self._logs.pop(directory, None) or MetadataLog(directory)  # a thread that reads meanwhile has its own
        found = log.read(only_before_ms=only_before_ms)
        self._logs[directory] = log
        return found

    def _read(self, directory: Path, only_before_ms: int | None) -> MetadataReading:
        files, began_at = files_of(directory), self._clock()
        found = self._read_log(directory, only_before_ms=only_before_ms)
        return MetadataReading(found, files, began_at, self._clock() - began_at)


def files_of(directory: Path) -> Files | None:
    """The files of a metadata log, to detect changes; None if it does not exist."""
    try:
        with os.scandir(directory) as entries:
            return tuple(sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in entries))
    except OSError:
        return None
