"""One cleanerd per partition at a time, and no other user can take its claim (S-23, U-33)."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker import claim
from cleanerd.broker.claim import CLAIM, is_claimed
from cleanerd.cleaner.manifest import STAGING
from cleanerd.errors import CleanerdError, LogDirBusyError
from cleanerd.swap.files import PartitionFiles
from tests.cleaner.driver import NAME, clean
from tests.support.log_dirs import make_log_dir
from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import needs_root
from tests.swap.offline_round import TOPIC, force, two_groups

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lock_on_the_directory_does_not_stop_cleanerd(tmp_path: Path) -> None:
    """Any user who may list a directory can lock it, with `flock DIR sleep infinity`."""
    root = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    stranger = os.open(root / NAME, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        assert clean(root, force(), TOPIC).outcome == "cleaned"
    finally:
        os.close(stranger)


@needs_root
def test_only_the_owner_can_open_the_lock(tmp_path: Path) -> None:
    """The broker's user can open it as well, also if root created it."""
    tmp_path.chmod(0o755)
    (tmp_path / "t-0").mkdir()
    os.chown(tmp_path / "t-0", 1000, 1000)
    with PartitionFiles(tmp_path / "t-0") as files:
        files.claim()
        lock = tmp_path / "t-0" / STAGING / CLAIM
        for path, mode in ((lock, 0o600), (lock.parent, 0o700)):
            status = path.stat()
            assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1000, 1000, mode)
    assert list((tmp_path / "t-0").iterdir()) == []


def test_no_claim_file_is_left(tmp_path: Path) -> None:
    """The next cleanerd removes the claim of a killed one; staged files stay."""
    with PartitionFiles(tmp_path) as files:
        files.claim()
        files.mkdir(f"{STAGING}/20260101t000000-0123abcd")
    assert [path.name for path in (tmp_path / STAGING).iterdir()] == ["20260101t000000-0123abcd"]
    (tmp_path / STAGING / CLAIM).touch()  # as a killed cleanerd leaves it
    with PartitionFiles(tmp_path) as files:
        files.claim()
        files.rmdir(f"{STAGING}/20260101t000000-0123abcd")
    assert list(tmp_path.iterdir()) == []


def test_is_claimed(tmp_path: Path) -> None:
    """Queried without taking it."""
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert not is_claimed(directory)
        with PartitionFiles(tmp_path) as files:
            files.claim()
            assert is_claimed(directory)
        assert not is_claimed(directory)
    finally:
        os.close(directory)


@pytest.mark.parametrize("name", [STAGING, f"{STAGING}/{CLAIM}"])
@pytest.mark.parametrize("what", ["link", "fifo", "hard link"])
def test_a_planted_claim_file_is_refused(tmp_path: Path, name: str, what: str) -> None:
    """A clear refusal; the link's target is unchanged."""
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    victim.chmod(0o640)
    place = tmp_path / "t-0"
    (place / name).parent.mkdir(parents=True)
    if what == "fifo":
        os.mkfifo(place / name)
    elif what == "link":
        (place / name).symlink_to(victim)
    else:
        (place / name).hardlink_to(victim)
    with PartitionFiles(place) as files, pytest.raises(CleanerdError, match="cannot be used: it "):
        files.claim()
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("theirs", 0o640)


def test_one_holder_at_a_time_under_contention(tmp_path: Path) -> None:
    """Each holder removes the file at release, while others are about to lock it: never two holders at once."""
    inside, most, won, finished = 0, 0, 0, 0
    guard = threading.Lock()
    # a thread that waits for the interpreter repeatedly finds the lock held
    deadline = time.monotonic() + PATIENCE_SECONDS

    def come_and_go() -> None:
        nonlocal inside, most, won, finished
        while won < 120 and time.monotonic() < deadline:
            with PartitionFiles(tmp_path) as files:
                try:
                    files.claim()
                except LogDirBusyError:
                    continue
                with guard:
                    inside += 1
                    won += 1
                    most = max(most, inside)
                with guard:
                    inside -= 1
        with guard:
            finished += 1

    threads = [threading.Thread(target=come_and_go) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert finished == len(threads), "every refusal came from a held lock"
    assert most == 1
    assert won > 100
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_removed_before_it_is_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The opened file has lost its name: locking it does not exclude the process that creates the next one."""
    real = claim._flock
    with PartitionFiles(tmp_path) as first, PartitionFiles(tmp_path) as second, PartitionFiles(tmp_path) as third:
        first.claim()

        def late(lock: int) -> None:
            first.close()
            real(lock)

        with monkeypatch.context() as patch:
            # between open and lock
            patch.setattr(claim, "_flock", late)
            second.claim()
        with pytest.raises(LogDirBusyError):
            third.claim()


def test_a_partition_that_is_a_link(tmp_path: Path) -> None:
    """Only paths that the operator named may be links."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CleanerdError, match="cannot be opened: it is a symbolic link"):
        PartitionFiles(tmp_path / "t-0")
    with PartitionFiles(tmp_path / "t-0", trusted=True) as files:
        assert files.names() == frozenset()
