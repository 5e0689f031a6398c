"""Logs whose offsets do not rise (U-45): the last record per key stays, and no deleted key comes back."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.cleaner.disorder import _inside, _merged
from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.errors import DisorderedLogError
from cleanerd.verify.partition import VerifyRequest, verify_partition
from tests.cleaner.driver import DAY_MS, NAME, clean, clean_all, config, resources, scratch
from tests.support.log_dirs import Partition, make_log_dir, read_segments, tree
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_legacy, encode_wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

NOW = BASE_TIMESTAMP_MS + 1_000_000
Row = tuple[int, bytes, bytes | None]
"""Offset, key, value."""


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


@dataclass(frozen=True, slots=True)
class Batch:
    """``last``: the last offset in the header."""

    base: int
    rows: tuple[Row, ...]
    last: int
    codec: int = 0

    def encoded(self) -> bytes:
        records = [Record(key, value, NOW - 1000, offset_delta=offset - self.base) for offset, key, value in self.rows]
        last_delta = self.last - self.base
        return encode_batch(records, base_offset=self.base, last_offset_delta=last_delta, codec=self.codec)


def rows_of(root: Path) -> list[Row]:
    """All records with a key, in the order of the log."""
    return [
        (record.offset, record.key, record.value)
        for _, batches in sorted(read_segments(root / NAME).items())
        for batch in batches
        for record in batch.records
        if record.key is not None
    ]


def view(rows: Sequence[Row], *, by_offset: bool) -> dict[bytes, bytes]:
    """The current records per key, in the order of the log or ``by_offset``."""
    in_order = sorted(rows, key=lambda row: row[0]) if by_offset else rows
    found = {key: value for _, key, value in in_order}
    return {key: value for key, value in found.items() if value is not None}


def random_log(rng: random.Random) -> dict[int, bytes]:
    """Segments; the last is active and holds another key. Most batches are sound."""
    values = count()
    segments: dict[int, bytes] = {}
    end = 0
    batches: list[Batch] = []
    for _ in range(rng.randint(1, 4)):
        base = end
        data = b""
        for number in range(rng.randint(1, 5)):
            batch = random_batch(rng, base, end, values, batches if number else [])
            batches.append(batch)
            data += batch.encoded()
            end = max(end, batch.last + 1)
        segments[base] = data
    segments[end] = Batch(end, ((end, b"tail", b"t"),), end).encoded()
    return segments


def random_batch(rng: random.Random, base: int, end: int, values: Iterator[int], before: list[Batch]) -> Batch:
    kind = rng.choice(("sound", "sound", "again", "back", "equal", "fall", "short", "beyond"))
    same_segment = [batch for batch in before if batch.base >= base]
    if kind == "again" and same_segment:
        return rng.choice(same_segment)
    first = rng.randint(base, end) if kind == "back" else end
    size = rng.randint(1, 4)
    offsets = [first + row for row in range(size)]
    if kind == "equal":
        offsets = [first] * size
    elif kind == "fall":
        rng.shuffle(offsets)
    last = first if kind == "short" else max(offsets) + (rng.randint(1, 3) if kind == "beyond" else 0)
    rows = tuple(
        (offset, rng.choice((b"a", b"b", b"c", b"d")), None if rng.random() < 0.2 else b"%d" % next(values))
        for offset in offsets
    )
    return Batch(first, rows, last, rng.choice((0, 0, 1, 2, 3, 4)))


def cleaned(rows: Sequence[Row], end: int) -> list[Row]:
    """Without records below the last one of their key. From row number ``end`` on nothing counts."""
    last = {key: offset for offset, key, _ in rows[:end]}
    return [row for number, row in enumerate(rows) if number >= end or row[0] >= last[row[1]]]


def rows_below(root: Path, bound: int) -> int:
    """The number of records before the first batch that ends at the ``bound`` or beyond."""
    found = 0
    for _, batches in sorted(read_segments(root / NAME).items()):
        for batch in batches:
            if batch.header.last_offset >= bound:
                return found
            found += len(batch.records)
    return found


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.long) if seed >= 40 else seed for seed in range(150)]
)
def test_random_disorder(root: Path, seed: int) -> None:
    """U-45: over cleanings at any time both readers see the same, and at first exactly the superseded records go."""
    rng = random.Random(seed)
    segments = random_log(rng)
    make_log_dir(root, {NAME: Partition(segments)})
    before, end = rows_of(root), rows_below(root, max(segments))
    views = [view(before, by_offset=by_offset) for by_offset in (False, True)]
    now_ms = NOW
    small = resources(
        map_bytes=64 << 10, chunk_bytes=rng.choice((128, 1 << 20)), facts_bytes=rng.choice((3000, 1 << 30))
    )
    for turn in range(4):
        clean_all(root, now_ms, config(delete_retention_ms=1000), small, from_start=turn == 0 or rng.random() < 0.5)
        after = rows_of(root)
        assert view(after, by_offset=False) == views[0], seed
        assert view(after, by_offset=True) == views[1], seed
        assert all(row in before for row in after), seed
        if turn == 0:
            assert after == cleaned(before, end), seed
        now_ms += 10 * DAY_MS
        clean_to = max(segments) if end == len(before) - 1 else 0
        verdict = verify_partition(root / NAME, VerifyRequest(now_ms, clean_below=clean_to, clean_shutdown=True))
        assert not verdict.findings.errors, [each.what for each in verdict.findings.in_order()]


def test_a_tombstone_stays_with_the_value_that_it_cannot_remove(root: Path) -> None:
    """U-45: the value before it has a higher offset, so it stays, and would be back without the tombstone."""
    value = Batch(2, ((2, b"x", b"0"), (3, b"k", b"1")), 3)
    deleted = Batch(1, ((1, b"k", None),), 1)
    data = Batch(0, ((0, b"y", b"0"),), 0).encoded() + value.encoded() + deleted.encoded()
    make_log_dir(root, {NAME: Partition({0: data, 4: Batch(4, ((4, b"z", b"1"),), 4).encoded()})})
    for turn in range(4):
        result = clean_all(root, NOW + turn * 10 * DAY_MS, config(delete_retention_ms=1000))
        assert (1, b"k", None) in rows_of(root)
        assert any("offsets do not rise at 1..3" in note for note in result.notes)
    assert (3, b"k", b"1") in rows_of(root)


def test_the_same_offsets_with_other_values(root: Path) -> None:
    """U-45: a consumer sees the first of the two batches, a reader of the file the second: both stay."""
    one = Batch(2, ((2, b"k", b"1"), (3, b"b", b"1")), 3).encoded()
    other = Batch(2, ((2, b"k", b"9"), (3, b"c", b"9")), 3).encoded()
    before = Batch(0, ((0, b"a", b"0"), (1, b"k", b"0")), 1).encoded()
    make_log_dir(root, {NAME: Partition({0: before + one + other, 4: Batch(4, ((4, b"z", b"1"),), 4).encoded()})})
    clean_all(root, NOW)
    expected = [(0, b"a", b"0"), (2, b"k", b"1"), (3, b"b", b"1"), (2, b"k", b"9"), (3, b"c", b"9"), (4, b"z", b"1")]
    assert rows_of(root) == expected


def test_a_later_record_supersedes_the_disordered_ones(root: Path) -> None:
    """U-45: both copies of a batch that was written twice are removed for a later record."""
    twice = Batch(0, ((0, b"k", b"1"), (1, b"j", b"1")), 1).encoded()
    late = Batch(2, ((2, b"k", b"2"),), 2).encoded()
    make_log_dir(root, {NAME: Partition({0: twice + twice, 2: late, 3: Batch(3, ((3, b"z", b"1"),), 3).encoded()})})
    clean_all(root, NOW)
    assert rows_of(root) == [(1, b"j", b"1"), (1, b"j", b"1"), (2, b"k", b"2"), (3, b"z", b"1")]


@pytest.mark.parametrize("control", [False, True])
def test_transactions_in_disorder_are_refused(root: Path, control: bool) -> None:
    """U-45: which of them a reader treats as aborted depends on their offsets; the error shows a way out."""
    record = Record(b"\0\0\0\1", b"\0\0\0\0\0\0") if control else Record(b"k", b"1")
    settings = {"producer_id": 5, "producer_epoch": 0, "base_sequence": -1 if control else 0, "transactional": True}
    txn = encode_batch([record], base_offset=0, control=control, **settings)
    end = encode_batch([Record(b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=1, control=True, **settings)
    tail = Batch(2, ((2, b"z", b"1"),), 2).encoded()
    make_log_dir(root, {NAME: Partition({0: txn + Batch(0, ((0, b"k", b"2"),), 0).encoded() + end, 2: tail})})
    before = tree(root)
    result = clean(root, CleaningOptions(now_ms=NOW, force=True))
    assert isinstance(result.error, DisorderedLogError)
    assert "transaction has a batch at offset 0" in result.reason
    assert "kafka-delete-records.sh" in str(result.error)
    assert tree(root) == before


def test_a_batch_below_its_segment_is_refused(root: Path) -> None:
    """U-45: no index can name its offset, and Kafka's cleaner skips such a log."""
    below = Batch(0, ((0, b"k", b"1"),), 0).encoded()
    make_log_dir(root, {NAME: Partition({5: below, 10: Batch(10, ((10, b"k", b"2"),), 10).encoded()})})
    result = clean(root, CleaningOptions(now_ms=NOW, force=True))
    assert isinstance(result.error, DisorderedLogError)
    assert result.error.where == str(root / NAME / f"{5:020d}.log")
    assert "up to the end of this segment (offset 10) with kafka-delete-records.sh" in str(result.error)
    assert "cleanup.policy=compact,delete" in str(result.error), (
        "a broker deletes no records of a topic that is only compacted"
    )
    assert "undelegate" not in str(result.error)


