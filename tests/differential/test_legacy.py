"""Message formats v0 and v1 against the two cleaners that there are: 3.9's keeps them, 4.3's writes v2 (U-18)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from cleanerd import _kernel
from cleanerd.format.legacy import parse_message
from cleanerd.log.clean_point import StateStore
from tests.differential import duel
from tests.differential.cell import Cell, parameters
from tests.differential.duel import NAME, Outcome, clean_ours, prepare
from tests.differential.history import DAY_MS, NOW, T0, History, Turn, batch, log
from tests.differential.random_legacy import random_legacy_history, with_old_batches
from tests.differential.random_transactions import random_transactions
from tests.kafka.judge import JudgeError
from tests.kafka.log_spec import Batch, Codec, Record, Round, Segment, ToLoad
from tests.support.logs import LZ4, encode_legacy, encode_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.kafka.judge import Dump, Judge

pytestmark = pytest.mark.kafka

PACKED: Final[tuple[Codec, ...]] = ("gzip", "snappy", "lz4")
MAGICS: Final = (0, 1)
RETENTION_MS = 60_000
SHORT = {"delete.retention.ms": str(RETENTION_MS)}
END = batch(900, "z=1")
"""A batch of today at the end of the cleaned range, so that no v0 or v1 batch lies there (C-44)."""


def _drops(*offsets: int) -> Callable[[Sequence[Outcome]], bool]:
    """Kafka took exactly these in the first round."""
    return lambda rounds: rounds[0].dropped() == set(offsets)


def _changes(*offsets: int) -> Callable[[Sequence[Outcome]], bool]:
    """Kafka took exactly these, and its cleaner wrote anew or left as it was what is v0 or v1."""
    return lambda rounds: rounds[0].dropped() == set(offsets) and _magics(rounds[0].before) - {2} != set()


def _magics(dump: Dump) -> set[int]:
    return {each.magic for each in dump.batches}


def _inner(messages: Sequence[tuple[int, bytes | None, bytes | None]], *magics: int, timestamp: int = T0) -> bytes:
    """Messages with these stored offsets, keys and values; the magics in turn."""
    return b"".join(
        encode_legacy(offset, key, value, magic=magics[row % len(magics)], timestamp=timestamp + row)
        for row, (offset, key, value) in enumerate(messages)
    )


def _raw(base: int, last: int, data: bytes) -> Batch:
    return Batch(base=base, last=last, raw=data)


def _mixed(
    name: str, wrapper_magic: int, inner_magics: tuple[int, ...], *, goes: bool, append_time: bool = False
) -> Cell:
    """KAFKA-4298: a wrapper around messages of another magic, with or without one that goes."""
    first = 0 if wrapper_magic == 1 else 10
    keys = (b"a", b"b", b"a" if goes else b"c")
    messages = [(first + row, key, b"%d" % row) for row, key in enumerate(keys)]
    wrapper = encode_wrapper(
        12, _inner(messages, *inner_magics), magic=wrapper_magic, timestamp=T0 + 77, append_time=append_time
    )
    return Cell(
        name,
        History(log([batch(0, "x=1 x=2"), _raw(10, 12, wrapper), END])),
        _drops(0, 10) if goes else _drops(0),
    )


def _tombstones(name: str, magic: int, codec: Codec, *, clean_ms: int, own_ms: int, goes: bool) -> Cell:
    """Segments: clean part with a known age, then one with a tombstone, then the dirty end (C-30, C-35)."""
    segments = (
        Segment(0, (batch(0, "a=1 t1 b=1", magic=magic, codec=codec), batch(3, "q=1")), last_modified_ms=own_ms),
        Segment(10, (batch(10, "c=1"),), last_modified_ms=clean_ms),
        Segment(20, (batch(20, "t2 a=2", magic=magic, codec=codec), batch(22, "d=1")), last_modified_ms=NOW - 5),
        Segment(30),
    )
    return Cell(
        name,
        History(segments, turns=(Turn(NOW, first_dirty_offset=20),), config=SHORT),
        _drops(0, 1) if goes else _drops(0),
    )


CELLS = [
    *(
        Cell(
            f"plain v{magic}",
            History(log([batch(0, "a=1 b=1 a=2 !=x c=", magic=magic), END])),
            _drops(0, 3),
        )
        for magic in MAGICS
    ),
    *(
        Cell(
            f"nothing goes, v{magic}, {codec}",
            History(log([batch(0, "x=1 x=2"), batch(2, "a=1 b=1 c=1", magic=magic, codec=codec), END])),
            _changes(0),
        )
        for magic in MAGICS
        for codec in ("none", *PACKED)
    ),
    *(
        Cell(
            f"some of a wrapper go, v{magic}, {codec}, {which}",
            History(log([batch(5, words, magic=magic, codec=codec), END])),
            _drops(*gone),
        )
        for magic in MAGICS
        for codec in PACKED
        for which, words, gone in (
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
            _drops(0, 1),
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
            _drops(7),
        )
        for magic in MAGICS
        for codec in PACKED
    ),
    *(
        Cell(
            f"append time, {codec}, {'some go' if words == 'a=1 b=1 a=2' else 'all stay'}",
            History(log([batch(0, "x=1 x=2"), batch(4, words, magic=1, codec=codec, append_time=T0 + 999), END])),
            _drops(*gone),
        )
        for codec in ("none", *PACKED)
        for words, gone in (("a=1 b=1 a=2", (0, 4)), ("a=1 b=1 c=2", (0,)))
    ),
    Cell(
        "all magics in one segment and one key",
        History(log([
            batch(0, "a=1 b=1", magic=0), batch(2, "a=2 c=1", magic=1), batch(4, "a=3 d=1"),
            batch(6, "a=4 e=1", magic=0, codec="gzip"), batch(8, "a=5 f=1", magic=1, codec="lz4"), batch(10, "a=6 a=7"),
        ])),
        _drops(0, 2, 4, 6, 8, 10),
    ),
    Cell(
        "keyless v0 and v1",
        History(log([
            batch(0, "!=1 a=1", magic=0), batch(2, "!=1", magic=1), batch(3, "!=1 b=1", magic=0, codec="snappy"), END,
        ])),
        _drops(0, 2, 3),
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
        _drops(0, 1),
    ),
    _mixed("v1 around v0, all stay (KAFKA-4298)", 1, (0,), goes=False),
    _mixed("v1 around v0, one goes", 1, (0,), goes=True),
    _mixed("v0 around v1, all stay", 0, (1,), goes=False),
    _mixed("v0 around v1, one goes", 0, (1,), goes=True),
    _mixed("v1 around both", 1, (1, 0), goes=False),
    _mixed("v1 around both, the odd one goes", 1, (0, 1), goes=True),
    _mixed("v1 with append time around v0", 1, (0,), goes=False, append_time=True),
    _mixed("v1 with append time around both, one goes", 1, (0, 1), goes=True, append_time=True),
    Cell(
        "a wrapper at offset 0",
        History(log([_raw(0, 0, encode_wrapper(0, _inner([(0, b"a", b"1")], 1))), batch(1, "b=1 b=2")])),
        _drops(1),
    ),
    Cell(
        "offsets inside that do not begin at 0",
        History(log([
            _raw(60, 62, encode_wrapper(62, _inner([(5, b"a", b"1"), (6, b"b", b"1"), (7, b"a", b"2")], 1))), END,
        ])),
        _drops(60),
    ),
    *(
        Cell(
            f"a cut message ends a wrapper, v{magic}",
            History(log([
                batch(0, "x=1 x=2"),
                _raw(10, 11, encode_wrapper(
                    11,
                    _inner([(first, b"a", b"1"), (first + 1, b"b", b"1"), (first + 2, b"c", b"1")], magic)[:cut],
                    magic=magic,
                )),
                batch(20, "b=2"), END,
            ])),
            _drops(0, 11),
        )
        for magic, first in ((0, 10), (1, 0))
        for cut in (-1, -25)
    ),
    *(
        _tombstones(f"v{magic}, {codec}: {name}", magic, codec, clean_ms=clean_ms, own_ms=own_ms, goes=goes)
        for magic in MAGICS
        for codec in ("none", "gzip")
        for name, clean_ms, own_ms, goes in (
            ("modified one ms after the horizon", NOW - 10, NOW - 10 - RETENTION_MS + 1, False),
            ("modified at the horizon", NOW - 10, NOW - 10 - RETENTION_MS, True),
            ("modified long before", NOW - 10, T0, True),
            ("the clean part is older than the segment", T0, NOW, False),
        )
    ),
    Cell(
        "nothing is clean, so tombstones stay (C-30)",
        History(
            (Segment(0, (batch(0, "a=1 a b", magic=1), batch(3, "b b"), END), last_modified_ms=5), Segment(901)),
            config=SHORT,
        ),
        _drops(0, 2, 3),
    ),
    Cell(
        "nothing is clean, and the file is from 1970",
        History(
            (Segment(0, (batch(0, "a=1 a b", magic=1), batch(3, "b b"), END), last_modified_ms=0), Segment(901)),
            config=SHORT,
        ),
        _drops(0, 1, 2, 3),
    ),
    *(
        Cell(
            f"a partial round: keyless ones beyond its end stay, v{magic}, {codec}",
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


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_converted(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-45.6, C-53, F-3.3: whatever stays of v0 and v1 is v2 in 4.3, and in ours."""
    outcomes = cell.check(judge_43, work)
    assert _magics(outcomes[0].before) & {0, 1}
    assert _magics(outcomes[-1].after) == {2}


