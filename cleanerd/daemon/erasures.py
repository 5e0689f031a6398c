"""Open erasure requests: the daemon gives their partitions priority, and shows their progress (U-88).

A partition whose tombstone can be cleaned is cleaned, whatever its dirty ratio. A tombstone in the active segment
cannot: once a write would roll that segment, the daemon has the broker roll it, because an idle topic has no writes
(U-91). Later the daemon removes the tombstone by time, like others. The last step is ``cleanerd erase certify``,
because only an operator has the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from cleanerd.broker.live_broker import LiveBroker
from cleanerd.broker.mode import SINGLE_TRY
from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.view import ErasureStage, ErasureView
from cleanerd.daemon.work.backup_limits import KeptRecord, last_kept
from cleanerd.errors import CleanerdError
from cleanerd.format.batch import parse_header
from cleanerd.format.names import SEGMENT_SUFFIX, file_name, uuid_to_base64
from cleanerd.host.memory import batch_bytes
from cleanerd.inspection.report import time_of
from cleanerd.policy.removal import roll_due_ms
from cleanerd.segments.batch_file import read_batches
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.record_at import record_at
from cleanerd.state.erasure_requests import ErasureRequest, ErasureRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from cleanerd.broker.agent_facts import LogFacts
    from cleanerd.broker.agent_pool import AgentPool
    from cleanerd.config.load import Settings
    from cleanerd.config.topic_config import TopicConfig
    from cleanerd.daemon.partition_scan import Key, PartitionScan
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Found:
    """A thread's results: the open requests, and by request id the partitions whose tombstone was removed.

    ``rolled``: partitions whose active segment was rolled, with the base offset of the new one. ``kept``: of the
    removed ones, the last cleaning whose kept segments have the tombstone.
    """

    requests: tuple[ErasureRequest, ...]
    gone: frozenset[tuple[str, Key]]
    warnings: tuple[str, ...] = ()
    rolled: tuple[tuple[Key, int], ...] = ()
    kept: Mapping[tuple[str, Key], KeptRecord] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActiveTombstone:
    """A tombstone of a request that no cleaning can reach yet, in a partition that is cleaned live."""

    scan: PartitionScan
    offset: int
    socket: Path


@dataclass(slots=True)
class Erasures:
    """The requests at the last reading; used by the event loop, except the function from :meth:`reading`."""

    state_dir: Path
    registry: PartitionRegistry
    agents: AgentPool
    now_ms: Callable[[], int]
    settings: Callable[[], Settings]
    found: Found = field(default=Found((), frozenset()))
    _marked: set[Key] = field(default_factory=set)

    def reading(self) -> Callable[[], Found]:
        """A function for another thread that reads the requests and their logs."""
        scans = [
            (each.key, each.scan)
            for request in self.found.requests
            for each in self._of(request)
            if each.scan is not None and each.scan.first_dirty_offset > request.tombstones[each.name.partition]
        ]
        blocked, now_ms = list(self._blocked()), self.now_ms()
        return lambda: _read(self.state_dir, scans, roll_segments(blocked, self.agents, now_ms))

    def _blocked(self) -> Iterable[ActiveTombstone]:
        """Those that the active segment may hold back; none where the daemon leaves the partition alone."""
        for request in self.found.requests:
            for each in self._of(request):
                scan, offset = each.scan, request.tombstones[each.name.partition]
                if (
                    scan is None
                    or offset < scan.first_uncleanable_offset
                    or not self.registry.may_change_now(each, self.now_ms())
                ):
                    continue
                choice = self.registry.dirs[each.path].choice
                if choice is not None and choice.socket is not None:
                    yield ActiveTombstone(scan, offset, choice.socket)

    def apply(self, found: Found) -> None:
        """Store the results of a reading."""
        self.found = found
        for (path, name), base in found.rolled:
            _log.info(LogEvent.SEGMENT_ROLLED, partition=str(name), log_dir=path, active_base_offset=base)
        offsets: dict[Key, int] = {}
        for request in found.requests:
            for each in self._of(request):
                offset = request.tombstones[each.name.partition]
                offsets[each.key] = max(offset, offsets.get(each.key, offset))
        for key in self._marked | offsets.keys():
            entry = self.registry.partitions.get(key)
            if entry is not None:
                entry.erase_offset = offsets.get(key)
        self._marked = set(offsets)

    def _of(self, request: ErasureRequest) -> Iterable[PartitionEntry]:
        """The partitions on this host in which the request has a tombstone."""
        for number in request.tombstones:
            for entry in self.registry.named(f"{request.topic}-{number}"):
                topic_id = None if entry.scan is None else entry.scan.topic_id
                if topic_id is None or request.topic_id in {None, uuid_to_base64(topic_id)}:
                    yield entry

    def views(self) -> tuple[ErasureView, ...]:
        """The progress of each request."""
        return tuple(
            ErasureView(
                request.id,
                request.topic,
                request.requested_ms,
                request.deadline_ms,
                {str(each.name): self._stage(request, each) for each in self._of(request)},
            )
            for request in self.found.requests
        )

    def _stage(self, request: ErasureRequest, entry: PartitionEntry) -> tuple[ErasureStage, str]:
        scan, offset = entry.scan, request.tombstones[entry.name.partition]
        if scan is None:
            return "unknown", "not scanned yet"
        if scan.first_dirty_offset <= offset < scan.first_uncleanable_offset:
            is_next = self.registry.work_of(entry) == "live" and not entry.hold.reason
            return "dirty", "cleaned next" if is_next else entry.hold.reason or scan.reason or "to be cleaned"
        if scan.first_dirty_offset <= offset:
            return "blocked", f"the tombstone at offset {offset} cannot be cleaned yet: see cleanerd erase plan"
        if kept := self.found.kept.get((request.id, entry.key)):
            return "kept", self._until(kept)
        if (request.id, entry.key) in self.found.gone:
            return "certify", f"run cleanerd erase certify {request.topic}"
        return "tombstone", "only the tombstone is left: cleanerd erase plan shows until when"

    def _until(self, kept: KeptRecord) -> str:
        """How long kept segments have the key."""
        daemon = self.settings().daemon
        what = f"the segments in {kept.directory} still have the key"
        if not any(each in kept.directory.parents for each in daemon.cleanerd_keep_replaced_dir):
            return f"{what}: delete them"
        ends_ms = kept.cleaned_ms + daemon.cleanerd_keep_replaced_retention_ms
        return f"{what} until {time_of(ends_ms)} (cleanerd.keep.replaced.retention.ms)"


def roll_segments(blocked: Sequence[ActiveTombstone], agents: AgentPool, now_ms: int) -> list[tuple[Key, int] | str]:
    """Have brokers roll the active segments that are due (U-91): each with its new base offset, or why it was not."""
    found: list[tuple[Key, int] | str] = []
    for each in blocked:
        name = each.scan.name
        try:
            with LiveBroker(each.socket, SINGLE_TRY, agents) as broker:
                facts = broker.log(name)
                log = read_partition(each.scan.log_dir, name)
                if facts.active.base <= each.offset and _is_due(log, facts, each.scan.config, now_ms):
                    found.append(((str(each.scan.log_dir.path), name), broker.roll(name, facts)))
        except (CleanerdError, OSError, ValueError) as error:
            found.append(f"{name}: the active segment was not rolled for an erasure request: {error}")
    return found


def _is_due(log: PartitionLog, facts: LogFacts, config: TopicConfig, now_ms: int) -> bool:
    """Whether a write would roll the active segment now, by the broker's settings. Another segment is not judged."""
    if log.active.base != facts.active.base:
        return False
    path = log.path / file_name(log.active.base, SEGMENT_SUFFIX)
    first = next(iter(read_batches(path, cut_tail_ends=True, limit_bytes=batch_bytes())), None)
    if first is None or first.frame.magic < 2:
        return False
    first_ms = parse_header(first.data, where=str(path)).max_timestamp
    segment_ms = int(facts.settings.get("segment.ms", config.segment_ms))
    max_lag_ms = int(facts.settings.get("max.compaction.lag.ms", config.max_compaction_lag_ms))
    due_ms = roll_due_ms(first_ms, segment_ms, max_lag_ms)
    return due_ms is not None and due_ms <= now_ms


