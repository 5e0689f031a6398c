"""Which neighbouring segments become one (U-17 over C-63; D-02, D-03)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.policy.grouping import (
    MAX_RELATIVE_OFFSET,
    MAX_SOURCES,
    MOST_RECORDLESS,
    DecidedSegment,
    GroupLimits,
    RecordlessRun,
    group,
    split,
)

LIMITS = GroupLimits(segment_bytes=1000, index_bytes=10_000, index_interval_bytes=100, max_span_ms=None)


def changed(base: int, size: int = 100, **facts: object) -> DecidedSegment:
    """A segment of 10 offsets that is written again anyway."""
    plain = DecidedSegment(
        base, base + 9, size, 1, has_records=True, changed=True, min_timestamp_ms=-1, max_timestamp_ms=-1
    )
    return replace(plain, **facts)  # type: ignore[arg-type]


def same(base: int, size: int = 100, **facts: object) -> DecidedSegment:
    """A segment that would stay as it is."""
    return changed(base, size, changed=False, **facts)


def empty(base: int, **facts: object) -> DecidedSegment:
    """A segment of which a single header stays."""
    return changed(base, 61, has_records=False, **facts)


def hollow(base: int) -> DecidedSegment:
    """A file of 0 bytes."""
    return same(base, 0, last_offset=-1, output_batches=0, has_records=False)


def groups(*outcomes: DecidedSegment, limits: GroupLimits = LIMITS) -> list[list[int]]:
    return [list(rows) for rows in group(outcomes, limits)]


BIG = 2 * 2**31


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([changed(0)], [[0]], id="one that changes"),
        pytest.param([same(0)], [], id="one that does not"),
        pytest.param([same(0), same(10)], [], id="U-17: joining alone is no reason to write"),
        pytest.param([changed(0), changed(10)], [[0, 1]], id="two small ones"),
        pytest.param([changed(0, 500), changed(10, 500)], [[0, 1]], id="exactly the limit"),
        pytest.param([changed(0, 500), changed(10, 501)], [[0], [1]], id="C-63: one byte more"),
        pytest.param([changed(0, 5000), changed(10, 5000)], [[0], [1]], id="C-63: a single one, whatever its size"),
        pytest.param([changed(0), same(10, 249)], [[0, 1]], id="U-17: an unchanged one below a quarter joins"),
        pytest.param([changed(0), same(10, 250)], [[0]], id="U-17: a quarter does not"),
        pytest.param([same(0, 249), changed(10)], [[0, 1]], id="also in front"),
        pytest.param([same(0, 1), same(10, 1), changed(20), same(30, 1)], [[0, 1, 2, 3]], id="and several"),
        pytest.param([changed(0), same(10, 600), changed(20)], [[0], [2]], id="a large unchanged one is between"),
        pytest.param([empty(0), changed(10, 980)], [[0], [1]], id="without a record, but no neighbour has space"),
        pytest.param([changed(0, 980), empty(10), changed(20, 900)], [[0], [1, 2]], id="D-02: the right one has room"),
        pytest.param([changed(0, 900), empty(10), changed(20, 980)], [[0, 1], [2]], id="D-02: the left one has"),
        pytest.param([empty(0), same(10, 600)], [[0]], id="U-17: a large unchanged one is not written for it"),
        pytest.param([same(0, 600), empty(10)], [[1]], id="U-17: nor in front"),
        pytest.param([same(0, 600), empty(10), empty(20), same(30, 600)], [[1, 2]], id="D-02: runs become one"),
        pytest.param(
            [same(0, 61, has_records=False), same(10, 61, has_records=False)], [[0, 1]], id="D-02: two idle ones"
        ),
        pytest.param([same(0, 61, has_records=False)], [], id="one idle record-less one stays"),
        pytest.param(
            [same(0, 240), same(10, 61, has_records=False), same(20, 61, has_records=False)],
            [[0, 1, 2]],
            id="D-02: two that are joined can be taken by who is before them",
        ),
        pytest.param(
            [*(empty(base, closing_bytes=61) for base in range(0, 200, 10)), changed(200, 900)],
            [list(range(21))],
            id="U-13, D-02: twenty ends of segments are not twenty headers in one group",
        ),
        pytest.param(
            [empty(0, closing_bytes=61), hollow(10), empty(20, closing_bytes=61), hollow(30), changed(40, 1000)],
            [[0, 1, 2, 3, 4]],
            id="U-13: the end of a group is the last source that has batches",
        ),
        pytest.param(
            [changed(0, 940), empty(10, closing_bytes=61), hollow(20)],
            [[0], [1, 2]],
            id="U-13: a file of 0 bytes does not take the end's place",
        ),
        pytest.param([hollow(0)], [], id="D-03: nothing but 0 bytes"),
        pytest.param([hollow(0), hollow(10)], [], id="D-03: a group of 0-byte files is not formed"),
        pytest.param([hollow(0), changed(10)], [[0, 1]], id="D-03: with another it is"),
        pytest.param([changed(0), hollow(10), changed(20)], [[0, 1, 2]], id="D-03: in the middle"),
        pytest.param([changed(0, 5), changed(MAX_RELATIVE_OFFSET - 9, 5)], [[0, 1]], id="C-63: exactly 2^31-1 offsets"),
        pytest.param([changed(0, 5), changed(MAX_RELATIVE_OFFSET - 8, 5)], [[0], [1]], id="C-63: one offset more"),
        pytest.param([empty(0), empty(BIG)], [[0], [1]], id="offsets before record-less ones (U-17's order)"),
        pytest.param([hollow(0), changed(BIG)], [[1]], id="T-19: the base counts even where there is no batch"),
        pytest.param([changed(0, 5), hollow(BIG)], [[0, 1]], id="T-19, KAFKA-12889: without batches never too far"),
    ],
)  # fmt: skip
def test_group(outcomes: list[DecidedSegment], expected: list[list[int]]) -> None:
    """U-17, D-02, D-03."""
    assert groups(*outcomes) == expected


def test_index_limits() -> None:
    """C-63: entries are one per ``index.interval.bytes`` at most and one per batch at most; 8 and 12 bytes each."""
    one = changed(0, 300, output_batches=10)
    two = changed(10, 300, output_batches=10)
    room = replace(LIMITS, index_bytes=(6 + 1) * 12)
    assert groups(one, two, limits=room) == [[0, 1]]
    assert groups(one, two, limits=replace(room, index_bytes=room.index_bytes - 1)) == [[0], [1]]
    single = [replace(outcome, output_batches=1) for outcome in (one, two)]
    assert groups(*single, limits=replace(room, index_bytes=(2 + 1) * 12)) == [[0, 1]]
    assert groups(one, two, limits=replace(LIMITS, index_interval_bytes=0, index_bytes=21 * 12)) == [[0, 1]]
    assert groups(one, two, limits=replace(LIMITS, index_interval_bytes=0, index_bytes=20 * 12)) == [[0], [1]]


def test_time_span() -> None:
    """U-17: with compact,delete a group spans at most a tenth of the retention, or no record would ever expire."""
    one = changed(0, min_timestamp_ms=1000, max_timestamp_ms=1500)
    two = changed(10, min_timestamp_ms=1400, max_timestamp_ms=2000)
    assert groups(one, two, limits=replace(LIMITS, max_span_ms=1000)) == [[0, 1]]
    assert groups(one, two, limits=replace(LIMITS, max_span_ms=999)) == [[0], [1]]
    unknown = changed(10)
    assert groups(one, unknown, limits=replace(LIMITS, max_span_ms=500)) == [[0, 1]]


@pytest.mark.parametrize("swapped", [False, True])
def test_time_of_a_batch_without_records(swapped: bool) -> None:
    """U-13, U-17: it only matters if records without a time would get it, which otherwise use their file's time."""

    def together(first: DecidedSegment, second: DecidedSegment, span_ms: int | None) -> bool:
        pair = (replace(second, base=0, last_offset=9), replace(first, base=10, last_offset=19))
        found = groups(*(pair if swapped else (first, second)), limits=replace(LIMITS, max_span_ms=span_ms))
        return found == [[0, 1]]

    of_its_file = changed(0, min_timestamp_ms=5000, max_timestamp_ms=5000, file_time_ms=5000)
    of_its_records = changed(0, min_timestamp_ms=5000, max_timestamp_ms=5000, batch_time_ms=5000)
    idle, timeless = empty(10, batch_time_ms=2000), empty(10)
    assert not together(of_its_file, idle, 2999)
    assert together(of_its_file, idle, 3000)
    assert together(of_its_file, idle, None)
    assert together(of_its_file, empty(10, batch_time_ms=9000), 1000), (
        "records stay longer, and none is deleted too early"
    )
    assert together(of_its_file, timeless, 0)
    assert together(of_its_records, idle, 0)


