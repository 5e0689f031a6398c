"""What people ask the running daemon for: the operations of the control socket, and ``explain``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.daemon.fleet.pauses import save_pauses
from cleanerd.daemon.showing.view_parts import partition_view
from cleanerd.daemon.workers import WorkerDiedError
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.scope.explanation import explain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from cleanerd.daemon.configuration import Configuration
    from cleanerd.daemon.dispatcher import Dispatcher
    from cleanerd.daemon.fleet.fleet import Fleet
    from cleanerd.daemon.fleet.tracked import Tracked
    from cleanerd.daemon.look_loop import LookLoop
    from cleanerd.daemon.looking.log_dir_look import LookContext
    from cleanerd.daemon.looking.log_dir_looker import LogDirLooker
    from cleanerd.daemon.showing.publisher import Publisher


class ControlApi:
    """Answers what is asked. ``reload`` reads the settings again; raises CleanerdError."""

    def __init__(
        self,
        configuration: Configuration,
        fleet: Fleet,
        publisher: Publisher,
        dispatcher: Dispatcher,
        look_loop: LookLoop,
        reload: Callable[[], dict[str, Any]],
    ) -> None:
        self._state_dir = configuration.settings.daemon.cleanerd_state_dir
        self._fleet = fleet
        self._publisher = publisher
        self._dispatcher = dispatcher
        self._look_loop = look_loop
        self._reload_settings = reload

    def handlers(self) -> dict[str, Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]]:
        """The operations by name."""
        return {
            "status": self._status,
            "trigger": self._trigger,
            "pause": self._pause,
            "resume": self._resume,
            "retry": self._retry,
            "reload": self._reload,
            "explain": self._explain,
        }

    async def explain(self, name: str) -> dict[str, Any]:
        """Why the partition is or is not cleaned now: what ``cleanerd explain --json`` says, and the daemon's own part.

        Raises:
            ConfigError: no such partition.
            CleanerdError: it cannot be looked at.
        """
        tracked = self._partition(name)

        def look(looker: LogDirLooker, context: LookContext) -> dict[str, Any] | CleanerdError:
            try:
                reading = looker.read(context, tracked.name)
                return explain(reading, context.store, CleaningOptions(context.now_ms(), unclean=True)).to_json()
            except CleanerdError as error:
                return error

        try:
            answer = await self._look_loop.ask(Path(tracked.path), look)
        except WorkerDiedError as error:
            raise RefusedError(f"could not be looked at: {error}", where=name) from error
        if isinstance(answer, CleanerdError):
            raise answer
        view = partition_view(self._fleet, tracked)
        daemon = {"phase": view.phase, "mode": view.mode, "reason": view.reason, "next_purge_ms": view.next_purge_ms}
        return {**answer, "daemon": daemon}

    async def _status(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        # Thousands of partitions take a while to spell out, and nobody else should wait for it.
        return await asyncio.to_thread(self._publisher.view.to_json)

    async def _explain(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self.explain(_name(request) or "")

    async def _reload(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._reload_settings()

    async def _trigger(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Clean it now, whatever its dirty ratio and the windows say."""
        tracked = self._partition(_name(request))
        if tracked.excluded:
            raise RefusedError(tracked.excluded, where=str(tracked.name))
        if tracked.paused or self._fleet.pauses.everything:
            raise RefusedError("is paused", where=str(tracked.name), hint="cleanerd resume")
        work = self._fleet.work_of(tracked)
        if work is None:
            reason = self._fleet.dirs[tracked.path].mode.reason
            raise RefusedError(reason, where=str(tracked.name))
        tracked.asked = True
        tracked.touch()
        self._schedule()
        return {"partition": str(tracked.name), "work": work, "running": tracked.trigger is not None}

    async def _pause(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One partition or everything; what runs is stopped between two chunks."""
        name = None if _name(request) is None else str(self._partition(_name(request)).name)
        self._fleet.pause(name, paused=True)
        stopped = self._dispatcher.interrupt(lambda job: name is None or str(job.name) == name)
        self._save_pauses()
        return {"paused": name or "all", "stopped": stopped}

    async def _resume(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        # A partition that went away while it was paused can still be resumed.
        name = _name(request)
        if name is not None and name not in self._fleet.pauses.names:
            self._partition(name)
        self._fleet.pause(name, paused=False)
        self._save_pauses()
        self._schedule()
        return {"resumed": name or "all", "still_paused": sorted(self._fleet.pauses.names)}

    async def _retry(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """End the quarantine of one partition, or of all."""
        name = _name(request)
        everyone = list(self._fleet.partitions.values())
        wanted = [t for t in everyone if t.quarantine is not None] if name is None else [self._partition(name)]
        for tracked in wanted:
            self._dispatcher.forgive(tracked)
        self._look_loop.wake()
        self._schedule()
        return {"retried": [str(tracked.name) for tracked in wanted]}

    def _schedule(self) -> None:
        self._dispatcher.schedule()
        self._publisher.publish()

    def _save_pauses(self) -> None:
        unwritten = save_pauses(self._state_dir, self._fleet.pauses)
        if unwritten:
            self._publisher.warn(unwritten)
        self._publisher.publish()

    def _partition(self, name: str | None) -> Tracked:
        if name is None:
            raise ConfigError("no partition was named", hint="TOPIC-N")
        found = self._fleet.named(name)
        if not found:
            raise ConfigError("the daemon knows no such compacted partition", where=name, hint="see cleanerd status")
        return found[0]


def _name(request: Mapping[str, Any]) -> str | None:
    name = request.get("partition")
    if name is not None and not isinstance(name, str):
        raise ConfigError("partition is not a text")
    return name
