"""The source on unhealthy log directories: unknown states are reported, no record is left out silently."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cleanerd import _kernel
from cleanerd.errors import CorruptionError, RefusedError, SegmentChangedError
from cleanerd.format.names import TopicPartition
from cleanerd.spark import listed
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.audit_inputs import sides_of
from cleanerd.spark.logs import find_logs
from cleanerd.spark.source import plan
from cleanerd.spark.source.visible import Markers
from cleanerd.verify.rules import KAFKAS_RULES
from tests.spark.reading import offsets, read_rows
from tests.spark.streaming import segment, stream
from tests.support.log_dirs import HIGH_WATERMARKS, LOG_STARTS, Partition, make_log_dir
from tests.support.logs import Record, encode_batch, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.segments.segment import Segment
    from cleanerd.verify.listing import SegmentFile

TXN: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three closed segments of ten records and an active one."""
    return make_log_dir(tmp_path / "logs", {"t-0": Partition({base: segment(base) for base in (0, 10, 20, 30)})})


def swap(path: Path, *gone: int) -> Path:
    """Replace the first two segments by one that still has its temporary name; the old ones in ``gone`` are deleted."""
    waiting = path / "t-0" / f"{0:020d}.log.swap"
    waiting.write_bytes(segment(0, 20))
    for base in gone:
        file = path / "t-0" / f"{base:020d}.log"
        file.rename(f"{file}.deleted")
    return waiting


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker runs there: waiting two seconds for it, six times, shows nothing."""
    monkeypatch.setattr(listed, "PAUSE_SECONDS", 0.0)  # twelve seconds in all


@pytest.mark.usefixtures("at_once")
def test_an_interrupted_swap(path: Path, tmp_path: Path) -> None:
    """Twenty records were left out silently: neither the old segments nor the new one had their names."""
    copy = make_log_dir(tmp_path / "copy", {"t-0": Partition({0: segment(0)})})
    swap(path)
    assert offsets(path) == list(range(40)), "all old ones are still there"
    swap(path, 0)
    for ask in (
        lambda: offsets(path),
        lambda: find_logs([path], (), lambda _topic: KAFKAS_RULES),
        lambda: sides_of(copy, path),
        lambda: sides_of(path, copy),
        lambda: ReadableLogs(None, path).profile(),
    ):
        with pytest.raises(RefusedError, match="a cleaning was cut off during a swap"):
            ask()


@pytest.mark.usefixtures("at_once")
def test_a_swap_in_another_order(path: Path) -> None:
    """The first of the old ones still exists, or has its new name already, and the second one is deleted."""
    swap(path, 10)
    with pytest.raises(RefusedError, match="cut off"):
        offsets(path)


def test_a_swap_in_progress(path: Path) -> None:
    """A running broker: the reader waits for the moment that it takes."""
    waiting = swap(path, 0, 10)

    def finish() -> None:
        time.sleep(0.3)
        waiting.rename(waiting.with_suffix(""))

    thread = threading.Thread(target=finish)
    thread.start()
    assert offsets(path) == list(range(40))
    thread.join()


def test_a_new_segment_next_to_one_that_it_replaces(path: Path) -> None:
    """As in a copy whose last segment was read before a swap, and its first after: ten records came twice."""
    (path / "t-0" / f"{0:020d}.log").write_bytes(segment(0, 20))
    size = len(segment(0))
    for view in ("committed", "all", "raw", "latest"):
        with pytest.raises(CorruptionError, match=f"at byte {size}: .*offset 10 ends at .*, and the next .* at 10"):
            offsets(path, view=view)
        found = offsets(path, view=view, onCorruption="skip")
        assert len(found) == len(set(found))
    assert offsets(path, onCorruption="skip") == list(range(40))
    assert offsets(path, endingOffsets={"t": {"0": 40}}, startingOffsets={"t": {"0": 20}}) == list(range(20, 40))
    rows = read_rows(path, view="raw", onCorruption="skip", columns="offset,position,damaged")
    assert next(row["position"] for row in rows if row["damaged"] is not None) == size


def test_an_offset_that_was_hit(tmp_path: Path) -> None:
    """No checksum covers the first offset of a batch: one flipped bit changed the offsets of all its records."""
    batches = [bytearray(encode_batch([Record(b"k", b"v", 5)], base_offset=at)) for at in range(6)]
    batches[3][6] = 1
    data = b"".join(batches)
    log = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: data, 6: segment(6)}, indexes=False)})
    with pytest.raises(CorruptionError, match=f"at byte {3 * len(batches[0])}: the batch at offset 259"):
        offsets(log)
    assert offsets(log, onCorruption="skip") == [0, 1, 2, 4, 5, *range(6, 16)]
    batches[3][6:8] = b"\0\1"
    (log / "t-0" / f"{0:020d}.log").write_bytes(b"".join(batches))
    with pytest.raises(CorruptionError, match="the batch at offset 1 does not lie after 2"):
        offsets(log)


def test_a_swap_during_planning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the listing and the reading of the file: the log is not at fault."""
    scan = plan.witness_of

    def swapped(listed_one: SegmentFile) -> Segment:
        (path / "t-0" / f"{0:020d}.log").write_bytes(segment(0, 20, 2))
        (path / "t-0" / f"{10:020d}.log").unlink(missing_ok=True)
        return scan(listed_one)

    monkeypatch.setattr(plan, "witness_of", swapped)  # at this very moment
    with pytest.raises(SegmentChangedError, match="replaces several"):
        offsets(path, endingOffsets={"t": {"0": 10}})


