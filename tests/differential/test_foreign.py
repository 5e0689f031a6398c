"""Batches that Kafka's producer would not write but Kafka reads: other clients' streams and unusual valid headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.differential.cell import Cell, Reason, parameters
from tests.differential.foreign import (
    gzip_member,
    lz4_frame,
    snappy_block,
    xerial,
    zstd_frame,
    zstd_skippable,
)
from tests.differential.history import NOW, T0, History, Turn, batch, log
from tests.kafka.log_spec import Batch
from tests.support.logs import Record, encode_batch, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.judge import Judge

pytestmark = pytest.mark.kafka

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
ENTRIES = [Record(b"k%d" % row, b"value of %d, " % row * 40, T0 + row) for row in range(200)]
PLAIN = b"".join(encode_record(record, offset_delta=row, timestamp_delta=row) for row, record in enumerate(ENTRIES))


def _halves(pack: Callable[[bytes], bytes]) -> bytes:
    """Two concatenated streams, divided in the middle of a record."""
    cut = len(PLAIN) // 2 + 3
    return pack(PLAIN[:cut]) + pack(PLAIN[cut:])


def _rebuilt(count: int, after: int) -> Reason:
    return lambda rounds: rounds[0].after.batches[0].count == after and count > after


def _stream(name: str, codec: int, payload: bytes) -> Cell:
    """Every second record is superseded."""
    made = encode_batch(ENTRIES, codec=codec, payload=payload)
    last = len(ENTRIES) - 1
    after = batch(last + 1, " ".join(f"k{row}=new" for row in range(0, 200, 2)))
    history = History(log([Batch(base=0, last=last, raw=made), after]), turns=(Turn(NOW), Turn(NOW, from_start=True)))
    return Cell(name, history, _rebuilt(200, 100))


def _chunks(size: int) -> list[bytes]:
    return [PLAIN[start : start + size] for start in range(0, len(PLAIN), size)]


STREAMS = [
    _stream("gzip, level 0", GZIP, gzip_member(PLAIN, level=0)),
    _stream("gzip, level 9", GZIP, gzip_member(PLAIN, level=9)),
    _stream("gzip with a file name and extra bytes", GZIP, gzip_member(PLAIN, name=b"records", extra=b"AB\2\0xy")),
    _stream("gzip, two members", GZIP, _halves(gzip_member)),
    _stream("snappy without framing", SNAPPY, snappy_block(PLAIN)),
    _stream("snappy, one large block", SNAPPY, xerial(snappy_block(PLAIN))),
    _stream("snappy, small blocks", SNAPPY, xerial(*map(snappy_block, _chunks(100)))),
    _stream("lz4, small blocks", LZ4, lz4_frame(PLAIN, block_bytes=100)),
    _stream("lz4, blocks of up to 4 MiB", LZ4, lz4_frame(PLAIN, block_bytes=1 << 22, size_id=7)),
    _stream("lz4, block checksums", LZ4, lz4_frame(PLAIN, block_checksums=True)),
    _stream("lz4, content checksum", LZ4, lz4_frame(PLAIN, content_checksum=True)),
    _stream("lz4, content size", LZ4, lz4_frame(PLAIN, content_size=True)),
    _stream("zstd, small blocks", ZSTD, zstd_frame(PLAIN, block_bytes=100)),
    _stream("zstd, one segment", ZSTD, zstd_frame(PLAIN, single_segment=True)),
    _stream("zstd, two frames", ZSTD, _halves(zstd_frame)),
    _stream("zstd, a frame to pass over", ZSTD, zstd_skippable(b"x" * 99) + zstd_frame(PLAIN)),
]


def _odd(name: str, made: bytes, count: int, *, dropped: set[int], reason: Reason | None = None) -> Cell:
    """``made`` has keys k0, k1 and so on from offset 0; the next batch supersedes k0."""
    history = History(
        log([Batch(base=0, last=count - 1, raw=made), batch(count, "k0=new z=1")]),
        turns=(Turn(NOW), Turn(NOW + 1, from_start=True)),
    )
    default: Reason = lambda rounds: rounds[0].dropped() == dropped  # noqa: E731  # a Reason like the others
    return Cell(name, history, reason or default)


def _records(*values: bytes | None) -> list[Record]:
    return [Record(b"k%d" % row, value, T0 + row) for row, value in enumerate(values)]


def _overlong(number: int) -> bytes:
    """A zigzag varint (of a small natural number) in five bytes."""
    raw = number << 1
    return bytes([raw & 0x7F | 0x80, raw >> 7 & 0x7F | 0x80, 0x80, 0x80, 0])


def _overlong_records() -> bytes:
    bodies = [
        b"\0" + _overlong(row) + _overlong(row) + _overlong(2) + b"k%d" % row + _overlong(1) + b"v" + _overlong(0)
        for row in range(3)
    ]
    return b"".join(_overlong(len(body)) + body for body in bodies)


THREE = _records(b"1", b"2", b"3")

HEADERS = [
    _odd(
        "maxTimestamp that is not the records'",
        encode_batch(THREE, max_timestamp=5),
        3,
        dropped={0},
        reason=lambda rounds: rounds[0].after.batches[0].max_timestamp == T0 + 2,
    ),
    _odd(
        "maxTimestamp -1 in a batch that is copied",
        encode_batch([Record(b"a", b"1", T0), Record(b"b", b"2", T0)], max_timestamp=-1),
        2,
        dropped=set(),
    ),
    _odd("base timestamp far from the records", encode_batch(THREE, base_timestamp=1), 3, dropped={0}),
    _odd("a base timestamp beyond all of them", encode_batch(THREE, base_timestamp=2**62), 3, dropped={0}),
    _odd(
        "a negative horizon has passed (C-50)",
        encode_batch(_records(b"1", None, b"3"), attributes=0x40, base_timestamp=-5),
        3,
        dropped={0, 1},
        reason=lambda rounds: rounds[0].dropped() == {0, 1} and not rounds[0].horizons(),
    ),
    _odd(
        "a horizon and LogAppendTime",
        encode_batch(_records(b"1", None, b"3"), log_append_time=T0 + 5, delete_horizon=NOW + 1),
        3,
        dropped={0},
        reason=lambda rounds: rounds[0].horizons() == {0: NOW + 1} and 1 in rounds[1].dropped(),
    ),
    _odd("varints longer than need be", encode_batch(THREE, payload=_overlong_records()), 3, dropped={0}),
    _odd(
        "record attributes",
        encode_batch([Record(b"k%d" % row, b"v", T0, attributes=0x20 + row) for row in range(3)]),
        3,
        dropped={0},
    ),
    _odd(
        "an empty batch with a horizon",
        encode_batch([], delete_horizon=NOW + 9, last_offset_delta=4),
        5,
        dropped=set(),
        reason=lambda rounds: 0 in rounds[0].gone(),
    ),
]


@pytest.mark.long
@pytest.mark.parametrize("cell", parameters([*STREAMS, *HEADERS]))
def test_foreign(judge_43: Judge, work: Path, cell: Cell) -> None:
    """F-2, F-4: cleanerd reads everything that Kafka reads, and its output equals Kafka's."""
    cell.check(judge_43, work)


def test_record_attributes(judge_43: Judge, work: Path) -> None:
    """U-14, R87-5: in a rebuilt batch Kafka zeroes the attributes of the records; cleanerd keeps them."""
    cell = next(cell for cell in HEADERS if cell.name == "record attributes")
    cell.check(judge_43, work)
    theirs, ours = (judge_43.dump(work / side / "t-0").batches[0].records for side in ("theirs", "ours"))
    assert [record.attributes for record in theirs] == [0, 0]
    assert [record.attributes for record in ours] == [0x21, 0x22]