@pytest.mark.parametrize("cell", parameters(CELLS))
def test_kept(judge_39: Judge, work: Path, cell: Cell) -> None:
    """C-45.6, C-53, F-3.2: in 3.9 they stay what they are, and so in ours, down to the bytes inside of a wrapper."""
    (outcome,) = cell.check(judge_39, work)
    left = _old_offsets(outcome.before) - outcome.dropped()
    assert _old_offsets(outcome.after) == left
    ours, theirs = (_unpacked(work / side / str(NAME)) for side in ("ours", "theirs"))
    assert ours == theirs
    assert bool(theirs) == bool(left)


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in CELLS if "around" in cell.name])
def test_of_one_magic_again(judge_39: Judge, work: Path, cell: Cell) -> None:
    """KAFKA-4298: 3.9 writes such a wrapper anew, with messages of its own magic; and so do we."""
    (outcome,) = cell.check(judge_39, work)
    for side in ("ours", "theirs"):
        wrappers = [(magic, inner) for magic, _, _, inner in _unpacked(work / side / str(NAME))]
        assert wrappers
        assert all(set(_magics_of(inner)) == {magic} for magic, inner in wrappers), side
    assert outcome.kafka.messages_written


@pytest.mark.parametrize("cell", parameters(ROUNDS))
def test_rounds_converted(judge_43: Judge, work: Path, cell: Cell) -> None:
    """C-48 legacy, C-49: after the first round they are v2 batches like any."""
    cell.check(judge_43, work)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("profile", ["judge_43", "judge_39"])
