"""The classification of crash states: which rebuilt transaction indexes hide the same records as the written ones."""

from __future__ import annotations

import pytest

from tests.crash.classify import _hides_the_same
from tests.support.logs import Record, encode_batch, encode_marker

FILES = {
    "00000000000000000000.log": encode_batch([Record(b"a", b"1")], base_offset=4, producer_id=2, transactional=True)
    + encode_marker(7, commit=False, producer_id=2)
}


@pytest.mark.parametrize(
    ("rebuilt", "written", "same"),
    [
        pytest.param([(2, 4, 7)], [(2, 4, 7)], True, id="the same"),
        pytest.param([(2, 4, 7)], [(2, 1, 7)], True, id="its first records are gone"),
        pytest.param([(2, 5, 7)], [(2, 1, 7)], False, id="a record is left below its begin"),
        pytest.param([(2, 1, 7)], [(2, 4, 7)], False, id="it begins before it began"),
        pytest.param([], [(2, 4, 7)], False, id="a record is left that no index hides"),
        pytest.param([], [(3, 4, 7)], True, id="no batch of its producer is left"),
        pytest.param([(3, 4, 7)], [(2, 4, 7)], False, id="another producer"),
        pytest.param([(2, 4, 7), (2, 8, 9)], [(2, 4, 7)], False, id="one that never was"),
        pytest.param([(2, 8, 9), (2, 4, 7)], [(2, 4, 7), (2, 8, 9)], False, id="not ascending"),
    ],
)
def test_the_same_transactions_are_hidden(
    rebuilt: list[tuple[int, int, int]], written: list[tuple[int, int, int]], *, same: bool
) -> None:
    """F-8, C-69: a transaction that began in another segment, whose first records were cleaned.

    It was seen once in six runs.
    """
    assert _hides_the_same(rebuilt, written, FILES) is same
