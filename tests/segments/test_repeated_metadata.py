"""A metadata log that is read repeatedly: each reading finds what a first one would find (U-23, U-71)."""

from __future__ import annotations

import random
import struct
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cleanerd.errors import CleanerdError, CorruptionError
from cleanerd.segments.cluster_metadata import MetadataLog
from tests.segments.metadata_logs import ID1, ID2, LOG
from tests.segments.replica_records import MINUTE_MS, NO_OP, T0, change, log_of, partition
from tests.support.format_bytes import ABORT, BEGIN, END, batch, config, record, remove_topic, snapshot, topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from cleanerd.segments.metadata_image import ClusterMetadata

CREATED = (topic("a", ID1), partition(ID1, 0, [1, 2], [1, 2]))
RECORDS = (
    NO_OP, NO_OP, NO_OP, topic("a", ID2), topic("b", ID2), remove_topic(ID1), remove_topic(ID2),
    config(2, "a", "cleanup.policy", "compact"), config(2, "a", "cleanup.policy", None), config(4, "1", "x", "y"),
    partition(ID1, 1, [1], [1]), partition(ID2, 0, [1, 2], [1, 2]), change(ID1, 0, isr=[1]), change(ID1, 0, isr=[1, 2]),
    change(ID1, 0, adding=[3]), change(ID1, 1, replicas=[1, 2]), change(ID2, 0, isr=[]),
)  # fmt: skip


def everything(read: Callable[..., ClusterMetadata], **limits: int | bool | None) -> object:
    """All fields of a reading, also those that do not count for equality; or its error."""
    try:
        found: ClusterMetadata | None = read(**limits)
    except CleanerdError as error:
        return str(error)
    parts = []
    while found is not None:
        parts.append({each.name: getattr(found, each.name) for each in fields(found) if each.name != "younger"})
        found = found.younger
    return parts


def batch_of(offset: int, values: list[bytes], minute: float, epoch: int) -> bytes:
    at_ms = int(T0 + minute * MINUTE_MS)
    records = [record(at, None, value) for at, value in enumerate(values)]
    return batch(offset, records, base_timestamp=at_ms, max_timestamp=at_ms, leader_epoch=epoch)


