"""OffsetMap with versions compared with a dict: the comparison of KIP-280."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd._kernel import OffsetMap
from tests.kernel.strategies import HASH_KEY, SMALLEST_MAP_BYTES
from tests.support import reference_map as reference
from tests.support.reference_codecs import siphash_1_3_128

DIRTY = 1 << 38
LOWEST, HIGHEST = -(2**63), 2**63 - 1

Row = tuple[int, int, bool, int]
"""Key, ordinal, has version, version."""


def _hashes(keys: list[int]) -> list[int]:
    """Key ``k`` as the decoder would hash it; a few keys share lines and tags."""
    words: list[int] = []
    for key in keys:
        low, high = siphash_1_3_128(HASH_KEY, str(key).encode())
        if key % 2 == 0:  # home is line 0, the other one line 1: from the ninth key on they go to later lines
            high &= ~((1 << 40) - 1)
            low &= (1 << 64) - (1 << 32)
        words += (low, high)
    return words


def _arguments(rows: list[Row]) -> tuple[Any, int, Any, dict[str, Any]]:
    """One call's arguments for rows with ascending ordinals."""
    versions = {
        "version": np.array([row[3] for row in rows], np.int64),
        "has_version": np.array([row[2] for row in rows], bool),
    }
    return np.array(_hashes([row[0] for row in rows]), np.uint64), rows[0][1], np.ones(len(rows), bool), versions


def _put(table: OffsetMap, *rows: Row) -> None:
    for row in rows:
        hashes, first, mask, versions = _arguments([row])
        assert table.put_max(hashes, first, mask, **versions) == 1


def _update(table: OffsetMap, row: Row) -> bool:
    hashes, first, mask, versions = _arguments([row])
    return bool(table.update_existing(hashes, first, mask, **versions)[0])


def _winners(table: OffsetMap) -> list[int]:
    """Winning ordinals below 64 and from DIRTY on."""
    return [first + bit for first in (0, DIRTY) for bit in range(64) if int(table.winners(first, 64)[0]) >> bit & 1]


_VERSIONS = st.one_of(st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST]), st.integers(LOWEST, HIGHEST))
_ROWS = st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.booleans(), _VERSIONS), max_size=200)
_FIRST = st.one_of(st.integers(0, 400), st.integers(DIRTY, DIRTY + 400))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_ROWS, _FIRST, st.booleans()), max_size=6), st.integers(1, 3), st.data())
def test_versioned_map_equals_a_dictionary(
    calls: list[tuple[list[Any], int, bool]], shards: int, draw: st.DataObject
) -> None:
    """R280-4 to R280-6, R280-10: the largest (has version, version, ordinal), shard by shard, full maps included."""
    load = draw.draw(st.sampled_from([0.85, 0.013, 0.004, 0.0001]))
    real, model = (
        OffsetMap(SMALLEST_MAP_BYTES, load=load, versions=True),
        reference.OffsetMap(SMALLEST_MAP_BYTES, load=load, versions=True),
    )
    assert real.capacity == model.capacity
    for number, (rows, first, add) in enumerate(calls):
        words, mask = _hashes([row[0] for row in rows]), [row[1] for row in rows]
        has_version, version = [row[2] for row in rows], [row[3] for row in rows]
        arrays = (np.array(words, np.uint64), first, np.array(mask, bool))
        columns = {"version": np.array(version, np.int64), "has_version": np.array(has_version, bool)}
        own = {"version": version, "has_version": has_version}
        shard = {"shard": number % shards, "shards": shards}
        if add:
            assert real.put_max(*arrays, **columns, **shard) == model.put_max(words, first, mask, **own, **shard)
        else:
            found = real.update_existing(*arrays, **columns, **shard)
            assert found.tolist() == model.update_existing(words, first, mask, **own, **shard)
        assert len(real) == len(model.entries)
    everything = _hashes(list(range(70)))
    found = real.contains(np.array(everything, np.uint64), np.ones(70, bool))
    assert found.tolist() == model.contains(everything, [True] * 70)
    for first in (0, DIRTY):
        bits = np.unpackbits(real.winners(first, 640).view(np.uint8), bitorder="little")
        assert bits.astype(bool).tolist() == model.winners(first, 640)
    real.clear()
    assert len(real) == 0
    assert not real.winners(0, 640).any()


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        pytest.param((1, 40, True, 5), (1, 3, True, 6), id="the version, not the offset"),
        pytest.param((1, 3, True, 5), (1, 40, True, 5), id="equal versions: the offset"),
        pytest.param((1, 40, True, -2), (1, 3, True, -1), id="negative versions are ordinary"),
        pytest.param((1, 40, True, -1), (1, 3, True, 0), id="signed"),
        pytest.param((1, 40, True, LOWEST), (1, 3, True, HIGHEST), id="no overflow"),
        pytest.param((1, 40, True, HIGHEST - 1), (1, 3, True, HIGHEST), id="all bits at the top"),
        pytest.param((1, 40, True, LOWEST), (1, 3, True, LOWEST + 1), id="all bits at the bottom"),
        pytest.param((1, 40, False, 0), (1, 3, True, LOWEST), id="absent is below every version"),
        pytest.param((1, 40, False, HIGHEST), (1, 3, True, 0), id="the version of an absent one is ignored"),
        pytest.param((1, 3, False, HIGHEST), (1, 40, False, LOWEST), id="both absent: the offset"),
        pytest.param((1, DIRTY + 3, True, 5), (1, 3, True, 6), id="a winner in the clean part"),
        pytest.param((1, 3, True, 5), (1, DIRTY + 3, True, 5), id="dirty is behind clean"),
        pytest.param((1, DIRTY + 3, False, 0), (1, 3, True, -9), id="an anomalous record in the dirty part"),
    ],
)
def test_the_winner_in_either_order(lower: Row, higher: Row) -> None:
    """R280-4 to R280-6, R280-10: in either order, put or updated."""
    for first, second in ((lower, higher), (higher, lower)):
        table = OffsetMap(SMALLEST_MAP_BYTES, versions=True)
        _put(table, first, second)
        assert _winners(table) == [higher[1]]
        table.clear()
        _put(table, first)
        assert _update(table, second)
        assert _winners(table) == [higher[1]]
        assert len(table) == 1


