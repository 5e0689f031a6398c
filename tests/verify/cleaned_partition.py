"""A small cleaned partition without faults, the log before its cleaning, and functions to damage it.

Clean up to 14; the active segment begins there with an aborted transaction. Producer 7 is idempotent, 9 transactional.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cleanerd.format.index import TXN_ENTRY
from cleanerd.format.snapshot import SNAPSHOT_ENTRY, write_snapshot
from cleanerd.verify.finding import Finding, Findings
from cleanerd.verify.log_dir import read_surroundings, verify_in_surroundings
from cleanerd.verify.partition import VerifyRequest, report_deleted
from tests.support.log_dirs import Partition, index_bytes, make_log_dir
from tests.support.logs import BASE_TIMESTAMP_MS, Record, encode_batch, encode_marker

if TYPE_CHECKING:
    from pathlib import Path

NAME = "orders-0"
T = BASE_TIMESTAMP_MS
NOW = T + 1_000_000
HORIZON = NOW + 5000
CLEAN_TO = 14
INTERVAL = 0


def record(key: str | None, value: str | None, delta: int, timestamp: int = T) -> Record:
    return Record(None if key is None else key.encode(), None if value is None else value.encode(), timestamp, delta)


def idempotent(*records: Record) -> bytes:
    """Producer 7's batch of the offsets 5 and 6, with the given records."""
    return encode_batch(records, base_offset=5, last_offset_delta=1, producer_id=7, producer_epoch=0, base_sequence=0)


def transactional(base: int, *records: Record, sequence: int = 0, epoch: int = 0) -> bytes:
    return encode_batch(
        records, base_offset=base, transactional=True, producer_id=9, producer_epoch=0, base_sequence=sequence,
        leader_epoch=epoch,
    )  # fmt: skip


def marker(base: int, *, commit: bool, epoch: int = 0) -> bytes:
    return encode_marker(base, commit=commit, producer_id=9, timestamp=T, leader_epoch=epoch)


FIRST = encode_batch([record("a", "1", 0), record("b", "1", 1), record("c", "1", 2)])
SECOND = encode_batch([record("a", "2", 0, T + 10), record(None, "x", 1)], base_offset=3)
SECOND_CLEANED = encode_batch([record("a", "2", 0, T + 10)], base_offset=3, last_offset_delta=1)
LAST_OF_7 = idempotent(record("d", "1", 0), record("e", "1", 1))
LAST_OF_7_CLEANED = idempotent(record("e", "1", 1))
TOMBSTONE = [record("b", "2", 0, T + 20), record("c", None, 1)]
HELD = encode_batch(TOMBSTONE, base_offset=11, delete_horizon=HORIZON)
SINGLE = encode_batch([record("d", "5", 0)], base_offset=13, leader_epoch=1)
ABORTED = transactional(14, record("z", "1", 0), sequence=2, epoch=1)
END = encode_batch([record("f", "1", 0), record("a", "9", 1)], base_offset=16, leader_epoch=1)
EMPTY_FIRST = encode_batch([], base_offset=0, last_offset_delta=2)

TRANSACTIONS = marker(8, commit=False), transactional(9, record("y", "1", 0), sequence=1), marker(10, commit=True)
ACTIVE = ABORTED + marker(15, commit=False, epoch=1) + END

OLD = {
    0: FIRST + SECOND + LAST_OF_7,
    7: transactional(7, record("x", "1", 0)) + b"".join(TRANSACTIONS) + HELD,
    13: SINGLE,
    14: ACTIVE,
}
NEW = {
    0: SECOND_CLEANED + LAST_OF_7_CLEANED,
    7: b"".join(TRANSACTIONS) + HELD,
    13: SINGLE,
    14: ACTIVE,
}

SEVEN = (7, 0, 1, 6, 1, T, -1, -1)
NINE = (9, 0, 1, 9, 0, T, 0, -1)
ENTRIES = {7: [(9, 7, 8, 9)], 14: [(9, 14, 15, 16)]}


@dataclass(frozen=True, slots=True)
class Scene:
    """``log_dir/orders-0`` is the cleaned partition, ``copy`` the partition before."""

    log_dir: Path
    copy: Path

    @property
    def partition(self) -> Path:
        return self.log_dir / NAME

    def file(self, base: int, suffix: str = ".log") -> Path:
        return self.partition / f"{base:020d}{suffix}"

    def put(self, base: int, data: bytes) -> None:
        """Replace a segment's batches, with matching indexes."""
        self.file(base).write_bytes(data)
        offsets, times = index_bytes(base, data, INTERVAL)
        self.file(base, ".index").write_bytes(offsets)
        self.file(base, ".timeindex").write_bytes(times)

    def patch(self, path: Path, position: int, content: bytes) -> None:
        data = bytearray(path.read_bytes())
        data[position : position + len(content)] = content
        path.write_bytes(bytes(data))


def snapshot(*rows: tuple[int, ...]) -> bytes:
    return write_snapshot(np.array(list(rows), SNAPSHOT_ENTRY))


def txn_index(*rows: tuple[int, int, int, int]) -> bytes:
    return np.array([(0, 0, *row) for row in rows], TXN_ENTRY).tobytes()


def offset_entries(*rows: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *row) for row in rows)


def time_entries(*rows: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *row) for row in rows)


def make_scene(root: Path) -> Scene:
    """Both partitions, without faults."""
    facts = {"epochs": ((0, 0), (1, 13)), "index_interval_bytes": INTERVAL}
    new = Partition(NEW, cleaner_offset=CLEAN_TO, **facts)  # type: ignore[arg-type]  # by name
    log_dir = make_log_dir(root / "logs", {NAME: new})
    copy = make_log_dir(root / "copy", {NAME: Partition(OLD, **facts)}) / NAME  # type: ignore[arg-type]  # by name
    scene = Scene(log_dir, copy)
    for base, rows in ENTRIES.items():
        scene.file(base, ".txnindex").write_bytes(txn_index(*rows))
    scene.file(7, ".snapshot").write_bytes(snapshot(SEVEN))
    scene.file(14, ".snapshot").write_bytes(snapshot(SEVEN, NINE))
    return scene


def findings(scene: Scene, against: Path | None, **facts: object) -> list[Finding]:
    """Findings in the partition and in the log directory's files."""
    found = Findings()
    around = read_surroundings(scene.log_dir, found)
    question = replace(VerifyRequest(now_ms=NOW, against=against), **facts)  # type: ignore[arg-type]  # by name
    verdict = verify_in_surroundings(scene.partition, around, question)
    report_deleted(scene.partition, verdict.deleted, verdict.findings)
    return [*found.in_order(), *verdict.findings.in_order()]
