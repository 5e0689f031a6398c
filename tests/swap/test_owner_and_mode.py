"""S-60: a cleaned segment has the access rights of its sources: owner, mode, access list, attributes."""

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
NO_ID: Final = 2**32 - 1


def acl(*entries: tuple[int, int, int]) -> bytes:
    """An access list in the kernel's format; entries are tag, permissions, id."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


# The group has no permissions; the mask, shown as the mode's group bits, lets user 4321 read and write.
LIST: Final = acl((USER_OBJ, 6, NO_ID), (USER, 6, 4321), (GROUP_OBJ, 0, NO_ID), (MASK, 6, NO_ID), (OTHER, 0, NO_ID))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A log directory on a file system with access lists and attributes."""
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
    """Clean; returns the new files."""
    before = {path.stat().st_ino for path in segments(root)}
    assert clean(root, force(), TOPIC).outcome == "cleaned"
    found = [path for path in segments(root) if path.stat().st_ino not in before]
    assert len(found) >= 3
    return found


def attributes(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path)}


def test_an_access_list_stays(root: Path) -> None:
    """With only the mode, 0660, the group would gain read and write access."""
    for path in segments(root):
        os.setxattr(path, ACCESS, LIST)
        assert path.stat().st_mode & 0o777 == 0o660
    for path in cleaned(root):
        assert os.getxattr(path, ACCESS) == LIST, path
        assert path.stat().st_mode & 0o777 == 0o660


def test_attributes_stay(root: Path) -> None:
    """Labels and other attributes; an attribute that certifies the old content is not copied."""
    given = {"user.owner": b"billing", "security.label": b"secret"} if os.geteuid() == 0 else {"user.owner": b"billing"}
    for path in segments(root):
        for name, value in given.items():
            os.setxattr(path, name, value)
    for path in cleaned(root):
        assert attributes(path) == given, path


@needs_root
def test_capabilities_are_not_copied(root: Path) -> None:
    """The kernel removes it from a written file, and a cleaned segment is a written file."""
    for path in segments(root):
        os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000000, 1 << 21, 0, 0, 0))
    for path in cleaned(root):
        assert "security.capability" not in attributes(path)


def test_a_default_access_list_grants_no_access(root: Path) -> None:
    """New files inherit the directory's default list: the sources had none, so the output has none."""
    os.setxattr(root / NAME, DEFAULT, LIST)
    for path in segments(root):
        path.chmod(0o660)
    for path in cleaned(root):
        assert ACCESS not in attributes(path), path
        assert path.stat().st_mode & 0o777 == 0o660


def test_an_attribute_that_cannot_be_copied_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before any swap, with the attribute's name and the remedy."""
    for path in segments(root):
        os.setxattr(path, "user.owner", b"billing")
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in (root / NAME).iterdir()}

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    # a file system that refuses it, and one without attributes, are not available to the test
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

    # a file system without attributes is not available to the test
    monkeypatch.setattr(os, "listxattr", refuse)
    root = make_log_dir(tmp_path / "logs", {NAME: two_groups()})
    assert clean(root, force(), TOPIC).outcome == "cleaned"


def test_no_set_user_id(root: Path) -> None:
    """A mode's permission bits are copied, without setuid or setgid."""
    for path in segments(root):
        path.chmod(0o4755)
    assert {path.stat().st_mode & 0o7777 for path in cleaned(root)} == {0o755}
