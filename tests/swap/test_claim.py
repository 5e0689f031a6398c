"""One cleanerd a partition at a time, and nobody else can take that place (S-23, U-33)."""

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


def test_a_lock_on_the_directory_stops_nobody(tmp_path: Path) -> None:
    """Whoever may list a directory can lock it, with `flock DIR sleep infinity`."""
    root = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    stranger = os.open(root / NAME, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(stranger, fcntl.LOCK_EX)
        assert clean(root, force(), TOPIC).outcome == "cleaned"
    finally:
        os.close(stranger)


@needs_root
def test_only_the_owner_can_open_the_lock(tmp_path: Path) -> None:
    """And the broker's user can, whoever made it."""
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
    """Not by whoever was killed either, once somebody else came by; what is staged stays."""
    with PartitionFiles(tmp_path) as files:
        files.claim()
        files.mkdir(f"{STAGING}/20260101t000000-0123abcd")
    assert [path.name for path in (tmp_path / STAGING).iterdir()] == ["20260101t000000-0123abcd"]
    (tmp_path / STAGING / CLAIM).touch()  # as a killed one leaves it
    with PartitionFiles(tmp_path) as files:
        files.claim()
        files.rmdir(f"{STAGING}/20260101t000000-0123abcd")
    assert list(tmp_path.iterdir()) == []


def test_is_claimed(tmp_path: Path) -> None:
    """Asked without taking it."""
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
    """A clear refusal; the file that it leads to is as it was."""
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


def test_one_at_a_time_whoever_comes_and_goes(tmp_path: Path) -> None:
    """The file is removed by whoever gives it back, while others are about to lock it: never two at once."""
    inside, most, won, finished = 0, 0, 0, 0
    guard = threading.Lock()
    # Who waits for the interpreter meets a lock that is held again and again.
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
    assert finished == len(threads), "nobody met anything but a lock that is held"
    assert most == 1
    assert won > 100
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_removed_before_it_is_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened has no name any more: locking it keeps nobody out, who makes the next one."""
    real = claim._flock
    with PartitionFiles(tmp_path) as first, PartitionFiles(tmp_path) as second, PartitionFiles(tmp_path) as third:
        first.claim()

        def late(lock: int) -> None:
            first.close()
            real(lock)

        with monkeypatch.context() as patch:
            # Between the opening and the lock.
            patch.setattr(claim, "_flock", late)
            second.claim()
        with pytest.raises(LogDirBusyError):
            third.claim()


def test_a_partition_that_is_a_link(tmp_path: Path) -> None:
    """Only what the operator named may lead elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CleanerdError, match="cannot be opened: it is a symbolic link"):
        PartitionFiles(tmp_path / "t-0")
    with PartitionFiles(tmp_path / "t-0", trusted=True) as files:
        assert files.names() == frozenset()
