"""Forms of records and batches."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, get_args

import numpy as np

from cleanerd._kernel import crc32c
from tests.differential.cell import Cell, Reason
from tests.differential.history import NOW, T0, History, Turn, batch, log
from tests.kafka.log_spec import Batch, Codec, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.differential.duel import Outcome

FAR = 2**63 - 1


CODECS = get_args(Codec)


def _rebuilt(rounds: Sequence[Outcome]) -> bool:
    """The first batch lost some of its records, not all."""
    first = rounds[0].after.batches[0]
    return 0 < first.count < rounds[0].before.batches[0].count


def _cell(name: str, *records: Record, reason: Reason = _rebuilt, **settings: object) -> Cell:
    """One batch of ``records`` after a record of key ``x`` that the next batch supersedes."""
    first = Record(0, T0, b"x", b"gone")
    numbered = tuple(Record(1 + row, r.timestamp, r.key, r.value, r.headers) for row, r in enumerate(records))
    made = Batch((first, *numbered), **settings)  # type: ignore[arg-type]  # passed on as it is
    after = batch(1 + len(records), "x=1")
    return Cell(name, History(log([made, after]), turns=(Turn(NOW), Turn(NOW + 1, from_start=True))), reason)


def _plain(*timestamps: int) -> list[Record]:
    return [Record(0, timestamp, b"k%d" % row, b"v") for row, timestamp in enumerate(timestamps)]


HEADERS = [
    Record(0, T0, b"a", b"1", (("h", b"x"),)),
    Record(0, T0, b"b", b"1", (("h", b"x"), ("h", b"y"), ("h", None))),
    Record(0, T0, b"c", b"1", (("", b""), ("", None))),
    Record(0, T0, b"d", None, (("tombstone", b"1"),)),
    Record(0, T0, b"e", b"1", (("schlüssel € 😀", "größe".encode()),)),
    Record(0, T0, b"f", b"1", tuple((f"h{row}", b"v" * row) for row in range(200))),
]


ODD_KEYS = [
    Record(0, T0, b"", b"1"),
    Record(0, T0, b"\x00", b"1"),
    Record(0, T0, b"\x00\x00", b""),
    Record(0, T0, bytes(range(256)), b"1"),
    Record(0, T0, b"k" * 100_000, b"1"),
    Record(0, T0, b"v", b"\x00" * 100_000),
]


def _odd_bits(attributes: int, *, is_rebuilt: bool) -> Cell:
    """Attribute bits that no release uses: kept in a copied batch, cleared in a rebuilt one (C-52, F-2.1)."""
    body = b"".join(
        bytes([2 * len(record)]) + record for record in (b"\0\0\0\2a\2v\0", b"\0\0\2\2b\2v\0", b"\0\0\4\2c\2v\0")
    )
    tail = struct.pack(">hiqqqhii", attributes, 2, T0, T0, -1, -1, -1, 3) + body
    checksum = crc32c(np.frombuffer(tail, np.uint8))
    raw = struct.pack(">qiibI", 0, len(tail) + 9, 7, 2, checksum) + tail
    after = batch(3, "b=1" if is_rebuilt else "z=1")
    return Cell(
        f"attributes {attributes:#x}, {'rebuilt' if is_rebuilt else 'copied'}",
        History(log([Batch(base=0, last=2, raw=raw), after])),
        lambda rounds: rounds[0].after.batches[0].attributes == (0 if is_rebuilt else attributes),
    )


CELLS = [
    *(_cell(f"headers, {codec}", *HEADERS, codec=codec) for codec in CODECS),
    *(_cell(f"odd keys and values, {codec}", *ODD_KEYS, codec=codec) for codec in CODECS),
    *(_cell(f"equal timestamps, {codec}", *_plain(T0, T0, T0, T0), codec=codec) for codec in CODECS),
    _cell("falling timestamps", *_plain(T0 - 1, T0 - 70_000, T0 - 10**12)),
    _cell("no timestamps", *_plain(-1, -1, -1)),
    _cell("some timestamps", *_plain(T0, -1, T0 + 5, -1)),
    _cell("timestamps from 0 to the largest", *_plain(0, FAR, 1, FAR - 1)),
    _cell("the largest first", *_plain(FAR, 0)),
    _cell(
        "the largest timestamp is removed",
        *_plain(5, 6),
        reason=lambda rounds: rounds[0].after.batches[0].max_timestamp == 6,
    ),
    _cell(
        "the largest timestamp is removed, LogAppendTime",
        *_plain(5, 6),
        append_time=T0 + 9,
        reason=lambda rounds: rounds[0].after.batches[0].max_timestamp == T0 + 9,
    ),
    _cell(
        "LogAppendTime: a rebuilt batch begins at the append time (F-2.6)",
        *_plain(5, T0 + 99),
        append_time=T0 + 9,
        codec="lz4",
        reason=lambda rounds: rounds[0].after.batches[0].base_timestamp == T0 + 9,
    ),
    *(
        _cell(
            f"leader epoch {epoch}",
            *_plain(T0, T0),
            leader_epoch=epoch,
            reason=lambda rounds, epoch=epoch: rounds[0].after.batches[0].leader_epoch == epoch,  # type: ignore[misc]
        )
        for epoch in (0, 1, 2**31 - 1)
    ),
    *(
        _cell(f"producer {producer}, {codec}", *_plain(T0, T0), producer_id=producer, producer_epoch=epoch,
              base_sequence=sequence, codec=codec)
        for producer, epoch, sequence, codec in (
            (0, 0, 0, "none"), (2**63 - 1, 2**15 - 1, 2**31 - 1, "gzip"), (7, 1, 2**31 - 2, "snappy"),
        )
    ),
    _odd_bits(0x7F80, is_rebuilt=True),
    _odd_bits(0x7F80, is_rebuilt=False),
    _odd_bits(0x0080, is_rebuilt=True),
    Cell(
        "leader epochs rise",
        History(log(
            [batch(0, "a=1 b=1", leader_epoch=1), batch(2, "a=2 c=1", leader_epoch=4)],
            [batch(4, "c=2 d=1", leader_epoch=4), batch(6, "d=2", leader_epoch=9)],
        )),
        lambda rounds: rounds[0].dropped() == {0, 3, 5},
    ),
    Cell(
        "an empty key is a key, no key is none (C-20)",
        History(log([batch(0, "=1 !=1 a=1"), batch(3, "=2 !=2 a="), batch(6, "= ! a=2")])),
        lambda rounds: rounds[0].dropped() == {0, 1, 2, 3, 4, 5, 7},
    ),
    Cell(
        "an empty value is a value (C-45.4)",
        History(log([batch(0, "a= b"), batch(2, "c=")]), turns=(Turn(NOW), Turn(NOW * 2, from_start=True))),
        lambda rounds: rounds[1].dropped() == {1},
    ),
]  # fmt: skip