def test_split() -> None:
    """U-17: at a source edge."""
    assert split(range(3, 8), 5) == (range(3, 5), range(5, 8))


@st.composite
def logs(draw: st.DrawFn) -> list[DecidedSegment]:
    base, outcomes = 0, []
    for _ in range(draw(st.integers(0, 9))):
        kind = draw(st.sampled_from(("changed", "same", "empty", "idle empty", "hollow")))
        size = draw(st.sampled_from((61, 100, 249, 250, 400, 950, 2000)))
        stamp = draw(st.integers(-1, 50))
        outcome = {
            "changed": changed(base, size),
            "same": same(base, size),
            "empty": empty(base),
            "idle empty": same(base, 61, has_records=False),
            "hollow": hollow(base),
        }[kind]
        if kind != "hollow":
            outcome = replace(outcome, min_timestamp_ms=stamp, max_timestamp_ms=stamp)
        outcomes.append(outcome)
        base += draw(st.sampled_from((10, 10, 10, 2**30, 2**31)))
    return outcomes


@st.composite
def all_limits(draw: st.DrawFn) -> GroupLimits:
    return GroupLimits(
        segment_bytes=draw(st.sampled_from((500, 1000, 1 << 20))),
        index_bytes=draw(st.sampled_from((48, 10_000))),
        index_interval_bytes=draw(st.sampled_from((0, 100, 4096))),
        max_span_ms=draw(st.sampled_from((None, 0, 20))),
    )