def test_last_batch_loses_all(
    request: pytest.FixtureRequest, work: Path, profile: str, magic: int, codec: Codec
) -> None:
    """C-44, U-13: where Kafka's cleaner fails, ours leaves an empty v2 batch that Kafka reads and keeps."""
    judge: Judge = request.getfixturevalue(profile)
    segments = log([batch(0, "a=1 a=2 b=1"), batch(3, "!=1 !=2", magic=magic, codec=codec)], [batch(5, "c=1")])
    history = History(segments, turns=(Turn(NOW),))
    ours, theirs = work / "ours" / str(NAME), work / "theirs" / str(NAME)
    ours.parent.mkdir()
    prepare(ours.parent)
    for directory in (ours, theirs):
        judge.make(directory, segments[:-1], now_ms=NOW)
    with pytest.raises(JudgeError) as refused:
        judge.clean(theirs, [Round(NOW, 0, 5, 5)])
    assert "mpty batches" in str(refused.value) or "IllegalState" in refused.value.kind
    result = clean_ours(
        ours.parent, StateStore(work / "state"), replace(history, segments=segments[:-1]), Turn(NOW),
        convert_legacy=profile == "judge_43",
    )  # fmt: skip
    assert (result.outcome, result.records_kept, result.dropped.keyless) == ("cleaned", 2, 2)
    after = judge.dump(ours)
    emptied = next(each for each in after.batches if each.last == 4)
    assert (emptied.magic, emptied.count, emptied.producer_id) == (2, 0, -1)
    assert emptied.base == (3 if codec != "none" else 4)
    (loaded,) = judge.load([ToLoad(str(ours), clean_shutdown=False, log_start_offset=0)], now_ms=NOW)
    assert loaded.error is None
    assert loaded.log_end_offset == 6


