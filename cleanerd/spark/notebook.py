"""``cleanerd.spark.Logs``: the API for notebooks, with functions that prepare a cleaning."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.config.load import Settings, load_settings
from cleanerd.resolution.selection import EVERYTHING, PartitionSelection
from cleanerd.spark import api
from cleanerd.spark.archive.run import Archive, clean_archive
from cleanerd.spark.clean import spark_stage_partition, stage_log_dir
from cleanerd.spark.session_info import require_driver_java
from cleanerd.spark.stores import path_of
from cleanerd.spark.strategies import keys_of
from cleanerd.spark.task_runner import ignore_progress
from cleanerd.verify.listing import list_partition
from cleanerd.verify.rules import KAFKAS_RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.spark.logs import Log


class Logs(api.ReadableLogs):
    """The logs of :class:`api.ReadableLogs`, which a notebook can also stage, or clean into a copy."""

    def stage(
        self,
        settings: Iterable[str] = (),
        *,
        force: bool = False,
        from_start: bool = False,
        now_ms: int | None = None,
        shards: int | None = None,
        stage_one: Callable[..., CleaningResult] = spark_stage_partition,
    ) -> list[CleaningResult]:
        """Stage the compacted topics' partitions for ``cleanerd apply``: new segments beside the old ones.

        The brokers are stopped. ``settings``: cleanerd's own, as after ``--set`` (``cleanerd.state.dir=...``, and
        ``topics.orders.cleanup.policy=compact`` if the directory does not show the topic's policy); the strategies of
        these logs are added. ``force``, ``from_start``, ``now_ms``, ``shards``: as for ``cleanerd spark clean``.
        ``stage_one`` stages one partition.

        Raises:
            ConfigError: as :meth:`found`, or a setting is wrong, or the session is one of Spark Connect.
            RefusedError: a broker runs there.
            CleanerdError: a directory cannot be read. Obstacles of a partition are in its result.
        """
        require_driver_java(self.session, "stage")
        session, found = self.session, self._named()
        effective = self._settings(found, settings)
        options = CleaningOptions(
            now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
            waits_for_replicas=now_ms is None,
            force=force,
            from_start=from_start,
        )
        places = sorted({log.log_dir for log in found})
        results = []
        for place in places:
            wanted = self._wanted([log for log in found if log.log_dir == place])
            others = [other for other in places if other != place]
            results += stage_log_dir(session, place, others, effective, wanted, options, shards=shards, stage=stage_one)
        return results

    def clean(
        self,
        output: str | Path,
        settings: Iterable[str] = (),
        *,
        force: bool = False,
        from_start: bool = False,
        unclean: bool = False,
        now_ms: int | None = None,
        advance: Callable[[int], None] = ignore_progress,
    ) -> Archive:
        """Write a cleaned copy of the compacted topics to the new directory or URL ``output``; the logs do not change.

        Each partition is cleaned as ``cleanerd clean`` would clean a copy of it, by one task, and without a session by
        this process. The manifest comes last; without it the output is incomplete. ``settings``, ``force``,
        ``from_start``, ``now_ms``: as for :meth:`stage`. ``unclean``: the brokers were not stopped cleanly when the
        copies were made.

        Raises:
            ConfigError: as :meth:`found`, or a setting is wrong, or ``output`` is not empty or inside a source.
            RefusedError: another run was first to write there.
            CleanerdError: ``output`` cannot be written. Obstacles of a partition are in its result.
        """
        found = self._named()
        options = CleaningOptions(
            now_ms=time.time_ns() // 1_000_000 if now_ms is None else now_ms,
            waits_for_replicas=now_ms is None,
            force=force,
            from_start=from_start,
            unclean=unclean,
        )
        places = sorted({log.log_dir for log in found})
        effective, place = self._settings(found, settings), path_of(output).absolute()
        return clean_archive(self._spark, places, place, effective, self._wanted(found), options, advance=advance)

    def _named(self) -> list[Log]:
        """As :meth:`found`, including logs with interrupted swaps: the obstacle is in the partition's result."""
        return self._found(partial(list_partition, deleted_too=True))

    def _settings(self, found: Sequence[Log], settings: Iterable[str]) -> Settings:
        """Settings with the strategies of these logs."""
        strategy_settings = [
            f"topics.{topic}.{key}={value}"
            for topic in sorted({log.name.topic for log in found})
            if self._rules(topic) != KAFKAS_RULES
            for key, value in keys_of(self._rules(topic)).items()
        ]
        return load_settings((), [*strategy_settings, *settings])

    def _wanted(self, found: Sequence[Log]) -> PartitionSelection:
        """The requested partitions, if any."""
        if self._topics is None and self._partitions is None:
            return EVERYTHING
        names = frozenset(log.name for log in found)
        return PartitionSelection(tuple(map(str, names)), names, names)
