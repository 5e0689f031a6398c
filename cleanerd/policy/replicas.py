"""When a tombstone or marker has reached every replica, so that it may expire (U-70..U-72, U-79).

A batch gets its delete horizon only below the high watermark of a replica, and members of the ISR have all committed
data. So if the ISR equalled all assigned replicas at any moment at or after the horizon, every replica has the batch. A
replica that was away when the batch expired would keep the old value, or aborted records, indefinitely.

A replica that is added may get the old value from one replica, and what follows from another one that has lost the
tombstone already. So where the daemons of the other brokers can be asked, their clean points count as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

MARGIN_MS: Final = 5 * 60_000
"""Tolerance between the clocks of brokers and controllers.

The last part of a metadata log may be uncommitted as long.
"""

UNKNOWN_MS: Final = -1

PEER_PATIENCE_MS: Final = 24 * 60 * 60_000
"""How long after its delete horizon a tombstone waits for a daemon that does not say what it has cleaned."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """A partition's replicas as the metadata log shows them. ``assigned`` includes those that are being added.

    ``full_until_ms``: the end of the last period in which the ISR equalled them; while that lasts the log's own time
    counts. ``since_ms``: when this state began. Both are -1 where the log does not show it.
    ``newest_isr``: the ISR at the log's end, which may be uncommitted; None: there it is ``isr``, too. ``joining``: the
    replicas that this end assigns besides.
    """

    assigned: frozenset[int]
    isr: frozenset[int]
    full_until_ms: int = UNKNOWN_MS
    since_ms: int = UNKNOWN_MS
    newest_isr: frozenset[int] | None = field(default=None, compare=False)
    joining: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def is_alone(self) -> bool:
        """With one replica nothing is waited for, whatever the ISR is while the broker restarts."""
        return len(self.assigned) == 1

    @property
    def missing(self) -> frozenset[int]:
        """The replicas that are out of the ISR."""
        return self.assigned - self.isr

    @property
    def last_isr(self) -> frozenset[int]:
        """The ISR at the end of the metadata log."""
        return self.isr if self.newest_isr is None else self.newest_isr

    def is_full(self, ignored: frozenset[int] = frozenset()) -> bool:
        """Whether the ISR holds all replicas but ``ignored``; an empty one holds none."""
        return bool(self.isr) and not self.missing - ignored

    def changed(self, assigned: frozenset[int], isr: frozenset[int], at_ms: int) -> Replicas:
        """The state from ``at_ms`` on."""
        if (assigned, isr) == (self.assigned, self.isr):
            return self
        until_ms = max(self.full_until_ms, at_ms) if self.is_full() else self.full_until_ms
        after = Replicas(assigned, isr, until_ms, at_ms)
        # How long it has not been full is not how long exactly these brokers have been missing.
        was_short = not self.is_full() and not after.is_full() and self.missing & after.missing
        return Replicas(assigned, isr, until_ms, self.since_ms) if was_short else after


@dataclass(frozen=True, slots=True)
class ExpiryBound:
    """Horizons above ``at_ms`` do not count as passed yet; None: the clock alone decides, as with Kafka.

    ``missing``: the brokers that are waited for, out of the ISR since ``since_ms`` (-1: unknown). ``why``: the reason
    where no broker is missing. ``peers``: brokers that are less clean, or whose daemons do not say so. Horizons of
    batches that reach ``below_offset`` or lie above it do not count either; None: it is no matter where they lie.
    ``missing_ends``: by missing broker the end of its log, where its daemon reports that. ``log_end``: the end of this
    log, if known.
    """

    at_ms: int | None = None
    missing: tuple[int, ...] = ()
    since_ms: int = UNKNOWN_MS
    why: str = ""
    peers: tuple[int, ...] = ()
    below_offset: int | None = None
    missing_ends: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    log_end: int | None = field(default=None, compare=False)

    def expiry_ms(self, now_ms: int) -> int:
        """Batches with a horizon up to this time have expired (U-70)."""
        return now_ms if self.at_ms is None else min(now_ms, self.at_ms)

    def holds(self, horizon_ms: int | None, now_ms: int) -> bool:
        """Whether a horizon has passed by the clock but still has to wait."""
        return horizon_ms is not None and self.expiry_ms(now_ms) < horizon_ms <= now_ms


BY_CLOCK: Final = ExpiryBound()


def _utc(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, OSError, ValueError):
        return f"{at_ms} ms"


def held_in_words(bound: ExpiryBound, count: int | None = None) -> str:
    """``12 tombstones or markers wait for broker 2, out of the ISR since 2026-05-01T10:00:00Z; at 10 of 17``."""
    what, wait = ("tombstone or marker", "waits") if count == 1 else ("tombstones or markers", "wait")
    what = what if count is None else f"{count:,} {what}"
    if not bound.missing:
        return f"{what} past their delete horizon {wait}: {bound.why}"
    brokers = ", ".join(str(each) for each in bound.missing)
    noun = "broker" if len(bound.missing) == 1 else "brokers"
    since = "" if bound.since_ms < 0 else f" since {_utc(bound.since_ms)}"
    is_one = len(bound.missing) == 1
    ends = [f"{'' if is_one else f'broker {broker} '}at {end}" for broker, end in bound.missing_ends]
    at = f"; {', '.join(ends)} of {bound.log_end}" if ends and bound.log_end is not None else ""
    return f"{what} {wait} for {noun} {brokers}, out of the ISR{since}{at}"


def ways_out(bound: ExpiryBound, name: object) -> str:
    """What an operator can do about missing brokers."""
    brokers = " ".join(map(str, bound.missing))
    return (
        f"start it, reassign its replica, or release them with cleanerd ignore-replica {brokers} (without the daemon: "
        f"--ignore-replica), and then move its directory {name} aside before it starts (cleanerd move-aside)"
    )


def lowest(bounds: Iterable[ExpiryBound]) -> ExpiryBound:
    """The bound of several sources: it waits for every one of them."""
    held = [bound for bound in bounds if bound.at_ms is not None]
    return min(held, key=lambda bound: -1 if bound.at_ms is None else bound.at_ms, default=BY_CLOCK)


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """All replicas as a metadata log shows them, up to its batch of ``as_of_ms``; -1: unknown.

    ``newest_ms``: the time of its last batch, which need not be committed. ``unread``: a record that this version
    cannot read, so that nothing is known for certain; "" for none. ``margin_ms``: what clocks may differ by.
    """

    topics: Mapping[uuid.UUID, Mapping[int, Replicas]]
    as_of_ms: int = UNKNOWN_MS
    newest_ms: int = UNKNOWN_MS
    unread: str = ""
    margin_ms: int = MARGIN_MS

    def full_ms(self, replicas: Replicas, ignored: frozenset[int] = frozenset()) -> int:
        """The latest moment at which the log shows that the ISR equalled the replicas; -1: none."""
        return max(self.as_of_ms, replicas.full_until_ms) if replicas.is_full(ignored) else replicas.full_until_ms


@dataclass(frozen=True, slots=True)
class TopicReplicas:
    """The replicas of a topic's partitions. ``remembered``: their last full ISR, from earlier readings.

    ``ignored``: brokers that never return, as an operator said (U-78).
    ``peers``: by broker, the clean point of each partition as its daemon reports it, or why that is unknown; None: no
    daemons are configured. ``own_id``: the broker whose log is cleaned. ``topic_id``: None if the log does not show it.
    ``log_ends``: by broker and partition, the end of the log as its daemon reports it; only shown, nothing rests on it.
    """

    facts: ReplicaFacts
    partitions: Mapping[int, Replicas]
    remembered: Mapping[int, int] = field(default_factory=dict)
    ignored: frozenset[int] = frozenset()
    peers: Mapping[int, Mapping[int, int] | str] | None = None
    own_id: int | None = None
    topic_id: uuid.UUID | None = None
    log_ends: Mapping[int, Mapping[int, int]] = field(default_factory=dict, compare=False)

    def of_topic(self, topic_id: uuid.UUID | None) -> TopicReplicas:
        """The same, for a log of the topic ``topic_id``: the metadata log may show an older topic of its name only."""
        is_other = topic_id is not None and self.topic_id is not None and topic_id != self.topic_id
        return replace(self, partitions={}, remembered={}, topic_id=topic_id) if is_other else self

    def bound(
        self, partition: int, now_ms: int, ignored: frozenset[int] = frozenset(), clean_offset: int | None = None
    ) -> ExpiryBound:
        """Up to which horizon a partition's tombstones and markers may expire (U-70, U-79).

        ``ignored``: more brokers that never return, which are not waited for. ``clean_offset``: the clean point of the
        replica that is cleaned; None: those of its peers do not matter.
        """
        ignored |= self.ignored
        found = self._bound_of_isr(partition, now_ms, ignored)
        if self.peers is None or clean_offset is None or found is BY_CLOCK:
            return found
        of_peers = self._bound_of_peers(self.peers, partition, now_ms, ignored, clean_offset)
        bound = lowest([found, of_peers])
        if bound.peers and set(bound.peers) <= set(found.missing):  # less clean as they are away: say that
            bound = replace(found, at_ms=bound.at_ms)
        return replace(bound, below_offset=clean_offset)

    def is_alone(self, partition: int) -> bool:
        """Whether the metadata log shows a single replica."""
        replicas = self.partitions.get(partition)
        return replicas is not None and replicas.is_alone and not self.facts.unread

    def _bound_of_peers(
        self,
        peers: Mapping[int, Mapping[int, int] | str],
        partition: int,
        now_ms: int,
        ignored: frozenset[int],
        clean_offset: int,
    ) -> ExpiryBound:
        """U-79: every other replica has to be as clean as this one; an unknown clean point holds for a day."""
        replicas = self.partitions.get(partition)
        others = frozenset() if replicas is None else (replicas.assigned | replicas.joining) - ignored - {self.own_id}
        less_clean, unknown = {}, {}
        for broker in sorted(others):
            said = peers.get(broker, "cleanerd.cluster.peers does not lead to its daemon")
            point = said if isinstance(said, str) else said.get(partition, "its daemon does not know the partition")
            if isinstance(point, str):
                unknown[broker] = point
            elif point < clean_offset:
                less_clean[broker] = point
        if less_clean:
            points = ", ".join(f"broker {broker} is clean below offset {point}" for broker, point in less_clean.items())
            return ExpiryBound(UNKNOWN_MS, why=f"{points}, this one below {clean_offset}", peers=tuple(less_clean))
        if unknown:
            reasons = "; ".join(f"broker {broker}: {reason}" for broker, reason in unknown.items())
            why = f"for {PEER_PATIENCE_MS // 3_600_000} hours at most, as a clean point is unknown ({reasons})"
            return ExpiryBound(max(now_ms - PEER_PATIENCE_MS, UNKNOWN_MS), why=why, peers=tuple(unknown))
        return BY_CLOCK

    def _bound_of_isr(self, partition: int, now_ms: int, ignored: frozenset[int]) -> ExpiryBound:
        replicas, facts = self.partitions.get(partition), self.facts
        margin_ms = facts.margin_ms
        if self.is_alone(partition):
            return BY_CLOCK
        full_ms = self.remembered.get(partition, UNKNOWN_MS)
        if facts.unread:
            return ExpiryBound(max(full_ms - margin_ms, UNKNOWN_MS), why=facts.unread)
        if replicas is None or not replicas.assigned:
            why = "the metadata log does not show the partition's replicas yet"
            return ExpiryBound(max(full_ms - margin_ms, UNKNOWN_MS), why=why)
        if facts.newest_ms > now_ms + margin_ms:
            why = "the metadata log is ahead of this host's clock: compare the clocks of controllers and brokers"
            return ExpiryBound(max(full_ms - margin_ms, UNKNOWN_MS), why=why)
        missing = tuple(sorted(replicas.missing - ignored))
        full_ms = max(full_ms, facts.full_ms(replicas, ignored))
        at_ms = full_ms - margin_ms
        # A snapshot has no such time; the last full ISR does.
        since_ms = (full_ms if full_ms >= 0 else replicas.since_ms) if missing else UNKNOWN_MS
        why = "" if missing else "the metadata log has to show every replica in the ISR after their delete horizon"
        if not replicas.isr:
            why = "the metadata log shows an empty ISR"
        ends = {broker: known[partition] for broker in missing if partition in (known := self.log_ends.get(broker, {}))}
        return ExpiryBound(max(at_ms, UNKNOWN_MS), missing, since_ms, why, missing_ends=tuple(ends.items()))

    def last_in_isr_ms(self, partition: int, broker: int) -> int | None:
        """When the replica on ``broker`` was in the ISR for certain the last time (U-76); -1: unknown.

        None: there is nothing to compare it with: it is the only replica, or the log does not show it.
        """
        replicas, facts = self.partitions.get(partition), self.facts
        if facts.unread or replicas is None or replicas.is_alone or broker not in replicas.assigned:
            return None
        if broker in replicas.isr:
            return facts.newest_ms if broker in replicas.last_isr else facts.as_of_ms
        return max(self.remembered.get(partition, UNKNOWN_MS), replicas.full_until_ms)

    def why_needed(self, partition: int, broker: int) -> str:
        """Why the data of the replica on ``broker`` may be the only complete one (U-77); "": other replicas have it."""
        replicas, facts = self.partitions.get(partition), self.facts
        if facts.unread:
            return facts.unread
        if replicas is None or broker not in replicas.assigned:
            return f"the metadata log shows no replica on broker {broker}"
        if replicas.is_alone:
            return "it is the only replica"
        if broker in replicas.last_isr:
            return (
                f"the metadata log ends at {_utc(facts.newest_ms)} with broker {broker} in the ISR, maybe as the leader"
            )
        return "" if replicas.last_isr else "the metadata log shows an empty ISR"