def fits(members: list[DecidedSegment], limits: GroupLimits) -> bool:
    """The same limits, computed in another way."""
    size = sum(outcome.output_bytes for outcome in members)
    batches = sum(outcome.output_batches for outcome in members)
    entries = min(batches, size // limits.index_interval_bytes if limits.index_interval_bytes else size)
    stamps = [stamp for o in members for stamp in (o.min_timestamp_ms, o.max_timestamp_ms) if stamp >= 0]
    return (
        max(outcome.last_offset for outcome in members) - members[0].base < 2**31
        and size <= limits.segment_bytes
        and entries * 8 <= limits.index_bytes
        and (entries + 1) * 12 <= limits.index_bytes
        and (limits.max_span_ms is None or not stamps or max(stamps) - min(stamps) <= limits.max_span_ms)
    )


def is_small(outcome: DecidedSegment, limits: GroupLimits) -> bool:
    return outcome.changed or outcome.output_bytes < limits.segment_bytes // 4


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(outcomes=logs(), limits=all_limits())
def test_properties(outcomes: list[DecidedSegment], limits: GroupLimits) -> None:
    """U-17, D-02, D-03: for any log."""
    found = group(outcomes, limits)
    rows = [row for members in found for row in members]
    assert rows == sorted(set(rows)), "ascending neighbours, each source once"
    for members in found:
        chosen = [outcomes[row] for row in members]
        record_less = sum(not outcome.has_records for outcome in chosen)
        assert any(outcome.changed for outcome in chosen) or record_less > 1, "joining alone is not a reason to write"
        assert max(outcome.last_offset for outcome in chosen) >= 0, "D-03"
        if len(chosen) > 1:
            assert fits(chosen, limits)
            assert all(is_small(outcome, limits) for outcome in chosen)
    assert {row for row, outcome in enumerate(outcomes) if outcome.changed} <= set(rows), "a changed segment is written"
    written = {row: members for members in found for row in members}
    starts = [row for row in range(len(outcomes)) if row not in written or row == written[row].start]
    units = [written.get(row, range(row, row + 1)) for row in starts]
    for left, right in pairwise(units):
        pair = [outcomes[row] for row in (*left, *right)]
        is_written = [unit.start in written for unit in (left, right)]
        hollow_ones = [not any(outcomes[row].has_records for row in unit) for unit in (left, right)]
        no_bytes = any(all(outcomes[row].last_offset < 0 for row in unit) for unit in (left, right))
        if any(w and h for w, h in zip(is_written, hollow_ones, strict=True)) and not no_bytes:
            could = fits(pair, limits) and all(is_small(outcome, limits) for outcome in pair)
            assert not could, "D-02: a record-less output that a neighbour could take"


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@given(outcomes=logs(), limits=all_limits())
def test_fixed_point(outcomes: list[DecidedSegment], limits: GroupLimits) -> None:
    """A group that has not changed since is left alone."""
    found = {members.start: members for members in group(outcomes, limits)}
    inside = {row for members in found.values() for row in members[1:]}
    after = []
    for row, outcome in enumerate(outcomes):
        members = [outcomes[other] for other in found.get(row, [row])]
        if row not in inside:
            after.append(
                replace(
                    outcome,
                    last_offset=max(member.last_offset for member in members),
                    output_bytes=sum(member.output_bytes for member in members),
                    output_batches=sum(member.output_batches for member in members),
                    has_records=any(member.has_records for member in members),
                    changed=False,
                    min_timestamp_ms=min((m.min_timestamp_ms for m in members if m.min_timestamp_ms >= 0), default=-1),
                    max_timestamp_ms=max(member.max_timestamp_ms for member in members),
                )
            )
    assert group(after, limits) == []


@pytest.mark.parametrize("count", [199, 200, 201, 450])
def test_the_maximum_number_of_sources(count: int) -> None:
    """U-36: a swap renames the files of every source while a broker holds its lock, so a group ends at 200."""
    wide = replace(LIMITS, segment_bytes=10**9, index_bytes=10**9)
    segments = [changed(10 * row, 10) for row in range(count)]
    found = groups(*segments, limits=wide)
    assert [row for rows in found for row in rows] == list(range(count))
    assert [len(rows) for rows in found] == [MAX_SOURCES] * (count // MAX_SOURCES) + [count % MAX_SOURCES] * (
        count % MAX_SOURCES > 0
    )


def test_recordless_sources_are_not_an_exception() -> None:
    """U-36 over D-02: a source stays where it is if the neighbour's group has its 200."""
    wide = replace(LIMITS, segment_bytes=10**9, index_bytes=10**9)
    segments = [empty(10 * row) for row in range(201)]
    assert max(len(rows) for rows in groups(*segments, limits=wide)) == MAX_SOURCES == 200


def outputs(has_records: list[bool], most: int) -> list[bool]:
    """Whether the outputs hold records, if groups of 200 neighbours are cut by about ``most`` sources."""
    run = RecordlessRun(has_records)
    ends = [*range(MAX_SOURCES, len(has_records), MAX_SOURCES), len(has_records)]
    found: list[bool] = []
    start = 0
    for end in ends:
        while start < end:
            rows = range(start, end)
            rows = rows[: run.sources_at_once(rows, most)]
            run.add(rows)
            found.append(any(has_records[row] for row in rows))
            start = rows.stop
    return found


def longest_recordless(found: list[bool]) -> int:
    """The longest run of outputs without a record."""
    return max(len(each) for each in "".join(" x"[not has] for has in found).split(" "))


def test_a_cut_next_to_retained_records() -> None:
    """U-36: as many sources as requested, if the next record is not far."""
    assert len(outputs([row % 25 == 0 for row in range(400)], most=40)) == 10
    assert len(outputs([True] * 400, most=25)) == 16


@pytest.mark.parametrize("most", [25, 40, 60])
@pytest.mark.parametrize("before", [0, 1, 10, 150, 199])
def test_few_outputs_in_a_row_have_no_record(before: int, most: int) -> None:
    """D-02 over U-36: parts of sources that keep no record are larger the more of them there are; ten are an error."""
    for recordless in (1, 24, 30, 90, 199, 200, 201, 399, 500, 777, 1000, 1200, 1400):
        found = outputs([True] * before + [False] * recordless + [True] * 30, most)
        assert longest_recordless(found) <= MOST_RECORDLESS + 1 < 10, f"{recordless}; the edge of a group adds one"
        if recordless <= 8 * most:
            assert len(found) >= (before + recordless) // most, "U-36: none is larger than necessary"


def test_runs_with_a_record_between() -> None:
    """D-02: seven outputs without a record, one with, and seven more do not count as a run of fourteen."""
    found = outputs(([False] * 180 + [True] + [False] * 180) * 3, most=25)
    assert longest_recordless(found) <= MOST_RECORDLESS


def test_a_segment_that_stays_ends_a_run() -> None:
    """D-02: neighbours are counted; rows of no group in between hold records."""
    run = RecordlessRun([False] * 40 + [True] * 2 + [False] * 160)
    for start in (0, 10, 20, 30):
        run.add(range(start, start + 10))
    assert run.sources_at_once(range(42, 202), 20) == 20
    near = RecordlessRun([False] * 200)
    for start in (0, 10, 20, 30):
        near.add(range(start, start + 10))
    assert near.sources_at_once(range(40, 200), 20) == 40
