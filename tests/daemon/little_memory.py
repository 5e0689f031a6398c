"""A daemon with little memory and many partitions, one with a bomb: how many are clean, and at what cost.

Run it as root: ``python -m tests.daemon.little_memory [--memory BYTES] [--partitions N]``. The limit needs cgroups (v2
or v1) that this process may create. Without them the figures are the process's peak resident memory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tests.daemon.process import Daemon
from tests.daemon.service import assignments, broker
from tests.support.bombs import zeros_batch
from tests.support.log_dirs import Partition
from tests.support.logs import keyed_batch
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB: Final = 1024 * 1024
BOMB_BYTES: Final = 944_000_000


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A memory cgroup. ``version`` 0: this process may not create one."""

    path: Path
    version: int

    @property
    def prefix(self) -> list[str]:
        """The command words that start a process in this cgroup."""
        return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', str(self.path)] if self.version else []

    def peak_bytes(self) -> int | None:
        """The peak of the memory charged to it, page cache included."""
        name = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}.get(self.version, "none")
        with contextlib.suppress(OSError):
            return int((self.path / name).read_text())
        return None

    def kills(self) -> int:
        """The number of its processes that the kernel killed for their memory."""
        name = {1: "memory.oom_control", 2: "memory.events"}.get(self.version, "none")
        with contextlib.suppress(OSError):
            rows = [line.split() for line in (self.path / name).read_text().splitlines()]
            return sum(int(row[1]) for row in rows if row[0] == "oom_kill")
        return 0


@contextlib.contextmanager
def cgroup(memory_bytes: int) -> Iterator[Cgroup]:
    """Create a cgroup with this memory limit and no swap."""
    name = f"cleanerd-{secrets.token_hex(4)}"
    limits = {2: ("memory.max", "memory.swap.max"), 1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")}
    for version, root in ((2, Path("/sys/fs/cgroup")), (1, Path("/sys/fs/cgroup/memory"))):
        limit, swap = limits[version]
        made = Cgroup(root / name, version)
        if version == 2 and not (root / "cgroup.controllers").exists():
            continue
        try:
            made.path.mkdir()
        except OSError:
            continue
        try:
            (made.path / limit).write_text(str(memory_bytes))
        except OSError:
            made.path.rmdir()
            continue
        with contextlib.suppress(OSError):
            (made.path / swap).write_text(str(memory_bytes if version == 1 else 0))
        try:
            yield made
        finally:
            _remove(made.path)
        return
    yield Cgroup(Path(), 0)


def _remove(path: Path) -> None:
    """Remove the cgroup once its processes have ended."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            path.rmdir()
            return
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Figures:
    """The results. ``peak_bytes``: of the cgroup, page cache included; ``resident_bytes``: of the process."""

    partitions: int
    stored_bytes: int
    clean: int
    quarantined: dict[str, str]
    cgroup_version: int
    peak_bytes: int | None
    resident_bytes: int
    kills: int
    seconds: float

    def lines(self) -> list[str]:
        """For people."""
        peak = "" if self.peak_bytes is None else f", {self.peak_bytes / MIB:.0f} MiB with the page cache"
        where = f"cgroup v{self.cgroup_version}" if self.cgroup_version else "no cgroup"
        return [
            f"{self.partitions} partitions, one with a batch of {self.stored_bytes} bytes that unpacks to {BOMB_BYTES}",
            f"clean: {self.clean}, in {self.seconds:.1f} s; killed by the kernel: {self.kills} times",
            f"most memory ({where}): {self.resident_bytes / MIB:.0f} MiB resident{peak}",
            *(f"quarantined: {name}: {reason}" for name, reason in self.quarantined.items()),
        ]


def bomb() -> Partition:
    """A batch that decompresses to 944 MB from less than 32 kB, behind ordinary batches."""
    first = keyed_batch(0, [("a", "1"), ("b", "2")]) + zeros_batch(2, BOMB_BYTES)
    return Partition({0: first, 4: keyed_batch(4, [("a", "3")]), 5: keyed_batch(5, [("c", "4")])})


def run_many_partitions(base: Path, memory_bytes: int, partitions: int, **settings: str) -> Figures:
    """A daemon cleans the partitions; the last one has the bomb."""
    bad = f"orders-{partitions - 1}"
    made = {f"orders-{number}": two_groups() for number in range(partitions - 1)}
    logs = {**made, bad: bomb()}

    def done(view: dict[str, Any]) -> bool:
        return len(_clean(view)) == len(made) and len(_quarantined(view)) == 1

    with broker(base / "logs", logs), cgroup(memory_bytes) as group:
        daemon = Daemon(assignments(base / "logs", **settings), base, prefix=group.prefix)
        started = time.monotonic()
        with daemon:
            view = daemon.until("all have had their turn", done, PATIENCE_SECONDS)
            seconds = time.monotonic() - started
            resident = _most_resident(daemon.process.pid)
            assert daemon.end(signal.SIGTERM) == 143, daemon.log.read_text()
        return Figures(
            partitions=partitions,
            stored_bytes=len(zeros_batch(2, BOMB_BYTES)),
            clean=len(_clean(view)),
            quarantined=_quarantined(view),
            cgroup_version=group.version,
            peak_bytes=group.peak_bytes(),
            resident_bytes=resident,
            kills=group.kills(),
            seconds=seconds,
        )


def _clean(view: dict[str, Any]) -> list[str]:
    return [name for name, each in rows(view).items() if is_clean(each)]


def rows(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The partitions by name."""
    return {f"{each['topic']}-{each['partition']}": each for each in view["partitions"]}


def is_clean(row: dict[str, Any]) -> bool:
    """Whether it is clean up to its bound, by this process or an earlier one."""
    return row["first_dirty_offset"] == row["first_uncleanable_offset"] and not row["quarantine"]


def _quarantined(view: dict[str, Any]) -> dict[str, str]:
    return {name: each["quarantine"]["reason"] for name, each in rows(view).items() if each["quarantine"]}


def _most_resident(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@click.command()
@click.option("--memory", "memory_bytes", default=512 * MIB, show_default=True)
@click.option("--partitions", default=100, show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(memory_bytes: int, partitions: int, threads: int) -> None:
    """Print the figures; exit code 1 when they are not as expected."""
    with tempfile.TemporaryDirectory(prefix="cleanerd-little-memory-") as base:
        figures = run_many_partitions(Path(base), memory_bytes, partitions, log_cleaner_threads=str(threads))
    click.echo(f"memory: {memory_bytes / MIB:.0f} MiB, log.cleaner.threads {threads}, as {os.geteuid()}")
    for line in figures.lines():
        click.echo(line)
    sys.exit(0 if figures.clean == partitions - 1 and not figures.kills else 1)


if __name__ == "__main__":
    main()
