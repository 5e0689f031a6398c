"""``cleanerd.spark.Logs``: all that a notebook calls, with what prepares a cleaning."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.scope.selection import EVERYTHING, Selection
from cleanerd.settings import load_settings
from cleanerd.spark import api
from cleanerd.spark.clean import stage_log_dir
from cleanerd.spark.strategies import keys_of
from cleanerd.verify.rules import KAFKAS_RULES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cleanerd.cleaner.result import CleaningResult


class Logs(api.Logs):
    """The logs of :class:`api.Logs`, that a notebook may have staged too."""

    def stage(
        self,
        settings: Iterable[str] = (),
        *,
        force: bool = False,
        from_start: bool = False,
        now_ms: int | None = None,
        shards: int | None = None,
    ) -> list[CleaningResult]:
        """Write the new segments of the compacted topics beside the old ones, for ``cleanerd apply``; one a partition.

        The brokers are stopped. ``settings``: cleanerd's own, as after ``--set`` (``cleanerd.state.dir=...``, and
        ``topics.orders.cleanup.policy=compact`` where the directory does not say what the topic is); the strategies of
        these logs go with them. ``force``, ``from_start``, ``now_ms``, ``shards``: as for ``cleanerd spark clean``.

        Raises:
            ConfigError: as :meth:`found`, or a setting is wrong.
            RefusedError: a broker runs there.
            CleanerdError: a directory cannot be read. What is in the way of a partition is in its result.
        """
        session, found = self.session, self.found()
        said = [
            f"topics.{topic}.{key}={value}"
            for topic in sorted({log.name.topic for log in found})
            if self._rules(topic) != KAFKAS_RULES
            for key, value in keys_of(self._rules(topic)).items()
        ]
        effective = load_settings((), [*said, *settings])
        options = CleaningOptions(
            now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms, force=force, from_start=from_start
        )
        chosen = self._topics is not None or self._partitions is not None
        places = sorted({log.log_dir for log in found})
        results = []
        for place in places:
            names = frozenset(log.name for log in found if log.log_dir == place)
            wanted = Selection(tuple(map(str, names)), names, names) if chosen else EVERYTHING
            others = [other for other in places if other != place]
            results += stage_log_dir(session, place, others, effective, wanted, options, shards=shards)
        return results
