"""cleanerd.daemon.looking.answering: who answers is found out by one thread a log directory, and not for each look."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.looking import answering
from cleanerd.daemon.looking.answering import Answering

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, ...]:
    """Four log directories."""
    found = tuple(tmp_path / f"d{number}" for number in range(4))
    for path in found:
        path.mkdir()
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """Nobody is told that a directory came back."""
    monkeypatch.setattr(answering, "FRESH_SECONDS", 0.0)
    found = Answering(lambda _path: None)
    yield found
    found.close()


def probes() -> list[str]:
    """The threads that there are for it."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("cleanerd-probe-"))


def test_a_thousand_looks_have_a_thread_a_directory(paths: tuple[Path, ...], asked: Answering) -> None:
    """Found by the fleet bench: a look at one of four directories left four threads behind."""

    async def looks() -> list[str]:
        for _ in range(250):
            assert await asked.silent(paths) == frozenset()
        return probes()

    assert asyncio.run(looks()) == [f"cleanerd-probe-d{number}-0" for number in range(4)]


def test_a_broker_that_just_answered_is_not_asked_again(
    paths: tuple[Path, ...], asked: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of cleanings a second look again: each asked all directories for all of their names."""
    listed: list[str] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path.name) or listdir(path))

    async def looks(times: int) -> None:
        for _ in range(times):
            await asked.silent(paths)

    monkeypatch.setattr(answering, "FRESH_SECONDS", 3600.0)
    asyncio.run(looks(20))
    assert sorted(listed) == ["d0", "d1", "d2", "d3"]
    monkeypatch.setattr(answering, "FRESH_SECONDS", 0.0)
    asyncio.run(looks(2))
    assert len(listed) == 12


def test_a_log_directory_that_is_added_again_is_asked(
    paths: tuple[Path, ...], asked: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a directory answered before a reload dropped it says nothing of the one that is there now."""
    monkeypatch.setattr(answering, "FRESH_SECONDS", 3600.0)
    asyncio.run(asked.silent(paths))
    asked.forget(paths[0])
    works = threading.Event()
    monkeypatch.setattr(os, "statvfs", lambda _path: works.wait(60))
    monkeypatch.setattr(answering, "PROBE_SECONDS", 0.1)

    async def look() -> frozenset[Path]:
        mute = await asked.silent(paths)
        works.set()
        return mute

    assert asyncio.run(look()) == {paths[0]}
