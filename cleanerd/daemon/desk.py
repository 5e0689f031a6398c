"""What people ask the running daemon for: the operations of the control socket, and ``explain``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cleanerd.daemon.pauses import save_pauses
from cleanerd.daemon.shown import partition_view
from cleanerd.daemon.sources import staged_json
from cleanerd.daemon.workers import WorkerDiedError
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.scope.explanation import explanation, formats_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from cleanerd.daemon.looker import DirLooker
    from cleanerd.daemon.service import Service
    from cleanerd.daemon.tracked import Tracked


class Desk:
    """Answers for one service."""

    def __init__(self, service: Service) -> None:
        self._service = service

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
        tracked = self._one(name)
        path, world = Path(tracked.path), self._service.world()

        def look(looker: DirLooker) -> dict[str, Any] | CleanerdError:
            try:
                found, reading, running = looker.survey(world, tracked.name)
                formats, told = formats_of(found)
                document = explanation(
                    found,
                    formats,
                    world.store.load(reading, found.log),
                    running=running,
                    staged=staged_json(found.log.path),
                )
            except CleanerdError as error:
                return error
            return {**document, "notes": [*document["notes"], *told]}

        try:
            answer = await self._service.looks.ask(path, look)
        except WorkerDiedError as error:
            raise RefusedError(f"could not be looked at: {error}", where=name) from error
        if isinstance(answer, CleanerdError):
            raise answer
        view = partition_view(self._service.fleet, tracked)
        daemon = {"phase": view.phase, "mode": view.mode, "reason": view.reason, "next_purge_ms": view.next_purge_ms}
        return {**answer, "daemon": daemon}

    async def _status(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        # Thousands of partitions take a while to spell out, and nobody else should wait for it.
        return await asyncio.to_thread(self._service.view().to_json)

    async def _explain(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        return await self.explain(_name(request) or "")

    async def _reload(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._service.reload()

    async def _trigger(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Clean it now, whatever its dirty ratio and the windows say."""
        tracked = self._one(_name(request))
        if tracked.excluded:
            raise RefusedError(tracked.excluded, where=str(tracked.name))
        if tracked.paused or self._service.fleet.paused:
            raise RefusedError("is paused", where=str(tracked.name), hint="cleanerd resume")
        work = self._service.fleet.work_of(tracked)
        if work is None:
            reason = self._service.fleet.dirs[tracked.path].mode.reason
            raise RefusedError(reason, where=str(tracked.name))
        tracked.asked = True
        tracked.touch()
        self._again()
        return {"partition": str(tracked.name), "work": work, "running": tracked.trigger is not None}

    async def _pause(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One partition or everything; what runs is stopped between two chunks."""
        name = None if _name(request) is None else str(self._one(_name(request)).name)
        self._service.fleet.pause(name, paused=True)
        stopped = self._service.interrupt(lambda job: name is None or str(job.name) == name)
        self._remember()
        return {"paused": name or "all", "stopped": stopped}

    async def _resume(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        # A partition that went away while it was paused can still be resumed.
        name = _name(request)
        if name is not None and name not in self._service.fleet.paused_names:
            self._one(name)
        self._service.fleet.pause(name, paused=False)
        self._remember()
        self._again()
        return {"resumed": name or "all", "still_paused": sorted(self._service.fleet.paused_names)}

    async def _retry(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """End the quarantine of one partition, or of all."""
        name = _name(request)
        everyone = list(self._service.fleet.partitions.values())
        wanted = [t for t in everyone if t.quarantine is not None] if name is None else [self._one(name)]
        for tracked in wanted:
            self._service.fleet.forgive(tracked)
        self._service.wake()
        self._again()
        return {"retried": [str(tracked.name) for tracked in wanted]}

    def _again(self) -> None:
        self._service.schedule()
        self._service.publisher.publish()

    def _remember(self) -> None:
        fleet = self._service.fleet
        state_dir = self._service.settings.daemon.cleanerd_state_dir
        told = save_pauses(state_dir, paused=fleet.paused, names=fleet.paused_names)
        if told:
            self._service.publisher.warn(told)
        self._service.publisher.publish()

    def _one(self, name: str | None) -> Tracked:
        if name is None:
            raise ConfigError("no partition was named", hint="TOPIC-N")
        found = self._service.fleet.named(name)
        if not found:
            raise ConfigError("the daemon knows no such compacted partition", where=name, hint="see cleanerd status")
        return found[0]


def _name(request: Mapping[str, Any]) -> str | None:
    name = request.get("partition")
    if name is not None and not isinstance(name, str):
        raise ConfigError("partition is not a text")
    return name
