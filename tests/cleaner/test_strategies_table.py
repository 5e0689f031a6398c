"""KIP-280 and KIP-87 sentence by sentence: their promises, and the result of a misread one.

Each row is one cleaning of one log through the real cleaner. ``stays`` and ``wrong`` differ in every row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cleaner.driver import scratch
from tests.cleaner.strategy_cases import BY_HEADER, BY_TIMESTAMP, FLAGGED, MARKED, NOW, Case, T, batches, long, rec
from tests.support.logs import encode_batch, encode_legacy, encode_marker, encode_wrapper, varint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX, MIN = 2**63 - 1, -(2**63)
PAST = NOW - 1
VARLONG = {**BY_HEADER, "compaction_strategy_header_encoding": "varlong"}


def one(*records: object, **facts: object) -> Case:
    """A case whose log is one segment with one batch per record."""
    return Case({0: batches(*records)}, **facts)  # type: ignore[arg-type]  # by name


def transaction(offset: int, *, commit: bool) -> bytes:
    """Version 9 of key k, and the marker that ends it."""
    data = encode_batch(
        [rec("k", 9)], base_offset=offset, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    )
    return data + encode_marker(offset + 1, commit=commit, producer_id=7, timestamp=T)


STRATEGY = {
    # which record of a key is retained
    "KIP-280: offset is the default": one(rec("k", 9, at=9), rec("k", 1), topic={}, stays=[1], wrong=[0]),
    "an empty value means offset": one(
        rec("k", 9, at=9), rec("k", 1), topic={**BY_HEADER, "compaction_strategy": ""}, stays=[1], wrong=[0]
    ),
    "header without a name falls back to offset": one(
        rec("k", 9), rec("k", 1), topic={**BY_HEADER, "compaction_strategy_header": " "}, stays=[1], wrong=[0]
    ),
    "timestamp: keep the highest": one(rec("k", at=5), rec("k", at=3), topic=BY_TIMESTAMP, stays=[0], wrong=[1]),
    "timestamp: equal ones, the highest offset": one(
        rec("k", at=5), rec("k", at=5), topic=BY_TIMESTAMP, stays=[1], wrong=[0]
    ),
    "timestamp looks at no header": one(
        rec("k", 1, at=5), rec("k", 9, at=3), topic=BY_TIMESTAMP, stays=[0], wrong=[1]
    ),
    "header: keep the highest": one(rec("k", 5), rec("k", 3), stays=[0], wrong=[1]),
    "header looks at no timestamp": one(rec("k", 5, at=1), rec("k", 3, at=9), stays=[0], wrong=[1]),
    "header: equal values, the highest offset": one(rec("k", 5), rec("k", 5), stays=[1], wrong=[0]),
    "header: neither has it, the highest offset": one(rec("k"), rec("k"), stays=[1], wrong=[0]),
    "only the earlier has it: that one": one(rec("k", 1), rec("k"), stays=[0], wrong=[1]),
    "only the later has it: that one": one(rec("k"), rec("k", MIN), stays=[1], wrong=[0]),
    "one with it beats many without": one(rec("k"), rec("k", -5), rec("k"), rec("k"), stays=[1], wrong=[3]),
    "another header is none": one(rec("k", 9, name=b"Version"), rec("k", 1), rec("k"), stays=[1], wrong=[0]),
    "a header that begins like it is none": one(rec("k", 9, name=b"version2"), rec("k", 1), stays=[1], wrong=[0]),
    "of duplicates the last counts": one(rec("k", 9, 1), rec("k", 5), stays=[1], wrong=[0]),
    "and not the largest": one(rec("k", 1, 9, 2), rec("k", 5), stays=[1], wrong=[0]),
    "a malformed last one hides a good one": one(rec("k", 9, b"x"), rec("k", 1), stays=[1], wrong=[0]),
    "a good last one hides a malformed one": one(rec("k", b"x", 9), rec("k", 1), stays=[0], wrong=[1]),
    # the value is a long of 8 bytes
    "big-endian": one(rec("k", 256), rec("k", 255), stays=[0], wrong=[1]),
    "signed": one(rec("k", 1), rec("k", -1), stays=[0], wrong=[1]),
    "-1 is a value, above none": one(rec("k", -1), rec("k"), stays=[0], wrong=[1]),
    "0 is a value, above -1": one(rec("k", 0), rec("k", -1), stays=[0], wrong=[1]),
    "the largest and the smallest": one(rec("k", MAX), rec("k", MIN), stays=[0], wrong=[1]),
    "no difference that overflows": one(rec("k", MAX), rec("k", -2), stays=[0], wrong=[1]),
    "the smallest is above none": one(rec("k", MIN), rec("k"), stays=[0], wrong=[1]),
    "7 bytes are none": one(rec("k", 1), rec("k", b"\x7f" * 7), stays=[0], wrong=[1]),
    "9 bytes are none": one(rec("k", 1), rec("k", b"\x7f" * 9), stays=[0], wrong=[1]),
    "null is none": one(rec("k", 1), rec("k", None), stays=[0], wrong=[1]),
    "empty is none": one(rec("k", -1), rec("k", b""), stays=[0], wrong=[1]),
    "a number in letters is none": one(rec("k", 1), rec("k", b"9999"), stays=[0], wrong=[1]),
    "two malformed ones: the highest offset": one(rec("k", b"\x7f" * 9), rec("k", b""), stays=[1], wrong=[0]),
    "varlong, where it is said": one(
        rec("k", varint(300)), rec("k", varint(-300)), rec("k", varint(299)), topic=VARLONG, stays=[0], wrong=[2]
    ),
    "eight bytes are no varlong": one(rec("k", varint(1)), rec("k", long(9)), topic=VARLONG, stays=[0], wrong=[1]),
    # which records take part
    "each key on its own": one(
        rec("a", 9), rec("b", 1), rec("a", 8), rec("b", 2), stays=[0, 3], wrong=[0, 1]
    ),
    "a record without a key goes": one(rec(None, 9), rec("k", 1), stays=[1], wrong=[0, 1]),
    "the winner was aborted": Case(
        {0: batches(rec("k", 1)) + transaction(1, commit=False)}, [0], [1], aborted={0: [(7, 1, 2, 1)]}
    ),
    "the winner was committed": Case({0: batches(rec("k", 1)) + transaction(1, commit=True)}, [1], [0]),
    "an aborted winner in the clean part": Case(
        {0: transaction(0, commit=False) + batches(rec("k", 1), rec("k", 2), first=2)},
        [3], [], first_dirty=2, aborted={0: [(7, 0, 1, 0)]},
    ),
    "the winner lies beyond the bound": Case(
        {0: batches(rec("k", 1), rec("k", 2))}, [1], [], active=batches(rec("k", 9), first=100)
    ),
    "the winner lies beyond --cleanable-to": one(
        rec("k", 2), rec("k", 1), rec("k", 9), up_to=2, stays=[0, 2], wrong=[2]
    ),
    "the winner lies below the log start": one(
        rec("k", 9), rec("k", 1), rec("k", 2), log_start=1, stays=[0, 2], wrong=[0]
    ),
    "below the log start nothing is judged": one(
        rec("k", 9), rec("k", 1), rec(None), rec("k", 2), log_start=3, stays=[0, 1, 2, 3], wrong=[3]
    ),
    "below the log start in the clean part": one(
        rec("k", 9), rec("k", 1), rec("k", 2), log_start=1, first_dirty=2, stays=[0, 2], wrong=[0]
    ),
    # the clean section
    "a winner in the clean part, a dirty loser": one(rec("k", 9), rec("k", 1), first_dirty=1, stays=[0], wrong=[0, 1]),
    "a loser in the clean part, a dirty winner": one(rec("k", 1), rec("k", 9), first_dirty=1, stays=[1], wrong=[0]),
    "equal versions in both parts": one(rec("k", 5), rec("k", 5), first_dirty=1, stays=[1], wrong=[0]),
    "only the clean one has a version": one(rec("k", -7), rec("k"), first_dirty=1, stays=[0], wrong=[1]),
    "several clean records of a key, the middle one wins": one(
        rec("k", 1), rec("k", 9), rec("k", 5), rec("k", 3), first_dirty=3, stays=[1], wrong=[0, 1, 2]
    ),
    "several clean records of a key, the dirty one wins": one(
        rec("k", 1), rec("k", 3), rec("k", 5), rec("k", 9), first_dirty=3, stays=[3], wrong=[1, 3]
    ),
    "a key of the clean part alone stays as it is": one(
        rec("old", 1), rec("old", 9), rec("old", 5), rec("k", 1), first_dirty=3, stays=[0, 1, 2, 3], wrong=[1, 3]
    ),
    "the whole log again, on request": one(
        rec("old", 1), rec("old", 9), rec("old", 5), rec("k", 1), stays=[1, 3], wrong=[0, 1, 2, 3]
    ),
    "the clean part in another segment": Case(
        {0: batches(rec("k", 9), rec("a", 1)), 2: batches(rec("k", 1), rec("b", 1), first=2)}, [0, 1, 3], [1, 2, 3],
        first_dirty=2,
    ),
    "the first dirty offset inside a batch": Case(
        {0: encode_batch([rec("k", 9), rec("a", 1), rec("k", 1), rec("a", 1)])}, [0, 3], [2, 3], first_dirty=2
    ),
    # batches of every kind
    "LogAppendTime: the batch's time": Case(
        {
            0: encode_batch([rec("k", at=9)], log_append_time=T + 1)
            + encode_batch([rec("k", at=1)], base_offset=1, log_append_time=T + 5)
            + batches(rec("k", at=3), first=2)
        },
        [1], [0], topic=BY_TIMESTAMP,
    ),
    "times out of order in a batch": Case(
        {0: encode_batch([rec("k", at=3), rec("k", at=9), rec("k", at=5)])}, [1], [2], topic=BY_TIMESTAMP
    ),
    "times below the batch's first": Case(
        {0: encode_batch([rec("a", at=9), rec("k", at=1)]) + batches(rec("k", at=5), first=2)}, [0, 2], [0, 1],
        topic=BY_TIMESTAMP,
    ),
    "a delete horizon in the base timestamp is no time": Case(
        {0: encode_batch([rec("k", at=3)], delete_horizon=NOW + 10**9) + batches(rec("k", at=5), first=1)}, [1], [0],
        topic=BY_TIMESTAMP,
    ),
    "nor does it move one": Case(
        {0: encode_batch([rec("k", at=5)], delete_horizon=T - 10**9) + batches(rec("k", at=3), first=1)}, [0], [1],
        topic=BY_TIMESTAMP,
    ),
    **{
        f"codec {codec}": Case(
            {0: encode_batch([rec("k", 5), rec("k", 9), rec("k", 7)], codec=codec)}, [1], [2]
        )
        for codec in range(5)
    },
    "v1 has times": Case(
        {0: encode_legacy(0, b"k", b"v", timestamp=T + 9) + batches(rec("k", at=3), first=1)}, [0], [1],
        topic=BY_TIMESTAMP,
    ),
    "v0 has none": Case(
        {0: batches(rec("k", at=-T)) + encode_legacy(1, b"k", b"v", magic=0)}, [0], [1], topic=BY_TIMESTAMP
    ),
    "v1 has no headers": Case({0: batches(rec("k", MIN)) + encode_legacy(1, b"k", b"v", timestamp=T)}, [0], [1]),
    "in a wrapper": Case(
        {
            0: encode_wrapper(
                1,
                encode_legacy(0, b"k", b"1", timestamp=T + 9) + encode_legacy(1, b"k", b"2", timestamp=T + 3),
                timestamp=T + 9,
            )
        },
        [0], [1], topic=BY_TIMESTAMP,
    ),
}  # fmt: skip


EXPIRED = {"delete_horizon": PAST}
WAITS = {"delete_horizon": NOW + 1}


def late(*records: object, **facts: object) -> Case:
    """A case whose one batch is past its delete horizon."""
    return Case({0: encode_batch(list(records), **EXPIRED)}, **facts)  # type: ignore[arg-type]  # by name


TOMBSTONES = {
    # KIP-87: the forms of a tombstone
    "null: no value": late(rec("a", value=None), rec("b"), topic={}, stays=[1], wrong=[0, 1]),
    "null: an empty value is one": late(rec("a", value=""), rec("b"), topic={}, stays=[0, 1], wrong=[1]),
    "null: the bit means nothing": late(rec("a", flag=True), rec("b"), topic={}, stays=[0, 1], wrong=[1]),
    "flag: the bit, with a value": late(rec("a", flag=True), rec("b"), topic=FLAGGED, stays=[1], wrong=[0, 1]),
    "flag: the bit, without a value": late(
        rec("a", flag=True, value=None), rec("b"), topic=FLAGGED, stays=[1], wrong=[0, 1]
    ),
    "flag: null without the bit is a value": late(
        rec("a", value=None), rec("b"), topic=FLAGGED, stays=[0, 1], wrong=[1]
    ),
    "flag: record by record": late(
        rec("a", flag=True), rec("b"), rec("c", flag=True), topic=FLAGGED, stays=[1], wrong=[]
    ),
    "flag: other bits are others": Case(
        {0: encode_batch([rec("a")], attributes=0x40, base_timestamp=PAST)}, [0], [], topic=FLAGGED
    ),
    "header: with a value": late(rec("a", marker=b"1"), rec("b"), topic=MARKED, stays=[1], wrong=[0, 1]),
    "header: no value will do": late(rec("a", value=None), rec("b"), topic=MARKED, stays=[1], wrong=[0, 1]),
    **{
        f"header: {marker!r} says no": late(rec("a", marker=marker), rec("b"), topic=MARKED, stays=[0, 1], wrong=[1])
        for marker in (b"0", b"false", b"")
    },
    "header: any other word says yes": late(rec("a", marker=b"no"), rec("b"), topic=MARKED, stays=[1], wrong=[0, 1]),
    "header: the bit means nothing": late(rec("a", flag=True), rec("b"), topic=MARKED, stays=[0, 1], wrong=[1]),
    # how long it stays
    "before its horizon it stays, with its value": Case(
        {0: encode_batch([rec("a", flag=True)], **WAITS)}, [0], [], topic=FLAGGED
    ),
    "without a horizon it stays": Case({0: batches(rec("a", marker=b"1"))}, [0], [], topic=MARKED),
    "by version too, when nothing else has its key": late(
        rec("a", 9, value=None), rec("b", 1), stays=[1], wrong=[0, 1]
    ),
    "guard=forever: never": late(
        rec("a", 9, value=None), rec("b", 1), topic={**BY_HEADER, "tombstone_guard": "forever"}, stays=[0, 1], wrong=[1]
    ),
    "guard=forever: a superseded one goes": late(
        rec("a", 1, value=None), rec("a", 2, value=None), topic={**BY_HEADER, "tombstone_guard": "forever"},
        stays=[1], wrong=[0, 1],
    ),
    "guard=forever means nothing to offset": late(
        rec("a", value=None), rec("b"), topic={"tombstone_guard": "forever"}, stays=[1], wrong=[0, 1]
    ),
    # U-1: not while any other record has the key
    "a loser above it": Case(
        {0: encode_batch([rec("a", 9, value=None)], **EXPIRED) + batches(rec("a", 1), first=1)}, [0], []
    ),
    "a loser below it": Case(
        {0: batches(rec("a", 1)) + encode_batch([rec("a", 9, value=None)], base_offset=1, **EXPIRED)}, [1], []
    ),
    "a loser in the clean part": Case(
        {0: batches(rec("a", 1)) + encode_batch([rec("a", 9, value=None)], base_offset=1, **EXPIRED)}, [1], [],
        first_dirty=1,
    ),
    "in the clean part itself, alone": Case(
        {0: encode_batch([rec("a", 9, value=None)], **EXPIRED) + batches(rec("b", 1), first=1)}, [1], [0, 1],
        first_dirty=1,
    ),
    "in the clean part itself, a loser beside it that stays": Case(
        {0: encode_batch([rec("a", 9, value=None), rec("a", 1)], **EXPIRED) + batches(rec("b", 1), first=2)},
        [0, 1, 2], [1, 2], first_dirty=2,
    ),
    "two of one key in the clean part, left there by hand: each is the other's evidence": Case(
        {0: encode_batch([rec("a", 1, value=None), rec("a", 9, value=None)], **EXPIRED) + batches(rec("b"), first=2)},
        [0, 1, 2], [0, 2], first_dirty=2,
    ),
    "a loser in the active segment": Case(
        {0: encode_batch([rec("a", 9, value=None)], **EXPIRED)}, [0], [], active=batches(rec("a", 1), first=100)
    ),
    "a loser beyond --cleanable-to": Case(
        {0: encode_batch([rec("a", 9, value=None)], **EXPIRED) + batches(rec("b", 1), rec("a", 1), first=1)},
        [0, 1, 2], [1, 2], up_to=2,
    ),
    "a loser that was aborted": Case(
        {0: encode_batch([rec("k", 99, value=None)], **EXPIRED) + transaction(1, commit=False)}, [], [0],
        aborted={0: [(7, 1, 2, 1)]},
    ),
    "one that was aborted in the tail: it counts": Case(
        {0: encode_batch([rec("k", 99, value=None)], **EXPIRED)}, [0], [],
        active=transaction(100, commit=False), aborted={100: [(7, 100, 101, 100)]},
    ),
    "a marker with the bytes of its key is no record": Case(
        {0: encode_batch([rec("\0\0\0\1", 9, value=None)], **EXPIRED) + transaction(1, commit=True)}, [1], [0, 1]
    ),
    "a loser below the log start": Case(
        {0: batches(rec("a", 1)) + encode_batch([rec("a", 9, value=None)], base_offset=1, **EXPIRED)}, [0], [0, 1],
        log_start=1,
    ),
    "one below the log start stays as it is": Case(
        {0: encode_batch([rec("a", 9, value=None)], **EXPIRED) + batches(rec("b", 1), first=1)}, [0, 1], [1],
        log_start=1,
    ),
    "offset asks for nothing of that": Case(
        {0: batches(rec("a", 9)) + encode_batch([rec("a", 1, value=None)], base_offset=1, **EXPIRED)}, [], [1], topic={}
    ),
}  # fmt: skip


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path


@pytest.mark.parametrize("case", STRATEGY.values(), ids=STRATEGY.keys())
def test_strategy(case: Case, root: Path) -> None:
    """KIP-280: R280-2..R280-7, R280-10, R280-11; U-2; C-45, C-50."""
    assert case.stays != case.wrong
    kept, _ = case.run(root)
    assert kept == case.stays


@pytest.mark.parametrize("case", TOMBSTONES.values(), ids=TOMBSTONES.keys())
def test_tombstones(case: Case, root: Path) -> None:
    """KIP-87, KIP-534: R87-1..R87-6, R534-2; U-1, U-4."""
    assert case.stays != case.wrong
    kept, result = case.run(root)
    assert kept == case.stays
    assert result.removed.total == result.records_read - result.records_kept
