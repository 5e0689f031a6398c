"""cleanerd.daemon.registry.cleaning_queue: the next partition is found without a pass over all of them each time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from cleanerd.daemon.limits import OF_THE_LOOP, pause_seconds
from cleanerd.daemon.registry import cleaning_queue
from cleanerd.daemon.registry.cleaning_queue import FIRST, CleaningQueue
from cleanerd.daemon.registry.partition_registry import PartitionRegistry, RegistrySettings
from cleanerd.daemon.registry.schedule import ScheduleLimits, choose
from cleanerd.daemon.work.job import Backoff
from cleanerd.format.names import TopicPartition
from cleanerd.state.in_progress import CrashSuspect
from tests.daemon.registries import CLEAN, NOW, PATH, dir_scan, partition_scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

    from cleanerd.daemon.registry.partition_entry import PartitionEntry
    from cleanerd.daemon.registry.schedule import Candidate


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def registry_of(dirty_bytes: Sequence[int]) -> PartitionRegistry:
    """One partition for each value: the dirtier, the sooner."""
    made = PartitionRegistry(RegistrySettings(Backoff(1000, 8000), 10**9, 100))
    names = [TopicPartition("orders", number) for number in range(len(dirty_bytes))]
    found = dir_scan(
        *(partition_scan(name=name, dirty_bytes=size) for name, size in zip(names, dirty_bytes, strict=True))
    )
    made.merge(replace(found, present=frozenset(names)), NOW)
    return made


def passed(registry: PartitionRegistry, pass_seconds: float = 1.0) -> tuple[CleaningQueue, Clock, list[Candidate]]:
    """A queue whose last pass over all partitions took this long."""
    clock = Clock()
    queue = CleaningQueue(registry, clock, clock)
    candidates = registry.candidates

    def slow(now_ms: int, among: Iterable[PartitionEntry] | None = None) -> list[Candidate]:
        clock.now += pass_seconds if among is None else 0.0
        return candidates(now_ms, among)

    registry.candidates = slow  # type: ignore[method-assign]
    return queue, clock, queue.pass_over_all(NOW)


def numbers(candidates: Iterable[Candidate]) -> list[int]:
    return [each.name.partition for each in candidates]


def begin(registry: PartitionRegistry, candidate: Candidate) -> None:
    registry.begun((candidate.log_dir, candidate.name), candidate.trigger)


def test_ordering_takes_a_bounded_share_of_the_time() -> None:
    """A pass over thousands takes as long as cleaning a small partition: one per cleaning was half of the work."""
    queue, clock, _ = passed(registry_of([100]), pass_seconds=0.5)
    assert queue.is_fresh
    clock.now += pause_seconds(0.5, OF_THE_LOOP) - 0.01
    assert queue.is_fresh
    clock.now += 0.02
    assert not queue.is_fresh


def test_a_stall_does_not_count_as_work() -> None:
    """The machine stopped for a minute during a pass; the next pass must not wait for hours."""
    registry, clock = registry_of([100]), Clock()
    queue = CleaningQueue(registry, clock, lambda: 0.001 * clock.now)
    candidates = registry.candidates

    def slow(now_ms: int, among: Iterable[PartitionEntry] | None = None) -> list[Candidate]:
        clock.now += 60.0
        return candidates(now_ms, among)

    registry.candidates = slow  # type: ignore[method-assign]
    queue.pass_over_all(NOW)
    assert queue.is_fresh
    clock.now += pause_seconds(0.06, OF_THE_LOOP) + 0.01
    assert not queue.is_fresh


def test_nothing_counts_before_the_first_pass() -> None:
    assert not CleaningQueue(registry_of([100]), Clock()).is_fresh


def test_the_first_candidate_is_judged_again() -> None:
    """Started, paused, excluded or deleted since the last pass: not cleaned by outdated data."""
    registry = registry_of([50, 40, 30, 20, 10])
    queue, _, found = passed(registry)
    order = numbers(found)
    begin(registry, found[0])
    registry.pause([str(found[1].name)], paused=True)
    gone = (str(PATH), found[2].name)
    del registry.partitions[gone]
    assert numbers(queue.first(NOW)) == order[3:]
    registry.pause([str(found[1].name)], paused=False)
    assert numbers(queue.first(NOW)) == order[3:], "the next pass adds it again"
    assert numbers(queue.pass_over_all(NOW)) == [order[1], *order[3:]]


def test_only_the_first_ones_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be a full pass."""
    registry = registry_of(list(range(1000, 0, -1)))
    queue, _, found = passed(registry)
    judged: list[int] = []
    # The number of examined partitions shows only in the time.
    monkeypatch.setattr(
        PartitionRegistry, "_is_skipped", lambda _registry, entry, _now: judged.append(entry.name.partition)
    )
    assert numbers(queue.first(NOW)) == numbers(found)[:FIRST]
    assert len(judged) == FIRST


def test_all_are_examined_if_there_is_a_suspect() -> None:
    """A suspect comes last and alone; the first few partitions do not show whether it is the last."""
    registry = registry_of([50, 40])
    queue, _, found = passed(registry)
    assert queue.is_fresh
    registry.partitions[str(PATH), found[0].name].suspect = CrashSuspect(1, NOW)
    queue.first(NOW)
    assert not queue.is_fresh
    queue.pass_over_all(NOW)
    assert not queue.is_fresh


def test_spare_jobs_are_started_once_and_suspects_last_and_alone() -> None:
    registry = registry_of([0, 0, 0])
    for each in registry.partitions.values():
        assert each.scan is not None
        each.scan = replace(each.scan, **CLEAN)
    suspect, other, busy = registry.partitions.values()
    suspect.suspect = CrashSuspect(1, NOW)
    queue, _, found = passed(registry)
    assert found == []
    running = [busy.key]
    assert queue.spare_work(NOW, running) == (other, "horizons")
    assert queue.spare_work(NOW, running) is None
    queue.pass_over_all(NOW)
    assert [queue.spare_work(NOW, []) for _ in range(4)] == [
        (other, "horizons"),
        (busy, "horizons"),
        (suspect, "horizons"),
        None,
    ]


def test_a_finished_spare_job_is_not_started() -> None:
    registry = registry_of([0])
    (only,) = registry.partitions.values()
    assert only.scan is not None
    only.scan = replace(only.scan, **CLEAN)
    queue, _, _ = passed(registry)
    only.removal_known = True
    assert queue.spare_work(NOW, []) is None


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=120), st.integers(1, 4), st.integers(1, 9))
def test_every_partition_has_its_turn_once_in_the_order_of_the_pass(sizes: list[int], threads: int, first: int) -> None:
    """The queue and a pass choose the same next partition, as long as only started ones change."""
    before, cleaning_queue.FIRST = cleaning_queue.FIRST, first  # type: ignore[misc]
    try:
        registry = registry_of(sizes)
        queue, _, found = passed(registry, pass_seconds=10.0)
        begun: list[Candidate] = []
        running: list[Candidate] = []
        while len(begun) < len(sizes):
            chosen = choose(
                queue.first(NOW), [(each.log_dir, each.name) for each in running], ScheduleLimits(threads, threads)
            )
            assert chosen
            for each in chosen:
                begin(registry, each)
            begun += chosen
            running = (running + chosen)[1:]
        assert numbers(begun) == numbers(found)
        assert queue.first(NOW) == []
    finally:
        cleaning_queue.FIRST = before  # type: ignore[misc]