def test_the_duel_notices_the_other_profile(judge_43: Judge, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner that kept the old formats where 4.3 does not would be found out."""
    monkeypatch.setattr(duel, "clean_ours", partial(_with_other_profile, duel.clean_ours))
    with pytest.raises(AssertionError, match="magic: theirs 2, ours 0"):
        duel.play(judge_43, work, CELLS[0].history)


def _with_other_profile(clean: Any, *args: Any, convert_legacy: bool, **options: Any) -> Any:
    return clean(*args, convert_legacy=not convert_legacy, **options)


def _play_all(judge: Judge, work: Path, seeds: Sequence[int], *, rounds: int) -> None:
    changed = old = 0
    for seed in seeds:
        try:
            outcomes = duel.play(judge, work / str(seed), random_legacy_history(seed, rounds=rounds))
        except BaseException as error:
            error.add_note(f"this was random legacy history {seed}")
            raise
        changed += any(outcome.dropped() & _old_offsets(outcome.before) for outcome in outcomes)
        old += bool(_old_offsets(outcomes[0].before))
    assert old >= 0.5 * len(seeds), f"only {old} of {len(seeds)} had old formats"
    assert changed >= 0.4 * len(seeds), f"only in {changed} of {len(seeds)} Kafka dropped something old"


def test_random_converted(judge_43: Judge, work: Path) -> None:
    """Three rounds each against 4.3."""
    _play_all(judge_43, work, range(5001, 5025), rounds=3)


def test_random_kept(judge_39: Judge, work: Path) -> None:
    """One round each against 3.9: later ones may differ in the times of the files (U-18)."""
    _play_all(judge_39, work, range(6001, 6025), rounds=1)


@pytest.mark.parametrize(("profile", "rounds"), [("judge_43", None), ("judge_39", 1)])
def test_beside_transactions(request: pytest.FixtureRequest, work: Path, profile: str, rounds: int | None) -> None:
    """Random transactions with old batches between them."""
    judge: Judge = request.getfixturevalue(profile)
    old = 0
    for seed in range(1, 13):
        history = with_old_batches(random_transactions(seed), seed)
        first, *_ = duel.play(judge, work / str(seed), replace(history, turns=history.turns[:rounds]))
        old += bool(_old_offsets(first.before))
    assert old >= 6


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random(judge_43: Judge, judge_39: Judge, work: Path) -> None:
    """Hundreds."""
    _play_all(judge_43, work, range(7001, 7151), rounds=3)
    _play_all(judge_39, work, range(8001, 8151), rounds=1)


def _old_offsets(dump: Dump) -> set[int]:
    """Offsets of the records in v0 and v1 batches."""
    return {record.offset for each in dump.batches if each.magic < 2 for record in each.records or ()}


def _unpacked(directory: Path) -> list[tuple[int, int, int, bytes]]:
    """Each v0 or v1 batch: magic, attributes, timestamp, and its messages unpacked."""
    found: list[tuple[int, int, int, bytes]] = []
    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            if data[at + 16] < 2:
                message = parse_message(data[at : at + size])
                inner = data[at : at + size]
                if message.codec:
                    packed = message.value or b""
                    if (message.magic, message.codec) == (0, LZ4):
                        packed = packed[:6] + b"\x82" + packed[7:]
                    inner = _kernel.decompress(message.codec, packed, 1 << 20)
                found.append((message.magic, message.attributes, message.timestamp, inner))
            at += size
    return found


def _magics_of(inner: bytes) -> Iterator[int]:
    at = 0
    while at < len(inner):
        yield inner[at + 16]
        at += int.from_bytes(inner[at + 8 : at + 12], "big") + 12
