"""A file that replaced the listed one is never read instead of it (D-06, U-3)."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.errors import (
    CleanerdError,
    CorruptionError,
    KernelError,
    MachineError,
    SegmentChangedError,
    StalePlanError,
)
from cleanerd.format.names import file_name
from cleanerd.fsio import directory_time
from cleanerd.fsio.directory_time import CLOCK_TICK_NS
from cleanerd.segments import partition as listing
from cleanerd.segments.aborted_transactions import read_aborted
from cleanerd.segments.kernel_errors import translated_kernel_errors
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.partition import PartitionLog, read_partition
from cleanerd.segments.pool import index_entries
from cleanerd.segments.reading import SegmentReader
from cleanerd.segments.same_file import read_companion
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.support.system_calls import system_call

if TYPE_CHECKING:
    from collections.abc import Callable

BATCHES = [keyed_batch(base, [("k", f"v{base}")]) for base in range(3)]


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """A closed segment of two batches with aborted transactions, and the active one."""
    held = Partition({0: BATCHES[0] + BATCHES[1], 2: BATCHES[2]}, aborted={0: [(7, 0, 0, 0)]})
    return listed(make_log_dir(tmp_path / "logs", {"orders-0": held}))


def listed(path: Path) -> PartitionLog:
    found = read_log_dir(path)
    return read_partition(found, found.partitions[0])


def offsets(log: PartitionLog, row: int) -> list[int]:
    with SegmentReader.open(str(log.path)) as reader:
        return [int(offset) for batches in reader.headers(log.segments[row]) for offset in batches.base_offset]


def file_of(log: PartitionLog, row: int, suffix: str = ".log") -> Path:
    return log.path / file_name(log.segments[row].base, suffix)


def replaced(path: Path) -> None:
    """As by a broker's cleaner: other bytes, another inode, the time of the old file, under the old name."""
    status = path.stat()
    other = path.with_suffix(".other")
    other.write_bytes(BATCHES[1] + BATCHES[0])
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


def written_in_place(path: Path) -> None:
    """As by a follower that truncates and fetches again: the same inode and size, other bytes."""
    with path.open("r+b") as file:
        file.write(BATCHES[1] + BATCHES[0])
    os.utime(path, ns=(0, 0))


