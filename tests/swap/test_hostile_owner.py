"""U-33: the owner of a partition's directory moves foreign files to where cleanerd removes files as root.

A user who may write to the parent directory can move a directory, also one that he could not empty. And his own
directory may be arbitrarily deep or full: that must affect only his partition.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.lock_file import FileOwner
from cleanerd.cleaner.manifest import STAGING, FileFact, staging_path
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.fsio.safe_open import HostileNameError, make_directory, new_directory, open_trusted_directory
from cleanerd.fsio.state_files import make_directory as state_directory
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.group_swap import drop_plans, names_staged
from cleanerd.swap.journal import JOURNAL, Journal
from cleanerd.swap.recover import SWEEP_AGE_MS, recover
from cleanerd.swap.restore import RestoredSegment, RestoreGroup
from tests.support.root import needs_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_root

OWNER = 1000
STRANGER = 2000
PLAN = "20260101t000000-0123abcd"
LATER = 10**12 + SWEEP_AGE_MS + 1
"""Milliseconds: every file is older than a day by then."""


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """An empty partition of uid 1000."""
    path = tmp_path / "t-0"
    path.mkdir()
    os.chown(path, OWNER, OWNER)
    return path


@pytest.fixture
def files(partition: Path) -> Iterator[PartitionFiles]:
    with PartitionFiles(partition) as opened:
        yield opened


def staging_of(partition: Path) -> Path:
    """``.kstage`` of uid 1000."""
    path = partition / STAGING
    path.mkdir(mode=0o700)
    os.chown(path, OWNER, OWNER)
    return path


def strange(path: Path, uid: int) -> tuple[object, ...]:
    """A directory of another user with old content; see :func:`state`."""
    (path / "below").mkdir(parents=True)
    for file in (path / "precious", path / "below" / "precious"):
        file.write_text("precious")
    for each in (*path.rglob("*"), path):
        os.chown(each, uid, uid)
        os.utime(each, (1, 1))
    return state(path)


def state(path: Path) -> tuple[object, ...]:
    """Names, owners, modes and contents."""
    found = [path, *sorted(path.rglob("*"))]
    return tuple(
        (each.name, each.stat().st_uid, each.stat().st_mode, each.is_file() and each.read_text()) for each in found
    )


@pytest.mark.parametrize("uid", [0, STRANGER])
def test_a_directory_that_was_renamed_to_kstage(partition: Path, files: PartitionFiles, uid: int) -> None:
    """It is neither given to the partition's owner nor swept, and the claim names the reason of its refusal."""
    before = strange(partition / STAGING, uid)
    with pytest.raises(CleanerdError, match=f"cannot be used: it belongs to user {uid}, the partition to user 1000"):
        files.claim()
    recover(files, now_ms=LATER)
    assert state(partition / STAGING) == before


def test_an_empty_kstage_of_a_killed_run(partition: Path, files: PartitionFiles) -> None:
    """Killed between the creation of ``.kstage`` and the change of its owner.

    H-19: the broker's user must be able to remove it.
    """
    (partition / STAGING).mkdir(mode=0o700)
    files.claim()
    assert (partition / STAGING).stat().st_uid == OWNER


def test_a_kstage_of_root_in_a_partition_of_root(tmp_path: Path) -> None:
    """A group shares the directory: root:kafka 0770."""
    (tmp_path / "t-0").mkdir(mode=0o770)
    os.chown(tmp_path / "t-0", 0, OWNER)
    with PartitionFiles(tmp_path / "t-0") as files:
        files.claim()
        files.mkdir(staging_path(PLAN))
        files.write(f"{staging_path(PLAN)}/x", b"", FileOwner(0, 0, 0o600))
        recover(files)
        assert not (tmp_path / "t-0" / staging_path(PLAN)).exists()


@pytest.mark.parametrize("uid", [0, STRANGER])
@pytest.mark.parametrize("name", ["unknown", PLAN])
def test_a_directory_that_was_moved_below_kstage(partition: Path, files: PartitionFiles, uid: int, name: str) -> None:
    """Unknown directories that cannot be swept do no harm; a foreign plan is refused."""
    before = strange(staging_of(partition) / name, uid)
    if name == PLAN:
        with pytest.raises(RefusedError, match=f"it belongs to user {uid}, the partition to user 1000"):
            recover(files, now_ms=LATER)
        with pytest.raises(RefusedError, match="it belongs to user"):
            drop_plans(files, names_staged(files))
    else:
        assert recover(files, now_ms=LATER).swept == ()
    assert state(partition / STAGING / name) == before


