"""Looks at a log directory again and again, and at as little of it as the answer needs.

A partition is surveyed anew when its directory changed (a segment was rolled, deleted, replaced), when its topic's
configuration or the directory's mode did, when time alone changes the answer, when something other than the active
segment held it back, and now and then in any case. Everything else costs one ``stat``.

One thread looks; nothing here is shared with others.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.apply.live_broker import LiveBroker
from cleanerd.apply.mode import LOOK, ModeChoice, choose_mode
from cleanerd.cleaner.manifest import STAGING
from cleanerd.daemon.clock import wall_ms
from cleanerd.daemon.look import FailedLook, Look, look_of
from cleanerd.daemon.modes import DirMode, dir_mode, why_excluded
from cleanerd.daemon.sources import FactsCache, staged_plan
from cleanerd.daemon.ways import BesideBroker, ByBroker, ByDisk, Way
from cleanerd.errors import (
    AgentRefusalError,
    AgentUnavailableError,
    CleanerdError,
    ConfigError,
    RefusedError,
    StalePlanError,
)
from cleanerd.log.log_dir import LogDir, read_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from cleanerd.cleaner.survey import Survey
    from cleanerd.daemon.tracked import Key
    from cleanerd.format.names import TopicPartition
    from cleanerd.log.clean_point import StateStore
    from cleanerd.log.topic_config import TopicConfig
    from cleanerd.scope.broker_facts import BrokerFacts
    from cleanerd.settings import Settings

LOOK_ANYWAY_MS: Final = 600_000
"""Every partition is looked at so often whatever its directory's time says."""

