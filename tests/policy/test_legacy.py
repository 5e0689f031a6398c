"""The removal of tombstones of message formats v0 and v1, and their batches' format (C-30, C-35, C-51, U-18)."""

from __future__ import annotations

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd._kernel import ACTION_COPY, ACTION_DROP, ACTION_REBUILD, ACTION_SET_HORIZON
from cleanerd.policy.legacy import batch_flags, converts, horizon_ms
from cleanerd.policy.retain import BATCH_EXPIRED, BATCH_NO_HORIZON, BATCH_REBUILT, RecordEvidence, bits_from, retain
from tests.support.logs import encode_legacy, encode_wrapper, keyed_batch

LOG = (
    encode_legacy(0, b"a", None, magic=0)
    + encode_wrapper(2, encode_legacy(0, b"b", b"1") + encode_legacy(1, b"c", None))
    + encode_wrapper(3, encode_legacy(0, b"d", b"1", magic=0))
    + keyed_batch(4, [("e", None)])
)


def flags(*, mtime_ms: int, convert: bool) -> list[int]:
    batches = _kernel.decode_chunk(np.frombuffer(LOG, np.uint8), 0).batches
    found: list[int] = batch_flags(
        batches, mtime_ms=mtime_ms, legacy_horizon_ms=100, waits=False, convert=convert
    ).tolist()
    return found


def test_horizon() -> None:
    """C-30: by the last segment of the clean section, 0 without one."""
    assert horizon_ms([500, 90], 40) == 50
    assert horizon_ms([], 40) == 0
    assert horizon_ms([5], 2**63 - 1) < 0


@pytest.mark.parametrize(("mtime_ms", "gone"), [(99, True), (100, True), (101, False)])
def test_age(mtime_ms: int, gone: bool) -> None:
    """C-35: they stay only in a segment modified after the horizon; v2 batches have their own."""
    for convert in (True, False):
        found = [bool(each & BATCH_EXPIRED) for each in flags(mtime_ms=mtime_ms, convert=convert)]
        assert found == [gone, gone, gone, False]


def test_form() -> None:
    """C-51: all of them become v2, or only a wrapper around another magic is written again (KAFKA-4298)."""
    assert flags(mtime_ms=200, convert=True) == [BATCH_REBUILT] * 3 + [0]
    assert flags(mtime_ms=200, convert=False) == [BATCH_NO_HORIZON] * 2 + [BATCH_NO_HORIZON | BATCH_REBUILT, 0]


def actions(*, mtime_ms: int, convert: bool, newest: int = 0b11111) -> list[int]:
    chunk = _kernel.decode_chunk(np.frombuffer(LOG, np.uint8), 0)
    evidence = RecordEvidence(
        keyed=bits_from(0, 5),
        tombstone=np.array([0b10101], np.uint64),
        newest=np.array([newest], np.uint64),
        cleaned_records=5,
    )
    batches = chunk.batches
    markers = batch_flags(batches, mtime_ms=mtime_ms, legacy_horizon_ms=100, waits=False, convert=convert)
    found: list[int] = retain(evidence, batches.first_record, markers).actions.tolist()
    return found


def test_actions() -> None:
    """C-45.6, C-48: a tombstone that stays gets its horizon with the new format, and none in the old one."""
    dated = ACTION_REBUILD | ACTION_SET_HORIZON
    assert actions(mtime_ms=200, convert=True) == [dated, dated, ACTION_REBUILD, dated]
    assert actions(mtime_ms=200, convert=False) == [ACTION_COPY, ACTION_COPY, ACTION_REBUILD, dated]
    assert actions(mtime_ms=100, convert=True) == [ACTION_DROP, ACTION_REBUILD, ACTION_REBUILD, dated]
    assert actions(mtime_ms=100, convert=False) == [ACTION_DROP, ACTION_REBUILD, ACTION_REBUILD, dated]
    assert actions(mtime_ms=200, convert=False, newest=0b10111)[2] == ACTION_DROP


SUPPORTED_39, SUPPORTED_40 = (1, 21), (7, 22)


@pytest.mark.parametrize(
    ("version", "supported", "features", "expected"),
    [
        pytest.param((3, 9), SUPPORTED_40, {}, False, id="the setting is stronger"),
        pytest.param((4, 0), SUPPORTED_39, {}, True, id="the setting is stronger, 4.0"),
        pytest.param((10, 1), None, None, True, id="numbers, not text"),
        pytest.param(None, SUPPORTED_39, {"metadata.version": 22}, False, id="a 3.9 broker"),
        pytest.param(None, SUPPORTED_40, {"metadata.version": 21}, True, id="a 4.0 broker before the upgrade is done"),
        pytest.param(None, None, {"metadata.version": 21}, False, id="a 3.9 cluster"),
        pytest.param(None, None, {"metadata.version": 22}, True, id="a 4.0 cluster"),
        pytest.param(None, None, {"group.version": 1}, True, id="no level"),
        pytest.param(None, None, None, True, id="nothing is known"),
    ],
)
def test_profile(
    version: tuple[int, int] | None,
    supported: tuple[int, int] | None,
    features: dict[str, int] | None,
    expected: bool,
) -> None:
    """U-18: setting, registration, feature level, 4.x."""
    convert, origin = converts(version, supported, features)
    assert convert == expected
    assert origin
