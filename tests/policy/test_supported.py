"""What this version refuses rather than cleans wrongly."""

from __future__ import annotations

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.policy.supported import unsupported
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, keyed_batch

GOOD = keyed_batch(0, [("a", "1")])
IDEMPOTENT = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(GOOD, None, id="plain"),
        pytest.param(encode_batch([Record(b"k")], **IDEMPOTENT), None, id="idempotent"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(GOOD + encode_legacy(5, b"k", b"v", magic=0), ("offset 5", "v0"), id="v0"),
        pytest.param(GOOD + encode_legacy(5, b"k", b"v", magic=1), ("offset 5", "v1"), id="v1"),
        pytest.param(
            encode_batch([Record(b"k")], base_offset=6, transactional=True, **IDEMPOTENT), None, id="transactional data"
        ),
        pytest.param(GOOD + encode_marker(7, commit=True, producer_id=1), None, id="marker"),
        pytest.param(
            encode_marker(7, commit=True, producer_id=1) + encode_legacy(8, b"k", b"v", magic=1),
            ("offset 8", "v1"),
            id="v1 behind a transaction",
        ),
    ],
)  # fmt: skip
def test_unsupported(data: bytes, expected: tuple[str, ...] | None) -> None:
    """The reason names the offset and what is there."""
    reason = unsupported(_kernel.scan_headers(np.frombuffer(data, np.uint8), 0))
    if expected is None:
        assert reason is None
    else:
        assert reason is not None
        assert all(part in reason for part in expected)
