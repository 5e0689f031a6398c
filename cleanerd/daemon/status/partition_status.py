"""The state of a partition, its reason and its outlook in one value, so that the three never disagree (OP-11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.daemon.registry.canary import too_large
from cleanerd.daemon.registry.due import has_nothing_to_stage
from cleanerd.humanize import human_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.partition_registry import PartitionRegistry
    from cleanerd.daemon.view import Outlook, PartitionPhase

_STAGED: Final = "staged: cleanerd apply swaps it in before the next start of the broker"
_TRIGGERS: Final = {
    "manual": "it was requested",
    "erasure": "an erasure request waits for it",
    "overdue": "max.compaction.lag.ms has passed",
    "tombstone_removal": "tombstones or markers are past their delete horizon",
    "ratio": "its dirty ratio is above the limit",
}


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition's state, the reason for it, and its ``outlook``.

    ``rule``: the setting, command or state that decides. ``by_log``: the log itself decides, so `explain` has the
    numbers; otherwise no change of the log changes the answer.
    """

    phase: PartitionPhase
    outlook: Outlook
    rule: str
    reason: str
    by_log: bool = False


def status_of(registry: PartitionRegistry, entry: PartitionEntry) -> PartitionStatus:
    """OP-11: the first matching rule decides state, reason and outlook together."""
    return next(each for each in _statuses(registry, entry) if each is not None)


def _statuses(registry: PartitionRegistry, entry: PartitionEntry) -> Iterator[PartitionStatus | None]:
    if entry.excluded:
        yield PartitionStatus("excluded", "no", "cleanerd.topics.include and exclude", entry.excluded)
    if entry.trigger is not None:
        outlook: Outlook = "observe" if _observes(registry, entry) else "now"
        yield PartitionStatus("cleaning", outlook, entry.trigger, _TRIGGERS[entry.trigger])
    if entry.paused or registry.pauses.everything:
        yield PartitionStatus("paused", "no", "cleanerd pause", "cleaning is paused")
    if registry.held and registry.work_of(entry) in {"live", "stage"}:
        yield PartitionStatus("paused", "no", "cleanerd.canary", registry.held)
    if entry.quarantine is not None:
        soon = _next_outlook(registry, entry) if entry.queued else "no"
        yield PartitionStatus("quarantined", soon, "quarantine", entry.quarantine.reason)
    yield _unreadable(registry, entry)
    yield from _by_work(registry, entry)


def _unreadable(registry: PartitionRegistry, entry: PartitionEntry) -> PartitionStatus | None:
    found = registry.dirs.get(entry.path)
    if found is not None and found.error:
        return PartitionStatus("idle", "no", "the log directory", found.error)
    if entry.failed is not None:
        return PartitionStatus("idle", "no", "the partition's directory", entry.failed.reason)
    if entry.scan is None:
        return PartitionStatus("idle", "no", "first scan", "not scanned yet")
    return None


def _by_work(registry: PartitionRegistry, entry: PartitionEntry) -> Iterator[PartitionStatus | None]:
    scan, found = entry.scan, registry.dirs.get(entry.path)
    if scan is not None and scan.refused and scan.staged is None:
        yield PartitionStatus("refused", "no", scan.rule, scan.reason, by_log=True)
    if entry.queued and scan is not None and (reason := too_large(registry.settings.canary, scan.size_bytes)):
        yield PartitionStatus("idle", "no", "cleanerd.canary", reason)
    if entry.queued:
        yield PartitionStatus("queued", _next_outlook(registry, entry), "cleaner threads", "waiting for its turn")
    if scan is not None and scan.staged is not None:
        yield PartitionStatus("staged", "restart", "staged plan", _STAGED)
    if entry.hold.reason:
        requested = "the requested cleaning failed: " if entry.hold.requested else ""
        yield PartitionStatus("idle", "no", "the last attempt", requested + entry.hold.reason)
    if found is not None and found.mode.work is None:
        yield PartitionStatus("idle", "no", "cleanerd.mode", found.mode.reason)
    if scan is not None and scan.reason:
        yield PartitionStatus("idle", "no", scan.rule, scan.reason, by_log=True)
    if found is not None and found.mode.work != "observe" and registry.is_full(found):
        reserve = human_bytes(registry.reserve_of(found))
        full = f"free space is at the reserve (cleanerd.disk.reserve, {reserve})"
        yield PartitionStatus(
            "idle", "no", "cleanerd.disk.reserve", f"{full}: nothing is cleaned here until space is freed"
        )
    if has_nothing_to_stage(entry, registry.work_of(entry)):
        yield PartitionStatus("idle", "no", "staged plan", "cleaning would remove nothing")
    yield about_to_be_cleaned(registry, entry)


def about_to_be_cleaned(registry: PartitionRegistry, entry: PartitionEntry) -> PartitionStatus:
    """The state of a partition that no rule holds back."""
    would = "would be cleaned" if _observes(registry, entry) else "about to be cleaned"
    return PartitionStatus("idle", _next_outlook(registry, entry), "min.cleanable.dirty.ratio", would, by_log=True)


def _observes(registry: PartitionRegistry, entry: PartitionEntry) -> bool:
    found = registry.dirs.get(entry.path)
    return found is not None and found.mode.mode == "observe"


def _next_outlook(registry: PartitionRegistry, entry: PartitionEntry) -> Outlook:
    """The effect of the next cleaning in its log directory."""
    if _observes(registry, entry):
        return "observe"
    return "restart" if registry.work_of(entry) == "stage" else "next"
