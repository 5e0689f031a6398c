"""Aborted transactions and open ones, by hand and compared with a plain loop over batches (C-37, U-12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd.format.index import TXN_ENTRY
from cleanerd.policy.transaction import (
    ABORT,
    ABORTED_DATA,
    COMMIT,
    COMMITTED_DATA,
    AbortedTransactions,
    OpenTransactions,
    TransactionEvents,
    events_of,
)
from tests.support.logs import Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Entry = tuple[int, int, int]
"""Producer id, first offset, offset of the marker."""


def aborted(*entries: Entry, stable: int = 0) -> AbortedTransactions:
    rows = [(0, 0, producer, first, last, stable) for producer, first, last in entries]
    return AbortedTransactions(np.array(rows, dtype=TXN_ENTRY))


def covers(transactions: AbortedTransactions, *batches: tuple[int, int, int]) -> list[bool]:
    """``batches`` are (producer id, base offset, last offset)."""
    columns = (np.array(column, dtype=np.int64) for column in zip(*batches, strict=True))
    return transactions.covers(*columns).tolist()


@pytest.mark.parametrize(
    ("entries", "batch", "expected"),
    [
        pytest.param([(1, 10, 20)], (1, 10, 12), True, id="its first batch"),
        pytest.param([(1, 10, 20)], (1, 15, 19), True, id="right before the marker"),
        pytest.param([(1, 10, 20)], (1, 9, 9), False, id="before it began"),
        pytest.param([(1, 10, 20)], (1, 9, 10), True, id="C-37: its first offset counts when it is inside the batch"),
        pytest.param([(1, 10, 20)], (1, 21, 25), False, id="behind the marker"),
        pytest.param([(1, 10, 20)], (2, 10, 12), False, id="of another producer"),
        pytest.param([(1, 10, 20), (1, 30, 40)], (1, 25, 29), False, id="between two: committed or still open"),
        pytest.param([(1, 10, 20), (1, 30, 40)], (1, 30, 31), True, id="the second"),
        pytest.param([(1, 30, 40), (1, 10, 20)], (1, 12, 13), True, id="entries in any order"),
        pytest.param([(1, 10, 40), (2, 12, 20)], (1, 25, 26), True, id="another's marker ends nothing"),
        pytest.param([(1, 10, 20), (2, 12, 40)], (1, 25, 26), False, id="nor does another's entry cover"),
        pytest.param([(2**62, 5, 9)], (2**62, 6, 7), True, id="large ids"),
        pytest.param([], (1, 0, 0), False, id="no aborted transaction"),
    ],
)
def test_covers(entries: list[Entry], batch: tuple[int, int, int], expected: bool) -> None:
    """C-37, F-8."""
    assert covers(aborted(*entries), batch) == [expected]


def test_u12_the_last_stable_offset_excludes_no_aborted_data() -> None:
    """U-12: data at 10, another transaction open from 60, abort marker at 100: LSO 60, and the data is aborted."""
    assert covers(aborted((1, 10, 100), stable=60), (1, 10, 10), (1, 55, 59), (2, 60, 61)) == [True, True, False]


def test_no_batch() -> None:
    """The query is about no batch."""
    empty = np.zeros(0, dtype=np.int64)
    assert aborted((1, 2, 3)).covers(empty, empty, empty).tolist() == []


def test_entries_of_a_segment() -> None:
    """F-8: an entry is in the segment of its marker; unchanged, whatever its last stable offset."""
    transactions = aborted((1, 10, 40), (2, 5, 20), (1, 60, 70), stable=77)
    assert len(transactions) == 3
    rows = transactions.entries
    for base, end, stored in ((0, 20, rows[:0]), (0, 21, rows[:1]), (20, 71, rows), (41, 70, rows[:0])):
        assert transactions.is_stored(stored, base, end)
    assert not transactions.is_stored(rows[:0], 0, 21)
    kept = transactions.ended_by(np.array([20, 30, 70], dtype=np.int64))
    assert kept.dtype == TXN_ENTRY
    assert [entry.tolist() for entry in kept] == [(0, 0, 2, 5, 20, 77), (0, 0, 1, 60, 70, 77)]
    assert transactions.ended_by(np.zeros(0, dtype=np.int64)).tolist() == []
    assert aborted().ended_by(np.array([4], dtype=np.int64)).tobytes() == b""
    assert aborted().is_stored(aborted().entries, 0, 9)


def test_bytes_as_they_were() -> None:
    """C-69: an entry is copied with all its 34 bytes, the byte that Kafka ignores included."""
    entry = np.array([(0, 5, 1, 10, 20, 15)], dtype=TXN_ENTRY)
    assert AbortedTransactions(entry).ended_by(np.array([20], dtype=np.int64)).tobytes() == entry.tobytes()


def test_events() -> None:
    """The relevant batches, in the order of the file, with their rows in the segment."""
    of_producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    log = b"".join([
        keyed_batch(0, [("plain", "1")]),
        encode_batch([Record(b"k")], base_offset=1, transactional=True, **of_producer),  # type: ignore[arg-type]
        encode_marker(2, commit=False, producer_id=1),
        encode_batch([Record(b"k")], base_offset=3, **of_producer),  # type: ignore[arg-type]
        encode_batch([Record(b"k")] * 3, base_offset=4, transactional=True, **of_producer),  # type: ignore[arg-type]
        encode_batch([Record(b"\0\0\0\2", b"")], base_offset=7, control=True),
        encode_batch([], base_offset=8, control=True, transactional=True, producer_id=1, producer_epoch=0),
        encode_batch([], base_offset=9, last_offset_delta=1, transactional=True, **of_producer),  # type: ignore[arg-type]
        encode_marker(11, commit=True, producer_id=1),
    ])  # fmt: skip
    events = events_of(_kernel.scan_headers(np.frombuffer(log, np.uint8), 0), aborted((1, 1, 2)), 100)
    assert events.batch.tolist() == [101, 102, 104, 107, 108], "leader changes and emptied markers are not markers"
    assert events.kind.tolist() == [ABORTED_DATA, ABORT, COMMITTED_DATA, COMMITTED_DATA, COMMIT]
    assert events.offset.tolist() == [1, 2, 6, 10, 11]
    assert events.producer_id.tolist() == [1] * 5
    assert len(events) == 5


def events(*rows: tuple[int, int]) -> TransactionEvents:
    """``rows`` are (producer id, kind)."""
    producers, kinds = zip(*rows, strict=True) if rows else ((), ())
    number = np.arange(len(rows))
    return TransactionEvents(
        number.astype(np.uint32), np.array(producers, np.int64), np.array(kinds, np.uint8), number.astype(np.int64)
    )


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([(1, COMMITTED_DATA), (1, COMMIT)], [0, 1], id="committed"),
        pytest.param([(1, ABORTED_DATA), (1, ABORT)], [0, 1], id="aborted"),
        pytest.param([(1, COMMIT)], [0], id="nothing before it"),
        pytest.param([(1, COMMITTED_DATA), (1, COMMIT), (1, COMMIT)], [0, 1, 0], id="the second ends nothing"),
        pytest.param([(1, COMMITTED_DATA), (2, COMMIT), (1, COMMIT)], [0, 0, 1], id="another's"),
        pytest.param([(1, COMMITTED_DATA), (1, ABORT)], [0, 0], id="C-37: no entry, so the data was not aborted"),
        pytest.param([(1, COMMITTED_DATA), (1, ABORT), (1, COMMIT)], [0, 0, 1], id="and still waits for its commit"),
        pytest.param([(1, ABORTED_DATA), (1, COMMIT), (1, ABORT)], [0, 0, 1], id="C-37: a commit ends no abort"),
        pytest.param(
            [(1, ABORTED_DATA), (2, COMMITTED_DATA), (1, ABORT), (1, COMMITTED_DATA), (2, COMMIT), (1, COMMIT)],
            [0, 0, 1, 0, 1, 1],
            id="interleaved",
        ),
        pytest.param([], [], id="nothing"),
    ],
)
def test_ended(rows: list[tuple[int, int]], expected: list[int]) -> None:
    """C-37: a marker ends something when its transaction has shown a batch; whole and event by event."""
    assert OpenTransactions().ended(events(*rows)).tolist() == [bool(each) for each in expected]
    carried = OpenTransactions()
    assert [carried.ended(events(row)).tolist()[0] for row in rows] == [bool(each) for each in expected]


# ---- compared with a loop that takes one batch after the other ----


@dataclass(frozen=True, slots=True)
class Step:
    """A batch: transactional data or a marker."""

    producer: int
    base: int
    last: int
    marker: str = ""


def kafka_loop(steps: Iterable[Step], entries: Sequence[Entry]) -> tuple[list[bool], list[Entry]]:
    """C-37 literally: ``canDiscard`` of every batch, and the entries that go into the cleaned index."""
    pending = sorted(entries, key=lambda entry: entry[1])
    in_progress: dict[int, tuple[Entry, bool]] = {}
    committed: set[int] = set()
    discard, index = [], []
    for step in steps:
        while pending and pending[0][1] <= step.last:
            in_progress.setdefault(pending[0][0], (pending[0], False))
            pending.pop(0)
        if not step.marker:
            if step.producer in in_progress:
                in_progress[step.producer] = (in_progress[step.producer][0], True)
                discard.append(True)
            else:
                committed.add(step.producer)
                discard.append(False)
        elif step.marker == "abort":
            entry, saw = in_progress.pop(step.producer, (None, False))
            if saw and entry is not None:
                index.append(entry)
            discard.append(not saw)
        else:
            discard.append(step.producer not in committed)
            committed.discard(step.producer)
    return discard, index


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Step], list[Entry]]:
    """A log's contents: transactions of a few producers, some batches cleaned away, and all index entries.

    There is an entry for each abort marker that ended data, as a broker writes it, whether a cleaning has left the data
    or not; Kafka and we remove it when the marker ends nothing any more.
    """
    steps: list[Step] = []
    entries: list[Entry] = []
    began: dict[int, int] = {}
    offset = 0
    for _ in range(draw(st.integers(0, 30))):
        producer = draw(st.integers(0, 3))
        offset += draw(st.integers(0, 2))
        if producer in began and draw(st.booleans()):
            commit = draw(st.booleans())
            steps.append(Step(producer, offset, offset, "commit" if commit else "abort"))
            if not commit:
                entries.append((producer, began[producer], offset))
            del began[producer]
            offset += 1
        elif producer not in began and draw(st.integers(0, 9)) == 0:
            steps.append(Step(producer, offset, offset, draw(st.sampled_from(("commit", "abort")))))
            offset += 1
        else:
            last = offset + draw(st.integers(0, 3))
            began.setdefault(producer, offset)
            steps.append(Step(producer, offset, last))
            offset = last + 1
    gone = draw(st.sets(st.sampled_from([row for row, step in enumerate(steps) if not step.marker] or [-1])))
    return [step for row, step in enumerate(steps) if row not in gone], entries


def as_events(steps: Sequence[Step], transactions: AbortedTransactions) -> TransactionEvents:
    kinds = []
    for step in steps:
        if step.marker:
            kinds.append(COMMIT if step.marker == "commit" else ABORT)
        else:
            of_aborted = covers(transactions, (step.producer, step.base, step.last))[0]
            kinds.append(ABORTED_DATA if of_aborted else COMMITTED_DATA)
    return TransactionEvents(
        np.arange(len(steps), dtype=np.uint32),
        np.array([step.producer for step in steps], np.int64),
        np.array(kinds, np.uint8),
        np.array([step.last for step in steps], np.int64),
    )


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(histories(), st.data())
def test_transactions_equal_a_loop(history: tuple[list[Step], list[Entry]], data: st.DataObject) -> None:
    """C-33, C-37, C-69: for any log, and for any cut into segments, as batch by batch."""
    steps, entries = history
    discard, index = kafka_loop(steps, entries)
    transactions = aborted(*data.draw(st.permutations(entries)))
    found: list[bool] = []
    kept: list[Entry] = []
    carried = OpenTransactions()
    rest = steps
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        part, rest = as_events(rest[:size], transactions), rest[size:]
        ended = carried.ended(part)
        is_data = part.kind <= ABORTED_DATA
        found += np.where(is_data, part.kind == ABORTED_DATA, ~ended).tolist()
        entry_rows = transactions.ended_by(part.offset[ended & (part.kind == ABORT)])
        kept += [(e["producer_id"], e["first_offset"], e["last_offset"]) for e in entry_rows]
    assert found == discard
    assert kept == index
