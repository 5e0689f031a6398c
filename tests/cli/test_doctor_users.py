"""``cleanerd doctor``: the owners of files, and its own user's access."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.doctor.check import check_host
from cleanerd.doctor.findings import CheckResult, CheckResults
from cleanerd.doctor.host import Process
from cleanerd.doctor.log_dir import check_owner
from tests.cli.clean_log_dirs import Shell, make
from tests.cli.findings import findings
from tests.support.root import as_other_user, needs_root

if TYPE_CHECKING:
    from pathlib import Path


def owner_findings(path: Path, process: Process, *, writable: bool) -> list[CheckResult]:
    """The finding about the owner of ``path`` for a user other than its owner."""
    found = CheckResults()
    check_owner(found, path, [], process, lambda *_args, **_more: writable)
    return found.all


def test_users_that_may_write(root: Path) -> None:
    """S-60: a user that is neither the broker's nor allowed to give files away cannot stage here."""
    path = make(root)
    uid = os.stat(path).st_uid
    own, other = Process(uid, may_chown=False), Process(uid + 1, may_chown=False)
    strong = Process(uid + 1, may_chown=True)
    assert [f.level for f in owner_findings(path, own, writable=True)] == ["ok"]
    assert [f.level for f in owner_findings(path, strong, writable=True)] == ["ok"]
    assert [(f.level, f.exit_code) for f in owner_findings(path, other, writable=True)] == [("problem", 1)]
    (refused,) = owner_findings(path, other, writable=False)
    assert "may not write" in refused.what


@pytest.mark.slow
@needs_root
@needs_root
@pytest.mark.parametrize(
    ("key", "check", "level"),
    [
        ("cleanerd.command.config", "client properties", "problem"),
        ("cleanerd.map.dir", "keys on disk", "warning"),
        ("cleanerd.keep.replaced.dir", "replaced segments", "problem"),
        ("cleanerd.metadata.log.dir", "configuration", "problem"),
        ("cleanerd.broker.properties", "configuration", "problem"),
    ],
)
def test_places_that_this_user_may_not_reach(root: Path, key: str, check: str, level: str) -> None:
    """A place without access is a finding and does not end the checks: root's own directory in a setting, say."""
    path = make(root)
    for each in (root, path, *path.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    closed = root / "closed"
    (closed / "there").mkdir(parents=True)
    closed.chmod(0o700)

    def found() -> list[tuple[str, str, str]]:
        reported = check_host([path], [], [f"{key}={closed / 'there'}", f"cleanerd.state.dir={root / 'state'}"])
        return [(each.level, each.check, each.what) for each in reported]

    reported = as_other_user(found)
    (what,) = [what for message, about, what in reported if (message, about) == (level, check)]
    assert "Permission denied" in what or "cannot be read" in what
    assert "quarantine" in {about for _, about, _ in reported}, "the checks go on"


def test_segments_of_another_user(root: Path, shell: Shell) -> None:
    """A restore by root is a common reason why a broker does not start."""
    path = make(root)
    os.chown(path / "orders-0" / f"{2:020d}.log", 12345, 12345)
    answer = shell("doctor", path, "--json")
    assert "warning" in [level for level, what in findings(answer, "owner") if "orders-0" in what]