SETTLE_MS: Final = 10_000
"""S-03: two readings of a broker's checkpoints lie so far apart: two intervals of its checkpoints."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class World:
    """What a look rests on, the same for all directories. ``now_ms``: the time that its jobs will go by too.

    ``jobs_ended``: how many had ended when it was asked for. ``unseen``: partitions that are due for what the last one
    did there, whatever their directories' times say (`Unseen`).
    """

    settings: Settings
    log_dirs: Sequence[Path]
    store: StateStore
    now_ms: Callable[[], int] = wall_ms
    jobs_ended: int = 0
    unseen: Collection[Key] = ()


@dataclass(frozen=True, slots=True)
class DirLook:
    """A log directory at one moment. ``looks`` are those of partitions that were looked at this time.

    ``present`` are the compacted partitions, ``excluded`` those of them that settings leave to Kafka, and why (U-11).
    ``error``: the directory cannot be looked at; what was known of it stays.
    ``facts`` is None while nothing is known of its broker. ``jobs_ended``: see `World`.
    """

    path: Path
    online: bool
    error: str
    mode: DirMode
    choice: ModeChoice | None
    facts: BrokerFacts | None
    total_bytes: int
    free_bytes: int
    looks: tuple[Look | FailedLook, ...] = ()
    present: frozenset[TopicPartition] | None = None
    excluded: Mapping[TopicPartition, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    jobs_ended: int = 0


@dataclass(slots=True)
class _Seen:
    """What a partition was when it was last looked at."""

    mtime_ns: int
    config: TopicConfig | None
    mode: str
    settled: bool
    again_ms: int
    active: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class _Known:
    """What the last look at the whole directory rested on."""

    log_dir: LogDir
    choice: ModeChoice
    facts: BrokerFacts
    mode: DirMode
    targets: Mapping[TopicPartition, TopicConfig | CleanerdError | None]
    excluded: Mapping[TopicPartition, str]


def no_look(path: Path, error: str, choice: ModeChoice | None = None) -> DirLook:
    """A log directory that cannot be looked at, or does not answer: nothing is begun there."""
    waits = DirMode("on-start", "the directory cannot be looked at", None)
    return DirLook(path, online=False, error=error, mode=waits, choice=choice, facts=None, total_bytes=0, free_bytes=0)


class DirLooker:
    """One log directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._path_text = str(path)
        self._facts = FactsCache()
        self._seen: dict[TopicPartition, _Seen] = {}
        self._away_since_ms: int | None = None
        self._settings: Settings | None = None
        self._earlier: tuple[float, LogDir] | None = None
        self._latest: tuple[float, LogDir] | None = None
        self._last: _Known | None = None

    def look(self, world: World, only: Collection[TopicPartition] | None = None) -> DirLook:
        """Look now. Never raises what is ordinary.

        ``only``: at these partitions, whether anything is due or not, and by what is known of the directory already.
        """
        now_ms = world.now_ms()
        for path, name in world.unseen:
            if path == self._path_text and name in self._seen:
                self._seen[name].settled = False
        if only is not None and self._last is not None and world.settings is self._settings:
            return self._glance(world, self._last, only, now_ms)
        self._last = None  # a directory that cannot be looked at is not taken for well by a glance at a partition
        choice = None
        try:
            total, free = _space(self.path)
            log_dir = read_log_dir(self.path)
            others = [other for other in world.log_dirs if other != self.path]
            choice = choose_mode(log_dir, others, world.settings.daemon.cleanerd_agent_socket)
            mode = dir_mode(world.settings.daemon.cleanerd_mode, choice, self._away_ms(choice, now_ms))
            facts = self._facts.get(world.settings, log_dir, others, running=choice.mode != "offline")
        except (CleanerdError, OSError) as error:
            return no_look(self.path, _told(error), choice)
        if world.settings is not self._settings:
            self._settings = world.settings
            self._seen.clear()
        self._remember_reading(log_dir)
        with self._way(world, log_dir, choice, facts) as way:
            try:
                targets = way.targets()
            except CleanerdError as error:
                return DirLook(self.path, online=True, error=_told(error), mode=mode, choice=choice, facts=facts,
                               total_bytes=total, free_bytes=free)  # fmt: skip
            excluded = _excluded(world.settings, targets)
            looks = tuple(self._looks(way, targets, mode, now_ms, only, excluded))
        self._last = _Known(log_dir, choice, facts, mode, targets, excluded)
        for name in self._seen.keys() - targets.keys():
            del self._seen[name]
        return DirLook(
            self.path,
            online=True,
            error="",
            mode=mode,
            choice=choice,
            facts=facts,
            total_bytes=total,
            free_bytes=free,
            looks=looks,
            present=frozenset(targets),
            excluded=excluded,
            warnings=(*facts.warnings, *self._facts.warnings, *_links(log_dir)),
        )

    def _glance(self, world: World, known: _Known, only: Collection[TopicPartition], now_ms: int) -> DirLook:
        total = free = 0
        with contextlib.suppress(OSError):
            total, free = _space(self.path)
        targets = {name: known.targets[name] for name in only if name in known.targets}
        with self._way(world, known.log_dir, known.choice, known.facts) as way:
            looks = tuple(self._looks(way, targets, known.mode, now_ms, only, known.excluded))
        return DirLook(
            self.path,
            online=True,
            error="",
            mode=known.mode,
            choice=known.choice,
            facts=known.facts,
            total_bytes=total,
            free_bytes=free,
            looks=looks,
            warnings=(*known.facts.warnings, *self._facts.warnings, *_links(known.log_dir)),
        )

    def survey(self, world: World, name: TopicPartition) -> tuple[Survey, LogDir, bool]:
        """One partition now, for ``explain``; the reading it rests on; whether a broker runs on the directory.

        Raises:
            CleanerdError: it cannot be looked at.
        """
        log_dir = read_log_dir(self.path)
        others = [other for other in world.log_dirs if other != self.path]
        choice = choose_mode(log_dir, others, world.settings.daemon.cleanerd_agent_socket)
        facts = self._facts.get(world.settings, log_dir, others, running=choice.mode != "offline")
        with self._way(world, log_dir, choice, facts) as way:
            targets = way.targets()
            if name not in targets:
                raise ConfigError("no compacted partition of that name", where=str(self.path / str(name)))
            found, reading = way.survey(name, targets[name], world.now_ms())
        return found, reading, choice.mode != "offline"

    def _looks(
        self,
        way: Way,
        targets: Mapping[TopicPartition, TopicConfig | CleanerdError | None],
        mode: DirMode,
        now_ms: int,
        only: Collection[TopicPartition] | None,
        excluded: Mapping[TopicPartition, str],
    ) -> Iterator[Look | FailedLook]:
        for name, config in targets.items():
            if only is not None and name not in only:
                continue
            if name in excluded:
                self._seen.pop(name, None)
                continue
            kind = f"{mode.mode}/{way.kind}"
            mtime_ns = _mtime_ns(f"{self._path_text}/{name}")
            if only is None and not self._is_due(name, mtime_ns, config, kind, now_ms):
                continue
            yield self._look_at(way, name, config, kind, mtime_ns, now_ms)

    def _is_due(
        self, name: TopicPartition, mtime_ns: int, config: TopicConfig | CleanerdError | None, kind: str, now_ms: int
    ) -> bool:
        seen = self._seen.get(name)
        if seen is None or not seen.settled or seen.mtime_ns != mtime_ns or seen.mode != kind:
            return True
        # No time is further away than that, unless the clock jumped back.
        if not 0 < seen.again_ms - now_ms <= 2 * LOOK_ANYWAY_MS or isinstance(config, CleanerdError):
            return True
        return config is not None and seen.config is not None and config != seen.config

    def _look_at(
        self,
        way: Way,
        name: TopicPartition,
        config: TopicConfig | CleanerdError | None,
        kind: str,
        mtime_ns: int,
        now_ms: int,
    ) -> Look | FailedLook:
        known = config if not isinstance(config, CleanerdError) else None
        try:
            found, log_dir = way.survey(name, config, now_ms)
            state = way.store.load(log_dir, found.log)
            partition = self.path / str(name)
            leftover = (partition / STAGING).is_dir()
            look = look_of(found, log_dir, state, staged_plan(partition), now_ms, leftover=leftover)
        except (StalePlanError, AgentRefusalError, AgentUnavailableError) as error:
            self._seen[name] = _Seen(mtime_ns, known, kind, settled=False, again_ms=0, active=None)
            return FailedLook(name, _told(error), "passing")
        except (RefusedError, ConfigError) as error:
            self._seen[name] = _Seen(mtime_ns, known, kind, settled=False, again_ms=0, active=None)
            return FailedLook(name, _told(error), "refused")
        except (CleanerdError, OSError) as error:
            self._seen[name] = _Seen(mtime_ns, known, kind, settled=False, again_ms=0, active=None)
            return FailedLook(name, _told(error), "bad")
        except Exception as error:  # noqa: BLE001 - a bug that one partition brings out: the others go on
            _log.exception("a look failed", partition=str(name))
            self._seen[name] = _Seen(mtime_ns, known, kind, settled=False, again_ms=0, active=None)
            return FailedLook(name, f"unexpected error: {type(error).__name__}: {error}", "bad")
        again_ms = now_ms + LOOK_ANYWAY_MS + hash(name) % (LOOK_ANYWAY_MS // 4)
        if look.again_ms is not None:
            again_ms = min(again_ms, look.again_ms)
        self._seen[name] = _Seen(mtime_ns, known, kind, look.settled and way.settled(name), again_ms, way.active(name))
        return look

    def _away_ms(self, choice: ModeChoice, now_ms: int) -> int:
        if choice.mode != "offline":
            self._away_since_ms = None
            return 0
        if self._away_since_ms is None or self._away_since_ms > now_ms:
            self._away_since_ms = now_ms
        return now_ms - self._away_since_ms

    def _remember_reading(self, log_dir: LogDir) -> None:
        now = time.monotonic()
        if self._latest is not None and (now - self._latest[0]) * 1000 >= SETTLE_MS:
            self._earlier = self._latest
        if self._latest is None or self._earlier is self._latest:
            self._latest = (now, log_dir)

    @contextlib.contextmanager
    def _way(self, world: World, log_dir: LogDir, choice: ModeChoice, facts: BrokerFacts) -> Iterator[Way]:
        if choice.mode == "live" and choice.socket is not None:
            with LiveBroker(choice.socket, LOOK) as broker:
                yield ByBroker(world.store, log_dir, facts, broker)
        elif choice.mode == "on-start":
            earlier = None if self._earlier is None else self._earlier[1]
            yield BesideBroker(world.store, log_dir, facts, earlier, {n: s.active for n, s in self._seen.items()})
        else:
            yield ByDisk(world.store, log_dir, facts)


def _excluded(settings: Settings, targets: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    daemon = settings.daemon
    reasons = {
        topic: why_excluded(topic, daemon.cleanerd_topics_include, daemon.cleanerd_topics_exclude)
        for topic in {name.topic for name in targets}
    }
    return {name: reasons[name.topic] for name in targets if reasons[name.topic]}


def _space(path: Path) -> tuple[int, int]:
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _mtime_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


def _links(log_dir: LogDir) -> tuple[str, ...]:
    return tuple(f"{log_dir.path / str(name)}: is a symbolic link and not followed" for name in log_dir.linked)


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
