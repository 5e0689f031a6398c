"""The key table: every key's rows together and in order, in memory or through files."""

from __future__ import annotations

import numpy as np
import pytest

from cleanerd.verify.key_table import KEY_ROW, KeyTable, first_of_key

RNG = np.random.default_rng(5)


def _rows(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hashes = RNG.integers(0, 2**63, (40, 2)).astype(np.uint64)[RNG.integers(0, 40, count)]
    return hashes, RNG.permutation(count).astype(np.int64), RNG.integers(0, 9, count).astype(np.uint64)


@pytest.mark.parametrize("memory_bytes", [1, 500, 20_000, 1 << 30])
def test_all_rows_come_out_in_order(memory_bytes: int) -> None:
    """Whatever the memory: the same rows, sorted by key, offset, facts; a key is in one part only."""
    hashes, offsets, facts = _rows(3000)
    with KeyTable(memory_bytes, 3000) as table:
        for start in range(0, 3000, 700):
            some = slice(start, start + 700)
            table.add(hashes[some], offsets[some], facts[some], (-offsets[some], facts[some] > 4))
        parts = [part for part in table.parts() if len(part)]
    assert table.rows == 3000
    keys = [{(int(row["low"]), int(row["high"])) for row in part[first_of_key(part)]} for part in parts]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 40
    for part in parts:
        order = np.lexsort((part["facts"], part["offset"], part["high"], part["low"]))
        assert (order == np.arange(len(part))).all()
    whole = np.concatenate(parts)
    expected = sorted(zip(hashes[:, 0], hashes[:, 1], offsets, facts, -offsets, facts > 4, strict=True))
    assert sorted(map(tuple, whole.tolist())) == [tuple(map(int, row)) for row in expected]
    assert (len(parts) > 1) == (memory_bytes < 1 << 20)


def test_first_of_key() -> None:
    """Both halves of the hash distinguish keys."""
    keys = [(1, 1), (1, 1), (1, 2), (2, 2)]
    rows = np.array([(*key, offset, 0, 0, False) for offset, key in enumerate(keys)], KEY_ROW)
    assert first_of_key(rows).tolist() == [0, 2, 3]
    assert first_of_key(rows[:0]).tolist() == []


def test_nothing_in() -> None:
    with KeyTable(1, 0) as table:
        assert [len(part) for part in table.parts()] == [0]
