"""Files that are read whole, and other entries at their names."""

from __future__ import annotations

import errno
import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from cleanerd.broker.lock_file import FileOwner
from cleanerd.errors import CleanerdError
from cleanerd.fsio.safe_open import ROOM_BYTES
from cleanerd.fsio.small_file import ignore_owner_errors, read_small_file, unreadable
from cleanerd.fsio.state_files import make_directory, write_state_file
from cleanerd.humanize import user_name
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.swap.files import set_owner
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.support.now_open import open_descriptors
from tests.support.root import needs_root
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from pathlib import Path


def test_content_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_small_file(tmp_path / "file") == b"content"
    assert read_small_file(tmp_path / "missing") is None


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A pipe without a writer would block its reader indefinitely, while it holds the log directory's lock."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    before = open_descriptors()
    with pytest.raises(CleanerdError, match="pipe: cannot be read: it is not a plain file"):
        read_small_file(tmp_path / "pipe")
    with pytest.raises(CleanerdError, match="directory: cannot be read: Is a directory"):
        read_small_file(tmp_path / "directory")
    assert open_descriptors() <= before


def test_a_pipe_in_a_partition_is_an_error(tmp_path: Path) -> None:
    """OP-10: a clear error instead of a hang."""
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": Partition({0: keyed_batch(0, [("a", "1")]), 1: b""})})
    identity = log_dir / "orders-0" / "partition.metadata"
    identity.unlink()
    os.mkfifo(identity)
    found = read_log_dir(log_dir)
    with pytest.raises(CleanerdError, match=r"partition\.metadata: cannot be read"):
        read_partition(found, found.partitions[0])


@pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL])
def test_a_failed_change_of_owner_is_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """S-60: root gives it to the directory's owner, another user may not (EPERM).

    In a user namespace, as with systemd's PrivateUsers, an owner may have no number there (EINVAL).
    """

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    system_call(monkeypatch, "chown", refuse)
    system_call(monkeypatch, "fchown", refuse)
    make_directory(tmp_path / "state", tmp_path.stat())
    write_state_file(tmp_path / "state" / "t-0.json", b"{}", tmp_path.stat())
    assert (tmp_path / "state" / "t-0.json").read_bytes() == b"{}"
    with (tmp_path / "file").open("wb") as file:
        set_owner(file.fileno(), FileOwner(4321, 4321, 0o640))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


def test_other_failures_are(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"), ignore_owner_errors():
        raise OSError(errno.ENOSPC, "No space")


@pytest.mark.parametrize("entry", [8, 12])
@pytest.mark.parametrize("count", [0, 1, 4096, ROOM_BYTES // 8, ROOM_BYTES // 8 + 1])
def test_a_preallocated_index(tmp_path: Path, entry: int, count: int) -> None:
    """F-6: the 10 MiB that a broker preallocates for an index are not read beyond its entries."""
    path = tmp_path / "0.index"
    entries = b"".join(number.to_bytes(entry, "big") for number in range(1, count + 1))
    path.write_bytes(entries)
    os.truncate(path, 10 << 20)
    tracemalloc.start()
    data = read_small_file(path, has_room=True)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data is not None
    assert data.rstrip(b"\0") == entries.rstrip(b"\0")
    assert len(data) % entry == 0
    assert taken < 4 * len(entries) + 8 * ROOM_BYTES
    assert read_small_file(path) == entries + bytes((10 << 20) - len(entries))


def test_an_index_without_preallocation(tmp_path: Path) -> None:
    """Everything is read, zeros too: it is smaller than any preallocated index."""
    path = tmp_path / "0.index"
    for content in (
        b"",
        b"\1" * 8,
        bytes(24),
        b"\1" * 8 + bytes(ROOM_BYTES - 16),
        b"\1" * (ROOM_BYTES + 24) + bytes(16),
    ):
        path.write_bytes(content)
        assert read_small_file(path, has_room=True) == content


@needs_root
def test_a_permission_error_names_its_cause(tmp_path: Path) -> None:
    """If the file's owner differs from its directory's, or its mode excludes the owner, fix the file.

    Otherwise the user is wrong.
    """
    file = tmp_path / "0.log"
    file.touch()

    def hint() -> str | None:
        return unreadable("cannot be opened", file, PermissionError(errno.EACCES, "Permission denied")).hint

    file.chmod(0)
    assert hint() == "its mode is ----------: chmod it for the broker's user"
    os.chown(tmp_path, 65534, 65534)
    assert hint() == f"it belongs to root, its directory to {user_name(65534)}: chown it to the broker's user"
    os.chown(file, 65534, 65534)
    assert hint() == "run cleanerd as the broker's user"
    file.unlink()
    assert hint() == "run cleanerd as the broker's user"
