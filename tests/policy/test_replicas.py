"""When tombstones and markers may expire: not before every replica has them (U-70)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.policy.replicas import (
    BY_CLOCK,
    MARGIN_MS,
    ExpiryBound,
    ReplicaFacts,
    Replicas,
    TopicReplicas,
    held_in_words,
    lowest,
)
from tests.policy.replica_model import World, visible
from tests.support.length import at_length

if TYPE_CHECKING:
    from collections.abc import Iterable

ID = uuid.UUID(int=7)
T0 = 1_700_000_000_000
MINUTE_MS = 60_000
BOTH = frozenset({1, 2})


def shown(*changes: tuple[int, set[int], set[int]]) -> Replicas:
    """The replicas after ``changes``: minutes after T0, assigned, ISR."""
    found = Replicas(frozenset(), frozenset())
    for minute, assigned, isr in changes:
        found = found.changed(frozenset(assigned), frozenset(isr), T0 + minute * MINUTE_MS)
    return found


def bound_of(replicas: Replicas, *, as_of: int = 60, now: int = 61, ignored: int = 0, **facts: object) -> ExpiryBound:
    """The bound at minute ``now`` of a metadata log up to minute ``as_of``."""
    as_of_ms = T0 + as_of * MINUTE_MS
    made = ReplicaFacts({}, **{"as_of_ms": as_of_ms, "newest_ms": as_of_ms, **facts})  # type: ignore[arg-type]
    brokers = frozenset({ignored} if ignored else ())
    return TopicReplicas(made, {0: replicas}).bound(0, T0 + now * MINUTE_MS, brokers)


def minute(bound: ExpiryBound) -> float | None:
    return None if bound.at_ms is None else (bound.at_ms + MARGIN_MS - T0) / MINUTE_MS


@pytest.mark.parametrize(
    ("changes", "expected", "missing"),
    [
        pytest.param([(0, {1, 2}, {1, 2})], 60, (), id="full: as far as the log shows it"),
        pytest.param([(0, {1, 2}, {1, 2}), (20, {1, 2}, {1})], 20, (2,), id="short: until it was"),
        pytest.param([(0, {1, 2}, {1, 2}), (20, {1, 2}, {1}), (30, {1, 2}, {1, 2})], 60, (), id="full again"),
        pytest.param([(0, {1, 2}, {1, 2}), (20, {1, 2}, set())], 20, (1, 2), id="an empty ISR is not full"),
        pytest.param([(0, {1, 2}, {1, 2}), (20, {1, 2, 3}, {1, 2})], 20, (3,), id="a replica is being added"),
        pytest.param([(0, {1, 2, 3}, {1, 2, 3}), (20, {1, 2, 3}, {1}), (30, {1, 2}, {1, 2})], 60, (), id="taken away"),
        pytest.param([(0, {1}, {1})], None, (), id="one replica: nothing to wait for"),
        pytest.param([(0, {1}, {1}), (20, {1}, set())], None, (), id="one replica while it restarts"),
    ],
)
def test_the_bound(changes: list[tuple[int, set[int], set[int]]], expected: float | None, missing: tuple[int]) -> None:
    """U-70: the latest moment at which the log showed the ISR equal to the replicas, less the margin."""
    bound = bound_of(shown(*changes))
    assert (minute(bound), bound.missing) == (expected, missing)


def test_never_full() -> None:
    """U-70, U-72: a snapshot while the ISR is short shows no moment at all."""
    assert bound_of(shown((30, {1, 2}, {1}))).at_ms == -1


def test_a_controller_that_is_dead() -> None:
    """U-70: the copy still says "full": only its own time counts."""
    assert minute(bound_of(shown((0, {1, 2}, {1, 2})), as_of=30, now=600)) == 30


def test_a_controllers_clock_that_is_ahead() -> None:
    """U-70: its times prove nothing then."""
    full = shown((0, {1, 2}, {1, 2}))
    assert minute(bound_of(full, as_of=66, now=61)) == 66
    ahead = bound_of(full, as_of=67, now=61)
    assert ahead.at_ms == -1
    assert "clock" in ahead.why


def test_a_record_that_cannot_be_read() -> None:
    """U-71: a shorter ISR may follow, also of a partition with one replica."""
    for replicas in (shown((0, {1, 2}, {1, 2})), shown((0, {1}, {1}))):
        assert bound_of(replicas, unread="update cleanerd").at_ms == -1


def test_a_partition_that_the_log_does_not_show() -> None:
    made = TopicReplicas(ReplicaFacts({}, T0, T0), {})
    assert made.bound(3, T0).at_ms == -1


def test_stored_times() -> None:
    """U-72: the later of both."""
    facts = ReplicaFacts({}, T0 + 60 * MINUTE_MS, T0 + 60 * MINUTE_MS)
    for full_at, remembered, expected in ((20, 30, 30), (20, 10, 20)):
        replicas = shown((0, {1, 2}, {1, 2}), (full_at, {1, 2}, {1}))
        made = TopicReplicas(facts, {0: replicas}, {0: T0 + remembered * MINUTE_MS})
        assert minute(made.bound(0, T0 + 61 * MINUTE_MS)) == expected


def test_a_broker_that_never_returns() -> None:
    """U-70: it is not waited for, the others are."""
    assert minute(bound_of(shown((0, {1, 2}, {1, 2}), (20, {1, 2}, {1})), ignored=2)) == 60
    short = bound_of(shown((0, {1, 2, 3}, {1, 2, 3}), (20, {1, 2, 3}, {1})), ignored=2)
    assert (minute(short), short.missing) == (20, (3,))
    assert bound_of(shown((0, {1, 2}, {1, 2}), (20, {1, 2}, set())), ignored=2).at_ms == T0 + 20 * MINUTE_MS - MARGIN_MS


def test_expiry() -> None:
    """U-70: never later than now."""
    assert BY_CLOCK.expiry_ms(5) == 5
    assert ExpiryBound(3).expiry_ms(5) == 3
    assert ExpiryBound(9).expiry_ms(5) == 5
    assert [ExpiryBound(3).holds(horizon, 5) for horizon in (None, 3, 4, 5, 6)] == [False, False, True, True, False]
    assert lowest([BY_CLOCK, ExpiryBound(4), ExpiryBound(3)]) == ExpiryBound(3)
    assert lowest([BY_CLOCK]) == BY_CLOCK


def test_a_topic_that_was_created_again() -> None:
    """U-70: the replicas of an older topic of that name prove nothing, nor does their stored state."""
    alone = TopicReplicas(ReplicaFacts({}, T0, T0), {0: shown((0, {1}, {1}))}, {0: T0}, topic_id=ID)
    bounds = [alone.of_topic(topic_id).bound(0, T0).at_ms for topic_id in (None, ID, uuid.UUID(int=8))]
    assert bounds == [None, None, -1]


def test_the_text_of_a_bound() -> None:
    bound = bound_of(shown((0, {1, 2}, {1, 2}), (20, {1, 2}, {1})))
    assert held_in_words(bound, 1200) == (
        "1,200 tombstones or markers wait for broker 2, out of the ISR since 2023-11-14T22:33:20Z"
    )
    back = replace(shown((0, {1, 2}, {1, 2}), (20, {1, 2}, {1})), newest_isr=BOTH)
    assert held_in_words(bound_of(back), 1) == (
        "1 tombstone or marker waits for broker 2, out of the ISR since 2023-11-14T22:33:20Z; in the ISR again, "
        "confirmed after 5 minutes"
    )
    assert bound_of(back) == bound, "it only reports it"


def play(seed: int, **kind: bool) -> tuple[int, bool, bool]:
    """One history: the number of expired batches, and whether a replica is wrong or keeps a removable batch."""
    world = World(seed, **kind)
    for _ in range(world.dice.randint(20, 120)):
        world.step()
    world.settle()
    is_wrong = any(visible(broker.log) != world.truth for broker in world.brokers.values())
    for broker in world.brokers.values():
        with_data = {each.txn for each in broker.log.values() if not each.marker}
        if any(each.value is None and each.txn not in with_data - {0} for each in broker.log.values()):
            return world.expired, is_wrong, True
    return world.expired, is_wrong, False


def test_histories() -> None:
    """U-70: no key comes back, no aborted record is visible, and if all replicas have them no tombstone stays."""
    found = {seed: play(seed) for seed in range(at_length(2000))}
    assert [seed for seed, (_, is_wrong, holds) in found.items() if is_wrong or holds] == []
    assert sum(expired for expired, _, _ in found.values()) > at_length(2000)


@pytest.mark.slow
def test_histories_with_added_replicas() -> None:
    """U-79: the same where replicas are added while others are less clean."""
    found = {seed: play(seed, adds_often=True, asks_peers=True) for seed in range(at_length(2000))}
    assert [seed for seed, (_, is_wrong, holds) in found.items() if is_wrong or holds] == []
    assert sum(expired for expired, _, _ in found.values()) > at_length(2000)


def test_added_replicas_without_the_checkpoints() -> None:
    """The reason for U-79: in these histories a key comes back."""
    assert any(play(seed, adds_often=True)[1] for seed in range(2000))


@pytest.mark.parametrize("has_times", [True, False])
def test_histories_with_clocks_that_were_behind(has_times: bool) -> None:
    """U-92: the same if a clock was behind for longer than the retention, also if records have no times."""
    found = {seed: play(seed, clocks_are_set=True, has_times=has_times) for seed in range(at_length(1000))}
    assert [seed for seed, (_, is_wrong, holds) in found.items() if is_wrong or holds] == []
    assert sum(expired for expired, _, _ in found.values()) > at_length(1000)


def test_clocks_that_were_behind_by_the_clock_alone() -> None:
    """The reason for U-92: in these histories a key comes back."""
    assert any(play(seed, clocks_are_set=True, has_times=False, knows_newest=False)[1] for seed in range(1000))


OWN_POINT, LESS, MORE = 5, 4, 6
DAY_MS = 24 * 60 * MINUTE_MS


def bound_with(
    peers: dict[int, dict[int, int] | str] | None, isr: Iterable[int] = (1, 2, 3), ignored: int = 0
) -> ExpiryBound:
    """The bound of broker 1, clean below ``OWN_POINT``, at minute 61; the metadata log reaches minute 60."""
    as_of_ms = T0 + 60 * MINUTE_MS
    made = TopicReplicas(
        ReplicaFacts({}, as_of_ms, as_of_ms), {0: shown((0, {1, 2, 3}, set(isr)))}, peers=peers, own_id=1
    )
    brokers = frozenset({ignored} if ignored else ())
    return made.bound(0, as_of_ms + MINUTE_MS, brokers, first_dirty_offset=OWN_POINT)


@pytest.mark.parametrize(
    ("peers", "waits_for", "held"),
    [
        pytest.param({2: {0: 5}, 3: {0: MORE}}, (), "", id="all are as clean"),
        pytest.param({2: {0: LESS}, 3: {0: MORE}}, (2,), "indefinitely", id="one is less clean"),
        pytest.param({2: {0: LESS}, 3: "silent"}, (2,), "indefinitely", id="that counts more than silence"),
        pytest.param({2: {0: MORE}, 3: "silent"}, (3,), "a day", id="one is silent"),
        pytest.param({2: {0: MORE}, 3: {1: MORE}}, (3,), "a day", id="one does not know the partition"),
        pytest.param({2: {0: MORE}}, (3,), "a day", id="one has no address"),
        pytest.param({2: {0: MORE}, 3: {0: MORE}, 1: {0: 0}, 9: {0: 0}}, (), "", id="oneself and others do not count"),
    ],
)  # fmt: skip
def test_the_checkpoints_of_peers(peers: dict[int, dict[int, int] | str], waits_for: tuple[int], held: str) -> None:
    """U-79: no replica is less clean; the bound by the ISR is used as well."""
    bound = bound_with(peers)
    now_ms = T0 + 61 * MINUTE_MS
    assert bound.peers == waits_for
    assert bound.below_offset == OWN_POINT
    assert bound.at_ms == {"": T0 + 60 * MINUTE_MS - MARGIN_MS, "indefinitely": -1, "a day": now_ms - DAY_MS}[held]


def test_a_replica_of_the_last_minutes_has_a_checkpoint() -> None:
    """U-79: it may have the old value already, from a less clean replica."""
    as_of_ms = T0 + 60 * MINUTE_MS
    joined = replace(shown((0, {1, 2}, {1, 2})), joining=frozenset({3}))
    for point, held in ((0, (3,)), (OWN_POINT, ())):
        peers: dict[int, dict[int, int] | str] = {2: {0: MORE}, 3: {0: point}}
        made = TopicReplicas(ReplicaFacts({}, as_of_ms, as_of_ms), {0: joined}, peers=peers, own_id=1)
        assert made.bound(0, as_of_ms, first_dirty_offset=OWN_POINT).peers == held


def test_peers_that_do_not_matter() -> None:
    """U-79: without addresses, of a single replica, and of brokers that never return."""
    assert bound_with(None).below_offset is None
    assert bound_with({2: {0: LESS}, 3: {0: MORE}}, ignored=2).peers == ()
    alone = TopicReplicas(ReplicaFacts({}, T0, T0), {0: shown((0, {1}, {1}))}, peers={}, own_id=1)
    assert alone.bound(0, T0, first_dirty_offset=OWN_POINT) is BY_CLOCK


def test_peers_release_nothing_that_the_isr_holds() -> None:
    """U-70, U-79: the stricter one applies."""
    assert bound_with({2: {0: MORE}, 3: {0: MORE}}, isr={1}).missing == (2, 3)
    assert bound_with({2: "silent", 3: {0: MORE}}, isr={1}).at_ms == -1


def test_the_text_about_peers() -> None:
    assert held_in_words(bound_with({2: {0: LESS}, 3: {0: MORE}}), 3) == (
        "3 tombstones or markers past their delete horizon wait: broker 2 is clean below offset 4, this one below 5"
    )
    assert held_in_words(bound_with({2: {0: MORE}, 3: "its daemon does not answer: Connection refused"})) == (
        "tombstones or markers past their delete horizon wait: for 24 hours at most, as a first dirty offset is "
        "unknown (broker 3: its daemon does not answer: Connection refused)"
    )
