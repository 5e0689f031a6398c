"""A locked log directory."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources
    from cleanerd.segments.log_dir import LogDir
    from cleanerd.state.cleaner_checkpoint import StateStore
    from cleanerd.swap.lock import LogDirLock


@dataclass(frozen=True, slots=True)
class LockedDir:
    """A log directory while we hold its lock.

    ``checkpoint_lock``: partitions that are cleaned at once share its files. ``keep_replaced``: where replaced segments
    are kept for ``undo`` (S-40); None: nowhere.
    """

    log_dir: LogDir
    lock: LogDirLock
    store: StateStore
    resources: Resources
    checkpoint_lock: threading.Lock = field(default_factory=threading.Lock)
    keep_replaced: Path | None = None
