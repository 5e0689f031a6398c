"""A batch that decompresses to more than the memory, and partitions at which the process is killed (U-35)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.daemon.little_memory import MIB, is_clean, rows, run_many_partitions
from tests.daemon.process import Daemon
from tests.daemon.service import assignments, broker
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

_KILLS = """
import os, signal, sys
from cleanerd.daemon.work import run_job
inner = run_job._run
def run(job, *more):
    if str(job.name) == "orders-3":
        print("killed at orders-3, alone" if job.alone else "killed at orders-3", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(job, *more)
run_job._run = run
from cleanerd.cli.main import run as main
sys.exit(main(sys.argv[4:]))
"""


@pytest.mark.parametrize("partitions", [20, pytest.param(100, marks=pytest.mark.long)])
def test_512_mib_many_partitions_and_a_bomb(tmp_path: Path, partitions: int) -> None:
    """U-35: the others are clean; the bomb is reported with file, position, sizes and a way out; no kill."""
    found = run_many_partitions(tmp_path, 512 * MIB, partitions)
    sys.stdout.write("\n".join(["", *found.lines(), ""]))
    assert (found.clean, found.kills) == (partitions - 1, 0)
    (name, reason), *others = found.quarantined.items()
    assert (name, others) == (f"orders-{partitions - 1}", [])
    assert f"{name}/{0:020d}.log at byte " in reason
    assert f"a batch of {found.stored_bytes} bytes decompresses to more than " in reason
    assert "cleanerd.max.unpacked.bytes" in reason
    assert found.resident_bytes < 400 * MIB


def test_a_partition_that_kills_the_process_is_tried_last_and_alone(tmp_path: Path) -> None:
    """U-35: after two deaths it is paused for a while, and the others are clean; retry gives it one more try."""

    def settled(view: dict[str, Any]) -> bool:
        return bool(view["partitions"]) and all(
            bool(row["quarantine"]) if name == "orders-3" else is_clean(row) for name, row in rows(view).items()
        )

    with broker(tmp_path / "logs", 6):
        settings = assignments(tmp_path / "logs", log_cleaner_threads="3", cleanerd_threads_per_log_dir="3")
        daemon = Daemon(settings, tmp_path, prefix=[sys.executable, "-c", _KILLS])
        with daemon:
            assert daemon.process.wait(PATIENCE_SECONDS) == -9
            daemon.start()
            assert daemon.process.wait(PATIENCE_SECONDS) == -9
            daemon.start()
            view = daemon.until("the others are clean", settled)
            (bad,) = [each for each in view["partitions"] if each["quarantine"]]
            assert "killed 2 times in a row" in bad["quarantine"]["reason"]
            assert bad["quarantine"]["retry_at_ms"] > bad["quarantine"]["since_ms"]
            assert daemon.ask("retry", partition="orders-3")["retried"] == ["orders-3"]
            assert daemon.process.wait(PATIENCE_SECONDS) == -9
            daemon.start()
            daemon.until("it is left alone again", settled)
        killed = [line for line in daemon.log.read_text().splitlines() if line.startswith("killed at")]
        assert killed == ["killed at orders-3", *["killed at orders-3, alone"] * 2]


def test_a_kill_from_outside_keeps_nothing_in_quarantine(tmp_path: Path) -> None:
    """An operator's SIGKILL: the partition in progress is tried last; hit twice it waits a while, then is forgotten."""
    with broker(tmp_path / "logs", 4):
        daemon = Daemon(assignments(tmp_path / "logs", cleanerd_retry_backoff_ms="500"), tmp_path)
        with daemon:
            for _ in range(3):
                daemon.until("it scans", lambda view: bool(view["partitions"]))
                daemon.process.kill()
                daemon.process.wait()
                daemon.start()
            view = daemon.until(
                "all are clean", lambda view: bool(view["partitions"]) and all(map(is_clean, view["partitions"]))
            )
            assert [each["quarantine"] for each in view["partitions"]] == [None] * 4
            place = tmp_path / "state" / "in-progress"
            # A worker removes its note; if it was killed after its job was done, the next daemon's scan removes it.
            daemon.until("no mark is left", lambda _view: not any(path.is_file() for path in place.rglob("*")))
