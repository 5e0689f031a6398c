"""The cost of a whole ``cleanerd clean`` in its own process, measured by the kernel (U-30)."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cleanerd.errors import CleanerdError
from cleanerd_lab.bench.generate import PARTITION, MadeLog, write_broker_files
from cleanerd_lab.bench.process import Cost, run_cleanerd

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STARTS: Final = 5


@dataclass(frozen=True, slots=True)
class WholeClean:
    """The cheapest of several cleanings of copies of one log. ``bytes_after`` are those of the sealed segments."""

    cost: Cost
    all_cpu_seconds: tuple[float, ...]
    records_read: int
    records_kept: int
    bytes_before: int
    bytes_after: int

    def cpu_ns_per_record(self, start: Cost) -> float:
        """CPU time per record, without the ``start`` (U-30)."""
        return (self.cost.cpu_seconds - start.cpu_seconds) * 1e9 / self.records_read


def clean_copies(log: MadeLog, work_dir: Path, *, repeat: int, settings: Sequence[str] = ()) -> WholeClean:
    """Clean ``repeat`` copies of ``log``; the last stays in ``work_dir / "cleaned"``. ``settings``: KEY=VALUE.

    Raises:
        CleanerdError: a cleaning failed or cleaned nothing.
        OSError: a copy cannot be made.
    """
    copy = work_dir / "cleaned"
    costs = []
    partition: dict[str, Any] = {}
    for _ in range(repeat):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(log.log_dir, copy)
        flush(copy)
        given = [f"topics.{PARTITION.topic}.segment.bytes={log.segment_bytes}", *settings]
        cost, answer = _run(copy, work_dir / "bytecode", given)
        partition = answer["partitions"][0]
        if partition["outcome"] != "cleaned":
            raise CleanerdError(f"the made-up log was not cleaned: {partition['reason']}", where=str(copy))
        costs.append(cost)
    return WholeClean(
        cost=min(costs, key=lambda cost: cost.cpu_seconds),
        all_cpu_seconds=tuple(cost.cpu_seconds for cost in costs),
        records_read=partition["records_read"],
        records_kept=partition["records_kept"],
        bytes_before=partition["bytes_before"],
        bytes_after=partition["bytes_after"],
    )


@dataclass(frozen=True, slots=True)
class TimedClean:
    """The elapsed time of one cleaning: in total, and by reported phase."""

    wall_seconds: float
    seconds: dict[str, float]

    @property
    def kernel_seconds(self) -> float:
        """Index, decide and rewrite, without the swap."""
        return sum(self.seconds[name] for name in ("index", "decide", "rewrite"))


def timed_clean(log: MadeLog, work_dir: Path, *, threads: int) -> TimedClean:
    """Clean a copy of ``log`` with ``log.cleaner.threads``; the copy is in ``work_dir / "timed"``, its logs are links.

    Raises:
        CleanerdError: the cleaning failed.
        OSError: the copy cannot be made.
    """
    copy = work_dir / "timed"
    shutil.rmtree(copy, ignore_errors=True)
    # Segments are never written to, only replaced.
    shutil.copytree(log.log_dir, copy, copy_function=os.link)
    given = [f"topics.{PARTITION.topic}.segment.bytes={log.segment_bytes}", f"log.cleaner.threads={threads}"]
    cost, answer = _run(copy, work_dir / "bytecode", given)
    return TimedClean(cost.wall_seconds, answer["partitions"][0]["seconds"])


def start_cost(work_dir: Path) -> Cost:
    """The least of a few starts on a log directory without partitions: the fixed cost of every cleaning."""
    empty = work_dir / "empty"
    empty.mkdir(exist_ok=True)
    write_broker_files(empty, {})
    return min((_run(empty, work_dir / "bytecode", [])[0] for _ in range(STARTS)), key=lambda cost: cost.cpu_seconds)


def flush(directory: Path) -> None:
    """Flush new files to the disk, so that no other process's fsync has to wait for them."""
    for path in directory.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def clean_arguments(log_dir: Path, state_dir: str, assignments: Sequence[str]) -> list[str]:
    """The command line that cleans ``log_dir`` and answers in JSON; ``assignments``: KEY=VALUE."""
    given = [f"cleanerd.state.dir={state_dir}", f"topics.{PARTITION.topic}.cleanup.policy=compact", *assignments]
    options = [part for assignment in given for part in ("--set", assignment)]
    return ["clean", "--yes", "--quiet", "--no-config", "--json", *options, str(log_dir)]


def _run(log_dir: Path, bytecode_dir: Path, assignments: Sequence[str]) -> tuple[Cost, dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="cleanerd-state-") as state:
        done = run_cleanerd(clean_arguments(log_dir, state, assignments), bytecode_dir=bytecode_dir)
    if done.exit_code != 0:
        raise CleanerdError(f"cleanerd clean ended with exit code {done.exit_code}: {done.stderr}", where=str(log_dir))
    return done.cost, json.loads(done.stdout)
