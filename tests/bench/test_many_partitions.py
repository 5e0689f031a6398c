"""Cost of the daemon for 20,000 compacted partitions of a stopped broker, each one empty segment.

There is nothing to clean: this is the cost of scanning, remembering and showing. Four log directories, a hundred
partitions per topic, with the necessary number of topics. ``BENCH_EMPTY_PARTITIONS`` (default 20000),
``BENCH_IDLE_SECONDS`` (default 60).
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd_lab.bench.yardstick import idle_share
from tests.bench.daemon_cost import idle, reported, running
from tests.support.log_dirs import Partition, make_log_dir, with_directory_id

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS: Final = int(os.environ.get("BENCH_EMPTY_PARTITIONS", "20000"))
IDLE_SECONDS: Final = float(os.environ.get("BENCH_IDLE_SECONDS", "60"))
PARTITIONS_A_TOPIC: Final = 100
LOG_DIRS: Final = 4
QUIET_SHARE: Final = 0.9
MOST_READY_SECONDS: Final = 20.0
MOST_IDLE_SHARE: Final = 0.03
MOST_MEMORY_MIB: Final = 400.0
MOST_SCRAPE_MS: Final = 50.0


def write_log_dirs(base: Path) -> list[Path]:
    """The log directories of a broker stopped before any write."""
    topics = [(f"fleet{n}", uuid.uuid4()) for n in range(PARTITIONS // PARTITIONS_A_TOPIC)]
    names = [(f"{topic}-{number}", of) for topic, of in topics for number in range(PARTITIONS_A_TOPIC)]
    made = []
    for number in range(LOG_DIRS):
        partitions = {name: Partition({0: b""}, topic_id=of) for name, of in names[number::LOG_DIRS]}
        made.append(with_directory_id(make_log_dir(base / f"disk{number}", partitions), uuid.uuid4()))
    return made


@pytest.mark.bench
@pytest.mark.timeout(900)
def test_twenty_thousand_partitions(tmp_path: Path) -> None:
    """Ready within 20 s, idle below 3 % of a core and 400 MiB, a scrape within 50 ms."""
    log_dirs = write_log_dirs(tmp_path)
    found: dict[str, float] = {"partitions": PARTITIONS, "cores_share": round(idle_share(2), 2)}
    settings = [f"cleanerd.log.dirs={','.join(map(str, log_dirs))}", "topics.*.cleanup.policy=compact"]
    with running(tmp_path, "observe", settings) as daemon:
        found |= {"ready_seconds": daemon.ready_seconds, "ready_cpu_seconds": daemon.ready_cpu_seconds}
        status = daemon.daemon.ask("status")
        assert len(status["partitions"]) == PARTITIONS
        assert all(each["reason"].startswith("nothing to clean") for each in status["partitions"])
        found |= idle(daemon, IDLE_SECONDS)
    found = reported(found, "many_partitions")
    assert found["memory_mib"] <= MOST_MEMORY_MIB
    if found["cores_share"] >= QUIET_SHARE:
        assert found["ready_seconds"] <= MOST_READY_SECONDS
        assert found["idle_core_share"] <= MOST_IDLE_SHARE
        assert found["scrape_ms"] <= MOST_SCRAPE_MS