@pytest.mark.parametrize("content", [b"garbage", b"0\n2\nt 0 5\n"])
def test_a_damaged_checkpoint_of_log_starts(tmp_path: Path, content: bytes) -> None:
    """It was ignored, and deleted records came back."""
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: segment(0)}, log_start_offset=5)})
    assert offsets(path) == [5, 6, 7, 8, 9]
    (path / LOG_STARTS).write_bytes(content)
    with pytest.raises(CorruptionError, match=f"{LOG_STARTS}: is damaged: where logs start"):
        offsets(path)
    with pytest.raises(CorruptionError, match="is damaged"):
        sides_of(path, path)
    (path / LOG_STARTS).unlink()
    assert offsets(path) == list(range(10))


def test_a_lost_marker(tmp_path: Path) -> None:
    """Behind the requested range, where nothing else is read: its data was left out as if it were not committed."""
    data = segment(0, 5) + encode_batch([Record(b"t", b"1")], base_offset=5, **TXN) + segment(6, 4)
    marker = encode_marker(12, commit=True, producer_id=7, producer_epoch=0)
    lost = marker[:16] + b"\x09" + marker[17:]  # no such magic
    for bytes_there, alone in ((marker, True), (lost, False)):
        segments = {0: data, 10: segment(10, 2) + bytes_there + segment(13, 7), 20: segment(20)}
        path = make_log_dir(tmp_path / f"{alone}", {"t-0": Partition(segments, snapshots={20: []})})
        requested: dict[str, Any] = {"endingOffsets": {"t": {"0": 10}}}
        if alone:
            assert offsets(path, **requested) == list(range(10))
            continue
        with pytest.raises(CorruptionError, match=r"10\.log at byte \d+: unknown magic 9"):
            offsets(path, **requested)
        assert offsets(path, onCorruption="skip", **requested) == [0, 1, 2, 3, 4, 6, 7, 8, 9]


def test_a_segment_deleted_while_it_was_read(tmp_path: Path) -> None:
    """A cleaning merged it into an earlier one, with the markers behind it: those were not searched."""
    batch = encode_batch([Record(b"t", b"1")], base_offset=10, **TXN)
    marker = encode_marker(20, commit=True, producer_id=7, producer_epoch=0)
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: segment(0), 10: batch, 20: marker, 30: b""})})
    (log,) = find_logs([path], (TopicPartition("t", 0),), lambda _topic: KAFKAS_RULES)
    for base in (0, 10, 20):
        (path / "t-0" / f"{base:020d}.log").unlink()
    (path / "t-0" / f"{0:020d}.log").write_bytes(segment(0) + batch + marker)
    batches = _kernel.scan_headers(np.frombuffer(batch, np.uint8), 0)
    with pytest.raises(SegmentChangedError, match="the segment is no longer there"):
        Markers(40, skip_damage=False).hidden(batches, log.segments[1], len(batch))


def test_a_time_index_that_was_not_finished(tmp_path: Path) -> None:
    """Copied while its segment was written, with space for more entries: it does not have the last times."""
    segments = {
        base: b"".join(
            encode_batch([Record(b"k", b"v" * 2000, timestamp=1000 + at)], base_offset=at)
            for at in range(base, base + 20)
        )
        for base in (0, 20)
    }
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition(segments)})
    expected = list(range(15, 40))
    assert offsets(path, startingTimestamp="1015") == expected
    index = path / "t-0" / f"{0:020d}.timeindex"
    first = index.read_bytes()[:24]
    for room in (12, 10 * 1024 * 1024 // 12 * 12):
        index.write_bytes(first + bytes(room))
        assert offsets(path, startingTimestamp="1015") == expected


def test_a_log_that_starts_above_its_end(tmp_path: Path) -> None:
    """DeleteRecords passed an open transaction.

    Or one checkpoint is older. "latest" was an offset that does not exist.
    """
    batch = encode_batch([Record(b"t", b"1")], base_offset=5, **TXN)
    data = {0: segment(0, 5) + batch + segment(6, 14)}
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition(data, log_start_offset=15)})
    for starting in ("earliest", "latest", {"t": {"0": -1}}):
        assert stream(path, startingOffsets=starting).initialOffset() == {"t": {"0": 15}}
    assert offsets(path) == []
    assert stream(path, view="all", startingOffsets="latest").initialOffset() == {"t": {"0": 15}}
    (taken,) = ReadableLogs(None, path).latest().write_parquet(tmp_path / "snapshot")
    assert (taken.log_start, taken.end_offset) == (15, 15)
    (path / HIGH_WATERMARKS).write_text("0\n1\nt 0 10\n")
    assert stream(path, view="all", startingOffsets="latest").initialOffset() == {"t": {"0": 15}}
