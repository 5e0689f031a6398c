"""Kills during ``cleanerd spark clean``: the log is unchanged, and the next run leaves no files.

For a driver that dies at a chosen step, without a cluster, see ``tests/spark/test_crashes.py``.
"""

from __future__ import annotations

import pytest

from tests.torture.spark_kills import VICTIMS, WHILE_STAGED, spark_field

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]


def test_each_kind() -> None:
    """OP-2, S-28: driver, executors, Python workers, all of them; at least half of the kills during staging."""
    with spark_field() as field:
        wrong = [reported for victims in VICTIMS for reported in field.kill_once(victims, while_staged=True)]
        assert wrong == []
        assert 2 * field.moments[WHILE_STAGED] >= len(VICTIMS), field.moments
        assert field.outcomes["driver: failed"] == 1
        assert field.outcomes["executor: ended well"] == 1
