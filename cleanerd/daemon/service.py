"""``cleanerd run``: one asyncio process that looks, chooses, has workers clean, and says how it is going.

::

    rounds   every log.cleaner.backoff.ms, or when inotify says so: look at the log directories (a thread each)
             -> merge into the fleet -> choose -> hand jobs to the workers -> publish a new DaemonView
    workers  clean, stage or work out what a cleaning would save; when one is done its partition is looked at again
    signals  SIGTERM, SIGINT: stop between two chunks; SIGHUP: read the settings again

Everything else happens on the event loop, so nothing here needs a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from cleanerd import __version__
from cleanerd.daemon.clock import Clock, wall_ms
from cleanerd.daemon.control import ControlServer, control_socket
from cleanerd.daemon.desk import Desk
from cleanerd.daemon.fleet import Fleet
from cleanerd.daemon.hand_over import HandOver
from cleanerd.daemon.jobs import Job, run
from cleanerd.daemon.looker import World
from cleanerd.daemon.looks import Looks
from cleanerd.daemon.notify import Notifier
from cleanerd.daemon.pauses import load_pauses
from cleanerd.daemon.progress import JobProgress
from cleanerd.daemon.publish import Publisher
from cleanerd.daemon.reload import fleet_settings, rates_of, reload
from cleanerd.daemon.schedule import Limits, choose, ordered
from cleanerd.daemon.tallies import Tallies
from cleanerd.daemon.throttle import Throttle
from cleanerd.daemon.told import log_done, log_look
from cleanerd.daemon.tracked import retry_of
from cleanerd.daemon.troubles import Troubles
from cleanerd.daemon.watch import Watcher
from cleanerd.daemon.workers import WorkerDiedError, WorkerPool
from cleanerd.errors import CleanerdError
from cleanerd.log.clean_point import StateStore
from cleanerd.scope.log_dirs import log_dirs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from cleanerd.daemon.jobs import Kind
    from cleanerd.daemon.looker import DirLook
    from cleanerd.daemon.schedule import Trigger
    from cleanerd.daemon.shows import Shows, ShowsFactory
    from cleanerd.daemon.tracked import Key, Tracked
    from cleanerd.daemon.view import DaemonView
    from cleanerd.format.names import TopicPartition
    from cleanerd.settings import Settings

STOP_SECONDS: Final = 45.0
"""How long the end waits for workers; the log is whole whenever one is cut short."""

HANG_UP_SECONDS: Final = 5.0
"""How long the end waits for clients of the HTTP server."""

DEBOUNCE_SECONDS: Final = 1.0
"""A roll makes half a dozen files: one look is enough."""
TICK_SECONDS: Final = 1.0
LEAST_BACKOFF_SECONDS: Final = 0.1
_log = structlog.get_logger()


class Service:
    """The daemon. ``reread`` reads the settings again; ``http`` makes the server, ``hand_over`` gives to Spark."""

    def __init__(
        self,
        settings: Settings,
        reread: Callable[[], Settings],
        *,
        http: ShowsFactory | None = None,
        notifier: Notifier | None = None,
        hand_over: HandOver | None = None,
    ) -> None:
        daemon = settings.daemon
        self.settings = settings
        self.reread = reread
        self.log_dirs = log_dirs_of(settings)
        self._store = StateStore(daemon.cleanerd_state_dir)
        self.throttle = Throttle(rates_of(settings))
        self.workers = WorkerPool(daemon.log_cleaner_threads, "cleanerd-worker")
        self.fleet = Fleet(*fleet_settings(settings))
        self.fleet.paused, self.fleet.paused_names, told = load_pauses(daemon.cleanerd_state_dir)
        self.clock = Clock()
        self._troubles = Troubles(self._store, self.clock)
        self.tallies = Tallies(self._store, self.clock)
        self.running: dict[Key, Job] = {}
        self.publisher = Publisher(self, version=__version__, started_ms=wall_ms())
        self.looks = Looks(self._merge, self.publisher.warn, self.wake)
        self.looks.attend(self.log_dirs)
        if told:
            self.publisher.warn(told)
        self.notifier = notifier or Notifier()
        self._hand_over = hand_over or HandOver()
        self._watcher = Watcher(self._noticed)
        self._noticed_names: dict[Path, set[TopicPartition] | None] = {}
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._followed: set[Key] = set()
        self._stopping: asyncio.Future[int] | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        desk = Desk(self)
        self.explain = desk.explain
        self._control = ControlServer(control_socket(settings), desk.handlers())
        self._http: Shows | None = None
        if http is not None and daemon.cleanerd_http_listen is not None:
            host, port = daemon.cleanerd_http_listen
            self._http = http(f"{host}:{port}", self.view, self.explain)

    # -- life ---------------------------------------------------------------------------------------------------------

    def view(self) -> DaemonView:
        """What is known now; costs nothing."""
        return self.publisher.view

    async def run(self) -> int:
        """Until a signal comes; returns its number.

        Raises:
            CleanerdError: it cannot begin.
        """
        loop = asyncio.get_running_loop()
        self._stopping = loop.create_future()
        # Before anybody can see that there is a daemon: who stops or reloads it then means it.
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self.stop, each)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        await self._control.start()
        tasks: list[asyncio.Task[None]] = []
        try:
            if self._http is not None:
                await self._http.start()
            tasks = [asyncio.create_task(work) for work in (self._rounds(), self._ticks(), self._watch())]
            _log.info("started", version=__version__, log_dirs=[str(path) for path in self.log_dirs],
                      mode=self.settings.daemon.cleanerd_mode, control=str(self._control.path))  # fmt: skip
            number = await self._until_stopped(tasks)
        finally:
            self.notifier.stopping()
            await self._wind_up(tasks)
        _log.info("stopped", signal=signal.Signals(number).name)
        return number

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Begin the end; a second call does not wait for anybody."""
        if self._stopping is None:
            return
        if self._stopping.done():
            self._hurry.set()
        else:
            self._stopping.set_result(number)

    async def _until_stopped(self, tasks: list[asyncio.Task[None]]) -> int:
        if self._stopping is None:
            raise AssertionError("not started")
        waited: list[asyncio.Future[Any]] = [self._stopping, *tasks]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                await task  # a bug in the daemon itself: it must not go on without a part
        return await self._stopping

    async def _wind_up(self, tasks: list[asyncio.Task[None]]) -> None:
        if self._stopping is not None:
            self._stopping.cancel()  # also when a part of the daemon died: nothing is begun any more
        for task in tasks:
            task.cancel()
        for job in self.running.values():
            job.progress.stop()
        if self._jobs:
            ended: asyncio.Future[Any] = asyncio.gather(*self._jobs, return_exceptions=True)
            hurry: asyncio.Future[Any] = asyncio.ensure_future(self._hurry.wait())
            await asyncio.wait([ended, hurry], timeout=STOP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            hurry.cancel()
            if not ended.done():
                _log.warning("not all cleanings ended in time; the log is whole", left=len(self._jobs))
        # Who asks is answered as long as there is somebody to look.
        await self._control.stop()
        if self._http is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._http.stop(), HANG_UP_SECONDS)
        self.workers.close()
        self.looks.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self) -> None:
        await self._watcher.run()
        await asyncio.Event().wait()

    async def _ticks(self) -> None:
        """Progress is shown every second, and systemd is told that somebody is alive."""
        watchdog, told_at = self.notifier.watchdog_seconds, 0.0
        while True:
            await asyncio.sleep(min(TICK_SECONDS, watchdog or TICK_SECONDS))
            if self.running or self.publisher.is_stale():
                self.publisher.publish()
            if watchdog is not None and time.monotonic() - told_at >= watchdog / 2:
                told_at = time.monotonic()
                self.notifier.watchdog()

    # -- rounds -------------------------------------------------------------------------------------------------------

    async def _rounds(self) -> None:
        """Look at everything every so often, and at what changed as soon as it did."""
        next_full = 0.0
        first = True
        while True:
            self._wake.clear()
            backoff = max(self.settings.daemon.log_cleaner_backoff_ms / 1000, LEAST_BACKOFF_SECONDS)
            generation = self.publisher.generation
            if time.monotonic() >= next_full or first or self.publisher.is_behind():
                self._noticed_names.clear()
                await self._look(dict.fromkeys(self.log_dirs))
                self._follow()
                next_full = time.monotonic() + backoff
                self.publisher.round_ended(generation)
                if first:
                    self.notifier.ready(self.publisher.status_line())
                    first = False
            elif self._noticed_names:
                noticed, self._noticed_names = self._noticed_names, {}
                await self._look(noticed)
                self._follow()
            self.schedule()
            self.publisher.soon()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, next_full - time.monotonic()))
                await asyncio.sleep(min(DEBOUNCE_SECONDS, backoff))

    async def _look(self, wanted: Mapping[Path, Collection[TopicPartition] | None]) -> None:
        await self.looks.look(self.world(), wanted)

    def _merge(self, found: DirLook) -> None:
        log_look(self.fleet.dirs.get(str(found.path)), found, self.fleet.is_full)
        told = replace(found, warnings=(*found.warnings, *self._troubles.now()))
        self.fleet.merge(told, self.clock.now_ms())

    def _follow(self) -> None:
        """Have the file system tell of the partitions that there are now; to ask a disk that hangs would hang too."""
        late = {str(path) for path in self.looks.late}
        wanted = {key for key in self.fleet.partitions if key[0] not in late}
        if self._watcher.lost or wanted != self._followed:
            self._followed = wanted
            places = ((self._path_of(self.fleet.partitions[key]), key[1]) for key in wanted)
            log_dirs = [path for path in self.log_dirs if str(path) not in late]
            self._watcher.follow(log_dirs, [(path, name) for path, name in places if path is not None])
        if self._watcher.warning:
            self.publisher.warn(self._watcher.warning)

    def _path_of(self, tracked: Tracked) -> Path | None:
        return None if (found := self.fleet.dirs.get(tracked.path)) is None else found.path

    def _noticed(self, path: Path, name: TopicPartition | None) -> None:
        names = self._noticed_names.get(path, set())
        if name is None or names is None:
            self._noticed_names[path] = None
        else:
            names.add(name)
            self._noticed_names[path] = names
        self._wake.set()

    async def look_again(self, tracked: Tracked) -> None:
        """At one partition, now."""
        if (path := self._path_of(tracked)) is not None:
            await self._look({path: {tracked.name}})

    # -- work ---------------------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Give free workers something to do."""
        if self._stopping is not None and self._stopping.done():
            return
        if self.publisher.is_behind():
            return  # what is known goes by settings that do not count any more: the mode, who is excluded
        candidates = self.fleet.candidates(self.clock.now_ms())
        daemon = self.settings.daemon
        limits = Limits(self.workers.size, daemon.cleanerd_threads_per_log_dir, self.publisher.window_is_open())
        for candidate in choose(candidates, self.running.keys(), limits):
            self._begin(self.fleet.partitions[candidate.log_dir, candidate.name], candidate.trigger)
        for candidate in ordered(candidates):
            tracked = self.fleet.partitions[candidate.log_dir, candidate.name]
            if tracked.trigger is None and not tracked.queued:
                tracked.queued = True
                tracked.touch()
        if not candidates and limits.window_open and len(self.running) < limits.threads:
            spare = self.fleet.spare_work(self.clock.now_ms())
            if found := next(((each, kind) for each, kind in spare if each.key not in self.running), None):
                self._begin(found[0], "purge", found[1])

    def _begin(self, tracked: Tracked, trigger: Trigger, kind: Kind | None = None) -> None:
        found, look, work = self.fleet.dirs[tracked.path], tracked.look, self.fleet.work_of(tracked)
        if look is None or found.facts is None or work is None:
            return
        daemon = self.settings.daemon
        job = Job(
            name=tracked.name,
            path=found.path,
            kind=kind or work,
            trigger=trigger,
            look=look,
            facts=found.facts,
            socket=None if found.choice is None else found.choice.socket,
            store=self._store,
            progress=JobProgress(self.throttle, look.dirty_bytes),
            started_ms=self.clock.now_ms(),
            threads=daemon.log_cleaner_threads,
            before=retry_of(tracked.quarantine),
            backoff_ms=self.fleet.backoff_ms,
            clock=self.clock,
            hand_over=self._hand_over,
        )
        self.fleet.begun(tracked.key, trigger)
        self.running[tracked.key] = job
        task = asyncio.create_task(self._work(tracked, job))
        self._jobs.add(task)
        task.add_done_callback(self._job_ended)

    def _job_ended(self, task: asyncio.Task[None]) -> None:
        """What a job raises here is a bug of the daemon's own: it must not go on with half of its books written."""
        self._jobs.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._stopping is not None and not self._stopping.done():
            self._stopping.set_exception(error)

    async def _work(self, tracked: Tracked, job: Job) -> None:
        key = tracked.key
        try:
            done = await self.workers.submit(lambda: run(job))
        except WorkerDiedError as error:
            _log.exception("a worker died", partition=str(job.name))
            del self.running[key]
            self.fleet.died(key, f"unexpected error: {error}", self.clock.now_ms())
        else:
            del self.running[key]
            self.tallies.add(done, self.fleet.finished(done))
            log_done(done)
        self.publisher.soon()
        if self._stopping is not None and not self._stopping.done():
            if key in self.fleet.partitions:
                looking = asyncio.create_task(self.look_again(tracked))
                # A disk that hangs does not hold up the end.
                waited: list[asyncio.Future[Any]] = [looking, self._stopping]
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if not looking.done():
                    looking.cancel()
                    return
                looking.result()
            self.schedule()
            self.publisher.soon()

    def interrupt(self, wanted: Callable[[Job], bool]) -> int:
        """Stop running cleanings between two chunks; returns how many."""
        jobs = [job for job in self.running.values() if wanted(job)]
        for job in jobs:
            job.progress.stop()
        return len(jobs)

    def wake(self) -> None:
        """Look at everything now."""
        self._noticed_names.update(dict.fromkeys(self.log_dirs))
        self._wake.set()

    # -- what others need of it ---------------------------------------------------------------------------------------

    def _on_hangup(self) -> None:
        with contextlib.suppress(CleanerdError):  # it is logged and shown
            self.reload()

    def reload(self) -> dict[str, Any]:
        """Read the settings again.

        Raises:
            CleanerdError: they are wrong; the old ones stay.
        """
        return reload(self)

    def world(self) -> World:
        """What looks rest on now."""
        unseen = self.fleet.unseen
        return World(self.settings, self.log_dirs, self._store, self.clock.now_ms, unseen.jobs_ended, unseen.keys())

    def store_warnings(self) -> list[str]:
        """What happened to the state directory, or to Spark, since the last call."""
        return [*self._troubles.past(), *self._hand_over.told()]
