"""What has to happen before a copy of a key is removed, and by when at the latest (U-85).

A value is removed by the first cleaning that covers both the value and a tombstone of its key. A later cleaning removes
the tombstone, after its delete horizon. Each event on the way is a :class:`Step`. A step without a latest time names
the setting that would give one; then the whole has no latest time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from cleanerd.policy.replicas import BY_CLOCK, MARGIN_MS, ExpiryBound, held_in_words

NO_LIMIT_MS: Final = 2**63 - 1
ERASURE_READING_MS: Final = 10_000
"""The daemon reads the open erasure requests this often: one reading finds a request, the next one acts on it."""

_STALE_MS: Final = 2 * MARGIN_MS
"""A metadata log without younger records lags: its controllers are down, or it cannot be read."""

CleanedBy = Literal["daemon", "kafka", "operator"]
"""Who cleans: ``daemon``: cleanerd, swapping live. ``kafka``: the broker's cleaner. ``operator``: neither of them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One event, between ``from_ms`` and ``by_ms``; None: it has no latest time.

    ``wait_ms``: how long after the previous step at the latest; None: it may never happen. ``setting``: what sets the
    time, or what would give a latest time.
    """

    event: str
    from_ms: int
    by_ms: int | None
    wait_ms: int | None
    setting: str


@dataclass(frozen=True, slots=True)
class SegmentTimes:
    """A live segment: its first offset, and the times of its batches. ``is_active``: the broker appends to it."""

    base: int
    first_ms: int
    largest_ms: int
    is_active: bool


@dataclass(frozen=True, slots=True)
class RemovalFacts:
    """The facts about one partition.

    ``segments`` ascend; the last is the active one. ``limits``: by name, the offsets that no cleaning passes now,
    except those of lag and active segment. ``first_dirty_offset``: the log was cleaned below it. ``has_request``: the
    daemon cleans for an open erasure request as soon as it can. ``kept_ms``: how long replaced segments are kept; None:
    not at all.
    """

    now_ms: int
    segments: Sequence[SegmentTimes]
    first_dirty_offset: int
    cleaned_by: CleanedBy
    has_request: bool
    segment_ms: int
    min_lag_ms: int
    max_lag_ms: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    scan_ms: int
    kept_ms: int | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    expiry: ExpiryBound = BY_CLOCK
    keeps_tombstones: bool = False


def roll_due_ms(first_ms: int, segment_ms: int, max_lag_ms: int) -> int | None:
    """When a write would roll the active segment, by the largest time of its first batch; None: that has no time.

    Kafka rolls a segment after the shorter of ``segment.ms`` and ``max.compaction.lag.ms``.
    """
    return min(first_ms + min(segment_ms, max_lag_ms), NO_LIMIT_MS) if first_ms > 0 else None


NO_TOMBSTONE: Final = Step(
    "a tombstone of the key is written", 0, None, None, "cleanerd erase request, or the producer that owns the key"
)


def bound_of(steps: Sequence[Step]) -> int | None:
    """The latest time at which all ``steps`` have happened; None: there is none."""
    bounds = [step.by_ms for step in steps]
    return None if None in bounds else max((each for each in bounds if each is not None), default=0)


def steps_of_value(facts: RemovalFacts, offset: int, tombstone_offset: int | None) -> tuple[Step, ...]:
    """The steps until a superseded record is removed. ``tombstone_offset`` None: its key has no winning tombstone."""
    if tombstone_offset is None:
        return (NO_TOMBSTONE,)
    way, covered = _Way(facts), max(offset, tombstone_offset)
    if covered < facts.first_dirty_offset:
        # Only a cleaning of the whole log compares records of the clean section.
        way.unbounded("the log is cleaned from its start", "cleanerd clean --from-start")
    else:
        way.cleaned(covered, tombstone_offset)
    way.replaced()
    return tuple(way.steps)


def steps_of_tombstone(
    facts: RemovalFacts, offset: int, horizon_ms: int | None, last_offset: int | None = None
) -> tuple[Step, ...]:
    """The steps until the tombstone is removed.

    ``horizon_ms``: the delete horizon of its batch; None: not set yet. ``last_offset``: the last other record of its
    key, whose removal comes first (U-1).
    """
    way = _Way(facts)
    covered = max(offset, offset if last_offset is None else last_offset)
    if horizon_ms is None or covered >= facts.first_dirty_offset:
        way.cleaned(covered, offset)
    if facts.keeps_tombstones:
        way.unbounded("it never expires", "tombstone.guard=horizon")
    elif horizon_ms is None:
        way.after("its delete horizon passes", facts.delete_retention_ms, "delete.retention.ms")
    else:
        way.at("its delete horizon passes", horizon_ms, "delete.retention.ms")
    way.replicated(facts.expiry)
    way.cleaned_again()
    way.replaced()
    return tuple(way.steps)


class _Way:
    """Steps in sequence: each begins after the previous one."""

    def __init__(self, facts: RemovalFacts) -> None:
        self.steps: list[Step] = []
        self._facts = facts
        self._from_ms = facts.now_ms
        self._by_ms: int | None = facts.now_ms

    def at(self, event: str, at_ms: int, setting: str) -> None:
        """Add an event at a known time, unless it has passed; a time beyond 64 bits never comes."""
        if at_ms > NO_LIMIT_MS:
            self.unbounded(event, setting)
        elif at_ms > self._from_ms:
            by_ms = None if self._by_ms is None else max(at_ms, self._by_ms)
            self._add(Step(event, at_ms, by_ms, at_ms - self._from_ms, setting))

    def after(self, event: str, wait_ms: int, setting: str, *, at_once_ms: int | None = None) -> None:
        """Add an event at most ``wait_ms`` after the previous one; it can happen from ``at_once_ms`` on.

        A wait beyond 64 bits never ends, as a delete horizon then is not written (C-50).
        """
        if self._from_ms + wait_ms > NO_LIMIT_MS:
            self.unbounded(event, setting)
            return
        from_ms = self._from_ms + (wait_ms if at_once_ms is None else at_once_ms)
        self._add(Step(event, from_ms, None if self._by_ms is None else self._by_ms + wait_ms, wait_ms, setting))

    def unbounded(self, event: str, setting: str, from_ms: int = 0) -> None:
        """Add an event that may never happen."""
        self._add(Step(event, max(from_ms, self._from_ms), None, None, setting))

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self._from_ms, self._by_ms = step.from_ms, step.by_ms

    def cleaned(self, offset: int, tombstone_offset: int) -> None:
        """Add the cleaning of ``offset`` and of the key's tombstone."""
        facts = self._facts
        covering = [each for each in facts.segments if each.base <= offset]
        if covering and covering[-1].is_active:
            self._rolled(covering[-1], tombstone_offset)
        for name, limit in sorted(facts.limits.items(), key=lambda item: item[1]):
            if limit <= offset:
                self.unbounded(f"{name}, now at offset {limit:,}, passes offset {offset:,}", _WHO_MOVES.get(name, name))
        dirty = [each for each in covering if each.is_active or each.base >= facts.first_dirty_offset] or covering[-1:]
        if facts.min_lag_ms > 0 and dirty:
            # The segment may get younger records until it is rolled.
            young_ms = max(each.largest_ms for each in dirty) + facts.min_lag_ms
            self.at("the segment is old enough to be cleaned", young_ms, "min.compaction.lag.ms")
        self._started(min((each.first_ms for each in dirty if each.first_ms > 0), default=0))

    def _rolled(self, active: SegmentTimes, tombstone_offset: int) -> None:
        """A broker rolls it only at a write; for the tombstone of a request the daemon has it rolled (U-91)."""
        facts = self._facts
        due_ms = roll_due_ms(active.first_ms, facts.segment_ms, facts.max_lag_ms)
        is_for_request = facts.has_request and tombstone_offset >= active.base
        if due_ms is not None and facts.cleaned_by == "daemon" and is_for_request:
            wait_ms = max(due_ms - self._from_ms, 0)
            setting = "segment.ms" if facts.segment_ms <= facts.max_lag_ms else "max.compaction.lag.ms"
            event = "the daemon has the broker roll the active segment"
            self.after(event, wait_ms + 2 * ERASURE_READING_MS, setting, at_once_ms=wait_ms)
        else:
            self.unbounded("a write rolls the active segment", "segment.ms, and a later write", due_ms or 0)

    def _started(self, first_ms: int) -> None:
        facts = self._facts
        if facts.cleaned_by == "operator":
            self.unbounded(
                "the partition is cleaned", "cleanerd.mode=auto and the agent, or run cleanerd clean --force"
            )
        elif facts.cleaned_by == "daemon" and facts.has_request:
            self._by_daemon("the daemon cleans the partition for the erasure request")
        elif facts.max_lag_ms >= NO_LIMIT_MS:
            self.unbounded("the partition is dirty enough to be cleaned", "max.compaction.lag.ms")
        else:
            lag_ms = max(first_ms + facts.max_lag_ms - self._from_ms, 0)
            if facts.cleaned_by == "daemon":
                self._by_daemon("the daemon cleans the partition", lag_ms, "max.compaction.lag.ms")
            else:
                wait_ms = lag_ms + facts.scan_ms
                self.after("Kafka's cleaner cleans the partition", wait_ms, "max.compaction.lag.ms", at_once_ms=0)

    def _by_daemon(self, event: str, lag_ms: int = 0, setting: str = "log.cleaner.backoff.ms") -> None:
        """D-04: the next scan, and the old files of a swap just before, which delay the next swap."""
        facts = self._facts
        wait_ms = lag_ms + facts.scan_ms + facts.file_delete_delay_ms
        self.after(event, wait_ms, f"{setting} and file.delete.delay.ms", at_once_ms=0)

    def replicated(self, expiry: ExpiryBound) -> None:
        """U-70, U-79: wait until every replica has the tombstone."""
        if expiry.missing or expiry.peers:
            setting = "see cleanerd ignore-replica" if expiry.missing else "cleaning on the other brokers"
            self.unbounded(f"every replica has it ({held_in_words(expiry)})", setting)
        elif expiry.at_ms is not None and expiry.at_ms < self._facts.now_ms - _STALE_MS:
            self.unbounded(f"every replica has it ({held_in_words(expiry)})", "the metadata log shows all replicas")
        elif expiry != BY_CLOCK:
            self.after("the metadata log shows every replica in the ISR", MARGIN_MS, "the ISR stays full")

    def cleaned_again(self) -> None:
        """Add the cleaning that removes it after the horizon."""
        if self._facts.cleaned_by == "daemon":
            self._by_daemon("the daemon removes expired tombstones")
        elif self._facts.cleaned_by == "kafka":
            self.unbounded(
                "Kafka's cleaner cleans the partition again, when it is dirty again",
                "cleanerd.mode=auto with the agent, whose daemon removes tombstones by time",
            )
        else:
            self.unbounded("the partition is cleaned again", "cleanerd.mode=auto with the agent, or run cleanerd clean")

    def replaced(self) -> None:
        """Add the deletion of the replaced files, in the broker and where they are kept."""
        self.after("the broker deletes the replaced segment", self._facts.file_delete_delay_ms, "file.delete.delay.ms")
        if self._facts.kept_ms is not None:
            self.after("the daemon deletes its kept copy", self._facts.kept_ms, "cleanerd.keep.replaced.retention.ms")


_WHO_MOVES: Final = {
    "the high watermark": "the followers catch up: start the brokers that are behind",
    "the recovery point": "the broker flushes the log: start it, or stop it cleanly",
    "an open transaction": "the transaction ends: transaction.max.timeout.ms, or kafka-transactions.sh abort",
}
