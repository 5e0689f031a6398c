"""An estimate whose disk hangs occupies one worker and delays nothing else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.work.run_job import run
from tests.daemon.service import assignments, broker, serve, until
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.work.job import CleaningJob, JobDone


@pytest.mark.slow
def test_the_only_worker_is_not_lost(root: Path) -> None:
    """OP-10: with one thread, which is the default, nothing was cleaned in any directory until that disk answered."""
    bad = root.parent / "bad"
    hangs, answers = threading.Event(), threading.Event()

    def run_slowly(job: CleaningJob, *more: Any) -> JobDone:
        if job.kind == "estimate" and job.path == bad:
            hangs.set()
            answers.wait(PATIENCE_SECONDS)
        return run(job, *more)

    with broker(root) as agent, broker(bad) as other:
        for each in (agent, other):
            each.settings["min.cleanable.dirty.ratio"] = "1"

        async def story(service: Service) -> None:
            workers = service.dispatcher.workers
            try:
                await until("it hangs", hangs.is_set)
                for entry in service.registry.in_dir(str(root)):
                    entry.requested = True
                await until("the other one is clean", lambda: service.view().totals.cleanings.get("cleaned") == 1)
                assert (workers.size, workers.alive) == (1, 2)
            finally:
                answers.set()
            await until("it has ended", lambda: not service.dispatcher.estimator.tasks)
            await until("one thread is enough again", lambda: workers.alive == 1)

        limits = DaemonLimits(estimate_stop_seconds=0.1)
        serve(assignments(root, bad, log_cleaner_threads="1"), story, limits=limits, run_job=run_slowly)
