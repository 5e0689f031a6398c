"""Damages of a cleaned partition, and the audit's findings for them."""

from __future__ import annotations

from dataclasses import replace

from cleanerd.verify.rules import KeyRules
from tests.spark.cases import Case
from tests.support.logs import Record, encode_batch, encode_legacy
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import NOW, T, record

FLAG = 0x20


def versioned(key: str, version: int, value: str | None = "v", **fields: object) -> Record:
    return Record(
        key.encode(),
        None if value is None else value.encode(),
        headers=((b"ver", version.to_bytes(8, "big", signed=True)),),
        **fields,  # type: ignore[arg-type]  # by name
    )


def one(at: int, *records: Record, **fields: object) -> bytes:
    return encode_batch(records, base_offset=at, **fields)  # type: ignore[arg-type]  # by name


def emptied(at: int, last: int = 0) -> bytes:
    return encode_batch([], base_offset=at, last_offset_delta=last)


def scene(changed: dict[int, bytes], expected: dict[str, int], **requested: object) -> Case:
    return Case(s.OLD, {**s.NEW, **changed}, expected, clean_end=s.CLEAN_TO, **requested)  # type: ignore[arg-type]


def second(batch: bytes) -> dict[int, bytes]:
    return {0: batch + s.LAST_OF_7_CLEANED}


def rebuilt(key: str, value: str | None, timestamp: int = T + 10, **fields: object) -> bytes:
    headers = fields.pop("headers", ())
    attributes = fields.pop("record_attributes", 0)
    changed = replace(record(key, value, 0, timestamp), headers=headers, attributes=attributes)  # type: ignore[arg-type]
    return encode_batch([changed], base_offset=3, last_offset_delta=1, **fields)  # type: ignore[arg-type]


