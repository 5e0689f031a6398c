"""The load of the live part: the described traffic, and a model that follows the topic's settings."""

from __future__ import annotations

import itertools
import random

import pytest

from cleanerd.client.rules import TopicRules
from cleanerd_lab.demo.load import KEYS, LAST_MS, LATE_BY, SEGMENT_MS, Model, Writer, endless
from cleanerd_lab.demo.race import RaceResult, RaceUpdate
from cleanerd_lab.demo.strategies import STRATEGY


def test_versions_arrive_out_of_order() -> None:
    """Late ones, some without a version, deletes; the same seed gives the same ones.

    No record is delayed indefinitely.
    """
    updates = list(itertools.islice(endless(1, versioned=True), 30_000))
    assert updates == list(itertools.islice(endless(1, versioned=True), 30_000))
    versions = [update.version for update in updates if update.version is not None]
    late = sum(later < earlier for earlier, later in itertools.pairwise(versions))
    assert 0.05 < late / len(versions) < 0.2
    assert len(versions) == len(set(versions))
    numbers = {int(update.value.split(b":")[1].split(b",")[0]) for update in updates if update.value is not None}
    # All except the few deletes without a version, which cannot be identified.
    assert len(set(range(1, 30_000 - LATE_BY)) - numbers - set(versions)) < 60
    assert 100 < sum(update.version is None for update in updates) < 2_000
    assert 500 < sum(update.value is None for update in updates) < 3_000
    assert len({update.key for update in updates}) == KEYS


def test_without_versions_they_come_in_order() -> None:
    updates = list(itertools.islice(endless(1, versioned=False), 5_000))
    assert all(update.version is None for update in updates)
    values = [update.value for update in updates if update.value is not None]
    assert len(values) == len(set(values))


@pytest.mark.parametrize("versioned", [True, False])
def test_the_model_agrees_with_that_of_the_race(versioned: bool) -> None:
    """R280-4..6, whatever the order of the delivery reports: the other model keeps every record."""
    log = dict(enumerate(itertools.islice(endless(3, versioned=versioned), 20_000)))
    reports = list(log.items())
    random.Random(7).shuffle(reports)
    model = Model()
    for offset, update in reports:
        model.take(update, offset)
    raced = RaceResult(log)
    assert model.expected() == raced.expected()
    assert model.last_values() == raced.last_values()
    assert model.records == 20_000
    wrong = sum(model.expected()[key] != value for key, value in model.last_values().items())
    assert (wrong > 50) is versioned


def test_the_race_decides_wrongly_without_versions() -> None:
    """Otherwise there would be nothing to see: the last record is often not the one to retain."""
    model = Model()
    for offset, update in enumerate((RaceUpdate(b"k", 7, b"new"), RaceUpdate(b"k", 3, b"old"))):
        model.take(update, offset)
    assert (model.expected(), model.last_values(), model.out_of_order) == ({b"k": b"new"}, {b"k": b"old"}, 1)


def test_the_roll_ends_every_segment() -> None:
    """A segment ends when a record is more than segment.ms younger than its first; no other record is near the roll."""
    now_ns = 1_700_000_000 * 10**9
    writer = Writer("127.0.0.1:1", "t", TopicRules.of_config(STRATEGY), rate=1, seed=1, clock_ns=lambda: now_ns)
    first_ms = writer._timestamp_ms()
    begun_ns = now_ns
    for seconds in (10, 100, 1_000, 100_000):
        now_ns = begun_ns + seconds * 10**9
        now_ms = now_ns // 10**6
        assert first_ms < writer._timestamp_ms() <= now_ms + LAST_MS
    assert -LAST_MS > SEGMENT_MS
