"""``cleanerd trigger``: a partition reported as "cleaned next" is cleaned, whatever else is running."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cleanerd.daemon.control_client import send_request
from cleanerd.daemon.work.job import CleaningJob, JobDone
from cleanerd.daemon.work.run_job import run
from tests.daemon.registries import (
    CLEAN,
    KEY,
    NOW,
    entry_of,
    job_on,
    nothing_new,
    partition_scan,
    registry_with,
    result,
    triggers,
)
from tests.daemon.service import assignments, broker, now_ms, serve, until
from tests.support.log_dirs import Partition
from tests.support.logs import Record, encode_batch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.view import Trigger


def test_a_trigger_during_another_job_is_served_after_it() -> None:
    """A job that reads horizons, or a stopped cleaning, is not the requested one."""
    for stopped in (False, True):
        registry = registry_with(partition_scan(**CLEAN))
        before = entry_of(registry).scan
        assert before is not None
        entry_of(registry).requested = True
        trigger: Trigger = "manual" if stopped else "tombstone_removal"
        job = job_on(before, "horizons", trigger)
        registry.begun(KEY, trigger)
        registry.finished(JobDone(job, NOW, stopped=stopped, horizons=not stopped))
        nothing_new(registry)
        assert triggers(registry) == ["manual"]
        registry.begun(KEY, "manual")
        registry.finished(JobDone(replace(job, kind="live", trigger="manual"), NOW, result=result()))
        nothing_new(registry)
        assert triggers(registry) == [], "once"


def test_a_trigger_while_horizons_are_read(root: Path) -> None:
    """In the first minutes with a broker there are many of these, and they take long: each reads a clean section."""
    horizon = now_ms() + 3_600_000
    log = Partition(
        {0: encode_batch([Record(b"a", None, horizon - 1000)], delete_horizon=horizon), 1: b""}, cleaner_offset=1
    )
    go_on = threading.Event()

    def slowly(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind == "horizons":
            assert go_on.wait(PATIENCE_SECONDS)
        return run(job, *more)

    with broker(root, {"orders-0": log}):

        async def story(service: Service) -> None:
            await until("it reads", lambda: bool(service.dispatcher.running))
            reported = await asyncio.to_thread(
                send_request, root.parent / "control.sock", "trigger", partition="orders-0"
            )
            assert reported["triggered"][0]["running"]
            go_on.set()
            await until("cleaned", lambda: [each.trigger for each in service.view().history] == ["manual"])

        serve(assignments(root), story, run_job=slowly)