BY_HEADER = KeyRules("header", b"ver")
BY_TIME = KeyRules("timestamp")
FLAGGED = KeyRules(tombstone_mode="flag")
OTHER = one(9, record("z", "1", 0))
PAST = {"delete_horizon": NOW}
LATER = {"delete_horizon": NOW + 1}
HISTORY = one(0, record("a", "1", 0), record("b", "1", 1), record("a", "2", 2))
CLEANED = encode_batch([record("b", "1", 1), record("a", "2", 2)], base_offset=0)
DELETED = one(0, record("a", "1", 0)) + one(1, record("a", None, 0), **PAST) + OTHER
BY_VERSION = one(0, versioned("a", 5), versioned("a", 3), versioned("a", -1)) + OTHER
TRANSACTION = one(0, record("a", "1", 0)) + s.transactional(1, record("a", "2", 0))
COMMITTED = s.marker(2, commit=True)
MANY = b"".join(one(at, record(f"k{at % 40}", str(at), 0)) for at in range(80))
CASES = {
    # the scene of a cleaned partition with transactions, tombstones and closing batches
    "right": scene({}, {}),
    "not cleaned at all: losers, keyless": scene(s.OLD, {"duplicated": 4, "no_key": 1}),
    "dropped record": scene(second(emptied(3, 1)), {"lost": 1}),
    "dropped batch": scene({0: s.LAST_OF_7_CLEANED}, {"lost": 1}),
    "altered value": scene(second(rebuilt("a", "3")), {"altered": 1}),
    "altered key": scene(second(rebuilt("q", "2")), {"altered": 1}),
    "altered timestamp": scene(second(rebuilt("a", "2", T + 11)), {"altered": 1}),
    "altered header": scene(second(rebuilt("a", "2", headers=((b"h", None),))), {"altered": 1}),
    "value became null": scene(second(rebuilt("a", None)), {"altered": 1}),
    "recompressed, another header of the batch": scene(second(rebuilt("a", "2", codec=4)), {}),
    "attributes set": scene(second(rebuilt("a", "2", record_attributes=1)), {"altered": 1}),
    "kept loser": scene({0: s.SECOND_CLEANED + s.LAST_OF_7}, {"duplicated": 1}),
    "older one in the place of the newest": scene(
        {0: s.SECOND_CLEANED + s.LAST_OF_7, 13: encode_batch([], base_offset=13, leader_epoch=1)}, {"stale": 1}
    ),
    "aborted record is back": scene(
        {7: encode_batch([record("x", "1", 0)], base_offset=7) + b"".join(s.TRANSACTIONS) + s.HELD}, {"resurrected": 1}
    ),
    "tombstone gone before its time": scene(
        {7: b"".join(s.TRANSACTIONS) + encode_batch(s.TOMBSTONE[:1], base_offset=11, last_offset_delta=1,
                                                    delete_horizon=s.HORIZON)}, {"lost": 1}),
    "invented record": scene(second(encode_batch([record("a", "2", 0, T + 10), record("q", "1", 1)], base_offset=3)),
                             {"altered": 1}),
    "keyless record left": scene(second(s.SECOND), {"no_key": 1}),
    "gone above the first dirty offset": scene(
        {14: s.ACTIVE[: -len(s.END)] + encode_batch([record("a", "9", 1)], base_offset=16, leader_epoch=1)},
        {"lost": 1},
    ),
    "end of the log gone": scene({14: s.ACTIVE[: -len(s.END)]}, {"lost": 2, "shortened": 1}),
    # the same bytes with other settings
    "commit marker missing: its record is invisible": Case(
        {0: TRANSACTION + COMMITTED, 3: b""}, {0: TRANSACTION[len(one(0, record("a", "1", 0))) :] + emptied(2), 3: b""},
        {"lost": 1},
    ),
    "record without an origin": Case(
        {0: one(0, record("a", "1", 0)) + one(5, record("b", "1", 0))},
        {0: one(0, record("a", "1", 0)) + one(3, record("c", "1", 0)) + one(5, record("b", "1", 0))},
        {"invented": 1},
    ),
    "record twice": Case(
        {0: HISTORY, 9: OTHER}, {0: CLEANED, 2: one(2, record("a", "2", 0)), 9: OTHER}, {"duplicated": 1}
    ),
    "bad bytes": Case({0: HISTORY + OTHER}, {0: HISTORY[:-1] + b"\xff" + OTHER}, {"lost": 2, "damaged": 1}),
    "an invalid record under a right checksum": Case(
        {0: HISTORY + one(3, record("c", "1", 0)) + OTHER},
        {0: CLEANED + encode_batch([record("c", "1", 0)], base_offset=3, payload=b"\x0e\x00\x00\x00\x02k\x02") + OTHER},
        {"lost": 1, "damaged": 1},
    ),
    "expired tombstone removed": Case({0: DELETED}, {0: OTHER}, {}),
    "expired tombstone kept": Case({0: DELETED}, {0: DELETED[len(one(0, record("a", "1", 0))) :]}, {}),
    "deleted key is back": Case({0: DELETED}, {0: one(0, record("a", "1", 0)) + OTHER}, {"resurrected": 1}),
    "tombstone removed a day early": Case(
        {0: one(1, record("a", None, 0), **LATER) + OTHER}, {0: OTHER}, {"lost": 1}
    ),
    "tombstone removed without a horizon": Case({0: one(1, record("a", None, 0)) + OTHER}, {0: OTHER}, {"lost": 1}),
    "the same over many cleanings": Case(
        {0: one(1, record("a", None, 0)) + OTHER}, {0: OTHER}, {}, many_cleanings=True
    ),
    "a horizon stays, however many cleanings follow": Case(
        {0: one(1, record("a", None, 0), **LATER) + OTHER}, {0: OTHER}, {"lost": 1}, many_cleanings=True
    ),
    "tombstone of magic 1 removed": Case(
        {0: encode_legacy(1, b"a", None, magic=1, timestamp=T) + OTHER}, {0: OTHER}, {}
    ),
    "magic 1 became magic 2": Case(
        {0: encode_legacy(1, b"a", b"x", magic=1, timestamp=T) + OTHER},
        {0: one(1, Record(b"a", b"x", T)) + OTHER}, {},
    ),
    "attributes zeroed, as Kafka does (U-14)": Case(
        {0: one(0, record("a", "1", 0), replace(record("b", "1", 1), attributes=FLAG)) + OTHER},
        {0: one(0, record("a", "1", 0), record("b", "1", 1)) + OTHER}, {},
    ),
    "attributes zeroed where they decide": Case(
        {0: one(0, record("a", "1", 0), replace(record("b", "1", 1), attributes=FLAG)) + OTHER},
        {0: one(0, record("a", "1", 0), record("b", "1", 1)) + OTHER}, {"altered": 1}, rules=FLAGGED,
    ),
    "U-13: an empty batch in the place of a group's end": Case(
        {0: one(0, record("a", "1", 0)), 1: one(1, record("b", "1", 0), record("a", "2", 1)),
         3: one(3, record("a", "3", 0))},
        {0: emptied(0), 1: encode_batch([record("b", "1", 0)], base_offset=1, last_offset_delta=1),
         3: one(3, record("a", "3", 0))}, {},
    ),
    "by offset the highest offset": Case({0: BY_VERSION}, {0: one(2, versioned("a", -1)) + OTHER}, {}),
    "by version the highest version": Case(
        {0: BY_VERSION}, {0: one(0, versioned("a", 5)) + OTHER}, {}, rules=BY_HEADER
    ),
    "by version, cleaned by offset": Case(
        {0: BY_VERSION}, {0: one(2, versioned("a", -1)) + OTHER}, {"stale": 1}, rules=BY_HEADER
    ),
    "by offset, cleaned by version": Case({0: BY_VERSION}, {0: one(0, versioned("a", 5)) + OTHER}, {"stale": 1}),
    "a version wins over none (R280-6)": Case(
        {0: one(0, versioned("a", -9), record("a", "2", 1)) + OTHER}, {0: one(0, versioned("a", -9)) + OTHER}, {},
        rules=BY_HEADER,
    ),
    "equal versions: the highest offset": Case(
        {0: one(0, versioned("a", 4), versioned("a", 4)) + OTHER}, {0: one(0, versioned("a", 4)) + OTHER},
        {"stale": 1}, rules=BY_HEADER,
    ),
    "by timestamp": Case(
        {0: one(0, record("a", "1", 0, T + 5), record("a", "2", 1, T)) + OTHER},
        {0: encode_batch([record("a", "1", 0, T + 5)], base_offset=0) + OTHER}, {}, rules=BY_TIME,
    ),
    "U-1: a tombstone removed, with a superseded record above it": Case(
        {0: one(0, versioned("a", 5, None), **PAST) + one(1, versioned("a", 3)) + OTHER}, {0: OTHER}, {"lost": 1},
        rules=BY_HEADER,
    ),
    "U-1: alone": Case({0: one(0, versioned("a", 5, None), **PAST) + OTHER}, {0: OTHER}, {}, rules=BY_HEADER),
    "U-1: its superseded record is in the tail": Case(
        {0: one(0, versioned("a", 5, None), **PAST) + OTHER, 10: one(10, versioned("a", 3))},
        {0: OTHER, 10: one(10, versioned("a", 3))}, {"lost": 1}, rules=BY_HEADER, clean_end=10,
    ),
    "U-4: forever": Case(
        {0: one(0, versioned("a", 5, None), **PAST) + OTHER}, {0: OTHER}, {"lost": 1},
        rules=replace(BY_HEADER, tombstone_guard="forever"),
    ),
    "R87-2: a flagged record with a value is a tombstone": Case(
        {0: one(0, replace(record("a", "1", 0), attributes=FLAG), **PAST) + OTHER}, {0: OTHER}, {}, rules=FLAGGED
    ),
    "R87-3: a null without the flag is none": Case(
        {0: one(0, record("a", None, 0), **PAST) + OTHER}, {0: OTHER}, {"lost": 1}, rules=FLAGGED
    ),
    "R87-4: marked by a header": Case(
        {0: one(0, replace(record("a", "1", 0), headers=((b"del", b"1"),)), **PAST) + OTHER}, {0: OTHER}, {},
        rules=KeyRules(tombstone_mode="header", tombstone_header=b"del"),
    ),
    "R280-11: a key that is not in the dirty section": Case(
        {0: HISTORY, 9: OTHER}, {0: HISTORY, 9: OTHER}, {}, first_dirty=9
    ),
    "R280-11: a key with a removed record": Case(
        {0: HISTORY, 9: OTHER}, {0: CLEANED, 9: OTHER}, {"lost": 1}, first_dirty=9
    ),
    "below the log start nothing is judged": Case(
        {0: HISTORY + OTHER}, {0: emptied(0, 2) + OTHER}, {}, log_start=3
    ),
    "but content is": Case(
        {0: HISTORY + OTHER}, {0: encode_batch([record("b", "X", 1)], base_offset=0, last_offset_delta=2) + OTHER},
        {"altered": 1}, log_start=3,
    ),
    "the first dirty offset is unknown": Case({0: HISTORY + OTHER}, {0: HISTORY + OTHER}, {}, clean_end=None),
    "a record is lost nevertheless": Case(
        {0: HISTORY + OTHER}, {0: emptied(0, 2) + OTHER}, {"lost": 2}, clean_end=None
    ),
    "the tail wins nothing": Case(
        {0: HISTORY, 9: one(9, record("a", "9", 0))}, {0: encode_batch([record("b", "1", 1)], base_offset=0,
         last_offset_delta=2), 9: one(9, record("a", "9", 0))}, {"lost": 1}, clean_end=9,
    ),
    "written since the copy": Case(
        {0: HISTORY}, {0: encode_batch([record("b", "1", 1)], base_offset=0, last_offset_delta=2),
                       3: one(3, record("a", "3", 0), record("c", "1", 1))}, {},
    ),
    "open when it was copied, committed since": Case(
        {0: TRANSACTION}, {0: TRANSACTION + COMMITTED}, {"duplicated": 1}
    ),
    "the same, cleaned": Case(
        {0: TRANSACTION}, {0: TRANSACTION[len(one(0, record("a", "1", 0))) :] + COMMITTED}, {}
    ),
    "aborted data may stay": Case(
        {0: TRANSACTION + s.marker(2, commit=False)}, {0: TRANSACTION + s.marker(2, commit=False)}, {}
    ),
    "more than the listed examples": Case({0: MANY}, {0: MANY}, {"duplicated": 40}),
}  # fmt: skip
