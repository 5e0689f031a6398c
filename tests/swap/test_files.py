"""The file operations: one directory descriptor, no path outside of it, errors that name the file (S-23, H-18)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.lock_file import FileOwner
from cleanerd.errors import CleanerdError, LogDirBusyError
from cleanerd.swap.files import FileOperation, PartitionFiles
from tests.support.root import needs_root

if TYPE_CHECKING:
    from pathlib import Path


def test_a_directory_that_is_renamed_away_stays_the_same_one(tmp_path: Path) -> None:
    """H-18: a topic is deleted during a cleaning.

    Cleanerd's files go with the directory, and no directory appears under the old name.
    """
    place = tmp_path / "t-0"
    place.mkdir()
    with PartitionFiles(place) as files:
        files.append("a", b"1")
        place.rename(tmp_path / "t-0.0123-delete")
        files.append("a", b"2")
        files.rename("a", "b")
        files.fsync("b")
        files.fsync_directory()
        assert files.names() == {"b"}
    assert not place.exists()
    assert (tmp_path / "t-0.0123-delete" / "b").read_bytes() == b"12"


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", ""])
def test_names_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    """S-23: an absolute path would silently bypass the descriptor."""
    (tmp_path / "x").touch()
    with PartitionFiles(tmp_path) as files:
        for use in (files.read, files.stat, files.names, files.open, files.unlink, files.fsync):
            with pytest.raises(ValueError, match="leads out"):
                use(name)
        with pytest.raises(ValueError, match="leads out"):
            files.rename("x", name)
    assert (tmp_path / "x").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link in a less trusted user's directory must not redirect a root process."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    inside = tmp_path / "t-0"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "directory").symlink_to(tmp_path)
    with PartitionFiles(inside) as files:
        for use in (
            lambda: files.read("link"),
            lambda: files.open("link"),
            lambda: files.append("link", b"!"),
            lambda: files.write("link", b"!", FileOwner(0, 0, 0o644)),
            lambda: files.fsync("link"),
        ):
            with pytest.raises(CleanerdError):
                use()
        assert files.names("directory") == frozenset()
        assert not files.is_directory("directory")
        files.unlink("link")
    assert outside.read_bytes() == b"theirs"


def test_errors_name_the_file_and_the_failure(tmp_path: Path) -> None:
    """One line for the operator."""
    with PartitionFiles(tmp_path) as files, pytest.raises(CleanerdError) as caught:
        files.rename("missing.log", "x")
    assert str(caught.value) == f"{tmp_path / 'missing.log'}: cannot be renamed: No such file or directory"
    with pytest.raises(CleanerdError, match="cannot be opened"):
        PartitionFiles(tmp_path / "missing")


def test_missing_files_are_none(tmp_path: Path) -> None:
    with PartitionFiles(tmp_path) as files:
        assert files.read("missing") is None
        assert files.stat("missing") is None
        assert files.names("missing") == frozenset()


@needs_root
def test_written_files_get_their_owner(tmp_path: Path) -> None:
    """S-60: set before the file has any content."""
    with PartitionFiles(tmp_path) as files:
        files.write("a", b"long content", FileOwner(1234, 2345, 0o640))
        files.write("a", b"short", FileOwner(1234, 2345, 0o600))
    status = (tmp_path / "a").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 2345, 0o600)
    assert (tmp_path / "a").read_bytes() == b"short"


def test_every_change_goes_through_perform(tmp_path: Path) -> None:
    """The only way to change files: without `perform`, no change."""
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "d").mkdir()

    class Deaf(PartitionFiles):
        def perform(self, operation: FileOperation) -> None:
            seen.append(operation.kind)

    seen: list[str] = []
    with Deaf(tmp_path) as files:
        files.rename("a", "b")
        files.unlink("a")
        files.rmdir("d")
        files.append("a", b"b")
        files.write("a", b"b", FileOwner(0, 0, 0))
        files.fsync("a")
        files.fsync_directory()
    assert seen == ["rename", "unlink", "rmdir", "append", "write", "fsync", "fsync_directory"]
    assert {path.name for path in tmp_path.iterdir()} == {"a", "d"}
    assert (tmp_path / "a").read_bytes() == b"a"


def test_closing_twice(tmp_path: Path) -> None:
    files = PartitionFiles(tmp_path)
    files.close()
    files.close()


def test_link_and_mkdir(tmp_path: Path) -> None:
    """S-40: another name for the same file, across directories; names cannot leave either directory."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1")
    with PartitionFiles(tmp_path / "a") as source, PartitionFiles(tmp_path / "b") as target:
        target.mkdir("d")
        target.link_from(source, "x", "d/y")
        assert os.path.samefile(tmp_path / "a" / "x", tmp_path / "b" / "d" / "y")
        with pytest.raises(CleanerdError, match="cannot be linked"):
            target.link_from(source, "x", "d/y")
        with pytest.raises(CleanerdError, match="cannot be made"):
            target.mkdir("d")
        for source_name, name in (("../b/x", "z"), ("x", "../z"), ("x", "/z")):
            with pytest.raises(ValueError, match="leads out"):
                target.link_from(source, source_name, name)


def test_claim(tmp_path: Path) -> None:
    """One cleanerd per partition at a time, also inside one process; closing releases the claim."""
    with PartitionFiles(tmp_path) as first, PartitionFiles(tmp_path) as second:
        first.claim()
        first.claim()
        with pytest.raises(LogDirBusyError):
            second.claim()
        first.close()
        second.claim()
