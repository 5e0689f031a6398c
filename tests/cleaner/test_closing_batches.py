"""The time of a batch that only closes its group (U-13), which a broker uses as the segment's time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cleaner.driver import NAME, clean_all, config, scratch
from tests.support.log_dirs import Partition, make_log_dir, read_segments
from tests.support.logs import BASE_TIMESTAMP_MS, encode_batch, encode_legacy, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = BASE_TIMESTAMP_MS + 1_000_000
OLD = NOW - 10**9
SMALL = {"segment_bytes": 300}
LARGE = "x" * 200


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def times(root: Path) -> dict[int, list[tuple[int, int, int]]]:
    """Last offset, records and largest timestamp per batch, by segment."""
    return {
        base: [(each.header.last_offset, len(each.records), each.header.max_timestamp) for each in batches]
        for base, batches in read_segments(root / NAME).items()
    }


def v2(offset: int, key: str, value: str = "1", timestamp: int = -1) -> bytes:
    return keyed_batch(offset, [(key, value)], timestamp=timestamp)


def v1(offset: int, key: str, value: str = "1", timestamp: int = -1) -> bytes:
    return encode_legacy(offset, key.encode(), value.encode(), magic=1, timestamp=timestamp)


def v0(offset: int, key: str, value: str = "1", timestamp: int = -1) -> bytes:
    return encode_legacy(offset, key.encode(), value.encode(), magic=0, timestamp=timestamp)


@pytest.mark.parametrize("form", [v2, v1, v0])
@pytest.mark.parametrize("time_ms", [-1, OLD, NOW])
def test_next_to_others(root: Path, form: object, time_ms: int) -> None:
    """U-13: -1, whatever the time and the format of the former batch, and whatever the others have."""
    assert callable(form)
    first = form(0, "a", LARGE) + form(1, "b", timestamp=OLD) + form(2, "d", timestamp=time_ms)
    second = form(3, "c", LARGE) + form(4, "d", timestamp=NOW)
    make_log_dir(root, {NAME: Partition({0: first, 3: second, 5: v2(5, "z")})})
    clean_all(root, NOW, config(**SMALL))
    assert times(root)[0][-1] == (2, 0, -1)
    assert [records for _, records, _ in times(root)[0]] == [1, 1, 0]
    assert clean_all(root, NOW, config(**SMALL)).outcome == "unchanged"


def test_a_closing_batch_in_an_earlier_source(root: Path) -> None:
    """U-13: the other batches of the group may be in earlier segments."""
    logs = {0: v2(0, "a"), 1: v2(1, "g"), 2: v2(2, "d"), 3: v2(3, "e", LARGE) + v2(4, "d") + v2(5, "g"), 6: b""}
    make_log_dir(root, {NAME: Partition(logs)})
    clean_all(root, NOW, config(**SMALL))
    assert times(root)[0] == [(0, 1, -1), (2, 0, -1)]


def test_alone(root: Path) -> None:
    """U-13: 0 in a segment without records, or a search by time would end at the file's time; and it stays so."""
    second = v2(2, "c", LARGE, NOW)
    logs = {0: v2(0, "g", timestamp=NOW) + v2(1, "d", timestamp=NOW), 2: second, 3: v2(3, "d") + v2(4, "g"), 5: b""}
    make_log_dir(root, {NAME: Partition(logs)})
    clean_all(root, NOW, config(**SMALL))
    assert times(root)[0] == [(1, 0, 0)]
    assert clean_all(root, NOW, config(**SMALL)).outcome == "unchanged"


def test_alone_at_the_end(root: Path) -> None:
    """U-13: next to others it had no time; once they are removed it has time 0."""
    closed = encode_batch([], base_offset=1)
    logs = {0: v2(0, "g", timestamp=NOW) + closed, 2: v2(2, "c", LARGE, NOW), 3: v2(3, "g"), 4: b""}
    make_log_dir(root, {NAME: Partition(logs)})
    clean_all(root, NOW, config(**SMALL))
    assert times(root)[0] == [(1, 0, 0)]


@pytest.mark.parametrize(
    ("record_ms", "closed_ms", "expected_ms"),
    [
        pytest.param(-1, 0, -1, id="the only time there is"),
        pytest.param(OLD, 0, 0, id="next to times it does no harm"),
        pytest.param(OLD, OLD, OLD, id="nor that of a record"),
        pytest.param(OLD, OLD + 1, -1, id="later than the records: times between find nothing"),
        pytest.param(-1, OLD, -1, id="any time next to none"),
        pytest.param(-1, -1, -1, id="nothing to fix"),
    ],
)
def test_a_closing_batch_written_by_an_earlier_release(
    root: Path, record_ms: int, closed_ms: int, expected_ms: int
) -> None:
    """U-13, U-37: a time that a broker would use is reason enough to write the segment again, once.

    Whichever cleaner emptied it: Kafka's leaves the last batch of its range so, with its time, and removes it later.
    """
    logs = {
        0: v2(0, "a", LARGE, record_ms) + encode_batch([], base_offset=1, max_timestamp=closed_ms),
        2: v2(2, "c", LARGE),
        3: b"",
    }
    make_log_dir(root, {NAME: Partition(logs)})
    result = clean_all(root, NOW, config(**SMALL))
    assert times(root)[0] == [(0, 1, record_ms), (1, 0, expected_ms)]
    assert result.outcome == ("cleaned" if closed_ms != expected_ms else "unchanged")
    assert clean_all(root, NOW, config(**SMALL)).outcome == "unchanged"


def test_alone_with_a_time(root: Path) -> None:
    """U-13, U-37: a single old one hides no times of the records behind it either, and does not stay indefinitely."""
    logs = {
        0: encode_batch([], base_offset=0, max_timestamp=NOW),
        1: v2(1, "c", LARGE, OLD) + v2(2, "e", LARGE, OLD),
        3: v2(3, "f"),
        4: b"",
    }
    make_log_dir(root, {NAME: Partition(logs)})
    clean_all(root, NOW, config(**SMALL))
    assert times(root)[0] == [(0, 0, 0)]
    assert clean_all(root, NOW, config(**SMALL)).outcome == "unchanged"


@pytest.mark.parametrize("form", [v2, v1, v0])
@pytest.mark.parametrize(("age_ms", "joined"), [(0, True), (9_000, True), (11_000, False), (10**9, False)])
def test_a_file_of_another_time(root: Path, form: object, age_ms: int, *, joined: bool) -> None:
    """U-17: a segment without a time is as old as its file, also for the time span of a group: retention uses that."""
    assert callable(form)
    first = form(0, "a") + form(1, "d")
    second = v2(2, "b", timestamp=NOW - age_ms) + v2(3, "d", timestamp=NOW - age_ms)
    third = v2(4, "d", timestamp=NOW - age_ms) + v2(5, "e", LARGE, NOW - age_ms)
    make_log_dir(root, {NAME: Partition({0: first, 2: second, 4: third, 6: b""}, mtime_ms=NOW)})
    clean_all(root, NOW, config(**SMALL, cleanup_policy="compact,delete", retention_ms=100_000))
    assert (2 not in times(root)) == joined
