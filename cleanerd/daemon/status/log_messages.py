"""Log lines about finished jobs, and about log directories that become unreadable or readable.

Warnings about the daemon as a whole: a state directory that cannot be written, a clock that jumped.

Each is logged when it begins and when it ends, and shown in between.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.daemon.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan
    from cleanerd.daemon.work.job import JobDone
    from cleanerd.host.clock import Clock
    from cleanerd.state.cleaner_checkpoint import StateStore


_CLOCK: Final = "clock"


class StandingWarnings:
    """The warnings of one service; used by its event loop only."""

    def __init__(self, store: StateStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[str, str] = {}
        self._unshown: dict[str, str] = {}

    def current(self) -> tuple[str, ...]:
        """The current warnings; new ones and ended ones are logged."""
        found = {**self._of_state(), **self._of_clock()}
        for key in found.keys() - self._known.keys():
            _log.warning(LogEvent.WARNING_RAISED, kind=_kind(key), reason=found[key])
        for key in self._known.keys() - found.keys():
            _log.info(LogEvent.WARNING_CLEARED, kind=_kind(key), reason=self._known[key])
        self._known = found
        return tuple(found.values())

    def passed(self) -> list[str]:
        """Short events of the state directory since the last call: damaged files.

        An event that ended before :meth:`current` could show it is reported the next time.
        """
        happened, self._store.warnings = self._store.warnings, []
        standing = tuple(self._store.standing.items())
        texts = {text for _, text in standing}
        over = [text for key, text in self._unshown.items() if text not in texts and key not in self._known]
        self._unshown = {
            str(path.parent): text
            for path, text in standing
            if str(path.parent) not in self._known and (text in happened or text in self._unshown.values())
        }
        return [*over, *(each for each in happened if each not in texts)]

    def _of_state(self) -> dict[str, str]:
        """One per directory: if thousands of files cannot be written, one line reports it."""
        by_directory: dict[Path, list[str]] = defaultdict(list)
        for path, text in tuple(self._store.standing.items()):
            by_directory[path.parent].append(text)
        return {
            str(directory): texts[0] + ("" if len(texts) == 1 else f" (and {len(texts) - 1} files more there)")
            for directory, texts in by_directory.items()
        }

    def _of_clock(self) -> dict[str, str]:
        warning = self._clock.observe()
        return {_CLOCK: warning} if warning else {}


def _kind(key: str) -> str:
    """One of a few values: any other key is a directory of the state."""
    return key if key == _CLOCK else "state"


_log = structlog.get_logger()


def log_done(done: JobDone) -> None:
    job, result = done.job, done.result
    partition = str(job.name)
    if done.stopped:
        _log.info(LogEvent.CLEANING_STOPPED, partition=partition)
    elif done.failed:
        _log.warning(LogEvent.PARTITION_QUARANTINED, partition=partition, reason=done.failed,
                     failures=0 if done.retry is None else done.retry.failures)  # fmt: skip
    elif job.kind == "drop" and not done.passing:
        _log.info(LogEvent.STAGED_CLEANING_DISCARDED, partition=partition)
    elif done.saving is not None:
        _log.info(LogEvent.CLEANING_OBSERVED, partition=partition, trigger=job.trigger,
                  bytes_before=done.saving.bytes_before, bytes_after=done.saving.bytes_after)  # fmt: skip
    elif result is not None and result.outcome == "failed":
        _log.warning(LogEvent.CLEANING_NOT_DONE, partition=partition, outcome="failed", reason=result.reason)
    elif result is not None and result.outcome in {"skipped", "refused", "busy"}:
        # The operator who requested it needs the result.
        is_news = result.moved_on or job.trigger == "manual"
        log = _log.info if is_news else _log.debug
        log(LogEvent.CLEANING_NOT_DONE, partition=partition, outcome=result.outcome, reason=result.reason)
    elif result is not None:
        _log.info(LogEvent.CLEANING_ENDED, partition=partition, outcome=result.outcome, trigger=job.trigger,
                  bytes_before=result.bytes_before, bytes_after=result.bytes_after, removed=result.removed.total,
                  seconds=round((done.ended_ms - done.began_ms) / 1000, 3))  # fmt: skip


def log_scan(before: LogDirScan | None, found: LogDirScan, is_full: Callable[[LogDirScan], bool]) -> None:
    """Log changes of a log directory as a whole, once instead of at every scan."""
    _log_error(before, found)
    if found.error:
        return
    log_dir = str(found.path)
    if before is not None and not before.error and _mode(before) != _mode(found):
        log = _log.info if found.mode.mode == "live" and found.mode.work is not None else _log.warning
        log(LogEvent.MODE_CHANGED, log_dir=log_dir, mode=found.mode.mode, reason=found.mode.reason)
    was_full = before is not None and not before.error and is_full(before)
    if is_full(found) and not was_full:
        _log.warning(LogEvent.DISK_RESERVE_REACHED, log_dir=log_dir, free_bytes=found.free_bytes)
    elif was_full and not is_full(found):
        _log.info(LogEvent.DISK_RESERVE_CLEARED, log_dir=log_dir, free_bytes=found.free_bytes)


def _log_error(before: LogDirScan | None, found: LogDirScan) -> None:
    """Log that it became unreadable, or readable again."""
    known = "" if before is None else before.error
    if found.error and found.error != known:
        _log.warning(LogEvent.LOG_DIR_UNREADABLE, log_dir=str(found.path), reason=found.error)
    elif known and not found.error:
        _log.info(LogEvent.LOG_DIR_READABLE, log_dir=str(found.path))


def _mode(found: LogDirScan) -> tuple[str, str | None]:
    return found.mode.mode, found.mode.work
