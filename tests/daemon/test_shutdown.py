"""The end of the daemon, and of a log directory, while jobs are running."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.config.load import load_settings
from cleanerd.daemon.control import ControlServer
from cleanerd.daemon.discovery.watch import Watcher
from cleanerd.daemon.service import Service
from cleanerd.daemon.work.run_job import run
from tests.daemon.service import assignments, broker, serve, until
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.work.job import CleaningJob, JobDone


def test_nothing_is_started_after_a_part_of_the_daemon_died(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with that part; jobs that end meanwhile do not give their worker another one, which would get lost."""
    begun: list[str] = []
    services: list[Service] = []
    one_runs, go_on = threading.Event(), threading.Event()
    wind_up = Service._wind_up

    def run_slowly(job: CleaningJob, *more: Any) -> JobDone:
        begun.append(str(job.name))
        one_runs.set()
        assert go_on.wait(PATIENCE_SECONDS)
        return run(job, *more)

    class Broken(Watcher):
        @property
        def has_lost_watches(self) -> bool:
            if services[0].dispatcher.running:
                assert one_runs.wait(PATIENCE_SECONDS)
                raise ZeroDivisionError("a bug in a round")
            return super().has_lost_watches

    async def story(service: Service) -> None:
        services.append(service)
        await asyncio.sleep(PATIENCE_SECONDS)

    async def winding_up(service: Service, tasks: Any) -> None:
        asyncio.get_running_loop().call_later(0.2, go_on.set)
        await wind_up(service, tasks)
        assert not service.dispatcher.running
        await asyncio.sleep(0.2)

    # The end has to be observed inside of the process.
    monkeypatch.setattr(Service, "_wind_up", winding_up)
    with broker(root, 4), pytest.raises(ZeroDivisionError):
        serve(assignments(root), story, run_job=run_slowly, watcher=Broken)
    assert len(begun) == 1


def test_a_signal_is_handled_before_the_daemon_is_visible(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that can reach it can also stop it in order, not by the default action, which ends it at once."""
    heard: list[bool] = []
    start = ControlServer.start

    async def started(server: ControlServer) -> None:
        await start(server)
        heard.extend(signal.getsignal(each) is not signal.SIG_DFL for each in (signal.SIGTERM, signal.SIGHUP))

    # No other process can know when the socket is created.
    monkeypatch.setattr(ControlServer, "start", started)
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)  # as at a start; the event loops of earlier tests leave their handlers
    with broker(root):
        serve(assignments(root), lambda service: until("ready", lambda: service.view().ready))
    assert heard == [True, True]


def test_a_directory_is_given_up_between_the_request_and_the_scan(root: Path) -> None:
    """A reload that drops it comes just then: the scan has no directory any more, and the others continue."""
    other = root.parent / "other"
    with broker(root, 1), broker(other, {"lost-0": two_groups()}):

        async def story(service: Service) -> None:
            await until("clean", lambda: service.view().totals.cleanings.get("cleaned") == 2)
            service.configuration.reread = lambda: load_settings([], assignments(root), {})
            answering = service.scan_loop.threads._answering
            real, reported = answering.silent, []

            async def silent(paths: tuple[Path, ...], seconds: float | None = None) -> Any:
                mute = await real(paths, seconds)
                if other in paths and not reported:  # after this the scans start, each in its own task
                    reported.append(asyncio.get_running_loop().call_soon(service.reload))
                return mute

            answering.silent = silent  # type: ignore[method-assign]
            await until("given up", lambda: [each.path for each in service.view().log_dirs] == [str(root)])
            rounds = service.view().last_scan_ms
            await until("scans continue", lambda: service.view().last_scan_ms != rounds)

        serve(assignments(root, other), story)
