"""What looks rest on besides the partitions themselves: what is known of the broker's configuration."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.looking.metadata_readings import MetadataReadings, files_of
from cleanerd.errors import CleanerdError
from cleanerd.log.log_dir import METADATA_TOPIC
from cleanerd.scope.broker_facts import BrokerFacts, broker_facts
from cleanerd.scope.told_topics import ASK_EVERY_MS, is_zookeeper_mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from cleanerd.daemon.looking.log_dir_look import LookContext
    from cleanerd.daemon.looking.metadata_readings import MetadataReading
    from cleanerd.log.cluster_metadata import ClusterMetadata
    from cleanerd.log.log_dir import LogDir
    from cleanerd.settings import Settings

_SHARE: Final = 100
"""Reading the metadata log may take one part in so many of the time."""


class FactsCache:
    """What is known of a directory's broker, read again when a file that says it has changed.

    A running broker writes to its metadata log twice a second, so how often it is read depends on what that costs.
    """

    def __init__(self, readings: MetadataReadings | None = None) -> None:
        self._readings = readings or MetadataReadings()
        self._facts: BrokerFacts | None = None
        self._signature: tuple[object, ...] = ()
        self._settings: Settings | None = None
        self._again_at = self._read_at = 0.0
        self.warnings: tuple[str, ...] = ()

    def get(self, context: LookContext, log_dir: LogDir, *, running: bool) -> BrokerFacts:
        """As it is now, or was a moment ago. While another log directory is silent: as it was, if it was ever read.

        Raises:
            CleanerdError: it cannot be read, and never was.
        """
        settings, others, silent = context.settings, context.others(log_dir.path), context.silent
        if silent and self._facts is not None and settings is self._settings:
            return replace(self._facts, log_dirs=tuple(path for path in self._facts.log_dirs if path not in silent))
        paths = [log_dir.path, *others]
        if self._facts is not None and self._facts.metadata_dir is not None:
            paths.append(self._facts.metadata_dir)  # it need not be a log directory
        asks = (int(time.monotonic() * 1000) // ASK_EVERY_MS,) if running and is_zookeeper_mode(log_dir) else ()
        signature = (running, *asks, silent, *_signature(settings, [path for path in paths if path not in silent]))
        same = settings is self._settings and signature[0] == (self._signature or (None,))[0]
        fresh = signature == self._signature or time.monotonic() < self._again_at
        if self._facts is not None and same and fresh:
            return self._facts
        # Whoever asks a second time wants to know what changed meanwhile, whatever another one has read.
        since, started = max(context.asked_at, self._read_at), time.monotonic()
        made_of: list[MetadataReading] = []

        def read(directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
            made_of.append(self._readings.read(directory, only_before_ms=only_before_ms, since=since))
            return made_of[-1].found

        try:
            self._facts = broker_facts(settings, log_dir, others, running=running, silent=silent, read_metadata=read)
            self.warnings = ()
        except CleanerdError as error:
            if self._facts is None or settings is not self._settings:
                raise
            self.warnings = (
                f"{log_dir.path}: the broker's configuration cannot be read, the last known one stays in use: {error}",
            )
        if not all(each.began_at >= started or each.files in signature for each in made_of):
            signature = (running,)  # another thread has read it before it became what it is now
        self._settings, self._signature, self._read_at = settings, signature, time.monotonic()
        # What another thread has read costs as much as if it had been read here: all read it again equally seldom.
        took = max(time.monotonic() - started, sum(each.took_seconds for each in made_of))
        self._again_at = time.monotonic() + _SHARE * took
        return self._facts


def _signature(settings: Settings, paths: Sequence[Path]) -> Iterator[object]:
    daemon = settings.daemon
    configured = daemon.cleanerd_metadata_log_dir
    for path in [configured] if configured is not None else dict.fromkeys(paths):
        yield files_of(path / f"{METADATA_TOPIC}-0")
    for file in (daemon.cleanerd_broker_properties, daemon.cleanerd_state_dir / "delegations.json"):
        try:
            status = None if file is None else os.stat(file)
        except OSError:
            status = None
        yield None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns)
