"""Open erasure requests: the daemon gives their partitions priority, and shows their progress (U-88).

A partition whose tombstone can be cleaned is cleaned, whatever its dirty ratio. Later the daemon removes the tombstone
by time, like others. The last step is ``cleanerd erase certify``, because only an operator has the key. The daemon does
not roll active segments: neither a broker nor the agent offers that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cleanerd.daemon.view import ErasureView
from cleanerd.errors import CleanerdError
from cleanerd.format.names import uuid_to_base64
from cleanerd.segments.partition import read_partition
from cleanerd.segments.record_at import record_at
from cleanerd.state.erasure_requests import ErasureRequests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from cleanerd.daemon.partition_scan import Key, PartitionScan
    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.view import ErasureStage
    from cleanerd.state.erasure_requests import ErasureRequest


@dataclass(frozen=True, slots=True)
class Found:
    """A thread's results: the open requests, and by request id the partitions whose tombstone was removed."""

    requests: tuple[ErasureRequest, ...]
    gone: frozenset[tuple[str, Key]]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Erasures:
    """The requests at the last reading; used by the event loop, except the function from :meth:`reading`."""

    state_dir: Path
    fleet: PartitionRegistry
    found: Found = field(default=Found((), frozenset()))
    _marked: set[Key] = field(default_factory=set)

    def reading(self) -> Callable[[], Found]:
        """A function for another thread that reads the requests and their logs."""
        looks = [
            (each.key, each.look)
            for request in self.found.requests
            for each in self._of(request)
            if each.look is not None and each.look.clean_offset > request.tombstones[each.name.partition]
        ]
        return lambda: _read(self.state_dir, looks)

    def apply(self, found: Found) -> None:
        """Store the results of a reading."""
        self.found = found
        offsets: dict[Key, int] = {}
        for request in found.requests:
            for each in self._of(request):
                offset = request.tombstones[each.name.partition]
                offsets[each.key] = max(offset, offsets.get(each.key, offset))
        for key in self._marked | offsets.keys():
            tracked = self.fleet.partitions.get(key)
            if tracked is not None:
                tracked.erase_offset = offsets.get(key)
        self._marked = set(offsets)

    def _of(self, request: ErasureRequest) -> Iterable[PartitionEntry]:
        """The partitions on this host in which the request has a tombstone."""
        for number in request.tombstones:
            for tracked in self.fleet.named(f"{request.topic}-{number}"):
                topic_id = None if tracked.look is None else tracked.look.topic_id
                if topic_id is None or request.topic_id in {None, uuid_to_base64(topic_id)}:
                    yield tracked

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

    def _stage(self, request: ErasureRequest, tracked: PartitionEntry) -> tuple[ErasureStage, str]:
        look, offset = tracked.look, request.tombstones[tracked.name.partition]
        if look is None:
            return "unknown", "not scanned yet"
        if look.clean_offset <= offset < look.bound_offset:
            return "dirty", "cleaned next" if self.fleet.work_of(tracked) == "live" else look.reason or "to be cleaned"
        if look.clean_offset <= offset:
            return "blocked", f"the tombstone at offset {offset} cannot be cleaned yet: see cleanerd erase plan"
        if (request.id, tracked.key) in self.found.gone:
            return "certify", f"run cleanerd erase certify {request.topic}"
        return "tombstone", "only the tombstone is left: cleanerd erase plan says until when"


def _read(state_dir: Path, looks: Sequence[tuple[Key, PartitionScan]]) -> Found:
    store = ErasureRequests(state_dir)
    requests = tuple(each for each in store.load() if each.is_open)
    gone = frozenset(
        (request.id, key)
        for request in requests
        for key, look in looks
        if key[1].topic == request.topic and _is_gone(request, look)
    )
    return Found(requests, gone, tuple(store.warnings))


def _is_gone(request: ErasureRequest, look: PartitionScan) -> bool:
    """Whether the log has no record of the request's key at its tombstone's offset any more."""
    offset = request.tombstones.get(look.name.partition)
    if offset is None:
        return False
    try:
        record = record_at(read_partition(look.log_dir, look.name), offset)
    except (CleanerdError, OSError):
        return False  # the broker replaced the file meanwhile, or it is damaged: the next reading decides
    return record is None or record.key is None or not request.key.is_of(record.key)
