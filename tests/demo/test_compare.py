"""The demonstration's comparison finds the errors of a wrong cleaning."""

from __future__ import annotations

import dataclasses

import pytest

from cleanerd_lab.demo.compare import WrongKeys, compare, wrong_keys
from cleanerd_lab.demo.reading import ConsumedPartition
from cleanerd_lab.demo.traffic import AcknowledgedTopic

WRITTEN = AcknowledgedTopic(
    "orders-none",
    "none",
    # In the order of the delivery reports, which with several producers is not that of the offsets.
    {
        3: (b"b", b"b2"),
        0: (b"a", b"a1"),
        1: (b"b", b"b1"),
        2: (b"c", b"c1"),
        4: (b"c", None),
        5: (b"a", b"a2"),
    },
)
CLEAN_OFFSET = 5
GOOD = {3: (b"b", b"b2"), 4: (b"c", None), 0: (b"a", b"a1"), 5: (b"a", b"a2")}


def _read(records: dict[int, tuple[bytes | None, bytes | None]], position: int = 6) -> ConsumedPartition:
    return ConsumedPartition("a client", records, position, 6)


def test_the_expected_records_compare_equal() -> None:
    verdict = compare(WRITTEN, _read(dict(GOOD)), CLEAN_OFFSET)
    assert verdict.good
    assert (verdict.records, verdict.keys) == (4, 3)


def test_a_deleted_key_may_be_missing_altogether() -> None:
    """KIP-534: after delete.retention.ms the tombstone is removed as well; readers see no difference."""
    records = {offset: record for offset, record in GOOD.items() if offset != 4}
    assert compare(WRITTEN, _read(records), CLEAN_OFFSET).good


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({3: None}, {"wrong_keys": 1}),
        ({3: (b"b", b"other")}, {"wrong_keys": 1, "wrong_records": 1}),
        ({3: None, 1: (b"b", b"b1")}, {"wrong_keys": 1}),
        ({4: None, 2: (b"c", b"c1")}, {"wrong_keys": 1}),
        ({7: (b"x", b"never written")}, {"wrong_records": 1}),
        ({1: (b"b", b"b1")}, {"repeated_keys": 1}),
    ],
    ids=["lost", "altered", "older one kept", "deletion lost", "invented", "superseded one kept"],
)
def test_every_kind_of_damage_is_found(change: dict[int, tuple[bytes, bytes] | None], expected: dict[str, int]) -> None:
    records = {offset: record for offset, record in {**GOOD, **change}.items() if record is not None}
    verdict = dataclasses.asdict(compare(WRITTEN, _read(records), CLEAN_OFFSET))
    counts = ("wrong_records", "wrong_keys", "repeated_keys", "short_of_end")
    assert {name: verdict[name] for name in counts} == {**dict.fromkeys(counts, 0), **expected}


def test_a_reader_that_stops_early_is_not_good() -> None:
    verdict = compare(WRITTEN, _read(dict(GOOD), position=4), CLEAN_OFFSET)
    assert verdict.short_of_end == 2
    assert not verdict.good


def test_every_way_to_be_wrong_is_distinguished() -> None:
    expected = {b"a": b"1", b"b": b"2", b"c": b"3", b"d": None, b"e": None, b"f": None}
    found = {b"a": b"1", b"b": b"x", b"d": None, b"e": b"back", b"new": b"never written"}
    assert wrong_keys(expected, found) == WrongKeys(other_value=1, deleted_but_back=2, live_but_gone=1)
    assert wrong_keys(expected, found).keys == 4
