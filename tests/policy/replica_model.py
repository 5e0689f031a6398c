"""A partition on two or three brokers in plain Python: random outages, leaders, additions and truncations.

Each broker cleans its own log by the policy's bound. A reader's view is compared with a dict of the committed records.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from cleanerd.policy.replicas import ReplicaFacts, Replicas, TopicReplicas
from cleanerd.policy.tombstone import safe_horizon_ms

MARGIN_MS = 40
RETENTION_MS = 5


@dataclass
class Entry:
    """A record, or with ``marker`` the end of the transaction ``txn``; ``horizon``: its delete horizon.

    ``time``: by its producer's clock.
    """

    key: str
    value: int | None
    txn: int = 0
    marker: str = ""
    horizon: int | None = None
    time: int = -1


@dataclass
class Broker:
    """``log`` by offset; ``clean``: its checkpoint; ``skew``: the difference of its clock."""

    log: dict[int, Entry] = field(default_factory=dict)
    end: int = 0
    high: int = 0
    up: bool = True
    skew: int = 0
    clean: int = 0


class World:
    """One history. ``step`` does something at random; ``settle`` ends all outages and cleans until nothing waits.

    ``adds_often``: replicas are added while others are less clean, and the leader changes while they fetch.
    ``asks_peers``: the checkpoints of the other brokers are known (U-79). ``clocks_are_set``: the clocks of brokers are
    far behind at first, and are set right later (U-92); ``has_times``: the records' own times are right,
    ``knows_newest``: the time of the metadata log is known.
    """

    def __init__(
        self,
        seed: int,
        *,
        adds_often: bool = False,
        asks_peers: bool = False,
        clocks_are_set: bool = False,
        has_times: bool = True,
        knows_newest: bool = True,
    ) -> None:
        self.adds_often, self.asks_peers, self.clocks_are_set = adds_often, asks_peers, clocks_are_set
        self.has_times, self.knows_newest = has_times, knows_newest
        self.dice = random.Random(seed)
        self.brokers = {
            number: Broker(skew=self.dice.randint(-20, 20)) for number in range(1, self.dice.choice((3, 4)))
        }
        if clocks_are_set:
            for broker in self.brokers.values():
                broker.skew -= self.dice.choice((0, 400))
        self.assigned, self.leader, self.now = frozenset(self.brokers), 1, 1000
        self.isr = set(self.brokers)
        self.seen = Replicas(frozenset(), frozenset()).changed(self.assigned, frozenset(self.isr), self.now)
        self.changes: list[tuple[int, frozenset[int], frozenset[int]]] = []
        self.as_of = self.now
        self.controller_skew = self.dice.randint(-20, 20)
        self.open: int | None = None
        self.txns = 0
        self.values = 0
        self.whole: dict[int, Entry] = {}
        self.expired = 0

    # ---- the cluster

    def log_isr(self) -> None:
        self.changes.append((self.now, self.assigned, frozenset(self.isr)))

    def read_metadata(self, up_to: int) -> None:
        while self.changes and self.changes[0][0] <= up_to:
            at, assigned, isr = self.changes.pop(0)
            self.seen = self.seen.changed(assigned, isr, at + self.controller_skew)
        self.as_of = max(self.as_of, up_to)

    def append(self, entry: Entry) -> None:
        leader = self.brokers[self.leader]
        if self.has_times:
            entry.time = self.now + self.dice.randint(-20, 20)
        leader.log[leader.end] = entry
        self.whole[leader.end] = Entry(**vars(entry))
        leader.end += 1

    def fetch(self, number: int) -> None:
        leader, broker = self.brokers[self.leader], self.brokers[number]
        if number == self.leader or not (leader.up and broker.up):
            return
        end = leader.end
        if self.adds_often and number not in self.isr:
            end = min(end, broker.end + self.dice.randint(1, 8))
        new = {at: Entry(**vars(each)) for at, each in leader.log.items() if broker.end <= at < end}
        broker.log.update(new)
        broker.end = max(broker.end, end)
        if number not in self.isr and broker.end == leader.end:
            self.isr.add(number)
            self.log_isr()
        self.commit()

    def commit(self) -> None:
        leader = self.brokers[self.leader]
        leader.high = max(leader.high, min(self.brokers[each].end for each in self.isr))
        for each in self.isr:
            if self.brokers[each].up:
                self.brokers[each].high = max(self.brokers[each].high, min(leader.high, self.brokers[each].end))

    def shrink(self) -> None:
        gone = {each for each in self.isr if not self.brokers[each].up}
        alive = self.isr - gone
        if not gone or not alive:
            return
        self.isr = alive
        if self.leader not in alive:
            self.elect()
        self.log_isr()
        self.commit()

    def elect(self) -> None:
        alive = [each for each in sorted(self.isr) if self.brokers[each].up]
        if not alive:
            return
        self.leader = self.dice.choice(alive)
        end = self.brokers[self.leader].end
        self.whole = {at: entry for at, entry in self.whole.items() if at < end}
        for (
            broker
            # followers truncate the offsets that the new leader lacks, at their return at the latest
        ) in self.brokers.values():
            broker.log = {at: entry for at, entry in broker.log.items() if at < end}
            broker.end = min(broker.end, end)
            broker.clean = min(broker.clean, end)
        begun = [each.txn for each in self.whole.values() if each.txn and not each.marker]
        ended = {each.txn for each in self.whole.values() if each.marker}
        self.open = next((txn for txn in begun if txn not in ended), None)

    def add(self) -> None:
        if len(self.brokers) < (6 if self.adds_often else 4) and self.brokers[self.leader].up:
            number = max(self.brokers) + 1
            self.brokers[number] = Broker(skew=self.dice.randint(-20, 20))
            self.assigned |= {number}
            self.log_isr()
            self.fetch(number)

    # ---- producers

    def write(self) -> None:
        if not self.brokers[self.leader].up:
            return
        self.values += 1
        key = self.dice.choice("abc")
        roll = self.dice.random()
        if roll < 0.3:
            self.append(Entry(key, None))
        elif roll < 0.7:
            self.append(Entry(key, self.values))
        elif self.open is None:
            self.txns += 1
            self.open = self.txns
            self.append(Entry("t" + key, self.values, txn=self.txns))
        else:
            marker = self.dice.choice(("abort", "commit"))
            self.append(Entry("", None, txn=self.open, marker=marker))
            self.open = None

    # ---- the cleaner

    def bound(self, number: int) -> TopicReplicas:
        as_of = self.as_of + self.controller_skew
        if self.asks_peers:
            points: dict[int, dict[int, int] | str] = {each: {0: self.brokers[each].clean} for each in self.brokers}
            facts = ReplicaFacts({}, as_of, as_of, margin_ms=MARGIN_MS)
            return TopicReplicas(facts, {0: self.seen}, peers=points, own_id=number)
        return TopicReplicas(ReplicaFacts({}, as_of, as_of, margin_ms=MARGIN_MS), {0: self.seen})

    def clean(self, number: int) -> None:
        broker = self.brokers[number]
        now = self.now + broker.skew
        bound = self.bound(number).bound(0, now, first_dirty_offset=broker.clean)
        begin = bound.begin_ms(now) if self.knows_newest else now
        expires_below = broker.end if bound.below_offset is None else bound.below_offset
        below = {at: each for at, each in sorted(broker.log.items()) if at < broker.high}
        ends = {each.txn: each.marker for each in below.values() if each.marker}
        stable = min((at for at, each in below.items() if each.txn and each.txn not in ends), default=broker.high)
        below = {at: each for at, each in below.items() if at < stable}
        newest = {each.key: at for at, each in below.items() if not each.marker and ends.get(each.txn) != "abort"}
        had = {each.txn for each in below.values() if each.txn and not each.marker}
        for at, each in below.items():
            expires = each.txn not in had if each.marker else each.value is None
            if not each.marker and (ends.get(each.txn) == "abort" or newest[each.key] != at):
                del broker.log[at]
            elif (
                expires
                and each.horizon is not None
                and at < expires_below
                and bound.expiry_ms(now) >= safe_horizon_ms(np.array([each.horizon]), np.array([each.time]))[0]
            ):
                del broker.log[at]
                self.expired += 1
            elif expires and each.horizon is None:
                each.horizon = begin + RETENTION_MS
        broker.clean = max(broker.clean, stable)

    # ---- the truth, and the view of a reader

    def step(self) -> None:
        self.now += self.dice.randint(1, 12)
        if self.dice.random() < 0.7:
            self.read_metadata(self.now - self.dice.choice((0, 5, 30)))
        roll, number = self.dice.random(), self.dice.choice(sorted(self.brokers))
        broker = self.brokers[number]
        self.set_clock(broker)
        if roll < 0.3:
            self.write()
        elif roll < 0.5:
            self.fetch(number)
        elif roll < 0.7:
            if not self.adds_often or number == 1:  # the others stay as unclean as they are, for a long time
                self.clean(number)
        elif self.adds_often and roll < 0.85:
            self.elect()
        elif self.adds_often and roll < 0.9:
            self.add()
        elif roll < 0.78:
            broker.up = False
        elif roll < 0.86:
            broker.up = True
        elif roll < 0.94:
            self.shrink()
        elif roll < 0.97:
            self.elect()
        else:
            self.add()

    def set_clock(self, broker: Broker) -> None:
        if self.clocks_are_set and broker.skew < -20 and self.dice.random() < 0.05:
            broker.skew = 0

    def settle(self) -> None:
        for broker in self.brokers.values():
            broker.up, broker.skew = True, max(broker.skew, -20)
        if not self.brokers[self.leader].up or self.leader not in self.isr:
            self.elect()
        if self.open is not None:
            self.append(Entry("", None, txn=self.open, marker="abort"))
        for number in self.brokers:
            while self.brokers[number].end < self.brokers[self.leader].end or number not in self.isr:
                self.fetch(number)
        self.commit()
        for _ in range(6):
            self.now += 10 * MARGIN_MS
            self.read_metadata(self.now)
            for number in self.brokers:
                self.clean(number)

    @property
    def truth(self) -> dict[str, int]:
        """The view of a read_committed reader if no broker ever cleaned."""
        return visible(self.whole)


def visible(records: dict[int, Entry]) -> dict[str, int]:
    """The view of a read_committed reader; a transaction whose marker is missing ends with the next marker."""
    log = sorted(records.items())
    found: dict[str, int] = {}
    for at, each in log:
        if each.marker:
            continue
        if each.txn:
            later = [other.marker for place, other in log if place > at and other.marker]
            if not later or later[0] == "abort":
                continue
        if each.value is None:
            found.pop(each.key, None)
        else:
            found[each.key] = each.value
    return found
