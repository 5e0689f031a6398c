"""U-90: partitions whose latest state differs from that of another replica, from the digests of all daemons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.registry.partition_entry import PartitionEntry, digests_of
from cleanerd.policy.state_digest import ReplicaDigests, first_difference

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.admin.peers import PeerDigests
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry

SHOWN: Final = 10
"""How many warnings are shown at once; the metric counts all."""

OWN: Final = "this broker"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Differences:
    """How many partitions differ, and the warnings of the first ones."""

    count: int
    texts: tuple[str, ...]


class ReplicaDifferences:
    """Compares this daemon's digests with those of ``peers``. Used by the event loop alone."""

    def __init__(self, registry: PartitionRegistry, peers: Callable[[], PeerDigests]) -> None:
        self._registry = registry
        self._peers = peers
        self._of: tuple[PeerDigests, int] | None = None
        self._found = Differences(0, ())
        self._texts: dict[str, str] = {}

    def current(self) -> Differences:
        """The current differences; new ones are logged. Compared again when digests have changed."""
        state = (self._peers(), self._registry.digest_changes)
        if self._of is None or state[0] is not self._of[0] or state[1] != self._of[1]:
            self._of = state
            before, self._texts = self._texts, self._compare(state[0])
            for name in self._texts.keys() - before.keys():
                _log.warning(LogEvent.WARNING_RAISED, kind="replica", reason=self._texts[name])
            texts = list(self._texts.values())
            rest = [f"{len(texts) - SHOWN} more partitions differ from other replicas"] if len(texts) > SHOWN else []
            self._found = Differences(len(texts), (*texts[:SHOWN], *rest))
        return self._found

    def _compare(self, peers: PeerDigests) -> dict[str, str]:
        found: dict[str, str] = {}
        if peers:
            for entry in self._registry.by_name():
                text = _difference(entry, peers) if digests_of(entry) else ""
                if text:
                    found[str(entry.name)] = text
        return found


def _difference(entry: PartitionEntry, peers: PeerDigests) -> str:
    """The difference in words, or an empty text."""
    scan, name = entry.scan, str(entry.name)
    if scan is None:
        return ""
    replicas = {f"broker {broker}": known[name] for broker, known in peers.items() if name in known}
    replicas[OWN] = ReplicaDigests(scan.first_dirty_offset, scan.fingerprint, digests_of(entry))
    found = first_difference(replicas, OWN)
    if found is None:
        return ""
    keys = " and ".join(f"{replica} has {state.keys:,} keys" for replica, state in sorted(found.by_replica.items()))
    return (
        f"{name}: the latest state below offset {found.end_offset} differs between replicas ({keys}, by digest): copy "
        "both replicas and find the keys with cleanerd spark divergence"
    )
