"""``cleanerd doctor``: room on the disk where not all partitions need the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cleanerd.doctor import partitions
from tests.cli.clean_log_dirs import COMPACT, GOOD, Shell, dirty
from tests.cli.test_doctor import findings
from tests.support.log_dirs import make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_space_for_some(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-16: one partition with large segments keeps nobody else from being cleaned: named, and no problem."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": dirty()})
    sizes = ("--set", "topics.orders.segment.bytes=1MiB", "--set", "topics.good.segment.bytes=1KiB")

    class Disk:
        f_frsize = 1
        f_blocks = 10_000
        f_bavail = 1 << 20

    monkeypatch.setattr(partitions.os, "statvfs", lambda _path: Disk)
    common = ["--set", f"cleanerd.state.dir={root / 'state'}"]
    monkeypatch.setattr(Shell, "common", property(lambda _self: common))
    asked = ("doctor", path, "--json", *COMPACT, *GOOD, *sizes)
    ((level, what),) = findings(shell(*asked), "free space")
    assert (level, "2.0 MiB are kept free for orders-0" in what) == ("warning", True)
    Disk.f_bavail = 2000
    assert findings(shell(*asked), "free space")[0][0] == "problem"
