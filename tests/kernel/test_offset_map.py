"""OffsetMap compared with a dict."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd import _kernel
from cleanerd._kernel import OffsetMap
from tests.kernel.strategies import HASH_KEY
from tests.support import reference_map as reference
from tests.support.reference_codecs import siphash_1_3_128

SMALLEST = 48 << 10
DIRTY = 1 << 38


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


_KEYS = st.lists(st.integers(0, 60), max_size=200)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_KEYS, st.integers(0, 500), st.integers(0, 2)), max_size=5), st.integers(1, 3), st.data())
def test_offset_map_equals_a_dictionary(
    calls: list[tuple[list[int], int, int]], shards: int, draw: st.DataObject
) -> None:
    """The larger ordinal wins in any order; a full map returns where it stopped."""
    load = draw.draw(st.sampled_from([0.85, 0.013, 0.004, 0.0001]))
    real, model = OffsetMap(SMALLEST, load=load), reference.OffsetMap(SMALLEST, load=load)
    assert real.capacity == model.capacity
    for keys, first, number in calls:
        mask = draw.draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
        words, ordinal, shard = _hashes(keys), DIRTY + first, number % shards
        taken = real.put_max(np.array(words, np.uint64), ordinal, np.array(mask, bool), shard=shard, shards=shards)
        assert taken == model.put_max(words, ordinal, mask, shard=shard, shards=shards)
        assert len(real) == len(model.entries)
    everything = list(range(70))
    for shard in range(shards):
        found = real.contains(np.array(_hashes(everything), np.uint64), np.ones(70, bool), shard=shard, shards=shards)
        assert found.tolist() == model.contains(_hashes(everything), [True] * 70, shard, shards)
    bits = np.unpackbits(real.winners(DIRTY, 700).view(np.uint8), bitorder="little")
    assert bits.astype(bool).tolist()[:700] == model.winners(DIRTY, 700)
    assert not bits[700:].any()
    real.clear()
    assert len(real) == 0
    assert not real.winners(0, 700).any()


def _random_hashes(count: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 2**64, 2 * count, dtype=np.uint64)


@pytest.mark.parametrize("load", [0.85, 1.0])
def test_a_full_map(load: float) -> None:
    """Every inserted key is found again, no other one is; the row at which it was full is returned."""
    table = OffsetMap(SMALLEST, load=load, huge_pages=False)
    count = table.capacity + 100
    hashes, mask = _random_hashes(count), np.ones(count, bool)
    assert table.put_max(hashes, 0, mask) == table.capacity == len(table)
    found = table.contains(hashes, mask)
    assert found[: table.capacity].all()
    assert not found[table.capacity :].any()
    assert not table.contains(_random_hashes(5000, seed=2), np.ones(5000, bool)).any()
    again = table.put_max(hashes[: 2 * table.capacity], 1 << 20, mask[: table.capacity])
    assert again == table.capacity, "existing keys are raised even in a full map"
    won = np.unpackbits(table.winners(1 << 20, table.capacity).view(np.uint8), bitorder="little")
    assert won[: table.capacity].all()
    assert not table.winners(0, table.capacity).any()


def test_a_smaller_ordinal_never_wins() -> None:
    """The clean section counts from 0, the dirty section from 2^38: inserting it late changes nothing."""
    table = OffsetMap(SMALLEST)
    hashes, mask = _random_hashes(64), np.ones(64, bool)
    table.put_max(hashes, DIRTY, mask)
    table.put_max(hashes, 0, mask)
    assert table.winners(DIRTY, 64).tolist() == [2**64 - 1]
    assert table.winners(0, 64).tolist() == [0]


def test_the_null_hash_is_an_ordinary_key() -> None:
    """An empty entry is marked by its ordinal, not by its tag."""
    table = OffsetMap(SMALLEST)
    zero, one = np.zeros(2, np.uint64), np.ones(1, bool)
    assert not table.contains(zero, one)[0]
    table.put_max(zero, 0, one)
    assert table.contains(zero, one)[0]
    assert table.winners(0, 1).tolist() == [1]


def test_sizes() -> None:
    """U-19: at most 20 bytes per key, at least 96 identity bits."""
    table = OffsetMap(SMALLEST)
    assert (table.memory_bytes, table.capacity) == (SMALLEST, 2611)
    assert table.identity_bits >= 96
    assert OffsetMap(SMALLEST + 63).memory_bytes == SMALLEST
    large = OffsetMap(1 << 24)
    assert large.memory_bytes / large.capacity <= 20
    for bad in (SMALLEST - 1, 0, -1):
        with pytest.raises(ValueError, match="at least"):
            OffsetMap(bad)
    for load in (0.0, -1.0, 1.01, float("nan")):
        with pytest.raises(ValueError, match="load"):
            OffsetMap(SMALLEST, load=load)


def test_callers_mistakes() -> None:
    """Arrays of different lengths, ordinals beyond 39 bits, unknown shards."""
    table = OffsetMap(SMALLEST)
    hashes, mask = _random_hashes(4), np.ones(4, bool)
    for call in (
        lambda: table.put_max(hashes[:7], 0, mask),
        lambda: table.put_max(hashes, 0, mask[:3]),
        lambda: table.put_max(hashes, -1, mask),
        lambda: table.put_max(hashes, 2**39 - 4, mask),
        lambda: table.put_max(hashes, 0, mask, shard=2, shards=2),
        lambda: table.put_max(hashes, 0, mask, shard=-1, shards=2),
        lambda: table.contains(hashes, mask, shard=0, shards=0),
        lambda: table.winners(32, 64),
        lambda: table.winners(-64, 64),
        lambda: table.winners(0, -1),
        lambda: table.winners(2**39 - 64, 65),
    ):
        with pytest.raises(ValueError, match=r"rows|ordinal|shard"):
            call()
    assert table.put_max(hashes, 2**39 - 5, mask) == 4
    assert table.winners(2**39 - 64, 63).tolist() == [0b1111 << 59]


@pytest.mark.long
def test_a_second_thread_is_refused() -> None:
    """The GIL is released in put_max; a concurrent use of the map gets an error, not a race.

    Repeated until both had a core at the same time.
    """
    hashes, mask = _random_hashes(2_000_000), np.ones(2_000_000, bool)

    def turned_away() -> int:
        table = OffsetMap(1 << 26)
        worker = threading.Thread(target=table.put_max, args=(hashes, 0, mask))
        worker.start()
        errors = 0
        while worker.is_alive():
            try:
                len(table)
            except RuntimeError:
                errors += 1
        worker.join()
        assert len(table) == 2_000_000
        return errors

    assert any(turned_away() for _ in range(100))
    assert issubclass(_kernel.KernelBugError, Exception)