def test_directories_writable_by_other_users_are_left_alone(partition: Path, files: PartitionFiles) -> None:
    """Whatever the command does there."""
    before = strange(staging_of(partition) / PLAN, 0)
    (partition / "own").touch()
    place = staging_path(PLAN)
    group = RestoreGroup(0, 1, (RestoredSegment(0, {"log": FileFact(0, 0)}),))
    for change in (
        lambda: Journal(files, PLAN).begin(group),
        lambda: files.write(f"{place}/{JOURNAL}", b"", FileOwner(OWNER, OWNER, 0o644)),
        lambda: files.mkdir(f"{place}/new"),
        lambda: files.unlink(f"{place}/precious"),
        lambda: files.rename(f"{place}/precious", "mine"),
        lambda: files.rename("own", f"{place}/precious"),
        lambda: files.link_from(files, "own", f"{place}/own"),
    ):
        with pytest.raises(RefusedError, match="its directory does not belong to cleanerd"):
            change()
    assert state(partition / STAGING / PLAN) == before


@pytest.mark.long
@pytest.mark.parametrize("name", ["unknown", PLAN])
def test_a_tree_that_is_very_deep(partition: Path, files: PartitionFiles, name: str) -> None:
    """It used to stop the run before the remaining partitions (RecursionError)."""
    place = os.open(staging_of(partition), os.O_RDONLY)
    for part in (name, *["d"] * 2000):
        os.mkdir(part, dir_fd=place)
        os.chown(part, OWNER, OWNER, dir_fd=place)
        os.utime(part, (1, 1), dir_fd=place)
        below = os.open(part, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    if name == PLAN:
        with pytest.raises(RefusedError, match="has more nested directories than cleanerd makes"):
            recover(files, now_ms=LATER)
    else:
        os.utime(partition / STAGING / name, (1, 1))
        assert recover(files, now_ms=LATER).swept == ()
    os.system(f"rm -rf '{partition}'")  # noqa: S605 - shutil and pytest do not get that deep


@pytest.mark.long
@pytest.mark.parametrize("kind", ["plans", "unknown"])
def test_a_directory_with_very_many_names(partition: Path, files: PartitionFiles, kind: str) -> None:
    """20,000 plans kept a run busy for minutes: cleanerd settled each with fsyncs, and listed the rest again."""
    staging = staging_of(partition)
    for number in range(600):
        path = staging / (f"20260101t000000-{number:08x}" if kind == "plans" else f"{number}")
        path.mkdir()
        os.chown(path, OWNER, OWNER)
    for scan in (recover, lambda each: drop_plans(each, names_staged(each))):
        with pytest.raises(RefusedError, match="has 600 entries, more than cleanerd leaves there"):
            scan(files)
    assert len(list(staging.iterdir())) == 600


@pytest.mark.parametrize(
    ("owner", "mode"),
    [(OWNER, 0o755), (0, 0o775), (0, 0o757)],
    ids=["another user's", "the group may write", "all users may write"],
)
def test_a_directory_renamed_over_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int
) -> None:
    """Renamed over it before cleanerd opened it: root would have given away the directory with its content."""
    os.chown(tmp_path, owner, owner)
    tmp_path.chmod(mode)
    before = strange(tmp_path / "other", 0)
    real = os.mkdir

    def mkdir(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(name, mode, dir_fd=dir_fd)
        os.rename(tmp_path / "other", tmp_path / name)

    # another process acts between two system calls
    monkeypatch.setattr(os, "mkdir", mkdir)
    place = open_trusted_directory(tmp_path)
    try:
        with pytest.raises(HostileNameError, match="another directory took its place"):
            new_directory("new", dir_fd=place, mode=0o755)
    finally:
        os.close(place)
    monkeypatch.undo()
    os.rename(tmp_path / "new", tmp_path / "other")
    assert state(tmp_path / "other") == before


def test_two_make_the_same_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-23, U-33: another cleanerd locks it or changes its owner first: both continue with it."""
    real = os.mkdir

    def mkdir(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(name, mode, dir_fd=dir_fd)
        (tmp_path / name / "lock").touch()

    # another process acts between two system calls
    monkeypatch.setattr(os, "mkdir", mkdir)
    place = open_trusted_directory(tmp_path)
    try:
        os.close(make_directory("new", dir_fd=place, mode=0o755))
        state_directory(tmp_path / "state", tmp_path.stat(), tmp_path)
    finally:
        os.close(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "state"]
