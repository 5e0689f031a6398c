"""The current settings, and the effect of a reload: safe keys apply at once, the others after a restart.

A reload resets no counter and loses no facts about partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from cleanerd.config.names import TOPICS
from cleanerd.resolution.log_dirs import log_dirs_of, require_outside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cleanerd.config.load import Settings

NEEDS_RESTART: Final = (
    "cleanerd.state.dir",
    "cleanerd.control.socket",
    "cleanerd.http.listen",
    "cleanerd.http.hosts",
    "cleanerd.metrics.kafka.names",
    "cleanerd.metrics.partitions.max",
)
"""Keys that apply after a restart only, because their files and sockets are already open."""


@dataclass(frozen=True, slots=True)
class ReloadedKeys:
    """The keys whose values a reload changed, including those of topics; ``need a restart``: which of them do."""

    keys: tuple[str, ...]
    need_restart: tuple[str, ...]


class Configuration:
    """``settings``, and the ``log_dirs`` that they name.

    ``reread`` reads the settings again. ``generation`` increases with every reload.
    """

    def __init__(self, settings: Settings, reread: Callable[[], Settings]) -> None:
        self.settings = settings
        self.reread = reread
        self.log_dirs: tuple[Path, ...] = log_dirs_of(settings)
        self.generation = 1
        self._scanned_generation = 0

    def reload(self) -> ReloadedKeys:
        """Reload the settings.

        Raises:
            CleanerdError: they are invalid; the old ones stay.
        """
        before = self.settings
        settings = self.reread()
        log_dirs = log_dirs_of(settings, known=self.log_dirs)
        # This checks the state directory of the next start; until then the current one is used.
        require_outside(before.daemon.cleanerd_state_dir, [path for path in log_dirs if path not in self.log_dirs])
        keys = tuple(key for key in settings.origins if settings.value(key) != before.value(key))
        later = tuple(key for key in keys if key in NEEDS_RESTART)
        keys += _changed_topics(before, settings)
        if log_dirs != self.log_dirs and not {"cleanerd.log.dirs", "cleanerd.broker.properties"}.intersection(keys):
            keys += (f"log.dirs in {settings.daemon.cleanerd_broker_properties}",)
        kept = {key.replace(".", "_"): before.value(key) for key in later}
        self.settings = replace(settings, daemon=settings.daemon.model_copy(update=kept))
        self.log_dirs = log_dirs
        self.generation += 1
        return ReloadedKeys(keys, later)

    def record_scanned(self, generation: int) -> None:
        """Note that all partitions were scanned with the settings of that generation."""
        self._scanned_generation = generation

    @property
    def is_behind(self) -> bool:
        """Whether some partitions were not scanned yet with the current settings."""
        return self._scanned_generation != self.generation

    def window_is_open(self) -> bool:
        """Whether any cleaning may begin now, by local time."""
        return self.settings.daemon.cleanerd_windows.is_open(datetime.now().astimezone())


def _changed_topics(before: Settings, after: Settings) -> tuple[str, ...]:
    """Keys like ``topics.orders.min.compaction.lag.ms`` that were added, removed or changed for a topic or pattern."""
    then, now = _of_topics(before), _of_topics(after)
    return tuple(key for key in {**now, **then} if now.get(key) != then.get(key))


def _of_topics(settings: Settings) -> dict[str, Any]:
    return {
        f"{TOPICS}.{table.name}.{key}": value for table in settings.tables for key, (value, _) in table.values.items()
    }
