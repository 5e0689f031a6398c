"""The log that jobs use while system calls fail, and the jobs: commands, and work of the daemon.

The log is small and has every case: changing groups of two segments beside an unchanged one, an aborted and a committed
transaction, a tombstone, compressed batches, a producer snapshot.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, cast

from cleanerd.broker.live_broker import RetryPolicy
from cleanerd.cli import apply as apply_module
from cleanerd.cli import clean as clean_module
from cleanerd.cli import undo as undo_module
from cleanerd.cli.main import run
from cleanerd.config.load import load_settings
from cleanerd.daemon.discovery.log_dir_scan import ScanContext
from cleanerd.daemon.discovery.log_dir_scanner import LogDirScanner
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.partition_scan import FailedScan
from cleanerd.daemon.work import run_job
from cleanerd.daemon.work.job import Backoff, CleaningJob, Kind
from cleanerd.host.clock import Clock
from cleanerd.resolution import checkpoint_pair
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from tests.support.log_dirs import Partition, Producer, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cleanerd.daemon.work.progress import JobProgress
    from cleanerd.errors import CleanerdError

NAME: Final = "orders-0"
NOW: Final = BASE_TIMESTAMP_MS + 1_000_000
SOCKET: Final = ".cleanerd-agent.sock"
QUICK: Final = RetryPolicy(
    plans=3,
    tries=3,
    first_wait_seconds=0.01,
    longest_wait_seconds=0.02,
    lost_seconds=0.3,
    deletion_seconds=0.3,
    connect_seconds=1.0,
    answer_seconds=1.0,
    swap_seconds=1.0,
)

Broker = Literal["down", "up", "agent"]


@dataclass(frozen=True, slots=True)
class Workspace:
    """``root`` has all files whose calls may fail: the log directory, cleanerd's state, replaced segments."""

    root: Path

    @property
    def logs(self) -> Path:
        """The log directory."""
        return self.root / "logs"

    @property
    def partition(self) -> Path:
        """The partition directory."""
        return self.logs / NAME

    def settings(self) -> list[str]:
        """Settings of every command."""
        return [
            f"cleanerd.state.dir={self.root / 'state'}",
            "cleanerd.disk.reserve=0",
            "log.cleaner.threads=1",
            "log.cleaner.dedupe.buffer.size=2097152",
            "topics.orders.cleanup.policy=compact",
            "topics.orders.segment.bytes=2500",
            "cleanerd.delegation=assumed",
        ]


@dataclass(frozen=True, slots=True)
class Torment:
    """A job; the jobs ``before`` it run without faults.

    ``work`` returns the exit code, and prints the operator's output.

    ``ends``: the log after success; after a failure any state up to it is right; "same": the log must not change.
    """

    name: str
    work: Callable[[Workspace], int]
    before: tuple[str, ...] = ()
    ends: Literal["new", "old", "same"] = "same"
    broker: Broker = "down"


def make(workspace: Workspace) -> None:
    """The log before the first job."""
    segments = {
        0: keyed_batch(0, [("a", "1"), ("b", "1"), ("c", "1")], timestamp=NOW - 5000)
        + _of_producer(7, 3)
        + encode_marker(6, commit=False, producer_id=7, timestamp=NOW - 5000),
        7: keyed_batch(7, [("a", "2"), ("b", "2"), ("a", "3")], timestamp=NOW - 4000, codec=1)
        + _of_producer(8, 10)
        + encode_marker(13, commit=True, producer_id=8, timestamp=NOW - 4000),
        14: keyed_batch(14, [("big", "x" * 2200)], timestamp=NOW - 3000),
        15: keyed_batch(15, [("c", None), ("d", "1")], timestamp=NOW - 2000),
        17: keyed_batch(17, [("d", "2"), ("e", "1")], timestamp=NOW - 1500, codec=2),
        19: keyed_batch(19, [("z", "1")], timestamp=NOW - 1000),
    }
    producers = [Producer(7, 5, NOW - 5000, last_sequence=2), Producer(8, 12, NOW - 4000, last_sequence=2)]
    partition = Partition(
        segments, snapshots={19: producers}, aborted={0: [(7, 3, 6, 7)]}, mtime_ms=NOW - 1000, index_interval_bytes=64
    )
    make_log_dir(workspace.logs, {NAME: partition})
    (workspace.root / "kept").mkdir()


def _of_producer(producer_id: int, base: int) -> bytes:
    """Three batches of one transaction, with one record each."""
    return b"".join(
        encode_batch(
            [Record(b"t%d" % number, b"v" * 40, timestamp=NOW - 5000)],
            base_offset=base + number,
            transactional=True,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=number,
        )
        for number in range(3)
    )


def command(*arguments: str) -> Callable[[Workspace], int]:
    """A command line; ``{logs}`` and ``{root}`` are replaced."""

    def work(workspace: Workspace) -> int:
        places = {
            "{logs}": str(workspace.logs),
            "{root}": str(workspace.root),
            "{root}/kept": str(workspace.root / "kept"),
        }
        reported = [places.get(each, each) for each in arguments]
        return run([*reported, *(word for each in workspace.settings() for word in ("--set", each))])

    return work


