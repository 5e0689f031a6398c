"""cleanerd.daemon.looks: a log directory whose disk hangs holds up nobody but itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon import looks
from cleanerd.daemon.looker import DirLooker
from cleanerd.errors import CleanerdError
from tests.apply.offline_scene import two_groups
from tests.cleaner.driver import scratch
from tests.daemon.scene import assignments, broker, partition, serve, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from cleanerd.daemon.service import Service


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "good"


class Disk:
    """Every look at ``path`` waits while the disk hangs."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.works = threading.Event()
        self.looks = 0
        real = DirLooker.look

        def look(looker: DirLooker, *arguments: Any) -> Any:
            if looker.path == path:
                self.looks += 1
                self.works.wait(30)
            return real(looker, *arguments)

        monkeypatch.setattr(DirLooker, "look", look)


def test_a_disk_that_hangs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other directory is cleaned; this one is offline and asked once; when it answers it is cleaned too."""
    bad = root.parent / "bad"
    disk = Disk(bad, monkeypatch)
    monkeypatch.setattr(looks, "ANSWER_SECONDS", 0.3)
    with broker(root, 2), broker(bad, {"lost-0": two_groups()}):

        async def story(service: Service) -> None:
            await until("the others are clean", lambda: service.view().totals.cleans.get("cleaned") == 2)
            view = service.view()
            assert view.ready
            assert view.healthy
            online = {found.path: found.online for found in view.log_dirs}
            assert online == {str(root): True, str(bad): False}
            assert any(f"{bad}: did not answer within" in text for text in view.warnings)
            rounds = view.last_round_ms
            await until("rounds go on", lambda: service.view().last_round_ms != rounds)
            assert disk.looks == 1
            disk.works.set()
            await until("it is clean too", lambda: service.view().totals.cleans.get("cleaned") == 3)
            assert all(found.online for found in service.view().log_dirs)

        serve(assignments(root, bad), story)


def test_asked_about_what_hangs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It worked, and then it does not: explain says so at once, and the end waits for nobody."""
    monkeypatch.setattr(looks, "ANSWER_SECONDS", 0.3)
    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: partition(service.view()).clean_offset == 8)
            disk = Disk(root, monkeypatch)
            await until("it hangs", lambda: not service.view().log_dirs[0].online)
            assert "did not answer" in partition(service.view()).reason
            with pytest.raises(CleanerdError, match="does not answer"):
                await service.explain("orders-0")
            assert not disk.works.is_set()

        started = time.monotonic()
        serve(assignments(root), story)
        assert time.monotonic() - started < 20


def test_a_bug_in_a_look_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends and is replaced; the next look is as any other."""
    real, bugs = DirLooker.look, [ZeroDivisionError("a bug")]

    def look(looker: DirLooker, *arguments: Any) -> Any:
        if bugs:
            raise bugs.pop()
        return real(looker, *arguments)

    monkeypatch.setattr(DirLooker, "look", look)
    with broker(root):

        async def story(service: Service) -> None:
            await until("clean", lambda: partition(service.view()).clean_offset == 8)
            assert f"a look at {root} failed: ZeroDivisionError: a bug" in service.view().warnings

        serve(assignments(root), story)