def test_intervals() -> None:
    """U-45: touching intervals become one; every contained offset is found."""
    rng = random.Random(5)
    for _ in range(200):
        parts = [[first, first + rng.randint(0, 6)] for first in (rng.randint(0, 60) for _ in range(rng.randint(0, 9)))]
        merged = _merged([np.array(parts, dtype=np.int64).reshape(-1, 2)])
        expected = [any(first <= offset <= last for first, last in parts) for offset in range(80)]
        assert _inside(merged, np.arange(80)).tolist() == expected
        assert (merged[1:, 0] > merged[:-1, 1]).all()


def wrapper(magic: int, *rows: Row) -> bytes:
    """A gzip wrapper of v0 or v1, at the offset of its last row, as a client wrote the offsets inside."""
    last = rows[-1][0]
    inner = [
        encode_legacy(offset - (last if magic else 0), key, value, magic=magic, timestamp=NOW - 1000 if magic else -1)
        for offset, key, value in rows
    ]
    return encode_wrapper(last, b"".join(inner), magic=magic, timestamp=NOW - 1000 if magic else -1)


@pytest.mark.parametrize("convert", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
def test_equal_offsets_inside_of_a_wrapper(root: Path, magic: int, convert: bool) -> None:
    """U-45: clients that number nothing wrote such wrappers. Two records of a key with one offset both stay."""
    old = wrapper(magic, (2, b"a", b"1"), (2, b"b", b"2"), (2, b"a", b"3"))
    new = Batch(3, ((3, b"b", b"4"),), 3).encoded()
    make_log_dir(root, {NAME: Partition({2: old + new, 4: Batch(4, ((4, b"tail", b"t"),), 4).encoded()})})
    result = clean_all(root, NOW, config(), replace(resources(), convert_legacy=convert))
    assert any("offsets do not rise at 2..2" in note for note in result.notes)
    for turn in range(2):
        data = np.frombuffer((root / NAME / f"{2:020d}.log").read_bytes(), np.uint8)
        chunk = _kernel.decode_chunk(data, 0)
        assert chunk.batches.magic.tolist() == [2 if convert else magic, 2]
        assert chunk.records.offset.tolist() == [2, 2, 3]
        if convert:
            assert rows_of(root) == [(2, b"a", b"1"), (2, b"a", b"3"), (3, b"b", b"4"), (4, b"tail", b"t")]
        assert verify_partition(root / NAME, VerifyRequest(NOW)).findings.errors == 0
        again = clean_all(root, NOW + turn * DAY_MS, config(), replace(resources(), convert_legacy=convert))
        assert again.error is None


@pytest.mark.parametrize("convert", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_offsets_that_go_back_inside_of_a_wrapper(root: Path, seed: int, convert: bool) -> None:
    """U-45: cleaned in the order of the log, so that both readers see the same; or refused, and nothing changes."""
    rng = random.Random(seed)
    magic, values = rng.choice((0, 1)), count()
    inner = [*rng.sample(range(2, 7), 5), 7]
    rows = [
        (offset, rng.choice((b"a", b"b", b"c")), None if rng.random() < 0.2 else b"%d" % next(values))
        for offset in (*inner, 8, 9)
    ]
    data = wrapper(magic, *rows[:6]) + b"".join(Batch(row[0], (row,), row[0]).encoded() for row in rows[6:])
    make_log_dir(root, {NAME: Partition({2: data, 10: Batch(10, ((10, b"tail", b"t"),), 10).encoded()})})
    values_of = {offset: (key, value) for offset, key, value in rows}
    views = [view(rows, by_offset=by_offset) for by_offset in (False, True)]
    for turn in range(3):
        before = tree(root)
        options = CleaningOptions(now_ms=NOW + turn * 10 * DAY_MS, from_start=True, force=True)
        result = clean(root, options, config(delete_retention_ms=1000), replace(resources(), convert_legacy=convert))
        if result.error is not None:
            assert not convert
            assert magic == 1
            assert "offsets decrease (batch at offset 7)" in result.reason
            assert "kafka-delete-records.sh" in str(result.error)
            assert tree(root) == before
            return
        chunk = _kernel.decode_chunk(np.frombuffer((root / NAME / f"{2:020d}.log").read_bytes(), np.uint8), 0)
        after = [(offset, *values_of[offset]) for offset in chunk.records.offset.tolist()]
        assert [view(after, by_offset=by_offset) for by_offset in (False, True)] == views
        if turn == 0:
            assert after == cleaned(rows, len(rows))
        assert verify_partition(root / NAME, VerifyRequest(options.now_ms)).findings.errors == 0


@pytest.mark.parametrize(("magic", "convert", "is_cleaned"), [(0, False, True), (1, True, True), (1, False, False)])
def test_a_wrapper_whose_last_message_is_removed(root: Path, magic: int, convert: bool, is_cleaned: bool) -> None:
    """U-45: v1 counts back from the wrapper's offset, so its last message has to have the highest one."""
    old = wrapper(magic, (3, b"a", b"1"), (2, b"a", b"2"), (4, b"b", b"3"))
    rest = Batch(5, ((5, b"b", b"4"),), 5).encoded()
    make_log_dir(root, {NAME: Partition({2: old + rest, 6: Batch(6, ((6, b"tail", b"t"),), 6).encoded()})})
    before = tree(root)
    options = CleaningOptions(now_ms=NOW, from_start=True, force=True)
    result = clean(root, options, config(), replace(resources(), convert_legacy=convert))
    assert (result.error is None) == is_cleaned
    assert result.removed.superseded == int(is_cleaned)
    assert (tree(root) == before) != is_cleaned