def daemon(kind: Kind) -> Callable[[Workspace], int]:
    """A scan by the daemon, and its job."""

    def work(workspace: Workspace) -> int:
        store = StateStore(workspace.root / "state")
        settings = load_settings([], [f"cleanerd.log.dirs={workspace.logs}", *workspace.settings()], {})
        scanner = LogDirScanner(workspace.logs, limits=DaemonLimits(settle_seconds=0.0))
        try:
            context = ScanContext(settings, (workspace.logs,), store, now_ms=lambda: NOW)
            # Beside a broker the lower of two readings of its checkpoints counts.
            first = scanner.scan(context)
            _printed(first.error or "; ".join(scan.reason for scan in first.scans if isinstance(scan, FailedScan)))
            present = first.present or ()
            found = scanner.scan(replace(context, stale=[(str(workspace.logs), name) for name in present]))
        finally:
            scanner.release()
        if found.error or found.facts is None or not found.scans:
            return _printed(found.error or "nothing was found")
        (scan,) = found.scans
        if isinstance(scan, FailedScan):
            return _printed(scan.reason)
        done = run_job.run(
            CleaningJob(
                name=scan.name,
                path=workspace.logs,
                kind=kind,
                trigger="manual",
                scan=scan,
                facts=found.facts,
                socket=workspace.logs / SOCKET if kind == "live" else None,
                store=store,
                progress=cast("JobProgress", _Progress()),
                started_ms=NOW,
                threads=1,
                before=None,
                backoff=Backoff(1000, 8000),
                clock=Clock(wall=lambda: NOW, steady=lambda: 0),
            )
        )
        result = done.result
        if result is not None and result.error is not None:
            return _printed(f"{result.outcome}: {result.reason}", result.error)
        return _printed(done.failed or done.passing)

    return work


def _printed(what: str, error: CleanerdError | None = None) -> int:
    if what:
        sys.stderr.write(f"{what}\n")
    return 0 if not what else 1 if error is None else error.exit_code


class _Progress:
    def phase(self, name: str, total_bytes: int) -> None:
        """No progress display."""

    def advance(self, done_bytes: int) -> None:
        """No progress display."""

    def wrote(self, done_bytes: int) -> None:
        """No progress display."""

    def check(self) -> None:
        """Never stopped."""


_REQUESTED: Final = ("--force", "--now-ms", str(NOW))

JOBS: Final = {
    job.name: job
    for job in (
        Torment("clean", command("clean", "{logs}", "--yes", *_REQUESTED), ends="new"),
        Torment(
            "clean-keep", command("clean", "{logs}", "--yes", "--keep-replaced", "{root}/kept", *_REQUESTED), ends="new"
        ),
        Torment("stage", command("stage", "{logs}", *_REQUESTED), broker="up"),
        Torment("apply", command("apply", "{logs}"), before=("stage",), ends="new"),
        Torment("undo", command("undo", "{logs}", "--yes"), before=("clean-keep",), ends="old"),
        Torment("verify", command("verify", "{logs}", "--now-ms", str(NOW))),
        Torment("plan", command("plan", "{logs}", "--exact", *_REQUESTED)),
        Torment("daemon-stage", daemon("stage"), broker="up"),
        Torment("daemon-live", daemon("live"), ends="new", broker="agent"),
        Torment("daemon-observe", daemon("observe"), broker="up"),
        Torment("daemon-horizons", daemon("horizons"), before=("clean",), broker="up"),
        Torment("daemon-drop", daemon("drop"), before=("stage",), broker="up"),
    )
}


@contextmanager
def impatient() -> Iterator[None]:
    """Skip the waits for a lock, between checkpoint readings and for a lost response: the test is the only process."""
    real, settle_seconds = LogDirLock.acquire, checkpoint_pair.SETTLE_SECONDS

    class QuickLock:
        @staticmethod
        def acquire(path: Path, wait_seconds: float = 0.0) -> LogDirLock:  # noqa: ARG004
            return real(path, 0, settle_seconds=0)

    real_broker = run_job.SwappingBroker
    modules = (apply_module, clean_module, undo_module)
    for module in modules:
        vars(module)["LogDirLock"] = QuickLock
    vars(checkpoint_pair)["SETTLE_SECONDS"] = 0.0
    vars(run_job)["SwappingBroker"] = lambda socket, _policy, *, pool: real_broker(socket, QUICK, pool=pool)
    try:
        yield
    finally:
        for module in modules:
            vars(module)["LogDirLock"] = LogDirLock
        vars(checkpoint_pair)["SETTLE_SECONDS"] = settle_seconds
        vars(run_job)["SwappingBroker"] = real_broker


def descriptors() -> dict[int, str]:
    """Open descriptors of this process."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


def names(wanted: Sequence[str]) -> list[Torment]:
    """The jobs ``wanted``, or all.

    Raises:
        KeyError: there is no such job.
    """
    return [JOBS[name] for name in wanted] if wanted else list(JOBS.values())
