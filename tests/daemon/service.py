"""Shared by the daemon's tests: log directories with a fake broker, and a running service."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from cleanerd.config.load import load_settings
from cleanerd.daemon.control_client import send_request
from cleanerd.daemon.discovery.log_dir_scan import ScanContext
from cleanerd.daemon.discovery.watch import Watcher
from cleanerd.daemon.limits import DaemonLimits
from cleanerd.daemon.service import Service
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.support.fake_agent import FakeAgent
from tests.support.log_dirs import make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.swap.live_round import held
from tests.swap.offline_round import two_groups

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from cleanerd.daemon.view import DaemonView, PartitionView
    from cleanerd.format.names import TopicPartition
    from tests.support.log_dirs import Partition

SETTLES_SOON = DaemonLimits(settle_seconds=0.3)
"""For tests with a broker without an agent, which wait for two readings of its checkpoints (S-03)."""


COMPACT = "topics.orders.cleanup.policy=compact"


@contextmanager
def broker(root: Path, partitions: Mapping[str, Partition] | int = 1) -> Iterator[FakeAgent]:
    """A log directory whose lock is held, as by a broker, with an agent next to it."""
    made = {f"orders-{n}": two_groups() for n in range(partitions)} if isinstance(partitions, int) else partitions
    make_log_dir(root, made, clean_shutdown=False)
    with held(root), FakeAgent(root, root / ".cleanerd-agent.sock") as agent:
        yield agent


BY_THE_CLOCK = {"topics_orders_cleanerd_tombstone_replicated": "ignore"}
"""For a broker without a metadata log: its tombstones would wait until one shows their replicas (U-70)."""


def assignments(*log_dirs: Path, **more: str) -> list[str]:
    """The ``--set`` values of a daemon for ``log_dirs``; keys of ``more`` with underscores."""
    base = log_dirs[0].parent
    values = {
        "cleanerd.log.dirs": ",".join(map(str, log_dirs)),
        "cleanerd.mode": "auto",
        "cleanerd.state.dir": str(base / "state"),
        "cleanerd.control.socket": str(base / "control.sock"),
        "cleanerd.http.listen": "off",
        "cleanerd.disk.reserve": "0",
        "log.cleaner.backoff.ms": "200",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return [f"{key}={value}" for key, value in values.items()]


def serve(settings: Sequence[str], story: Callable[[Service], Awaitable[None]], **given: Any) -> Service:
    """Run a service while ``story`` runs, then end it as SIGTERM does. ``given``: further arguments of `Service`."""
    reported = list(settings)

    async def main() -> Service:
        service = Service(load_settings([], reported, {}), lambda: load_settings([], reported, {}), **given)
        running = asyncio.create_task(service.run())
        try:
            telling = asyncio.ensure_future(story(service))
            await asyncio.wait([running, telling], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                telling.cancel()
                await running
            await telling
        finally:
            service.stop()
            async with asyncio.timeout(PATIENCE_SECONDS):  # pytest's own limit does not end uvloop
                await running
        return service

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def recorded(followed: list[set[Path]]) -> type[Watcher]:
    """A watcher that appends the log directories that it follows."""

    class Recorded(Watcher):
        def follow(self, log_dirs: Collection[Path], partitions: Collection[tuple[str, TopicPartition]]) -> None:
            followed.append(set(log_dirs))
            super().follow(log_dirs, partitions)

    return Recorded


async def until(what: str, holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until it does."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(LookupError):  # it is not known yet
            if holds():
                return
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def rounds(service: Service, count: int = 2) -> None:
    """Wait for this many full scans: a cleaning that they did not start does not start at all."""
    for _ in range(count):
        before = service.view().last_scan_ms
        await until("a scan", lambda before=before: service.view().last_scan_ms != before)  # type: ignore[misc]


def partition(view: DaemonView, name: str = "orders-0") -> PartitionView:
    """The partition of that name."""
    (found,) = [each for each in view.partitions if each.name == name] or [None]
    if found is None:
        raise LookupError(name)
    return found


def is_clean(view: DaemonView, offset: int, name: str = "orders-0") -> bool:
    """Clean up to the offset, and no longer being cleaned: a scan sees the checkpoint before the job has ended."""
    found = partition(view, name)
    return found.first_dirty_offset == offset and found.phase != "cleaning"


def outcomes(view: DaemonView) -> list[str]:
    """The outcomes of the cleanings that ended, the oldest first."""
    return [clean.result["outcome"] for clean in reversed(view.history)]


def control_requests(root: Path) -> Any:
    """``send_request`` in a thread, so that the event loop can answer meanwhile."""
    path = root.parent / "control.sock"

    async def one(operation: str, **values: Any) -> dict[str, Any]:
        return await asyncio.to_thread(send_request, path, operation, **values)

    return one


def scan_context(root: Path, *more: str) -> ScanContext:
    reported = [
        f"cleanerd.state.dir={root.parent / 'state'}",
        f"cleanerd.log.dirs={root}",
        "cleanerd.mode=auto",
        COMPACT,
    ]
    return ScanContext(load_settings([], [*reported, *more], {}), (root,), StateStore(root.parent / "state"))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
