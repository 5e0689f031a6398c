"""Caches the facts about brokers that scans need besides the partitions."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cleanerd.admin.peers import Peers
from cleanerd.daemon.discovery.metadata_readings import Files, MetadataReading, MetadataReadings, files_of
from cleanerd.errors import CleanerdError
from cleanerd.fsio.state_files import DAMAGED
from cleanerd.resolution.broker_facts import BrokerFacts, broker_facts, peer_points
from cleanerd.resolution.zk_config_cache import QUERY_INTERVAL_MS, is_zookeeper_mode
from cleanerd.segments.log_dir import META_PROPERTIES, METADATA_TOPIC, LogDir
from cleanerd.state import delegations, ignored_replicas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cleanerd.config.load import Settings
    from cleanerd.daemon.discovery.log_dir_scan import ScanContext
    from cleanerd.segments.metadata_image import ClusterMetadata

SHARE: Final = 2000
"""Collecting the facts may take one part in this many of the time, so that an idle daemon takes little.

Beside a broker the last five minutes of the metadata log do not count anyway, and the agent reports the configuration
that a cleaning uses.
"""

_MAX_PAUSE_SECONDS: Final = 60.0
"""The longest pause: the first reading takes longest, and a disk may have hung."""


class FactsCache:
    """The facts about a directory's broker, read again when one of their files has changed.

    A running broker writes to its metadata log twice a second, so the reading interval depends on its cost. A disk may
    be replaced by another broker's: facts are used only while the directory belongs to the same broker.
    """

    def __init__(
        self,
        readings: MetadataReadings | None = None,
        peers: Peers | None = None,
        *,
        share: int = SHARE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``readings``: of the metadata log. ``share``: the part of the time that reading it may take."""
        self._share = share
        self._clock = clock
        self._readings = readings or MetadataReadings()
        self._peers = peers or Peers()
        self._facts: BrokerFacts | None = None
        self._signature: tuple[object, ...] = ()
        self._settings: Settings | None = None
        self._broker: tuple[str | None, int | None] | None = None
        self._again_at = self._read_at = 0.0
        self.warnings: tuple[str, ...] = ()

    def get(self, context: ScanContext, log_dir: LogDir, *, running: bool) -> BrokerFacts:
        """The current or recent facts.

        While another log directory is silent: the last ones, if there are any.

        Raises:
            CleanerdError: they cannot be read, and never were.
        """
        settings, others, silent = context.settings, context.others(log_dir.path), context.silent
        broker = log_dir.meta.cluster_id, log_dir.meta.node_id
        known = self._facts if settings is self._settings and broker == self._broker else None
        if silent and known is not None:
            return replace(known, log_dirs=tuple(path for path in known.log_dirs if path not in silent))
        own = [log_dir.path, *others]
        # The metadata log may be outside of the log directories.
        at = [] if known is None or known.metadata_dir is None or known.metadata_dir in silent else [known.metadata_dir]
        queries = (int(self._clock() * 1000) // QUERY_INTERVAL_MS,) if running and is_zookeeper_mode(log_dir) else ()
        at_once = (running, *_files(settings, own))
        signature = (at_once, *queries, silent, *_metadata_logs(settings, [*own, *at]))
        rests = at_once in self._signature and self._clock() < self._again_at
        if known is not None and (rests or signature == self._signature):
            return self._with_peers(known, settings, log_dir)
        # A second call within a scan needs changes since the first, even if another thread has read meanwhile.
        started = self._clock()
        since = max(context.requested_at, self._read_at)
        made_of: list[MetadataReading] = []

        def read(directory: Path, *, only_before_ms: int | None) -> ClusterMetadata:
            made_of.append(self._readings.read(directory, only_before_ms=only_before_ms, since=since))
            return made_of[-1].found

        try:
            facts = broker_facts(
                settings, log_dir, others, running=running, silent=silent, read_metadata=read, peers=self._peers
            )
            self.warnings = ()
        except CleanerdError as error:
            if known is None:
                raise
            facts, signature = known, (at_once,)  # an obstacle may disappear without a change of a file
            self.warnings = (
                f"{log_dir.path}: the broker's configuration cannot be read, the last known one stays in use: {error}",
            )
        if not all(each.began_at >= started or (each.files and each.files in signature) for each in made_of):
            signature = (at_once,)  # another thread has read it before its last change
        self._facts, self._settings, self._broker, self._signature = facts, settings, broker, signature
        self._read_at = self._clock()
        # A reading by another thread costs the same, so all threads read equally seldom.
        took = max(self._read_at - started, sum(each.took_seconds for each in made_of))
        self._again_at = self._read_at + min(self._share * took, _MAX_PAUSE_SECONDS)
        return facts

    def _with_peers(self, known: BrokerFacts, settings: Settings, log_dir: LogDir) -> BrokerFacts:
        """U-79: add the current first dirty offsets of other brokers, which change independently of the rest."""
        points = peer_points(settings, log_dir, self._peers)
        ends = self._peers.log_ends
        if known.metadata is not None and (points is not known.peers or ends is not known.peer_log_ends):
            self._facts = known = replace(known, peers=points, peer_log_ends=ends)
        return known


def _metadata_logs(settings: Settings, paths: Sequence[Path]) -> Iterator[Files | None]:
    configured = settings.daemon.cleanerd_metadata_log_dir
    for path in [configured] if configured is not None else dict.fromkeys(paths):
        yield files_of(path / f"{METADATA_TOPIC}-0")


def _files(settings: Settings, paths: Sequence[Path]) -> Iterator[tuple[int, ...] | None]:
    """Signatures of files that seldom change; the id of each directory's owner is among them."""
    daemon = settings.daemon
    identities = [path / META_PROPERTIES for path in paths]
    saved = daemon.cleanerd_state_dir / delegations.FILE_NAME
    ignored = daemon.cleanerd_state_dir / ignored_replicas.FILE_NAME
    for file in (daemon.cleanerd_broker_properties, saved, saved.with_suffix(DAMAGED), ignored, *identities):
        try:
            status = None if file is None else os.stat(file)
        except OSError:
            status = None
        # Include ctime: an unreadable file may have got another owner or mode.
        yield None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
