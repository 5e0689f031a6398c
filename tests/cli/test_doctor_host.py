"""``cleanerd doctor``: what it says of the machine, its limits and its file systems."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import pytest

from cleanerd.doctor import host
from cleanerd.doctor.findings import Finding, Findings
from cleanerd.doctor.host import check_file_system, check_limits
from cleanerd.log.mounts import file_system_of

if TYPE_CHECKING:
    from pathlib import Path


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads count, not partitions; without a limit nothing is wrong."""

    def found(threads: int, soft: int, hard: int) -> Finding:
        monkeypatch.setattr(host.resource, "getrlimit", lambda _which: (soft, hard))
        all_found = Findings()
        check_limits(all_found, threads)
        return all_found.all[0]

    assert found(1, 1024, 1024).level == "ok"
    assert found(1000, resource.RLIM_INFINITY, resource.RLIM_INFINITY).level == "ok"
    assert (found(1000, 1024, 1 << 20).level, "ulimit" in found(1000, 1024, 1 << 20).fix) == ("problem", True)
    assert "LimitNOFILE" in found(1000, 1024, 1024).fix


@pytest.mark.parametrize(
    ("kind", "level"),
    [("ext4", "ok"), ("xfs", "ok"), ("tmpfs", "note"), ("nfs4", "warning"), ("fuse.sshfs", "warning")],
)
def test_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, level: str) -> None:
    """Where leases and fsync may mean nothing is said so; the device decides, whatever the mount is called."""
    device = os.stat(tmp_path).st_dev
    lines = [
        "21 1 0:99999 / /proc rw shared:1 - proc proc rw",
        f"22 1 {os.major(device)}:{os.minor(device)} / /strange\\040place rw,noatime shared:2 master:1 - {kind} src rw",
    ]
    assert file_system_of(tmp_path, "\n".join(lines)) == kind
    assert file_system_of(tmp_path, lines[0]) is None
    monkeypatch.setattr(host, "file_system_of", lambda _path: kind)
    found = Findings()
    check_file_system(found, tmp_path)
    assert found.all[0].level == level
