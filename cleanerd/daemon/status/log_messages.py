"""Log lines about finished jobs, and about log directories that become unreadable or readable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from cleanerd.daemon.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.daemon.discovery.log_dir_scan import LogDirScan
    from cleanerd.daemon.work.job import JobDone

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