def test_any_order_has_the_same_winner() -> None:
    """R280-10, U-4: the comparison is a total order, so neither splits nor passes change the winner."""
    rows: list[Row] = [
        (1, 5, True, 7),
        (1, 4, True, 7),
        (1, 9, False, 0),
        (1, DIRTY, True, 6),
        (1, DIRTY + 1, False, 0),
    ]
    for order in permutations(rows):
        table = OffsetMap(SMALLEST_MAP_BYTES, versions=True)
        _put(table, *order)
        assert _winners(table) == [5]


def test_update_never_inserts() -> None:
    """R280-10: the clean section decides keys of the dirty section and adds none; a masked row changes nothing."""
    table = OffsetMap(SMALLEST_MAP_BYTES, versions=True)
    assert not _update(table, (1, 3, True, 5))
    assert len(table) == 0
    _put(table, (1, DIRTY, True, 5))
    assert not _update(table, (2, 3, True, 9))
    assert _update(table, (1, 3, True, 4)), "the key exists, if not raised"
    hashes, first, mask, versions = _arguments([(1, 7, True, 9), (1, 8, True, 9)])
    mask[:] = [True, False]
    assert table.update_existing(hashes, first, mask, **versions).tolist() == [True, False]
    assert _winners(table) == [7]


def test_one_key_many_times_in_one_call() -> None:
    """Rows of one look-ahead block see each other: the first one's entry is raised by the others."""
    table = OffsetMap(SMALLEST_MAP_BYTES, versions=True)
    rows: list[Row] = [(1, row, row % 3 != 0, -abs(row - 31)) for row in range(64)]
    hashes, first, mask, versions = _arguments(rows)
    assert table.put_max(hashes, first, mask, **versions) == 64
    assert _winners(table) == [31]
    assert len(table) == 1


def _random_hashes(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 2**64, 2 * count, dtype=np.uint64)


@pytest.mark.parametrize("load", [0.85, 1.0])
def test_a_full_map(load: float) -> None:
    """Every inserted key keeps its own version; the row at which it was full is returned."""
    table = OffsetMap(SMALLEST_MAP_BYTES, load=load, versions=True)
    count = table.capacity + 100
    hashes, mask = _random_hashes(count), np.ones(count, bool)
    version, has = np.arange(count, dtype=np.int64) - 500, np.arange(count) % 3 != 0
    assert table.put_max(hashes, DIRTY, mask, version=version, has_version=has) == table.capacity == len(table)
    full = table.capacity
    found = table.update_existing(hashes, 0, mask, version=version + np.arange(count) % 2, has_version=has)
    assert found.tolist() == [True] * full + [False] * 100
    won = np.unpackbits(table.winners(0, count).view(np.uint8), bitorder="little")[:count].astype(bool)
    assert won[:full].tolist() == (has & (np.arange(count) % 2 == 1))[:full].tolist(), "only the higher versions"
    kept = np.unpackbits(table.winners(DIRTY, count).view(np.uint8), bitorder="little")[:count].astype(bool)
    assert kept[:full].tolist() == (~won[:full]).tolist()


