"""When tombstones and markers may expire: not before every replica has them (U-70)."""

from __future__ import annotations

import uuid

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
    """The bound at minute ``now`` of a metadata log that shows minute ``as_of``."""
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
    """U-70: the copy goes on to say "full": only its own time counts."""
    assert minute(bound_of(shown((0, {1, 2}, {1, 2})), as_of=30, now=600)) == 30


def test_a_controllers_clock_that_is_ahead() -> None:
    """U-70: its times prove nothing then."""
    full = shown((0, {1, 2}, {1, 2}))
    assert minute(bound_of(full, as_of=66, now=61)) == 66
    ahead = bound_of(full, as_of=67, now=61)
    assert ahead.at_ms == -1
    assert "clock" in ahead.why


def test_a_record_that_cannot_be_read() -> None:
    """U-71: what follows it may be a shorter ISR, of a partition with one replica too."""
    for replicas in (shown((0, {1, 2}, {1, 2})), shown((0, {1}, {1}))):
        assert bound_of(replicas, unread="update cleanerd").at_ms == -1


def test_a_partition_that_the_log_does_not_show() -> None:
    made = TopicReplicas(ReplicaFacts({}, T0, T0), {})
    assert made.bound(3, T0).at_ms == -1


def test_what_is_remembered() -> None:
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


def test_words() -> None:
    bound = bound_of(shown((0, {1, 2}, {1, 2}), (20, {1, 2}, {1})))
    assert held_in_words(bound, 1200) == (
        "1,200 tombstones or markers wait for broker 2, out of the ISR since 2023-11-14T22:33:20Z"
    )


def test_histories() -> None:
    """U-70: no key comes back, no aborted record is seen, and where all replicas have them no tombstone stays."""
    expired = 0
    for seed in range(at_length(2000)):
        world = World(seed)
        for _ in range(world.dice.randint(20, 120)):
            world.step()
        world.settle()
        for number, broker in world.brokers.items():
            assert visible(broker.log) == world.truth, (seed, number)
            with_data = {each.txn for each in broker.log.values() if not each.marker}
            held = [at for at, each in broker.log.items() if each.value is None and each.txn not in with_data - {0}]
            assert not held, (seed, number, "tombstones or markers are held for nothing")
        expired += world.expired
    assert expired > at_length(2000)
