"""Minimal cases of faults that the torture found: leaked descriptors, partial reads, invalid numbers."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cleanerd.admin.client_config import read_client_config
from cleanerd.broker.claim import Claim
from cleanerd.cli.main import run
from cleanerd.config.load import load_settings
from cleanerd.errors import CleanerdError, ConfigError
from cleanerd.format.names import TopicPartition
from cleanerd.fsio import safe_open
from cleanerd.fsio.held_file import HeldFile
from cleanerd.fsio.state_files import locked, make_directory, read_state_file, write_state_file
from cleanerd.resolution.broker_facts import broker_facts
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import read_partition
from cleanerd.segments.segment import BatchWitness, Witness
from cleanerd.state.delegations import Delegations
from cleanerd.swap import lock as lock_module
from cleanerd.swap.files import PartitionFiles
from cleanerd.swap.kept_segments import FileIdentity, KeptEntry, KeptSegments
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.validate import check_witness
from tests.support.log_dirs import make_log_dir
from tests.support.now_open import open_descriptors
from tests.support.system_calls import system_call
from tests.swap.offline_round import two_groups
from tests.torture.failing_calls import fails

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FAILING = ("fstat", "fchown", "fchmod", "listdir")


def _take(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        Claim.acquire(directory, path).release()
    finally:
        os.close(directory)


def _lock(path: Path) -> None:
    with locked(path / "lock", path.stat()):
        pass


def _make(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.close(safe_open.make_directory("made", dir_fd=directory, mode=0o700))
    finally:
        os.close(directory)


OPENING = {
    "make_directory": _make,
    "claim": _take,
    "held file": lambda path: HeldFile.acquire(path, "held").release(),
    "state lock": _lock,
    "read": lambda path: safe_open.read_whole(str(path / "file")),
}


@pytest.mark.parametrize("failing", FAILING)
@pytest.mark.parametrize("what", OPENING)
def test_nothing_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, failing: str) -> None:
    """U-29: the disk fails after a file was opened and before an object owns it; it leaked, and the daemon ran out."""
    (tmp_path / "file").write_bytes(b"x")
    work: Callable[[Path], object] = OPENING[what]
    before = open_descriptors()
    with fails(monkeypatch, failing) as calls:
        try:
            work(tmp_path)
        except (OSError, CleanerdError):
            assert calls
    assert open_descriptors() <= before
    work(tmp_path)


def test_a_descriptor_that_open_refuses(tmp_path: Path) -> None:
    """``open`` does not close its descriptor if it cannot use it: in this case because it is a directory."""
    before = open_descriptors()
    with pytest.raises(IsADirectoryError):
        safe_open.raw_file(os.open(tmp_path, os.O_RDONLY), "rb")
    assert open_descriptors() <= before


@pytest.mark.parametrize("most", [1, 3, 7])
def test_a_partial_read_is_not_another_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """POSIX: a read may return fewer bytes than requested. The plan was dropped for it, or the cleaning crashed."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    log = read_partition(read_log_dir(root), TopicPartition("orders", 0))
    real = os.pread
    with PartitionFiles(log.path) as files:
        segment = log.segments[0]
        status = files.stat(f"{segment.base:020d}.log")
        assert status is not None
        (files.path / f"{segment.base:020d}.index").write_bytes(bytes(8))
        data = (files.path / f"{segment.base:020d}.log").read_bytes()
        witness = Witness(
            segment.base, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns,
            *(_batch(data) for _ in range(2)),
        )  # fmt: skip
        system_call(monkeypatch, "pread", lambda file, count, at: real(file, min(count, most), at))
        check_witness(files, witness)


def _batch(data: bytes) -> BatchWitness:
    return BatchWitness(int.from_bytes(data[:8], "big"), int.from_bytes(data[17:21], "big"))


def test_read_at_returns_all_available_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requested bytes, or those up to the end of the file."""
    (tmp_path / "file").write_bytes(bytes(range(100)))
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    real = os.pread
    system_call(monkeypatch, "pread", lambda file, count, at: real(file, min(count, 7), at))
    try:
        assert safe_open.read_at(descriptor, 30, 10) == bytes(range(10, 40))
        assert safe_open.read_at(descriptor, 30, 90) == bytes(range(90, 100))
        assert safe_open.read_at(descriptor, 30, 200) == b""
    finally:
        os.close(descriptor)


def test_a_partial_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An in-progress marker file was left with half of its content."""
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    real = os.write
    system_call(monkeypatch, "write", lambda file, data: real(file, bytes(data)[:3]))
    try:
        safe_open.write_all(descriptor, b"0123456789")
    finally:
        os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_disk_error_is_not_corruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """OP-10: ``verify`` of a log directory reported it with exit code 5, of the partition alone with 1."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    real = os.preadv

    def preadv(file: int, buffers: list[bytearray], at: int, *rest: int) -> int:
        if os.readlink(f"/proc/self/fd/{file}").endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(file, buffers, at, *rest)

    system_call(monkeypatch, "preadv", preadv)
    assert run(["verify", str(root)]) == run(["verify", str(root / "orders-0")]) == 1
    assert "Input/output error" in capsys.readouterr().out
    monkeypatch.undo()
    (root / "orders-0" / f"{0:020d}.log").write_bytes(b"damage")
    assert run(["verify", str(root)]) == 5


@pytest.mark.parametrize("failing", ["stat", "scandir"])
def test_a_partition_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """OP-10: an error with the path, wherever the disk fails; it used to kill a worker of the daemon."""
    root = make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    log_dir = read_log_dir(root)
    before = open_descriptors()
    with fails(monkeypatch, failing), pytest.raises(CleanerdError, match=r"orders-0: cannot be listed: Input/output"):
        read_partition(log_dir, TopicPartition("orders", 0))
    assert open_descriptors() <= before


ENTRY = KeptEntry(
    plan="20260101t000000-0123abcd",
    topic="t",
    partition=0,
    topic_id=None,
    place="path-1",
    log_dir="/d",
    kept="/k/20260101t000000-0123abcd/t-0",
    cleaned_ms=1,
    end_offset=1,
    checkpoint=None,
    cleanerd_checkpoint=None,
    sources={0: FileIdentity(1, 2, 3)},
    groups=(),
)


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_an_infinite_number_is_damage(tmp_path: Path, number: str) -> None:
    """S-40: JSON has no infinity, but Python's reader accepts it; ``undo`` crashed instead of ignoring the entry."""
    kept = KeptSegments(tmp_path)
    kept.save(ENTRY, tmp_path.stat())
    (path,) = kept.path.iterdir()
    path.write_text(path.read_text().replace('"format":1', f'"format":{number}'))
    assert kept.entries() == ()
    assert kept.warnings