def test_sizes() -> None:
    """U-19: at most 30 bytes per key, at least 96 identity bits; the memory is the total."""
    table = OffsetMap(SMALLEST_MAP_BYTES, versions=True)
    assert (table.memory_bytes, table.capacity, table.versions) == (SMALLEST_MAP_BYTES, 2611, True)
    assert table.identity_bits >= 96
    assert OffsetMap(SMALLEST_MAP_BYTES + 95, versions=True).memory_bytes == SMALLEST_MAP_BYTES
    large = OffsetMap(1 << 24, versions=True)
    assert large.memory_bytes <= 1 << 24
    assert large.memory_bytes / large.capacity <= 30
    assert not OffsetMap(SMALLEST_MAP_BYTES).versions
    for bad in (SMALLEST_MAP_BYTES - 1, 48 << 10, 0, -1):
        with pytest.raises(ValueError, match="at least 73728 bytes"):
            OffsetMap(bad, versions=True)


def test_callers_mistakes() -> None:
    """Versions for a map without them, none for a map with them, columns of different lengths, too large ordinals."""
    plain, table = OffsetMap(SMALLEST_MAP_BYTES), OffsetMap(SMALLEST_MAP_BYTES, versions=True)
    hashes, mask = _random_hashes(4), np.ones(4, bool)
    version, has = np.zeros(4, np.int64), np.ones(4, bool)
    both = {"version": version, "has_version": has}
    for call in (
        lambda: plain.put_max(hashes, 0, mask, **both),
        lambda: plain.update_existing(hashes, 0, mask, **both),
        lambda: table.put_max(hashes, 0, mask),
        lambda: table.put_max(hashes, 0, mask, version=version),
        lambda: table.put_max(hashes, 0, mask, has_version=has),
        lambda: table.put_max(hashes, 0, mask, version=version[:3], has_version=has),
        lambda: table.put_max(hashes, 0, mask, version=version, has_version=has[:3]),
        lambda: table.update_existing(hashes[:6], 0, mask, **both),
        lambda: table.update_existing(hashes, -1, mask, **both),
        lambda: table.put_max(hashes, 2**39 - 5, mask, **both),
        lambda: table.put_max(hashes, 0, mask, shard=2, shards=2, **both),
        lambda: table.winners(2**39 - 64, 63),
    ):
        with pytest.raises(ValueError, match=r"version|rows|ordinal|shard"):
            call()
    assert len(plain) == len(table) == 0
    assert table.put_max(hashes, 2**39 - 6, mask, version=version, has_version=np.array([0, 1, 0, 1], bool)) == 4
    assert table.winners(2**39 - 64, 62).tolist() == [0b1111 << 58]


def test_the_ordinal_of_a_key_is_that_of_its_winner() -> None:
    """U-65: with and without a version, also after a full line; -1 if the shard has no such key."""
    table = OffsetMap(SMALLEST_MAP_BYTES * 3 // 2, versions=True)
    for key in range(40):
        _put(table, (key, DIRTY + key, key % 3 > 0, 7), (key, DIRTY + 100 + key, key % 3 == 2, 7 - key % 2))
    _update(table, (3, 5, True, 1))
    hashes = np.array(_hashes(list(range(42))), np.uint64)
    found = table.ordinals(hashes, np.arange(42) != 1)
    won = {
        key: DIRTY + 100 + key if key % 3 == 0 or (key % 3 == 2 and key % 2 == 0) else DIRTY + key for key in range(40)
    }
    assert found.tolist() == [{**won, 1: -1, 3: 5, 40: -1, 41: -1}[key] for key in range(42)]
    shards = [table.ordinals(hashes, np.ones(42, bool), shard=shard, shards=2) for shard in range(2)]
    assert ((shards[0] < 0) | (shards[1] < 0)).all()
    assert np.maximum(*shards).tolist()[4:] == found.tolist()[4:]
    with pytest.raises(ValueError, match="only a map with versions"):
        OffsetMap(SMALLEST_MAP_BYTES).ordinals(hashes, np.ones(42, bool))
