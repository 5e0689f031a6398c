"""U-34: an unfinished swap stops the next one, and none begins that could not be completed."""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.cleaner.manifest import STAGING
from cleanerd.errors import CleanerdError, RefusedError
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.unfinished import require_retirable
from tests.cleaner.driver import NAME, clean
from tests.support.log_dirs import make_log_dir, tree
from tests.support.root import needs_root
from tests.swap.offline_round import TOPIC, force, two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GET_FLAGS: Final = 0x80086601
_SET_FLAGS: Final = 0x40086602
_IMMUTABLE: Final = 0x10


def set_immutable(path: Path, *, on: bool) -> None:
    """Like `chattr +i`; raises OSError where the file system has no such attribute."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0)))
        fcntl.ioctl(descriptor, _SET_FLAGS, struct.pack("l", flags | _IMMUTABLE if on else flags & ~_IMMUTABLE))
    finally:
        os.close(descriptor)


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """In the block no process can rename or remove it."""
    try:
        set_immutable(path, on=True)
    except OSError as error:
        pytest.skip(f"no immutable files here: {error.strerror}")
    try:
        yield
    finally:
        set_immutable(path, on=False)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_an_immutable_source_is_noticed_before_the_commit_point(tmp_path: Path, suffix: str) -> None:
    """`chattr +i` on one of a group's files: noticed past the commit point, the new log was beside the old one."""
    root = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    victim = root / NAME / f"{0:020d}{suffix}"
    before = tree(root / NAME, without=())
    with immutable(victim):
        result = clean(root, force(), TOPIC)
        assert result.outcome == "refused"
        assert f"{victim}: cannot be replaced: cannot be renamed: Operation not permitted" in result.reason
        assert "lsattr" in result.reason
        assert tree(root / NAME, without=()) == before
    assert clean(root, force(), TOPIC).outcome == "cleaned"


def test_a_directory_at_the_name_of_a_deleted_source(tmp_path: Path) -> None:
    """A directory called `.log.deleted` cannot be renamed over; a file can."""
    root = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    (root / NAME / f"{0:020d}.log.deleted").mkdir()
    before = tree(root / NAME, without=())
    result = clean(root, force(), TOPIC)
    assert "log.deleted: cannot be replaced: it is a directory" in result.reason
    assert tree(root / NAME, without=()) == before


def test_the_check_changes_nothing(tmp_path: Path) -> None:
    """The check is a rename that the system never executes; files keep even their change time."""
    (tmp_path / "a.log").write_text("a")
    with PartitionFiles(tmp_path) as files:
        files.claim()
        before = (tmp_path / "a.log").stat()
        require_retirable(files, ["a.log"], ["a.log"])
        assert (tmp_path / "a.log").stat() == before
        with pytest.raises(RefusedError, match="cannot be replaced"):
            require_retirable(files, ["missing.log"], ["a.log"])


@needs_root
def test_a_sticky_directory(tmp_path: Path) -> None:
    """Only a file's owner can rename it there: checked as uid 1000, for a file of root."""
    tmp_path.chmod(0o1777)
    (tmp_path / "theirs.log").touch()
    (tmp_path / STAGING).mkdir()
    os.chown(tmp_path / STAGING, 1000, 1000)
    for path in tmp_path.parents:
        with suppress(OSError):
            path.chmod(path.stat().st_mode | 0o001)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(1000)
            os.setuid(1000)
            (tmp_path / "ours.log").touch()
            with PartitionFiles(tmp_path) as files:
                files.require_renamable("ours.log", STAGING)
                try:
                    files.require_renamable("theirs.log", STAGING)
                except CleanerdError:
                    code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("name", [f"{9:020d}.log.swap", f"{0:020d}.index.cleaned", "what.swap"])
def test_no_swap_beside_an_unfinished_one(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any base, also one that appears after all checks: no file is touched."""
    root = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    before = tree(root / NAME, without=())
    (root / NAME / name).write_text("half")
    result = clean(root, force(), TOPIC)
    assert result.outcome == "refused"
    assert name in result.reason
    (root / NAME / name).unlink()
    assert tree(root / NAME, without=()) == before

    from cleanerd.swap import offline_swap  # noqa: PLC0415 - patched here only

    real = offline_swap.swap_group

    def appears(files: PartitionFiles, *arguments: object, **named: object) -> None:
        (root / NAME / name).write_text("half")
        real(files, *arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        # after all checks, before the swap
        patch.setattr(offline_swap, "swap_group", appears)
        result = clean(root, force(), TOPIC)
    assert f"an unfinished swap: {name}" in result.reason
    (root / NAME / name).unlink()
    assert {n: v for n, v in tree(root / NAME, without=()).items() if STAGING not in n} == before
