"""``cleanerd doctor``: free space on the disk, also if not all partitions need the same."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cleanerd.humanize import human_bytes
from tests.cli.clean_log_dirs import COMPACT, GOOD, Shell, batch, dirty, make
from tests.cli.findings import findings
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_space_for_some(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-16: one partition with large segments keeps no other from being cleaned: reported, and not a problem."""
    path = make_log_dir(root / "logs", {"orders-0": dirty(), "good-0": dirty()})
    sizes = ("--set", "topics.orders.segment.bytes=1MiB", "--set", "topics.good.segment.bytes=1KiB")

    class Disk:
        f_frsize = 1
        f_fsid = 1
        f_blocks = 10_000
        f_bavail = 1 << 20

    system_call(monkeypatch, "statvfs", lambda _path: Disk)  # no test fills a disk
    shell.disk_reserve = ""
    arguments = ("doctor", path, "--json", *COMPACT, *GOOD, *sizes)
    ((level, what),) = findings(shell(*arguments), "free space")
    assert (level, "2.0 MiB are kept free for orders-0" in what) == ("warning", True)
    Disk.f_bavail = 2000
    assert findings(shell(*arguments), "free space")[0][0] == "problem"


def test_space(root: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-16: below the reserve nothing can be staged; below reserve and peak some partitions may be refused.

    The peak is the largest group's output: not more than a segment, and not more than exists.
    """
    path = make(root)
    sealed = sum((path / "orders-0" / f"{base:020d}.log").stat().st_size for base in (0, 2, 4))
    real = os.statvfs(path)

    class Disk:
        f_frsize = 1
        f_fsid = 1
        f_blocks = real.f_blocks
        f_bavail = 1000

    system_call(monkeypatch, "statvfs", lambda _path: Disk)  # no test fills a disk
    enough = shell("doctor", path, "--json", *COMPACT)
    assert findings(enough, "free space")[0][0] == "ok"
    assert f"at most {human_bytes(sealed)} at once" in findings(enough, "free space")[0][1]
    Disk.f_bavail = sealed - 1
    assert findings(shell("doctor", path, "--json", *COMPACT), "free space")[0][0] == "warning"
    shell.disk_reserve = "1MiB"
    answer = shell("doctor", path, "--json", *COMPACT)
    assert (answer.code, findings(answer, "free space")[0][0]) == (1, "problem")


def test_the_peak_is_a_segment(root: Path, shell: Shell) -> None:
    """U-16, U-17: groups are not larger than segment.bytes, except where a single source is."""
    path = make_log_dir(root / "logs", {"orders-0": Partition({n: batch(n, ("a", "1" * 200)) for n in range(9)})})
    size = (path / "orders-0" / f"{0:020d}.log").stat().st_size
    for limit, peak in ((14, size), (3 * size, 3 * size), (1 << 30, 8 * size)):
        answer = shell("doctor", path, "--json", *COMPACT, "--set", f"topics.orders.segment.bytes={limit}")
        assert f"at most {human_bytes(peak)} at once" in findings(answer, "free space")[0][1]
