"""When a tombstone or marker has reached every replica, so that it may expire (U-70..U-72, U-79).

A batch gets its delete horizon only below the high watermark of a replica, and members of the ISR have all committed
data. So if the ISR contained all assigned replicas at a moment after the horizon, every replica has the batch. A
replica that was away when the batch expired would keep the old value, or aborted records, indefinitely.

A new replica may copy the old value from one replica, and later records from another one that has removed the
tombstone. So if the other brokers' daemons are configured, their first dirty offsets count as well. This suffices for
markers: no first dirty offset is above the start of an open transaction, so it is below a marker that the replica
lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

MARGIN_MS: Final = 5 * 60_000
"""Tolerance between the clocks of brokers and controllers, and for the uncommitted end of a metadata log."""

UNKNOWN_MS: Final = -1

PEER_PATIENCE_MS: Final = 24 * 60 * 60_000
"""How long after its delete horizon a tombstone waits for a daemon that does not report its first dirty offset."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """A partition's replicas as the metadata log shows them.

    ``assigned`` includes replicas that are being added. ``full_until_ms``: the end of the last period with a full ISR;
    while that lasts, the time of the log's end counts. ``since_ms``: when this state began. Both are -1 if the log does
    not show it. ``newest_isr``: the ISR at the log's end, which may be uncommitted; None: equal to ``isr``.
    ``joining``: the replicas that are added at that end.
    """

    assigned: frozenset[int]
    isr: frozenset[int]
    full_until_ms: int = UNKNOWN_MS
    since_ms: int = UNKNOWN_MS
    newest_isr: frozenset[int] | None = field(default=None, compare=False)
    joining: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def is_alone(self) -> bool:
        """Whether there is one replica; then no replica is waited for, even if the ISR is empty during a restart."""
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
        """Whether the ISR contains all replicas except ``ignored``; False for an empty ISR."""
        return bool(self.isr) and not self.missing - ignored

    def changed(self, assigned: frozenset[int], isr: frozenset[int], at_ms: int) -> Replicas:
        """The state from ``at_ms`` on."""
        if (assigned, isr) == (self.assigned, self.isr):
            return self
        until_ms = max(self.full_until_ms, at_ms) if self.is_full() else self.full_until_ms
        after = Replicas(assigned, isr, until_ms, at_ms)
        # The time without a full ISR can be longer than the absence of exactly these brokers.
        was_short = not self.is_full() and not after.is_full() and self.missing & after.missing
        return Replicas(assigned, isr, until_ms, self.since_ms) if was_short else after


@dataclass(frozen=True, slots=True)
class ExpiryBound:
    """Horizons above ``at_ms`` have not passed yet; None: the clock alone decides, as in Kafka.

    ``missing``: the brokers that tombstones wait for, out of the ISR since ``since_ms`` (-1: unknown). ``why``: the
    reason if no broker is missing. ``peers``: brokers whose replicas are less clean or whose daemons do not report it.
    Horizons of batches that reach ``below_offset`` or a higher offset have not passed either; None: the offset does not
    matter.
    ``missing_ends``: per missing broker the end of its log, where its daemon reports that. ``log_end``: the end of this
    log, if known. ``newest_ms``: the time of the metadata log's last batch.
    """

    at_ms: int | None = None
    missing: tuple[int, ...] = ()
    since_ms: int = UNKNOWN_MS
    why: str = ""
    peers: tuple[int, ...] = ()
    below_offset: int | None = None
    missing_ends: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    log_end: int | None = field(default=None, compare=False)
    newest_ms: int = field(default=UNKNOWN_MS, compare=False)
    are_back: bool = field(default=False, compare=False)

    @property
    def waits(self) -> bool:
        """Whether more than the clock decides."""
        return self.at_ms is not None

    def begin_ms(self, now_ms: int) -> int:
        """The retention of a new horizon begins here: no earlier than the time that ISRs are known by (U-92)."""
        return max(now_ms, self.newest_ms) if self.waits else now_ms

    def expiry_ms(self, now_ms: int) -> int:
        """Batches with a horizon up to this time have expired (U-70)."""
        return now_ms if self.at_ms is None else min(now_ms, self.at_ms)

    def holds(self, horizon_ms: int | None, now_ms: int) -> bool:
        """Whether a horizon has passed by the clock but removal has to wait."""
        return horizon_ms is not None and self.expiry_ms(now_ms) < horizon_ms <= now_ms


BY_CLOCK: Final = ExpiryBound()


def _utc(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, OSError, ValueError):
        return f"{at_ms} ms"


def held_in_words(bound: ExpiryBound, count: int | None = None, *, at_most: int | None = None) -> str:
    """For example ``12 tombstones or markers wait for broker 2, out of the ISR since ...; at 10 of 17``.

    ``at_most``: an upper bound, where they were not counted.
    """
    what, wait = ("tombstone or marker", "waits") if count == 1 else ("tombstones or markers", "wait")
    what = what if count is None else f"{count:,} {what}"
    if count is None and at_most:
        what = f"up to {at_most:,} {what}"
    if not bound.missing:
        return f"{what} past their delete horizon {wait}: {bound.why}"
    brokers = ", ".join(str(each) for each in bound.missing)
    noun = "broker" if len(bound.missing) == 1 else "brokers"
    since = "" if bound.since_ms < 0 else f" since {_utc(bound.since_ms)}"
    is_one = len(bound.missing) == 1
    ends = [f"{'' if is_one else f'broker {broker} '}at {end}" for broker, end in bound.missing_ends]
    at = f"; {', '.join(ends)} of {bound.log_end}" if ends and bound.log_end is not None else ""
    back = f"; in the ISR again, confirmed after {MARGIN_MS // 60_000} minutes" if bound.are_back else ""
    return f"{what} {wait} for {noun} {brokers}, out of the ISR{since}{at}{back}"


def ways_out(bound: ExpiryBound, name: object) -> str:
    """What you can do about missing brokers."""
    brokers = " ".join(map(str, bound.missing))
    return (
        f"start it, reassign its replica, or release them with cleanerd ignore-replica {brokers} (without the daemon: "
        f"--ignore-replica), and then move its directory {name} aside before it starts (cleanerd move-aside)"
    )


def lowest(bounds: Iterable[ExpiryBound]) -> ExpiryBound:
    """Combine several bounds: the result waits for all of them."""
    held = [bound for bound in bounds if bound.at_ms is not None]
    return min(held, key=lambda bound: -1 if bound.at_ms is None else bound.at_ms, default=BY_CLOCK)


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """All replicas as a metadata log shows them, up to its batch of ``as_of_ms``; -1: unknown.

    ``newest_ms``: the time of its last batch, which can be uncommitted. ``unread``: a record that this version cannot
    read, so the facts are uncertain; "": none. ``margin_ms``: the tolerated difference of clocks.
    """

    topics: Mapping[uuid.UUID, Mapping[int, Replicas]]
    as_of_ms: int = UNKNOWN_MS
    newest_ms: int = UNKNOWN_MS
    unread: str = ""
    margin_ms: int = MARGIN_MS

    def has_other_brokers(self, broker: int) -> bool:
        """Whether any replica is on another broker; with one broker each replica is the only one."""
        return any(
            other != broker for topic in self.topics.values() for each in topic.values() for other in each.assigned
        )

    def full_ms(self, replicas: Replicas, ignored: frozenset[int] = frozenset()) -> int:
        """The last moment at which the log shows a full ISR; -1: none."""
        return max(self.as_of_ms, replicas.full_until_ms) if replicas.is_full(ignored) else replicas.full_until_ms


@dataclass(frozen=True, slots=True)
class TopicReplicas:
    """The replicas of a topic's partitions.

    ``remembered``: their last full ISR, from earlier readings. ``ignored``: brokers that the operator declared as gone
    (U-78). ``peers``: per broker, the first dirty offset of each partition as its daemon reports it, or why it is
    unknown; None: no daemons are configured. ``own_id``: the broker whose log is cleaned. ``topic_id``: None if the log
    does not show it. ``log_ends``: per broker and partition, the end of the log as its daemon reports it; only shown,
    never decided by.
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
        """These replicas if ``topic_id`` fits: the metadata log may show an older topic of the same name."""
        is_other = topic_id is not None and self.topic_id is not None and topic_id != self.topic_id
        return replace(self, partitions={}, remembered={}, topic_id=topic_id) if is_other else self

    def bound(
        self, partition: int, now_ms: int, ignored: frozenset[int] = frozenset(), first_dirty_offset: int | None = None
    ) -> ExpiryBound:
        """Up to which horizon a partition's tombstones and markers may expire (U-70, U-79).

        ``ignored``: further brokers that are not waited for. ``first_dirty_offset``: the first dirty offset of the
        replica that is cleaned; None: ignore its peers' first dirty offsets.
        """
        ignored |= self.ignored
        found = self._bound_of_isr(partition, now_ms, ignored)
        if found == BY_CLOCK:
            return found
        found = replace(found, newest_ms=self.facts.newest_ms)
        if self.peers is None or first_dirty_offset is None:
            return found
        of_peers = self._bound_of_peers(self.peers, partition, now_ms, ignored, first_dirty_offset)
        bound = lowest([found, of_peers])
        if bound.peers and set(bound.peers) <= set(found.missing):  # less clean as they are away: say that
            bound = replace(found, at_ms=bound.at_ms)
        return replace(bound, below_offset=first_dirty_offset, newest_ms=found.newest_ms)

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
        first_dirty_offset: int,
    ) -> ExpiryBound:
        """U-79: every other replica has to be as clean as this one. An unknown offset delays removal by a day."""
        replicas = self.partitions.get(partition)
        others = frozenset() if replicas is None else (replicas.assigned | replicas.joining) - ignored - {self.own_id}
        less_clean, unknown = {}, {}
        for broker in sorted(others):
            answer = peers.get(broker, "cleanerd.cluster.peers does not lead to its daemon")
            point = (
                answer if isinstance(answer, str) else answer.get(partition, "its daemon does not know the partition")
            )
            if isinstance(point, str):
                unknown[broker] = point
            elif point < first_dirty_offset:
                less_clean[broker] = point
        if less_clean:
            points = ", ".join(f"broker {broker} is clean below offset {point}" for broker, point in less_clean.items())
            return ExpiryBound(
                UNKNOWN_MS, why=f"{points}, this one below {first_dirty_offset}", peers=tuple(less_clean)
            )
        if unknown:
            reasons = "; ".join(f"broker {broker}: {reason}" for broker, reason in unknown.items())
            why = f"for {PEER_PATIENCE_MS // 3_600_000} hours at most, as a first dirty offset is unknown ({reasons})"
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
        # A snapshot does not have this time; the last full ISR does.
        since_ms = (full_ms if full_ms >= 0 else replicas.since_ms) if missing else UNKNOWN_MS
        minutes = 2 * MARGIN_MS // 60_000
        full = f"the metadata log has to show all replicas in the ISR until {minutes} minutes after that"
        why = "" if missing else full
        if not replicas.isr:
            why = "the metadata log shows an empty ISR"
        ends = {broker: known[partition] for broker in missing if partition in (known := self.log_ends.get(broker, {}))}
        are_back = bool(missing) and replicas.last_isr.issuperset(missing)
        return ExpiryBound(
            max(at_ms, UNKNOWN_MS), missing, since_ms, why, missing_ends=tuple(ends.items()), are_back=are_back
        )

    def last_in_isr_ms(self, partition: int, broker: int) -> int | None:
        """The last time at which the replica on ``broker`` was certainly in the ISR (U-76); -1: unknown.

        None if it is the only replica, or if the log does not show it. A replica that only the last minutes of the log
        show was in the ISR until the log's end at the latest.
        """
        replicas, facts = self.partitions.get(partition), self.facts
        if replicas is None:
            is_young = self.topic_id is not None and facts.has_other_brokers(broker)
        else:
            is_young = broker in replicas.joining
        if is_young and not facts.unread:
            return facts.newest_ms
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
