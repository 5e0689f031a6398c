"""Settings, read again while the daemon runs: what is safe takes effect at once, what is not is named.

Nothing that was counted, and nothing that is known of a partition, is lost by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from cleanerd.daemon.throttle import Rates
from cleanerd.errors import CleanerdError
from cleanerd.scope.log_dirs import log_dirs_of

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.settings import Settings

NEEDS_RESTART: Final = (
    "cleanerd.state.dir",
    "cleanerd.control.socket",
    "cleanerd.http.listen",
    "cleanerd.metrics.kafka.names",
    "cleanerd.metrics.partitions.max",
)
"""Keys that count at the next start only: what is open already cannot move."""

_log = structlog.get_logger()


def reload(service: Service) -> dict[str, Any]:
    """Read them again.

    Raises:
        CleanerdError: they are wrong; the old ones stay.
    """
    service.notifier.reloading()
    try:
        settings = service.reread()
        log_dirs = log_dirs_of(settings, known=service.log_dirs)
    except CleanerdError as error:
        service.publisher.warn(f"settings not reloaded: {error}")
        service.notifier.ready(service.publisher.status_line())
        raise
    before = service.settings
    changed = [key for key in settings.origins if settings.value(key) != before.value(key)]
    later = [key for key in changed if key in NEEDS_RESTART]
    kept = {key.replace(".", "_"): before.value(key) for key in later}
    service.settings = replace(settings, daemon=settings.daemon.model_copy(update=kept))
    _apply(service, log_dirs)
    service.publisher.reloaded([f"{key} was changed: takes effect at the next start" for key in later])
    _log.info("settings reloaded", changed=changed, next_start=later)
    service.notifier.ready(service.publisher.status_line())
    service.wake()
    return {"changed": changed, "needs_restart": later, "generation": service.publisher.generation}


def _apply(service: Service, log_dirs: tuple[Path, ...]) -> None:
    daemon, fleet = service.settings.daemon, service.fleet
    service.throttle.set_rates(rates_of(service.settings))
    service.workers.resize(daemon.log_cleaner_threads)
    fleet.backoff_ms, fleet.plan_max_age_ms, fleet.reserve_bytes, fleet.spark_threshold_keys = fleet_settings(
        service.settings
    )
    if daemon.cleanerd_mode == "observe":
        service.interrupt(lambda job: job.kind in {"live", "stage"})
    service.log_dirs = log_dirs
    for path in service.looks.attend(log_dirs):
        fleet.forget_dir(str(path))
        service.interrupt(lambda job, gone=path: job.path == gone)  # type: ignore[misc]


def rates_of(settings: Settings) -> Rates:
    """How fast cleanings may read and write."""
    daemon = settings.daemon
    return Rates(
        daemon.cleanerd_io_read_max_bytes_per_second,
        daemon.cleanerd_io_write_max_bytes_per_second,
        daemon.log_cleaner_io_max_bytes_per_second,
    )


def fleet_settings(settings: Settings) -> tuple[tuple[int, int], int, int | None, int | None]:
    """The waits after failures, how old a staged plan may be, what stays free on a disk, what is too large for us."""
    daemon = settings.daemon
    return (
        (daemon.cleanerd_retry_backoff_ms, daemon.cleanerd_retry_backoff_max_ms),
        daemon.cleanerd_plan_max_age_ms,
        daemon.cleanerd_disk_reserve,
        daemon.cleanerd_spark_threshold_keys,
    )
