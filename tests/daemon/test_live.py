"""The daemon beside a broker with the agent: what is dirty is cleaned, and what it knows is shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.apply.live_scene import content, leftovers
from tests.cleaner.driver import scratch
from tests.daemon.scene import assignments, broker, outcomes, partition, serve, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.daemon.service import Service


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def test_what_is_dirty_is_cleaned_and_shown(root: Path) -> None:
    """OP-1: found, cleaned through the agent, remembered, counted."""
    with broker(root, 3) as agent:
        before = content(root)

        async def story(service: Service) -> None:
            await until("all are clean", lambda: len(service.view().history) == 3)
            await until("it is seen", lambda: all(p.clean_offset == 8 for p in service.view().partitions))
            view = service.view()
            assert view.ready
            assert view.healthy
            assert [p.phase for p in view.partitions] == ["idle"] * 3
            assert {p.mode for p in view.partitions} == {"live"}
            assert partition(view).reason.startswith("nothing to clean")
            assert partition(view).last_clean is not None
            assert view.totals.cleans == {"cleaned": 3}
            assert view.totals.swaps == 6
            assert view.totals.dropped_records["superseded"] == 9
            assert view.totals.bytes_read > 0 < view.totals.bytes_written
            assert view.log_dirs[0].agent is not None
            assert view.log_dirs[0].agent["version"] == "4.3.1"

        service = serve(assignments(root), story)
        assert outcomes(service.view()) == ["cleaned"] * 3
        assert len(content(root)) < len(before)
        assert len(agent.asked("swap")) == 6
        assert not leftovers(root)
        states = list((root.parent / "state").rglob("*.json"))
        assert len(states) == 3
        assert json.loads(states[0].read_text())["purge_as_of"] == 8
