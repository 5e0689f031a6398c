"""Cells with messages of v0 and v1, for one cleaning and for several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.differential.cell import Cell
from tests.differential.history import DAY_MS, NOW, T0, History, Turn, batch, log
from tests.kafka.log_spec import Batch, Codec, Record, Segment
from tests.support.logs import encode_legacy, encode_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.differential.duel import Outcome
    from tests.kafka.judge import Dump

PACKED: Final[tuple[Codec, ...]] = ("gzip", "snappy", "lz4")
MAGICS: Final = (0, 1)
RETENTION_MS = 60_000
SHORT = {"delete.retention.ms": str(RETENTION_MS)}
END = batch(900, "z=1")
"""A v2 batch at the end of the cleaned range, so that no v0 or v1 batch is there (C-44)."""


def drops(*offsets: int) -> Callable[[Sequence[Outcome]], bool]:
    """Kafka removed exactly these in the first cleaning."""
    return lambda rounds: rounds[0].dropped() == set(offsets)


def changes(*offsets: int) -> Callable[[Sequence[Outcome]], bool]:
    """Kafka removed exactly these, and its cleaner rebuilt the v0 and v1 batches, or kept them."""
    return lambda rounds: rounds[0].dropped() == set(offsets) and magics(rounds[0].before) - {2} != set()


def magics(dump: Dump) -> set[int]:
    return {each.magic for each in dump.batches}


def inner(messages: Sequence[tuple[int, bytes | None, bytes | None]], *magics: int, timestamp: int = T0) -> bytes:
    """Messages with these stored offsets, keys and values, with the magics in turn."""
    return b"".join(
        encode_legacy(offset, key, value, magic=magics[row % len(magics)], timestamp=timestamp + row)
        for row, (offset, key, value) in enumerate(messages)
    )


def raw(base: int, last: int, data: bytes) -> Batch:
    return Batch(base=base, last=last, raw=data)


def mixed(
    name: str,
    wrapper_magic: int,
    inner_magics: tuple[int, ...],
    *,
    is_removed: bool,
    append_time: bool = False,
    timestamp: int = T0,
) -> Cell:
    """KAFKA-4298: a wrapper with messages of another magic, with or without a removed one."""
    first = 0 if wrapper_magic == 1 else 10
    keys = (b"a", b"b", b"a" if is_removed else b"c")
    messages = [(first + row, key, b"%d" % row) for row, key in enumerate(keys)]
    wrapper = encode_wrapper(
        12,
        inner(messages, *inner_magics, timestamp=timestamp),
        magic=wrapper_magic,
        timestamp=T0 + 77,
        append_time=append_time,
    )
    return Cell(
        name,
        History(log([batch(0, "x=1 x=2"), raw(10, 12, wrapper), END])),
        drops(0, 10) if is_removed else drops(0),
    )


def tombstones(name: str, magic: int, codec: Codec, *, clean_ms: int, own_ms: int, is_removed: bool) -> Cell:
    """Segments: a clean section with a known age, then one with a tombstone, then the dirty end (C-30, C-35)."""
    segments = (
        Segment(0, (batch(0, "a=1 t1 b=1", magic=magic, codec=codec), batch(3, "q=1")), last_modified_ms=own_ms),
        Segment(10, (batch(10, "c=1"),), last_modified_ms=clean_ms),
        Segment(20, (batch(20, "t2 a=2", magic=magic, codec=codec), batch(22, "d=1")), last_modified_ms=NOW - 5),
        Segment(30),
    )
    return Cell(
        name,
        History(segments, turns=(Turn(NOW, first_dirty_offset=20),), config=SHORT),
        drops(0, 1) if is_removed else drops(0),
    )


CELLS = [
    *(
        Cell(
            f"plain v{magic}",
            History(log([batch(0, "a=1 b=1 a=2 !=x c=", magic=magic), END])),
            drops(0, 3),
        )
        for magic in MAGICS
    ),
    *(
        Cell(
            f"no record is removed, v{magic}, {codec}",
            History(log([batch(0, "x=1 x=2"), batch(2, "a=1 b=1 c=1", magic=magic, codec=codec), END])),
            changes(0),
        )
        for magic in MAGICS
        for codec in ("none", *PACKED)
    ),
    *(
        Cell(
            f"some of a wrapper go, v{magic}, {codec}, {which}",
            History(log([batch(5, words, magic=magic, codec=codec), END])),
            drops(*removed),
        )
        for magic in MAGICS
        for codec in PACKED
        for which, words, removed in (
            ("the first", "a=1 b=1 c=1 a=2", (5,)),
            ("the last", "a=1 b=1 c=1 !=2", (8,)),
            ("inside", "a=1 b=1 b=2 d=1", (6,)),
            ("all but one", "!=1 !=2 b=2 !=3", (5, 6, 8)),
        )
    ),
    *(
        Cell(
            f"all of a wrapper go, v{magic}, {codec}",
            History(log([batch(0, "a=1 b=1", magic=magic, codec=codec), batch(2, "a=2 b=2"), END])),
            drops(0, 1),
        )
        for magic in MAGICS
        for codec in PACKED
    ),
    *(
        Cell(
            f"holes between the offsets inside, v{magic}, {codec}",
            History(log([
                Batch(
                    tuple(
                        Record(offset, T0 + offset, key, b"v")
                        for offset, key in ((7, b"a"), (9, b"b"), (40, b"a"), (90, b"c"))
                    ),
                    base=3, magic=magic, codec=codec,
                ),
                END,
            ])),
            drops(7),
        )
        for magic in MAGICS
        for codec in PACKED
    ),
    *(
        Cell(
            f"append time, {codec}, {'some go' if words == 'a=1 b=1 a=2' else 'all stay'}",
            History(log([batch(0, "x=1 x=2"), batch(4, words, magic=1, codec=codec, append_time=T0 + 999), END])),
            drops(*removed),
        )
        for codec in ("none", *PACKED)
        for words, removed in (("a=1 b=1 a=2", (0, 4)), ("a=1 b=1 c=2", (0,)))
    ),
    Cell(
        "all magics in one segment and one key",
        History(log([
            batch(0, "a=1 b=1", magic=0), batch(2, "a=2 c=1", magic=1), batch(4, "a=3 d=1"),
            batch(6, "a=4 e=1", magic=0, codec="gzip"), batch(8, "a=5 f=1", magic=1, codec="lz4"), batch(10, "a=6 a=7"),
        ])),
        drops(0, 2, 4, 6, 8, 10),
    ),
    Cell(
        "keyless v0 and v1",
        History(log([
            batch(0, "!=1 a=1", magic=0), batch(2, "!=1", magic=1), batch(3, "!=1 b=1", magic=0, codec="snappy"), END,
        ])),
        drops(0, 2, 3),
    ),
    Cell(
        "timestamps inside a wrapper that do not ascend",
        History(log([
            Batch(
                tuple(
                    Record(row, time, b"k%d" % (row % 3), b"v")
                    for row, time in enumerate((T0, T0 + 90, -1, 5, T0 + 7))
                ),
                magic=1, codec="gzip",
            ),
            END,
        ])),
        drops(0, 1),
    ),
    mixed("v1 around v0, all stay (KAFKA-4298)", 1, (0,), is_removed=False),
    mixed("v1 around v0, one is removed", 1, (0,), is_removed=True),
    mixed("v0 around v1, all stay", 0, (1,), is_removed=False),
    mixed("v0 around v1, one is removed", 0, (1,), is_removed=True),
    mixed("v0 around v1 of times after all others", 0, (1,), is_removed=True, timestamp=T0 + 10_000),
    mixed("v1 around both", 1, (1, 0), is_removed=False),
    mixed("v1 around both, the different one is removed", 1, (0, 1), is_removed=True),
    mixed("v1 with append time around v0", 1, (0,), is_removed=False, append_time=True),
    mixed("v1 with append time around both, one is removed", 1, (0, 1), is_removed=True, append_time=True),
    Cell(
        "a wrapper at offset 0",
        History(log([raw(0, 0, encode_wrapper(0, inner([(0, b"a", b"1")], 1))), batch(1, "b=1 b=2")])),
        drops(1),
    ),
    Cell(
        "offsets inside that do not begin at 0",
        History(log([
            raw(60, 62, encode_wrapper(62, inner([(5, b"a", b"1"), (6, b"b", b"1"), (7, b"a", b"2")], 1))), END,
        ])),
        drops(60),
    ),
    *(
        Cell(
            f"a cut message ends a wrapper, v{magic}",
            History(log([
                batch(0, "x=1 x=2"),
                raw(10, 11, encode_wrapper(
                    11,
                    inner([(first, b"a", b"1"), (first + 1, b"b", b"1"), (first + 2, b"c", b"1")], magic)[:cut],
                    magic=magic,
                )),
                batch(20, "b=2"), END,
            ])),
            drops(0, 11),
        )
        for magic, first in ((0, 10), (1, 0))
        for cut in (-1, -25)
    ),
    *(
        tombstones(f"v{magic}, {codec}: {name}", magic, codec, clean_ms=clean_ms, own_ms=own_ms, is_removed=is_removed)
        for magic in MAGICS
        for codec in ("none", "gzip")
        for name, clean_ms, own_ms, is_removed in (
            ("modified one ms after the horizon", NOW - 10, NOW - 10 - RETENTION_MS + 1, False),
            ("modified at the horizon", NOW - 10, NOW - 10 - RETENTION_MS, True),
            ("modified long before", NOW - 10, T0, True),
            ("the clean section is older than the segment", T0, NOW, False),
        )
    ),
    Cell(
        "no clean section, so tombstones stay (C-30)",
        History(
            (Segment(0, (batch(0, "a=1 a b", magic=1), batch(3, "b b"), END), last_modified_ms=5), Segment(901)),
            config=SHORT,
        ),
        drops(0, 2, 3),
    ),
    Cell(
        "nothing is clean, and the file is from 1970",
        History(
            (Segment(0, (batch(0, "a=1 a b", magic=1), batch(3, "b b"), END), last_modified_ms=0), Segment(901)),
            config=SHORT,
        ),
        drops(0, 1, 2, 3),
    ),
    *(
        Cell(
            f"a partial round: records without a key beyond its end stay, v{magic}, {codec}",
            History(
                log([
                    batch(0, "a=1 a=2 b=1 c=1", magic=magic, codec=codec),
                    batch(4, "d=1 !=1 e=1", magic=magic, codec=codec),
                    batch(7, "f=1 g=1"),
                ]),
                turns=(Turn(NOW, map_keys=3),),
            ),
            lambda rounds: rounds[0].dropped() == {0} and 5 in rounds[0].offsets(),
        )
        for magic in MAGICS
        for codec in ("none", "lz4")
    ),
]  # fmt: skip

ROUNDS = [
    Cell(
        f"tombstones get a horizon with the new format, v{magic}, {codec}",
        History(
            log([batch(0, "a=1 a b=1", magic=magic, codec=codec), batch(3, "c", magic=magic, codec=codec), END]),
            turns=(Turn(NOW), Turn(NOW + RETENTION_MS - 1, from_start=True), Turn(NOW + RETENTION_MS, from_start=True)),
            config=SHORT,
        ),
        lambda rounds: (
            set(rounds[0].horizons().values()) == {NOW + RETENTION_MS}
            and {1, 3} <= rounds[1].offsets()
            and {1, 3} <= rounds[2].dropped()
        ),
    )
    for magic in MAGICS
    for codec in ("none", *PACKED)
] + [
    Cell(
        "with append time",
        History(
            log([batch(0, "a=1 a b=1", magic=1, codec="gzip", append_time=T0 + 5), END]),
            turns=(Turn(NOW), Turn(NOW + DAY_MS, from_start=True)),
        ),
        lambda rounds: rounds[0].horizons() == {1: NOW + DAY_MS} and 1 in rounds[1].dropped(),
    ),
    Cell(
        "the log grows",
        History(
            log(
                [batch(0, "a=1 b=1", magic=0, codec="lz4"), batch(2, "c=1")],
                [batch(3, "a b=2", magic=1), batch(5, "d=1")],
                [batch(6, "c=2 e", magic=1, codec="snappy"), batch(8, "f=1")],
                [batch(9, "a=9"), batch(10, "g=1")],
            ),
            turns=tuple(Turn(NOW + row * DAY_MS, segments=row + 2) for row in range(4)),
        ),
        lambda rounds: all(each.dropped() for each in rounds[1:]),
    ),
]
