"""Tombstones and delete horizons (C-45.4, C-45.5, C-48..C-50, R534-1, R534-2)."""

from __future__ import annotations

import numpy as np
import pytest

from cleanerd._kernel import FLAG_HAS_KEY, FLAG_HAS_VALUE, FLAG_TOMBSTONE, FLAG_TOMBSTONE_HEADER
from cleanerd.policy.tombstone import expired, has_horizon, new_horizon_ms, nulls_without_flag, tombstones

NOW = 1_700_000_000_000
HORIZON = 0x40


def test_tombstones() -> None:
    """C-45.4, C-48: no value, with or without a key; an empty value has FLAG_HAS_VALUE and is a value."""
    flags = np.array([FLAG_HAS_KEY, FLAG_HAS_KEY | FLAG_HAS_VALUE, FLAG_HAS_VALUE, 0], dtype=np.uint8)
    assert tombstones(flags).tolist() == [True, False, False, True]


VALUE, FLAG, MARKER = FLAG_HAS_VALUE, FLAG_TOMBSTONE, FLAG_TOMBSTONE_HEADER


@pytest.mark.parametrize(
    ("flags", "legacy", "null", "flag", "header", "bare"),
    [
        pytest.param(0, False, True, False, True, True, id="R87-3: null without the bit is a value"),
        pytest.param(FLAG, False, True, True, True, False, id="null with the bit"),
        pytest.param(VALUE, False, False, False, False, False, id="a value"),
        pytest.param(VALUE | FLAG, False, False, True, False, False, id="R87-2: the bit, whatever the value"),
        pytest.param(VALUE | MARKER, False, False, False, True, False, id="R87-4: the header, whatever the value"),
        pytest.param(0, True, True, True, True, False, id="R87-2: v0 and v1 know null alone"),
        pytest.param(VALUE, True, False, False, False, False, id="and values"),
    ],
)
def test_modes(flags: int, legacy: bool, null: bool, flag: bool, header: bool, bare: bool) -> None:
    """R87-1..R87-4, a record among others."""
    column = np.array([VALUE, flags, 0], dtype=np.uint8)
    old = np.array([False, legacy, False])
    assert tombstones(column, "null", old).tolist() == [False, null, True]
    assert tombstones(column, "flag", old).tolist() == [False, flag, False]
    assert tombstones(column, "header", old).tolist() == [False, header, True]
    assert nulls_without_flag(column, old).tolist() == [False, bare, True]
    if not legacy:
        assert tombstones(column, "flag").tolist() == [False, flag, False]
        assert nulls_without_flag(column).tolist() == [False, bare, True]


@pytest.mark.parametrize(
    ("attributes", "base_timestamp", "gone"),
    [
        pytest.param(HORIZON, NOW + 1, False, id="before the horizon"),
        pytest.param(HORIZON, NOW, True, id="R534-2: AT the horizon it is removed (tried on 4.3.1)"),
        pytest.param(HORIZON, NOW - 1, True, id="after"),
        pytest.param(0, NOW - 10**9, False, id="T-02: without the bit the base timestamp is no horizon"),
        pytest.param(HORIZON | 0x3F, NOW, True, id="among other bits"),
        pytest.param(~HORIZON, 0, False, id="every other bit"),
    ],
)
def test_expired(attributes: int, base_timestamp: int, gone: bool) -> None:
    """C-45.5."""
    column = np.array([attributes], dtype=np.int16)
    assert expired(column, np.array([base_timestamp], dtype=np.int64), NOW).tolist() == [gone]
    assert has_horizon(column).tolist() == [bool(attributes & HORIZON)]


@pytest.mark.parametrize("now_ms", [0, NOW, 2**63 - 1, 2**70])
def test_any_clock(now_ms: int) -> None:
    """``--now-ms`` may be anything."""
    columns = np.array([HORIZON], dtype=np.int16), np.array([2**62], dtype=np.int64)
    assert expired(*columns, now_ms).tolist() == [now_ms >= 2**62]


@pytest.mark.parametrize(
    ("now_ms", "retention_ms", "horizon"),
    [
        pytest.param(NOW, 86_400_000, NOW + 86_400_000, id="C-49"),
        pytest.param(NOW, 0, NOW, id="C-47: no retention still takes a second pass"),
        pytest.param(1, 2**63 - 2, 2**63 - 1, id="the largest long"),
        pytest.param(2, 2**63 - 2, -1, id="C-50: one more does not fit, no bit is written"),
        pytest.param(2**70, 0, -1, id="C-50: nor does such a clock"),
    ],
)
def test_new_horizon(now_ms: int, retention_ms: int, horizon: int) -> None:
    """C-49, C-50, T-34."""
    assert new_horizon_ms(now_ms, retention_ms) == horizon
