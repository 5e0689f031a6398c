"""Cost of a cleaned copy of an archive compared with the local engine, with tiny partitions.

``BENCH_TINY_PARTITIONS`` (default 300). Spark does not start: one process does such small work.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd_lab.bench.yardstick import idle_share
from tests.bench.daemon_cost import reported
from tests.spark.archives import archived, cleaned_locally, make_tiny

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS: Final = int(os.environ.get("BENCH_TINY_PARTITIONS", "300"))
ROUNDS: Final = 3
MOST_TIMES: Final = 2.0
START_SECONDS: Final = 3.0


@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_tiny_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At most twice the local engine's CPU, plus a startup: both in turns, the least of three."""
    path = make_tiny(tmp_path / "data", PARTITIONS)
    ours, theirs = [], []
    for number in range(ROUNDS):
        output, began = tmp_path / f"out{number}", time.process_time()
        code, _, messages = archived(capsys, path, output, tmp_path / f"state{number}")
        ours.append(time.process_time() - began)
        assert code == 0, messages
        began = time.process_time()
        cleaned_locally(capsys, path)
        theirs.append(time.process_time() - began)
        for each in (output, path.parent / "local-state"):
            shutil.rmtree(each)
    found = {"partitions": float(PARTITIONS), "cores_share": round(idle_share(2), 2)}
    found |= {"archive_seconds": min(ours), "local_engine_seconds": min(theirs)}
    found = reported(found, "archive")
    assert found["archive_seconds"] < MOST_TIMES * found["local_engine_seconds"] + START_SECONDS
