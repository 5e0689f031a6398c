"""S-60: who may read a segment is who may read the one that replaces it: owner, mode, access list, attributes."""

from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING, Final

import pytest

from tests.cleaner.driver import NAME, clean
from tests.support.log_dirs import make_log_dir
from tests.support.root import needs_root
from tests.swap.offline_round import TOPIC, force, two_groups

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCESS: Final = "system.posix_acl_access"
DEFAULT: Final = "system.posix_acl_default"
USER_OBJ, USER, GROUP_OBJ, MASK, OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
NOBODY: Final = 2**32 - 1


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An access list as the kernel takes it; entries are tag, permissions, id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


# The group itself may do nothing; the mask, which the mode shows in its place, lets user 4321 read and write.
LIST: Final = acl((USER_OBJ, 6, NOBODY), (USER, 6, 4321), (GROUP_OBJ, 0, NOBODY), (MASK, 6, NOBODY), (OTHER, 0, NOBODY))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A log directory on a file system that has access lists and attributes."""
    path = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    probe = path / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.probe", b"1")
        os.setxattr(probe, ACCESS, LIST)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("the file system of the temporary directory has no access lists")
        raise
    probe.unlink()
    return path


def segments(root: Path) -> list[Path]:
    """The files of all segments but the active one."""
    files = sorted(path for path in (root / NAME).iterdir() if path.suffix in {".log", ".index", ".timeindex"})
    active = max(path.name for path in files if path.suffix == ".log")[:20]
    return [path for path in files if not path.name.startswith(active)]


def cleaned(root: Path) -> list[Path]:
    """Clean; the files that were put in."""
    before = {path.stat().st_ino for path in segments(root)}
    assert clean(root, force(), TOPIC).outcome == "cleaned"
    found = [path for path in segments(root) if path.stat().st_ino not in before]
    assert len(found) >= 3
    return found


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_an_access_list_stays(root: Path) -> None:
    """With the mode alone, 0660, the group could read and write what it could not before."""
    for path in segments(root):
        os.setxattr(path, ACCESS, LIST)
        assert path.stat().st_mode & 0o777 == 0o660
    for path in cleaned(root):
        assert os.getxattr(path, ACCESS) == LIST, path
        assert path.stat().st_mode & 0o777 == 0o660


def test_attributes_stay(root: Path) -> None:
    """Labels and whatever else was put there; what vouches for the old contents does not go with the new."""
    given = {"user.owner": b"billing", "security.label": b"secret"} if os.geteuid() == 0 else {"user.owner": b"billing"}
    for path in segments(root):
        for name, value in given.items():
            os.setxattr(path, name, value)
    for path in cleaned(root):
        assert attributes(path) == given, path


@needs_root
def test_no_capability_goes_to_new_contents(root: Path) -> None:
    """The kernel takes it away from a file that is written to, and a cleaned segment is written."""
    for path in segments(root):
        os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000000, 1 << 21, 0, 0, 0))
    for path in cleaned(root):
        assert "security.capability" not in attributes(path)


def test_nobody_gets_in_by_a_default_list(root: Path) -> None:
    """A directory's default list is given to every new file: the sources had none, so the output has none."""
    os.setxattr(root / NAME, DEFAULT, LIST)
    for path in segments(root):
        path.chmod(0o660)
    for path in cleaned(root):
        assert ACCESS not in attributes(path), path
        assert path.stat().st_mode & 0o777 == 0o660


def test_what_cannot_be_copied_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything is swapped, with the attribute's name and the way out."""
    for path in segments(root):
        os.setxattr(path, "user.owner", b"billing")
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in (root / NAME).iterdir()}

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    # A file system that refuses it, and one that has none, are not at hand.
    monkeypatch.setattr(os, "setxattr", refuse)
    result = clean(root, force(), TOPIC)
    assert result.outcome == "refused"
    assert "extended attribute user.owner cannot be given" in result.reason
    assert "setfattr" in result.reason
    assert {path.name: (path.read_bytes(), path.stat().st_ino) for path in (root / NAME).iterdir()} == before


def test_a_file_system_without_attributes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is nothing to copy."""

    def refuse(*_: object) -> list[str]:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    # A file system without attributes is not at hand.
    monkeypatch.setattr(os, "listxattr", refuse)
    root = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    assert clean(root, force(), TOPIC).outcome == "cleaned"


def test_no_set_user_id(root: Path) -> None:
    """A mode's permissions are copied, and nothing that would run as somebody else."""
    for path in segments(root):
        path.chmod(0o4755)
    assert {path.stat().st_mode & 0o7777 for path in cleaned(root)} == {0o755}