@given(st.integers(0, 2**32))
def test_a_growing_log(seed: int) -> None:
    """Also with times that go back, in several segments, and with an end that another leader's batches replace."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        (directory / LOG).write_bytes(batch_of(0, list(CREATED), 0, 1))
        path, offset, minute, epoch, is_open = directory / LOG, 2, 0.0, 1, False
        log, before = MetadataLog(directory), [(path, path.read_bytes(), offset, is_open)]
        for _ in range(dice.randrange(1, 25)):
            values = [dice.choice(RECORDS) for _ in range(dice.randrange(1, 4))]
            if dice.random() < 0.2:
                values.append(dice.choice((END, ABORT)) if is_open else BEGIN)
                is_open = not is_open
            minute += dice.choice((0.5, 0.5, 2, 6, 30, -3, -60))
            with path.open("ab") as file:
                file.write(batch_of(offset, values, minute, epoch))
            offset += len(values)
            before.append((path, path.read_bytes(), offset, is_open))
            if dice.random() < 0.1:
                del before[dice.randrange(max(1, len(before) - 4), len(before)) :]
                path, content, offset, is_open = before[-1]
                for each in directory.glob("*.log"):
                    if each.name > path.name:
                        each.unlink()
                path.write_bytes(content)
                epoch += 1
            elif dice.random() < 0.2:
                path = directory / f"{offset:020d}.log"
                path.touch()
            limit = dice.choice((None, int(T0 + (minute - dice.choice((0, 3, 5, 20))) * MINUTE_MS)))
            limits = {"only_before_ms": limit, "younger": dice.random() < 0.5, "margin_ms": 5 * MINUTE_MS}
            assert everything(log.read, **limits) == everything(MetadataLog(directory).read, **limits)


def test_a_reading_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    """Only the last minutes and what is new are read again: a log of 20 MB would take seconds each time."""
    directory = log_of(tmp_path / "m", (0, CREATED), (1, (NO_OP,)), (2, (NO_OP,)), end=90)
    log = MetadataLog(directory)
    log.read(only_before_ms=None)
    data = bytearray((directory / LOG).read_bytes())
    data[80] ^= 1  # in the first batch
    (directory / LOG).write_bytes(data + batch_of(5, [topic("b", ID2)], 91, 0))
    assert log.read(only_before_ms=None).topics == {"a": ID1, "b": ID2}
    with pytest.raises(CorruptionError):
        MetadataLog(directory).read(only_before_ms=None)


def test_a_snapshot_that_replaces_the_beginning(tmp_path: Path) -> None:
    """The broker deletes the segments that a snapshot covers; a reading that needs one begins at the snapshot."""
    directory = log_of(tmp_path / "m", (0, CREATED), (1, (NO_OP,)), end=90)
    log = MetadataLog(directory)
    log.read(only_before_ms=None)
    (directory / f"{4:020d}-{1:010d}.checkpoint").write_bytes(snapshot(topic("b", ID2), timestamp=T0 + 80 * MINUTE_MS))
    (directory / LOG).unlink()
    (directory / f"{4:020d}.log").write_bytes(b"")
    assert log.read(only_before_ms=None).topics == {"b": ID2}
    assert everything(log.read, only_before_ms=None) == everything(MetadataLog(directory).read, only_before_ms=None)


def test_another_log_in_the_same_place(tmp_path: Path) -> None:
    """A disk was replaced: the offsets and times are the same, the batches are not."""
    one = log_of(tmp_path / "m", (0, CREATED), (1, (config(2, "a", "cleanup.policy", "compact"),)), end=90)
    log = MetadataLog(one)
    assert log.read(only_before_ms=None).topic_configs == {"a": {"cleanup.policy": "compact"}}
    log_of(one, (0, CREATED), (1, (config(2, "a", "cleanup.policy", "delete"),)), end=90)
    assert log.read(only_before_ms=None).topic_configs == {"a": {"cleanup.policy": "delete"}}


def test_one_batch_with_a_time_in_the_future(tmp_path: Path) -> None:
    """U-23: all after it counts as young, until a snapshot contains it that is old enough."""
    compact, delete = (config(2, "a", "cleanup.policy", value) for value in ("compact", "delete"))
    directory = log_of(tmp_path / "m", (0, (*CREATED, compact)), (500_000, (NO_OP,)), (40, (delete,)), end=60)
    log, found = MetadataLog(directory), []
    place = directory / f"{5:020d}-{1:010d}.checkpoint"
    for offset, minute in ((6, 61), (7, 62), (8, 70)):
        with (directory / LOG).open("ab") as file:
            file.write(batch_of(offset, [NO_OP], minute, 0))
        if minute == 62:
            values = topic("a", ID1), partition(ID1, 0, [1, 2], [1, 2]), delete
            place.write_bytes(snapshot(*values, timestamp=T0 + 60 * MINUTE_MS))
        read = log.read(only_before_ms=int(T0 + (minute - 5) * MINUTE_MS))
        found.append(read.topic_configs["a"]["cleanup.policy"])
    assert found == ["compact", "compact", "delete"]


def test_a_damaged_index(tmp_path: Path) -> None:
    """An index is a hint: a reading that fails by it begins at the snapshot."""
    directory = log_of(tmp_path / "m", (0, CREATED), *[(minute, (NO_OP,)) for minute in range(1, 60)], end=90)
    (directory / f"{62:020d}.log").write_bytes(batch_of(62, [NO_OP], 92, 0))
    (directory / LOG).with_suffix(".index").write_bytes(struct.pack(">2i", 5, 100))  # inside a batch
    log = MetadataLog(directory)
    for _ in range(3):
        assert everything(log.read, only_before_ms=None) == everything(MetadataLog(directory).read, only_before_ms=None)


def test_an_empty_active_segment(tmp_path: Path) -> None:
    """U-71: the time of the log's end is that of its last batch, in the segment before."""
    directory = log_of(tmp_path / "m", (0, CREATED), (1, (NO_OP,)), end=90)
    (directory / f"{4:020d}.log").touch()
    replicas = MetadataLog(directory).read(only_before_ms=None).replicas
    assert (replicas.newest_ms, set(replicas.topics)) == (T0 + 90 * MINUTE_MS, {ID1})
