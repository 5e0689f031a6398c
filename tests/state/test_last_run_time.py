"""The time of cleanerd's last run (U-42)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from cleanerd.host.clock import LastTime, wall_ms
from cleanerd.state.last_time import FILE_NAME, boot_id, read_clock, save_time

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 86_400_000


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    """U-42: a process that starts a day ahead of a time stored just now does not trust its clock."""
    clock = read_clock(tmp_path, [])
    assert clock.read_ms()[1] == 0
    now = clock.last()
    for last in (LastTime(now.boot, now.steady_ms, now.wall_ms - DAY_MS, (7, 8), counted=False), now):
        assert save_time(tmp_path / "made", last) == ""
        warnings: list[str] = []
        read = read_clock(tmp_path / "made", warnings)
        assert warnings == []
        kept = read.last()
        assert (kept.boot, kept.since is None, kept.counted) == (last.boot, last.since is None, last.counted)
        assert wall_ms() - read.now_ms() - (now.wall_ms - last.wall_ms) < 5000


def test_the_boot_of_the_machine(tmp_path: Path) -> None:
    """A missing value is not an error: most of /proc is hidden from services."""
    assert boot_id() == boot_id()
    assert boot_id(tmp_path / "none") == ""


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"wall_ms": -1},
        {"wall_ms": 1e300},
        {"steady_ms": True},
        {"steady_ms": 2**53},
        {"since": [1]},
        {"since": [1, -2]},
        {"boot": None, "wall_ms": None},
    ],
)
def test_a_damaged_file_counts_as_absent(tmp_path: Path, change: dict[str, object]) -> None:
    """It is reported, and the clock is trusted."""
    clock = read_clock(tmp_path, [])
    save_time(tmp_path, clock.last())
    path = tmp_path / FILE_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    warnings: list[str] = []
    assert read_clock(tmp_path, warnings).read_ms()[1] == 0
    assert len(warnings) == 1
    assert str(path) in warnings[0]


def test_an_unwritable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    reported = save_time(tmp_path / "file" / "below", read_clock(tmp_path, []).last())
    assert "cannot be written" in reported