def cut(path: Path) -> None:
    os.truncate(path, len(BATCHES[0]))


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(BATCHES[2])


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "replaced": (replaced, "another file has its name now"),
    "renamed to .deleted": (lambda path: path.rename(f"{path}.deleted") and None, "it is gone"),  # type: ignore[func-returns-value]
    "deleted": (Path.unlink, "it is gone"),
    "cut": (cut, "it became shorter"),
    "grown": (grown, "it was written to although it is not the active segment"),
    "written in place": (written_in_place, "it was written to although it is not the active segment"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_a_sealed_segment_that_changed(log: PartitionLog, change: Callable[[Path], None], message: str) -> None:
    """D-06: reported as an ordinary outcome (a stale plan), before a byte of the other file is used."""
    change(file_of(log, 0))
    with pytest.raises(SegmentChangedError, match=message) as caught:
        offsets(log, 0)
    assert isinstance(caught.value, StalePlanError)
    assert caught.value.where == str(file_of(log, 0))


def test_appends_to_the_active_segment_are_not_a_change(log: PartitionLog) -> None:
    """Appends by the broker are not a change, nor is a roll meanwhile: the listed bytes are read."""
    grown(file_of(log, 1))
    (log.path / file_name(4, ".log")).write_bytes(b"")
    assert offsets(log, 1) == [2]
    replaced(file_of(log, 1))
    with pytest.raises(SegmentChangedError, match="another file"):
        offsets(log, 1)


def test_a_hard_link_is_not_a_change(log: PartitionLog) -> None:
    """A backup may link segments at any time: that changes only the inode's own time."""
    os.link(file_of(log, 0), log.path / "backup")
    assert offsets(log, 0) == [0, 1]


@pytest.mark.parametrize(
    "written", [b"\xff" * 100, keyed_batch(1, [("k", "v" * 100)])], ids=["damage", "a batch above the limit"]
)
def test_it_changes_while_it_is_read(tmp_path: Path, written: bytes) -> None:
    """D-06: a file that changed while it was read has changed, whatever its new bytes."""
    held = Partition({0: BATCHES[0] + keyed_batch(1, [("k", "w" * 100)]), 2: BATCHES[2]})
    log = listed(make_log_dir(tmp_path / "logs", {"orders-0": held}))
    size = len(BATCHES[0])
    with SegmentReader.open(str(log.path), chunk_bytes=size, largest_batch_bytes=size) as reader:
        chunks = reader.headers(log.segments[0])
        next(chunks)
        with file_of(log, 0).open("r+b") as file:
            file.seek(size)
            file.write(written)
        with pytest.raises(SegmentChangedError, match="written to"):
            list(chunks)


def test_damage_in_an_unchanged_file_is_damage(log: PartitionLog) -> None:
    """A file that is unchanged since the listing but invalid is damaged."""
    path = file_of(log, 0)
    path.write_bytes(b"\xff" * 200)
    with pytest.raises(CorruptionError):
        offsets(listed(log.path.parent), 0)


def test_parts_of_a_segment_are_compared_too(log: PartitionLog) -> None:
    """Readers of a part know the size of the whole: a grown file is another one for all of them."""
    grown(file_of(log, 0))
    part = replace(log.segments[0], size_bytes=len(BATCHES[0]))
    with SegmentReader.open(str(log.path)) as reader, pytest.raises(SegmentChangedError):
        list(reader.headers(part))


@pytest.mark.parametrize("change", ["replaced", "deleted", "renamed to .deleted"])
def test_indexes_of_a_segment_that_changed(log: PartitionLog, change: str) -> None:
    """An index belongs to the listed segment, or is not used: the broker removes the log before it."""
    CHANGES[change][0](file_of(log, 0))
    with pytest.raises(SegmentChangedError):
        read_companion(log.path, log.segments[0], ".txnindex")
    with pytest.raises(SegmentChangedError):
        read_aborted(log, 3)


def test_a_disk_that_fails_is_reported_as_any_error(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """EIO at the check whether the segment is still the same: a reader that can do without the index continues."""
    stat = os.stat

    def failing(path: str | Path, *args: Any, **named: Any) -> os.stat_result:
        if str(path).endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, *args, **named)

    system_call(monkeypatch, "stat", failing)
    with pytest.raises(CleanerdError, match=r"\.log: cannot be read: Input/output error"):
        read_companion(log.path, log.segments[0], ".index")
    assert len(index_entries(str(log.path), log.segments[0])) == 0


def test_an_index_that_is_missing_alone(log: PartitionLog) -> None:
    """Then the log has a fault."""
    file_of(log, 0, ".txnindex").unlink()
    with pytest.raises(CleanerdError, match="is gone") as caught:
        read_aborted(log, 3)
    assert not isinstance(caught.value, SegmentChangedError)


def assert_listed_again(log: PartitionLog, monkeypatch: pytest.MonkeyPatch, swap: Callable[[], None]) -> None:
    """``swap`` comes after the first listing: the files after it count."""
    once = listing._list_once
    calls: list[Any] = []

    def swapped_meanwhile(*place: Any) -> Any:
        found = once(*place)
        calls.append(found)
        if len(calls) == 1:
            swap()
        return found

    monkeypatch.setattr(listing, "_list_once", swapped_meanwhile)  # at this very moment
    found = listed(log.path.parent)
    assert len(calls) > 1
    assert found.segments[0].inode == file_of(log, 0).stat().st_ino != log.segments[0].inode


def test_a_listing_shows_one_moment(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A swap between the first name and the last: it is listed again."""
    assert_listed_again(log, monkeypatch, lambda: replaced(file_of(log, 0)))


@pytest.mark.parametrize("seconds", [0, 1])
def test_two_changes_in_one_tick(log: PartitionLog, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """The directory's time does not show the second one; names and inodes, listed once more, do.

    However many ``seconds`` the listing takes: the tick may be over when it ends.
    """
    (log.path / "changed").touch()
    times = log.path.stat()
    now_ns = times.st_mtime_ns + CLOCK_TICK_NS // 2
    # the clock does not advance while the directory is listed, which no real clock does
    monkeypatch.setattr(directory_time, "time", SimpleNamespace(time_ns=lambda: now_ns))

    def in_the_same_tick() -> None:
        nonlocal now_ns
        replaced(file_of(log, 0))
        os.utime(log.path, ns=(times.st_atime_ns, times.st_mtime_ns))
        now_ns += seconds * 10**9

    assert_listed_again(log, monkeypatch, in_the_same_tick)


def test_a_claim_is_not_waited_for(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live cleaning makes ``.kstage`` and reads the partition at once: it used to wait a tick and list it twice."""
    # a tick is too short to be measured
    monkeypatch.setattr("time.sleep", lambda _seconds: pytest.fail("waited"))
    (log.path / ".kstage").mkdir()
    assert listed(log.path.parent).segments == log.segments


def test_a_log_that_vanishes_while_it_is_listed(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that disappears between the listing and its stat: listed again, and reported if that does not end."""

    def gone(*_: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "x")

    monkeypatch.setattr(listing, "_list_once", gone)  # a name that disappears at each listing
    with pytest.raises(CleanerdError, match="cannot be listed"):
        listed(log.path.parent)


@pytest.mark.parametrize(
    ("raised", "reported"),
    [
        (_kernel.InvalidCallError("REBUILD retains no record"), "the log changed after the cleaning was computed"),
        (_kernel.KernelBugError("index out of bounds"), "internal error: index out of bounds"),
    ],
)
def test_kernel_errors_have_one_class(raised: Exception, reported: str) -> None:
    """OP-10: every kernel error ends one partition's cleaning with a reason, and no worker."""
    with pytest.raises(KernelError, match=reported) as caught, translated_kernel_errors("orders-0"):
        raise raised
    assert caught.value.where == "orders-0"


def test_missing_memory_is_not_a_fault_of_the_log(log: PartitionLog) -> None:
    """U-38: the log has no fault, and the next one may fit."""
    with pytest.raises(MachineError, match="no memory is left"), translated_kernel_errors(str(log.path)):
        np.empty(1 << 60, np.uint8)


def test_bits_of_another_file(log: PartitionLog) -> None:
    """Keep bits without any record of a batch to rebuild: reported with the file; another file: reported as that."""

    def rewrite(data: Any, position: int) -> Any:
        actions = np.full(8, _kernel.ACTION_REBUILD, np.uint8)
        return _kernel.rewrite_chunk(data, position, np.zeros(1, np.uint64), 0, actions, delete_horizon=0)

    with SegmentReader.open(str(log.path)) as reader:
        with pytest.raises(KernelError, match="retains no record") as caught:
            list(reader.chunks(log.segments[0], rewrite))
        assert caught.value.where == str(file_of(log, 0))
        replaced(file_of(log, 0))
        with pytest.raises(SegmentChangedError):
            list(reader.chunks(log.segments[0], rewrite))