def _read(state_dir: Path, scans: Sequence[tuple[Key, PartitionScan]], tried: Sequence[tuple[Key, int] | str]) -> Found:
    store = ErasureRequests(state_dir)
    requests = tuple(each for each in store.load() if each.is_open)
    gone = frozenset(
        (request.id, key)
        for request in requests
        for key, scan in scans
        if key[1].topic == request.topic and _is_gone(request, scan)
    )
    kept = {
        (request.id, key): record
        for request in requests
        for key, scan in scans
        if (request.id, key) in gone and (record := _kept(state_dir, request, scan)) is not None
    }
    refused = tuple(each for each in tried if isinstance(each, str))
    rolled = tuple(each for each in tried if not isinstance(each, str))
    return Found(requests, gone, (*store.warnings, *refused), rolled, kept)


def _kept(state_dir: Path, request: ErasureRequest, scan: PartitionScan) -> KeptRecord | None:
    """The last cleaning of which kept segments have the request's tombstone. Older ones may have the value."""
    offset = request.tombstones[scan.name.partition]
    try:
        return last_kept(state_dir, scan.log_dir, (scan.name, scan.topic_id), offset, request.key.is_of)
    except (CleanerdError, OSError):
        return None  # the sweep of kept segments reports that


def _is_gone(request: ErasureRequest, scan: PartitionScan) -> bool:
    """Whether the log has no record of the request's key at its tombstone's offset any more."""
    offset = request.tombstones.get(scan.name.partition)
    if offset is None:
        return False
    try:
        record = record_at(read_partition(scan.log_dir, scan.name), offset)
    except (CleanerdError, OSError):
        return False  # the broker replaced the file meanwhile, or it is damaged: the next reading decides
    return record is None or record.key is None or not request.key.is_of(record.key)
