"""Transactions through the whole cleaner, without a broker: which records are in the map, what a marker ends."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from cleanerd.format.index import read_txn_index
from tests.cleaner.driver import NAME, clean_all, scratch
from tests.support.log_dirs import Partition, make_log_dir, read_segments
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_marker, keyed_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = BASE_TIMESTAMP_MS + 1000
PRODUCER = 7
COMMIT_KEY = struct.pack(">hh", 0, 1)


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def data(base: int, key: bytes) -> bytes:
    """One record inside a transaction."""
    return encode_batch(
        [Record(key=key, value=b"x", timestamp=BASE_TIMESTAMP_MS)],
        base_offset=base,
        transactional=True,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=base,
    )


def marker(base: int, *, commit: bool) -> bytes:
    return encode_marker(base, commit=commit, producer_id=PRODUCER)


def cleaned(root: Path, log: bytes, end: int, aborted: list[tuple[int, int, int, int]]) -> list[int]:
    """Offsets of the retained records of a log of one segment, markers included."""
    make_log_dir(root, {NAME: Partition({0: log, end: b""}, aborted={0: aborted})})
    clean_all(root, NOW)
    return [record.offset for batch in read_segments(root / NAME)[0] for record in batch.records]


def test_a_marker_is_not_a_record(root: Path) -> None:
    """C-18: the key of a record may have the bytes of a marker's key. Neither supersedes the other."""
    record = encode_batch([Record(key=COMMIT_KEY, value=b"1", timestamp=BASE_TIMESTAMP_MS)])
    log = record + keyed_batch(1, [("b", "1")]) + data(2, b"a") + marker(3, commit=True) + keyed_batch(4, [("b", "2")])
    assert cleaned(root, log, 5, []) == [0, 2, 3, 4]


def test_aborted_data_supersedes_nothing(root: Path) -> None:
    """C-19: the newest record of a key that was not aborted stays, whatever was aborted after it."""
    log = keyed_batch(0, [("a", "1")]) + data(1, b"a") + marker(2, commit=False)
    assert cleaned(root, log, 3, [(PRODUCER, 1, 2, 1)]) == [0, 2]


def test_index_entry_of_a_marker_that_ends_nothing(root: Path) -> None:
    """C-37, C-69: the data of the first transaction is removed, so its entry is removed; the second one's stays."""
    log = keyed_batch(0, [("a", "1")]) + marker(2, commit=False) + data(3, b"b") + marker(4, commit=False)
    assert cleaned(root, log, 5, [(PRODUCER, 1, 2, 1), (PRODUCER, 3, 4, 3)]) == [0, 2, 4]
    entries = read_txn_index((root / NAME / f"{0:020d}.txnindex").read_bytes(), "txnindex")
    assert entries["last_offset"].tolist() == [4]


def test_data_and_marker_in_two_segments(root: Path) -> None:
    """C-33, C-37: the marker in the second segment ends the transaction of the first, so it does not start to wait."""
    logs = {0: data(0, b"a"), 1: marker(1, commit=True) + keyed_batch(2, [("b", "1")]), 3: keyed_batch(3, [("b", "2")])}
    make_log_dir(root, {NAME: Partition({**logs, 4: b""})})
    clean_all(root, NOW)
    markers = [batch for batches in read_segments(root / NAME).values() for batch in batches if batch.header.is_control]
    assert [batch.header.delete_horizon_ms for batch in markers] == [None]
