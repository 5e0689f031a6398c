"""The batches that contain producers' last sequences and epochs (C-39.1, R192-1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd.policy.producer import LastRecords
from tests.support.logs import Record, encode_batch, encode_marker


def data(last_offset: int, producer: int, epoch: int = 0) -> bytes:
    """A data batch of one record, which is its last offset."""
    of_producer = {} if producer < 0 else {"producer_id": producer, "producer_epoch": epoch, "base_sequence": 0}
    return encode_batch([Record(b"k")], base_offset=last_offset, **of_producer)  # type: ignore[arg-type]


def ask(log: bytes, wanted: list[int], markers: list[tuple[int, int]] | None = None) -> list[bool]:
    last = LastRecords.of(data_offsets=wanted, marker_epochs=markers or [])
    batches = _kernel.scan_headers(np.frombuffer(log, np.uint8), 0)
    result: list[bool] = np.isin(np.arange(len(batches)), last.protected(batches)).tolist()
    return result


def ask_data(producers: list[int], last_offsets: list[int], wanted: list[int]) -> list[bool]:
    return ask(b"".join(data(offset, who) for offset, who in zip(last_offsets, producers, strict=True)), wanted)


@pytest.mark.parametrize(
    ("producers", "last_offsets", "wanted", "expected"),
    [
        pytest.param([7, 7], [4, 9], [9], [False, True], id="the last offset of the batch"),
        pytest.param([7, 7], [4, 9], [8], [False, False], id="an offset that is no batch's last"),
        pytest.param([-1, 7], [4, 9], [4, 9], [False, True], id="C-39.1: only batches with a producer id"),
        pytest.param([7, 8], [4, 9], [4, 9, 100], [True, True], id="two, and an offset of no batch"),
        pytest.param([7, 7], [4, 9], [], [False, False], id="no active producer"),
        pytest.param([], [], [9], [], id="no batch"),
        pytest.param([0], [4], [4], [True], id="0 is a producer id"),
    ],
)
def test_protected(producers: list[int], last_offsets: list[int], wanted: list[int], expected: list[bool]) -> None:
    """C-39.1."""
    assert ask_data(producers, last_offsets, wanted) == expected


@given(
    offsets=st.sets(st.integers(0, 60), min_size=1),
    wanted=st.sets(st.integers(0, 65)),
    idle=st.sets(st.integers(0, 60)),
)
def test_last_records_equal_those_of_single_queries(offsets: set[int], wanted: set[int], idle: set[int]) -> None:
    """C-39.1: for any chunk, the same as one query per batch."""
    last_offsets = sorted(offsets)
    producers = [-1 if offset in idle else 3 for offset in last_offsets]
    expected = [offset in wanted and offset not in idle for offset in last_offsets]
    assert ask_data(producers, last_offsets, sorted(wanted)) == expected


def test_the_last_offset_of_a_longer_batch() -> None:
    """T-07, C-39.1: an offset inside a batch is not its last; free offsets behind the records belong to the batch."""
    of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    log = encode_batch([Record(b"k"), Record(b"k")], base_offset=4, last_offset_delta=5, **of_producer)  # type: ignore[arg-type]
    assert [ask(log, [offset]) for offset in (4, 5, 8, 9)] == [[False], [False], [False], [True]]


MARKED = encode_marker(3, commit=True, producer_id=7, producer_epoch=2)


@pytest.mark.parametrize(
    ("log", "wanted", "markers", "expected"),
    [
        pytest.param(MARKED, [], [(7, 2)], True, id="only markers are known, of this epoch"),
        pytest.param(MARKED, [], [(7, 1)], False, id="of an older epoch"),
        pytest.param(MARKED, [], [(7, 3)], False, id="of a newer epoch"),
        pytest.param(MARKED, [], [(8, 2), (6, 2)], False, id="of other producers"),
        pytest.param(MARKED, [], [(8, 0), (7, 2), (6, 9)], True, id="one of several, in any order"),
        pytest.param(MARKED, [], [(7, 1), (7, 2)], True, id="R192-1: two views differ, the later one"),
        pytest.param(MARKED, [], [(7, 2), (7, 3)], True, id="R192-1: two views differ, the earlier one"),
        pytest.param(MARKED, [], [(6, 2), (7, 1), (7, 3), (8, 2)], False, id="two views differ, and it is of neither"),
        pytest.param(MARKED, [], [(7, 0), (7, 1), (7, 2), (7, 3), (9, 2)], True, id="however many there are"),
        pytest.param(MARKED, [1], [], False, id="the producer has data elsewhere: its marker is free"),
        pytest.param(MARKED, [3], [], True, id="a marker at the offset of a last data batch: cannot be, stays"),
        pytest.param(data(3, 7, 2), [], [(7, 2)], False, id="a data batch is no marker"),
        pytest.param(
            encode_batch([], base_offset=3, control=True, producer_id=7, producer_epoch=2), [], [(7, 2)], True,
            id="an emptied marker holds the epoch just as well",
        ),
    ],
)  # fmt: skip
def test_markers(log: bytes, wanted: list[int], markers: list[tuple[int, int]], expected: bool) -> None:
    """C-39.1 (transaction version 2): of a producer of which only markers are known, those of its epoch stay."""
    assert ask(log, wanted, markers) == [expected]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 3)), max_size=25),
    wanted=st.sets(st.integers(0, 27)),
    markers=st.dictionaries(st.integers(0, 4), st.integers(0, 3)),
)
def test_last_records_equal_a_loop(
    rows: list[tuple[bool, int, int]], wanted: set[int], markers: dict[int, int]
) -> None:
    """C-39.1, batch by batch."""
    pieces, expected = [], []
    for offset, (control, producer, epoch) in enumerate(rows):
        if control:
            pieces.append(encode_marker(offset, commit=True, producer_id=producer, producer_epoch=epoch))
        else:
            pieces.append(data(offset, producer, epoch))
        expected.append(offset in wanted or (control and markers.get(producer) == epoch))
    assert ask(b"".join(pieces), list(wanted), list(markers.items())) == expected
