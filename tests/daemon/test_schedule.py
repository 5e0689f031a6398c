"""The order of cleanings: each rule on its own, then properties of any choice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cleanerd.daemon.registry.schedule import (
    AGEING_MS,
    STARVED_MS,
    Candidate,
    ScheduleLimits,
    choose,
    ordered,
)
from cleanerd.daemon.work.job import Backoff
from cleanerd.format.names import TopicPartition
from tests.daemon.registries import candidate

HOUR_MS = 3_600_000


def first(*candidates: Candidate) -> int:
    return ordered(candidates)[0].name.partition


# -- the rules, one by one --------------------------------------------------------------------------------------------


def test_triggered_partitions_come_first() -> None:
    late = candidate(1, "overdue", overdue_ms=1000 * HOUR_MS)
    assert first(late, candidate(2, "manual", reclaimable_bytes=0)) == 2


def test_overdue_comes_before_any_saving_and_the_longest_overdue_first() -> None:
    """max.compaction.lag.ms is a promise (C-11), and unlike in C-12 it gives priority."""
    rich = candidate(1, reclaimable_bytes=10**12, moved_bytes=10**12)
    assert first(rich, candidate(2, "overdue", overdue_ms=1, reclaimable_bytes=0)) == 2
    assert first(candidate(1, "overdue", overdue_ms=5), candidate(2, "overdue", overdue_ms=6)) == 2


def test_candidates_are_ordered_by_bytes_reclaimed_per_byte_moved() -> None:
    """Neither the largest nor the highest ratio first: the gain per work decides."""
    large = candidate(1, reclaimable_bytes=1000, moved_bytes=100_000)
    small = candidate(2, reclaimable_bytes=90, moved_bytes=100)
    assert first(large, small) == 2


def test_waiting_outweighs_any_saving_in_the_end() -> None:
    """Ageing: even the least useful has its turn after an hour."""
    poor = candidate(1, reclaimable_bytes=0, moved_bytes=10**9)
    rich = candidate(2, reclaimable_bytes=100, moved_bytes=100)
    assert first(replace(poor, waiting_ms=AGEING_MS // 2), rich) == 2
    assert first(replace(poor, waiting_ms=AGEING_MS + 1), rich) == 1


def test_a_starved_partition_counts_as_overdue() -> None:
    """Many overdue partitions do not starve the others."""
    starved = candidate(1, waiting_ms=STARVED_MS + 2 * HOUR_MS)
    assert first(starved, candidate(2, "overdue", overdue_ms=HOUR_MS)) == 1
    assert first(starved, candidate(2, "overdue", overdue_ms=3 * HOUR_MS)) == 2


def test_outside_of_the_windows_only_requests_or_overdue_partitions_start() -> None:
    """A tombstone removal can wait, an overdue partition cannot."""
    all_kinds = [candidate(n, kind) for n, kind in enumerate(("ratio", "tombstone_removal", "overdue", "manual"))]
    closed = choose(all_kinds, [], ScheduleLimits(9, 9, window_open=False))
    assert {each.trigger for each in closed} == {"overdue", "manual"}
    assert len(choose(all_kinds, [], ScheduleLimits(9, 9))) == 4


def test_one_clean_a_partition_also_while_it_moves_between_directories() -> None:
    in_a, in_b = candidate(1, log_dir="/a"), candidate(1, log_dir="/b")
    assert choose([in_a, in_b], [], ScheduleLimits(9, 9)) == [in_a]
    assert choose([in_b], [("/a", in_a.name)], ScheduleLimits(9, 9)) == []


def test_the_cap_of_a_log_directory_lets_others_through() -> None:
    """The second of /a waits, the first of /b does not."""
    found = choose([candidate(n, log_dir="/a" if n < 3 else "/b") for n in range(4)], [], ScheduleLimits(4, 1))
    assert [each.log_dir for each in found] == ["/a", "/b"]


def test_waits_after_failures_double_up_to_the_longest() -> None:
    assert [Backoff(1000, 6000).wait_ms(n) for n in (1, 2, 3, 4, 100, 10**6)] == [1000, 2000, 4000, 6000, 6000, 6000]


# -- any choice -------------------------------------------------------------------------------------------------------

CANDIDATES = st.lists(
    st.builds(
        Candidate,
        st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5)),
        st.sampled_from(["/a", "/b", "/c"]),
        st.sampled_from(["ratio", "overdue", "tombstone_removal", "manual"]),
        st.integers(-5, 10**12),
        st.integers(0, 10**12),
        st.integers(0, 10**10),
        st.integers(0, 10**10),
    ),
    max_size=20,
)
RUNNING = st.lists(
    st.tuples(st.sampled_from(["/a", "/b"]), st.builds(TopicPartition, st.just("a"), st.integers(0, 5))), max_size=4,
    unique_by=lambda each: each[1],
)  # fmt: skip


@given(CANDIDATES, RUNNING, st.integers(1, 6), st.integers(1, 3), st.booleans())
def test_caps_are_kept_and_no_thread_is_idle_without_a_reason(
    candidates: list[Candidate],
    running: list[tuple[str, TopicPartition]],
    threads: int,
    per_dir: int,
    window_open: bool,
) -> None:
    found = choose(candidates, running, ScheduleLimits(threads, per_dir, window_open))
    names = [each.name for each in found]
    load = Counter(path for path, _ in running) + Counter(each.log_dir for each in found)
    assert len(set(names)) == len(names)
    assert not set(names) & {name for _, name in running}
    assert len(found) <= max(0, threads - len(running))
    assert all(load[each.log_dir] <= per_dir for each in found)
    if len(running) + len(found) >= threads:
        return
    for left in [each for each in candidates if each not in found]:
        busy = left.name in {*names, *(name for _, name in running)}
        shut = not window_open and left.trigger in {"ratio", "tombstone_removal"}
        assert busy or shut or load[left.log_dir] >= per_dir


@given(CANDIDATES)
def test_the_order_is_total_and_does_not_depend_on_where_it_began(candidates: list[Candidate]) -> None:
    assert [c.name for c in ordered(candidates)] == [c.name for c in ordered(candidates[::-1])]
    tiers = ["manual" if c.trigger == "manual" else "overdue" if c.overdue_ms else "rest" for c in ordered(candidates)]
    assert tiers[: tiers.count("manual")] == ["manual"] * tiers.count("manual")


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=2, max_size=12), st.integers(0, 11))
def test_no_partition_starves(others: list[tuple[int, bool]], victim: int) -> None:
    """One thread, one cleaning per hour, all dirty again at once, half of them overdue by a promise of an hour."""
    waiting = dict.fromkeys(range(len(others)), 0)
    victim %= len(others)
    others[victim] = (0, False)
    for _ in range(40 * len(others)):
        candidates = [
            Candidate(
                TopicPartition("t", n), "/a", "overdue" if promised and waiting[n] > HOUR_MS else "ratio", saved, 100,
                max(0, waiting[n] - HOUR_MS) if promised else 0, waiting[n],
            )
            for n, (saved, promised) in enumerate(others)
        ]  # fmt: skip
        (chosen,) = choose(candidates, [], ScheduleLimits(1, 1))
        if chosen.name.partition == victim:
            return
        for n in waiting:
            waiting[n] += HOUR_MS
        waiting[chosen.name.partition] = 0
    raise AssertionError("never had its turn")


def test_a_suspect_comes_last_and_alone() -> None:
    """U-35: a partition at which the process was killed starts last, with no other job, and one at a time."""
    bad, worse = candidate(1, is_suspect=True), candidate(2, is_suspect=True)
    good = candidate(3)
    assert choose([bad, good, worse], [], ScheduleLimits(9, 9)) == [good]
    assert choose([bad, worse], [("/a", good.name)], ScheduleLimits(9, 9)) == []
    assert choose([bad, worse], [], ScheduleLimits(9, 9)) == [bad]
    assert choose([bad, worse], [], ScheduleLimits(9, 9, window_open=False)) == []


def test_a_suspect_gets_its_turn() -> None:
    """If there is always another candidate: a requested one, or one that has waited long, runs alone for a moment."""
    good, arguments = candidate(3), candidate(1, "manual", is_suspect=True)
    for bad in (arguments, candidate(1, is_suspect=True, waiting_ms=STARVED_MS + 1)):
        assert choose([bad, good], [("/a", candidate(4).name)], ScheduleLimits(9, 9)) == []
        assert choose([bad, good], [], ScheduleLimits(9, 9)) == [bad]


def test_a_partial_cleaning_continues_behind_those_that_waited_meanwhile() -> None:
    """D-12: but before later ones, unless these rank higher anyway."""
    part = candidate(0, "overdue", overdue_ms=9, waiting_ms=5, had_part=True)
    waited = [candidate(n, waiting_ms=n) for n in (5, 6)]
    late = [candidate(7, waiting_ms=4), candidate(8, "overdue", overdue_ms=10, waiting_ms=4)]
    found = [each.name.partition for each in ordered([part, *waited, *late])]
    assert found == [8, 6, 5, 0, 7]


def test_of_two_partial_cleanings_the_one_that_waited_longer_continues() -> None:
    """D-12: two large partitions take turns, whichever is overdue."""
    first = candidate(0, "overdue", overdue_ms=9, waiting_ms=1, had_part=True)
    second = candidate(1, waiting_ms=2, had_part=True)
    assert [each.name.partition for each in ordered([first, second])] == [1, 0]


@given(st.integers(1, 3), st.lists(st.integers(0, 6), min_size=1, max_size=20))
def test_between_two_turns_of_large_partitions_all_waiting_ones_run(larges: int, arrivals: list[int]) -> None:
    """D-12: one worker, partitions that are always overdue, and small ones that arrive during each turn."""
    now, waits = 0, dict.fromkeys(range(larges), 0)
    had_part, begun = set[int](), list[int]()
    for small, pause in enumerate(arrivals, start=larges):
        now += pause + 1
        waits[small] = now
        candidates = [
            candidate(n, "overdue" if n < larges else "ratio", overdue_ms=10**7 if n < larges else 0,
                      waiting_ms=now - since, had_part=n in had_part)
            for n, since in waits.items()
        ]  # fmt: skip
        (chosen,) = choose(candidates, [], ScheduleLimits(1, 1))
        turn = chosen.name.partition
        # Each large one precedes a small one once, and the large ones take turns.
        older = [n for n, since in waits.items() if n >= larges and since <= waits[turn]]
        assert turn not in had_part or not older
        begun.append(turn)
        if turn < larges:
            had_part.add(turn)
            waits[turn] = now
        else:
            del waits[turn]