def test_a_delegation_with_such_a_number_is_damage(tmp_path: Path) -> None:
    """The same for ``delegations.json``: it is ignored with a warning."""
    change = {"before": None, "effective": "0.5", "after": "1.0"}
    one = {"cluster_id": "c", "topic": "t", "topic_id": "i", "delegated_ms": 1, "changes": {"a": change}}
    text = json.dumps({"format": 1, "delegations": [one]})
    known = Delegations(tmp_path)
    known.path.write_text(text)
    assert len(known.load()) == 1
    known.path.write_text(text.replace('"delegated_ms": 1', '"delegated_ms": 1e999'))
    assert known.load() == []
    assert known.warnings


def test_a_link_that_cannot_be_made_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-40: replaced segments are in another directory, and the disk failed there."""
    for name in ("here", "kept"):
        (tmp_path / name).mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"x")
    with PartitionFiles(tmp_path / "here") as files, PartitionFiles(tmp_path / "kept") as kept:
        with fails(monkeypatch, "link"), pytest.raises(CleanerdError) as error:
            files.link_from(kept, "file", "name")
        assert str(tmp_path / "kept" / "file") in str(error.value)
        assert str(tmp_path / "here" / "name") in str(error.value)
        files.link_from(kept, "file", "name")


def test_the_same_file_whole(tmp_path: Path) -> None:
    """A control for the test above: this file is read."""
    kept = KeptSegments(tmp_path)
    kept.save(ENTRY, tmp_path.stat())
    assert kept.entries() == (ENTRY,)
    assert not kept.warnings


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("node.id=" + "9" * 5000, "belongs to node 1"),
        ("node.id=1\nlog.dirs=/a\\u0000b", "NUL"),
        ("node.id=1\nmetadata.log.dir=/a\0b", "NUL"),
    ],
)
def test_server_properties_that_no_broker_accepts(tmp_path: Path, line: str, reported: str) -> None:
    """A number with thousands of digits and a path with NUL are wrong settings, not bugs."""
    make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    file = tmp_path / "server.properties"
    file.write_text(line)
    log_dir = read_log_dir(tmp_path / "logs")
    settings = load_settings((), [f"cleanerd.broker.properties={file}"], {})
    with pytest.raises(ConfigError, match=reported) as caught:
        broker_facts(settings, replace(log_dir, meta=replace(log_dir.meta, node_id=1)), ())
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    "line",
    ["request.timeout.ms=" + "9" * 5000, "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location=/a\0b"],
)
def test_client_properties_that_no_client_accepts(tmp_path: Path, line: str) -> None:
    """The same for the client's settings file."""
    file = tmp_path / "client.properties"
    file.write_text(line)
    with pytest.raises(ConfigError, match=r"client\.properties:"):
        read_client_config(file)


def test_a_file_is_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing may report an error.

    The descriptor's number is reused by then, and a second close would hit another file.
    """
    real = os.close

    def close(descriptor: int) -> None:
        real(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    before = open_descriptors()
    system_call(monkeypatch, "close", close)
    with locked(tmp_path / "lock", tmp_path.stat(), tmp_path):
        pass
    write_state_file(tmp_path / "file", b"x", tmp_path.stat())
    assert read_state_file(tmp_path / "file") == b"x"
    assert open_descriptors() <= before
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        safe_open.close_quietly(1 << 20)


def test_a_directory_whose_parent_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was made and opened by then."""
    before = open_descriptors()
    with fails(monkeypatch, "fsync") as calls, pytest.raises(OSError, match="Input/output error"):
        make_directory(tmp_path / "partitions", tmp_path.stat(), tmp_path)
    assert calls
    assert open_descriptors() <= before


def test_a_lock_that_cannot_be_released_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its work is done, and the next process can take it."""
    make_log_dir(tmp_path / "logs", {"orders-0": two_groups()})
    before = open_descriptors()

    def fails(_descriptor: int, _command: int, _kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    lock = LogDirLock.acquire(tmp_path / "logs", settle_seconds=0)
    monkeypatch.setattr(lock_module, "set_lock", fails)  # a network file system that lost its server
    lock.release()
    monkeypatch.undo()
    assert open_descriptors() <= before
    LogDirLock.acquire(tmp_path / "logs", settle_seconds=0).release()
