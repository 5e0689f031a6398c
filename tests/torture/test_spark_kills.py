"""Deaths in the course of ``cleanerd spark clean``: the log is what it was, and the next run leaves nothing.

A driver that dies at a chosen step, without a cluster: ``tests/spark/test_crashes.py``.
"""

from __future__ import annotations

import pytest

from tests.torture.spark_kills import VICTIMS, WHILE_STAGED, spark_field

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


def test_each_kind() -> None:
    """OP-2, S-28: driver, executors, Python workers, all of them; half of them at least while files are staged."""
    with spark_field() as field:
        wrong = [reported for victims in VICTIMS for reported in field.kill_once(victims, while_staged=True)]
        assert wrong == []
        assert 2 * field.moments[WHILE_STAGED] >= len(VICTIMS), field.moments
        assert field.outcomes["driver: failed"] == 1
        assert field.outcomes["executor: ended well"] == 1
