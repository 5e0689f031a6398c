"""cleanerd.daemon.status.publisher: many changes make one snapshot, in at most a four-hundredth of the time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.status.publisher import SOON_SECONDS, Publisher
from tests.daemon.service import assignments, serve
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.daemon.service import Service
    from cleanerd.daemon.view import DaemonView

pytestmark = pytest.mark.long


def test_many_changes_make_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of thousands of partitions takes long: one for every change took a third of all work."""
    path = make_log_dir(tmp_path / "logs", {})
    make = Publisher._make
    took = 2 * SOON_SECONDS

    def slow(publisher: Publisher) -> DaemonView:
        until = time.thread_time() + took
        while time.thread_time() < until:
            pass
        return make(publisher)

    async def story(service: Service) -> None:
        published = service.publisher
        # A snapshot that takes so long would need a million partitions.
        monkeypatch.setattr(Publisher, "_make", slow)
        published.publish()
        assert published._pending is None
        published.soon()
        first = published._pending
        assert first is not None
        assert first.when() - asyncio.get_running_loop().time() > 399 * took
        for _ in range(100):
            published.soon()
        assert published._pending is first
        published.publish()
        assert first.cancelled()

    serve(assignments(path), story)


def test_a_stall_does_not_count_as_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine stopped for a second during a snapshot: the next one would come in seven minutes."""
    make = Publisher._make

    def stalled(publisher: Publisher) -> DaemonView:
        time.sleep(1)
        return make(publisher)

    async def story(service: Service) -> None:
        published = service.publisher
        # The machine has to stop while the snapshot is made.
        monkeypatch.setattr(Publisher, "_make", stalled)
        published.publish()
        published.soon()
        assert published._pending is not None
        assert published._pending.when() - asyncio.get_running_loop().time() < 200

    serve(assignments(make_log_dir(tmp_path / "logs", {})), story)
