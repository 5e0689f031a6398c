"""Keeps segments that the daemon's cleanings replace for ``cleanerd undo`` (``cleanerd.keep.replaced.dir``, S-40).

A cleaning gets its directory before it begins, and space before it replaces anything. A separate thread deletes old
backups every minute, because the next cleaning may come much later.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cleanerd.errors import CleanerdError
from cleanerd.format.names import SEGMENT_SUFFIX, file_name
from cleanerd.host.clock import Clock, steady_ms
from cleanerd.humanize import human_bytes
from cleanerd.segments.keep_dir import on_its_file_system
from cleanerd.segments.log_dir import LogDir, read_log_dir
from cleanerd.segments.record_at import record_in
from cleanerd.swap.backup import BackupPlace, require_keepable
from cleanerd.swap.backup_limits import ClockReadings, KeepLimits, prune_kept
from cleanerd.swap.kept_segments import KeptSegments, KeptSize

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from cleanerd.config.load import Settings
    from cleanerd.format.names import TopicPartition
    from cleanerd.state.cleaner_checkpoint import StateStore

SWEEP_SECONDS: Final = 60.0


class BackupLimits:
    """The backups of one service; thread-safe."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._size_bytes: dict[Path, int] = {}
        self._warnings: list[str] = []
        self._known: dict[str, KeptSize] = {}

    def pop_warnings(self) -> list[str]:
        """Warnings for the operator since the last call."""
        with self._lock:
            warnings, self._warnings = self._warnings, []
        return warnings

    def place(self, log_dir: LogDir, settings: Settings) -> BackupPlace | None:
        """Where replaced segments of ``log_dir`` are kept; None: nowhere.

        Raises:
            CleanerdError: they cannot be kept, so nothing may be replaced.
        """
        places = settings.daemon.cleanerd_keep_replaced_dir
        if not places:
            return None
        try:
            path = on_its_file_system(places, log_dir.path)
            require_keepable(path, [log_dir.path])
            KeptSegments(self._store.root).require_writable(self._store.owner(log_dir))
        except CleanerdError as error:
            self._add_warnings(f"{log_dir.path}: nothing is cleaned, because replaced segments cannot be kept: {error}")
            raise
        make_space = partial(self._make_space, log_dir, path, _limits(settings))
        return BackupPlace(path, make_space, now_ms=lambda: sum(self._clock.read_ms()))

    def sweep(self, log_dirs: Sequence[Path], settings: Settings) -> None:
        """Delete backups that are too old or too large; obstacles are reported once each, and are not errors."""
        places = settings.daemon.cleanerd_keep_replaced_dir
        for path in log_dirs:
            try:
                log_dir = read_log_dir(path)
                self._sweep(log_dir, on_its_file_system(places, path), _limits(settings), 0)
            except (CleanerdError, OSError) as error:
                self._add_warnings(f"replaced segments of {path} cannot be pruned: {error}")

    def _make_space(self, log_dir: LogDir, place: Path, limits: KeepLimits, size_bytes: int) -> str:
        if size_bytes > limits.retention_bytes:
            return (
                f"it is {human_bytes(size_bytes)}, and cleanerd.keep.replaced.retention.bytes is "
                f"{human_bytes(limits.retention_bytes)}"
            )
        with self._lock:
            kept = self._size_bytes.get(log_dir.path)
        if kept is None or kept + size_bytes > limits.retention_bytes:
            self._sweep(log_dir, place, limits, size_bytes)
        with self._lock:
            self._size_bytes[log_dir.path] = self._size_bytes.get(log_dir.path, 0) + size_bytes
        return ""

    def _sweep(self, log_dir: LogDir, place: Path, limits: KeepLimits, room_bytes: int) -> None:
        kept_segments = KeptSegments(self._store.root)
        now = ClockReadings(self._clock.now_ms(), steady_ms())
        kept = prune_kept(kept_segments, log_dir, place, limits, now, room_bytes=room_bytes, known=self._known)
        with self._lock:
            self._size_bytes[log_dir.path] = kept.size_bytes
        newer = (f"{error}; it is ignored for the limits" for error in kept_segments.newer.values())
        for warning in (*kept_segments.warnings, *newer, *kept.problems):
            self._add_warnings(warning)

    def _add_warnings(self, text: str) -> None:
        with self._lock:
            if text not in self._warnings:
                self._warnings.append(text)


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record in kept segments: their directory, and when the cleaning replaced them."""

    directory: Path
    cleaned_ms: int


def last_kept(
    state_dir: Path,
    log_dir: LogDir,
    partition: tuple[TopicPartition, UUID | None],
    offset: int,
    is_key: Callable[[bytes], bool],
) -> KeptRecord | None:
    """The last cleaning of the partition of which kept segments have a record of that key at ``offset``.

    Raises:
        CleanerdError: the list of kept segments cannot be read.
    """
    kept = KeptSegments(state_dir)
    for entry in reversed(kept.entries()):
        if (entry.name, entry.topic_id) != partition or not kept.is_of(entry, log_dir):
            continue
        bases = [segment.base for group in entry.groups for segment in group.segments if segment.base <= offset]
        try:
            record = record_in(Path(entry.kept) / file_name(max(bases), SEGMENT_SUFFIX), offset) if bases else None
        except (CleanerdError, OSError):
            continue  # deleted meanwhile, or damaged
        if record is not None and record.key is not None and is_key(record.key):
            return KeptRecord(Path(entry.kept), entry.cleaned_ms)
    return None


def _limits(settings: Settings) -> KeepLimits:
    daemon = settings.daemon
    return KeepLimits(daemon.cleanerd_keep_replaced_retention_ms, daemon.cleanerd_keep_replaced_retention_bytes)
