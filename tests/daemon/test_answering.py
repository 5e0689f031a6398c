"""cleanerd.daemon.discovery.agent_probe: one thread per log directory finds out whether its broker answers."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.discovery.agent_probe import AgentProbe
from cleanerd.daemon.limits import DaemonLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, ...]:
    """Four log directories."""
    found = tuple(tmp_path / f"d{number}" for number in range(4))
    for path in found:
        path.mkdir()
    return found


@pytest.fixture
def make_probe() -> Iterator[Callable[..., AgentProbe]]:
    """Makes one of these limits; returns of directories are ignored."""
    made: list[AgentProbe] = []

    def make(probe: Callable[[Path], None] | None = None, **limits: float) -> AgentProbe:
        made.append(AgentProbe(lambda _path: None, DaemonLimits(**limits), probe=probe))
        return made[-1]

    yield make
    for each in made:
        each.close()


def probes() -> list[str]:
    """The names of the probe threads."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("cleanerd-probe-"))


def test_a_thousand_scans_use_one_thread_per_directory(
    paths: tuple[Path, ...], make_probe: Callable[..., AgentProbe]
) -> None:
    """Found by the fleet bench: a scan of one of four directories left four threads behind."""
    requested = make_probe(fresh_seconds=0.0)

    async def scans() -> list[str]:
        for _ in range(250):
            assert await requested.silent(paths) == frozenset()
        return probes()

    assert asyncio.run(scans()) == [f"cleanerd-probe-d{number}-0" for number in range(4)]


def test_a_broker_that_just_answered_is_not_queried_again(
    paths: tuple[Path, ...], make_probe: Callable[..., AgentProbe]
) -> None:
    """With hundreds of cleanings per second, each scan queried all directories for all of their partitions."""
    probed: list[str] = []

    async def scans(requested: AgentProbe, times: int) -> None:
        for _ in range(times):
            await requested.silent(paths)

    def probe(path: Path) -> None:
        probed.append(path.name)

    asyncio.run(scans(make_probe(probe, fresh_seconds=3600.0), 20))
    assert sorted(probed) == ["d0", "d1", "d2", "d3"]
    asyncio.run(scans(make_probe(probe, fresh_seconds=0.0), 2))
    assert len(probed) == 12


def test_a_log_directory_that_is_added_again_is_queried(
    paths: tuple[Path, ...], make_probe: Callable[..., AgentProbe]
) -> None:
    """An answer from before a reload dropped the directory does not count for the directory that is there now."""
    works, hangs = threading.Event(), threading.Event()

    def probe(_path: Path) -> None:
        if hangs.is_set():
            works.wait(60)

    # Long enough for the first answers, also on a busy machine.
    requested = make_probe(probe, fresh_seconds=3600.0, probe_seconds=2.0)
    asyncio.run(requested.silent(paths))
    requested.forget(paths[0])
    hangs.set()

    async def scan() -> frozenset[Path]:
        mute = await requested.silent(paths)
        works.set()
        return mute

    assert asyncio.run(scan()) == {paths[0]}
