"""Each field of every binary file is checked, or named in ``NOT_JUDGED`` (U-56): a planted change for every one."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from cleanerd.format.batch import HEADER, HEADER_BYTES
from cleanerd.format.index import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY
from cleanerd.format.snapshot import SNAPSHOT_ENTRY, write_snapshot
from cleanerd.verify.finding import Findings, Severity
from cleanerd.verify.kinds import NOT_JUDGED
from cleanerd.verify.log_dir import read_surroundings, verify_in_surroundings
from cleanerd.verify.partition import VerifyRequest
from tests.support.log_dirs import RECOVERY_POINTS, write_checkpoint
from tests.support.logs import encode_batch, encode_marker, seal
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import Scene, T, findings, record

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORMATS = {
    ".log": HEADER,
    ".index": OFFSET_ENTRY,
    ".timeindex": TIME_ENTRY,
    ".txnindex": TXN_ENTRY,
    ".snapshot": SNAPSHOT_ENTRY,
}
FIELDS = [(suffix, name) for suffix, dtype in FORMATS.items() for name in dtype.names or ()]
CHANGES = {"attributes": 1 << 3, "magic": 5, "current_txn_first_offset": 8}


def _changed(entries: NDArray[np.void], field: str) -> bytes:
    changed = entries.copy()
    changed[field][0] += CHANGES.get(field, 1)
    return changed.tobytes()


def _plant(scene: Scene, suffix: str, field: str) -> None:
    if suffix == ".log":
        header = np.frombuffer(s.SECOND_CLEANED[:HEADER_BYTES], HEADER)
        batch = _changed(header, field) + s.SECOND_CLEANED[HEADER_BYTES:]
        whole = batch if field in {"crc", "batch_length", "magic"} else seal(batch)
        path = scene.file(0)
        path.write_bytes(whole + path.read_bytes()[len(s.SECOND_CLEANED) :])
        return
    path = scene.file(14 if suffix in {".txnindex", ".snapshot"} else 0, suffix)
    if suffix == ".snapshot":
        rows = [s.NINE, s.SEVEN] if field == "current_txn_first_offset" else [s.SEVEN, s.NINE]
        changed = _changed(np.array(rows, SNAPSHOT_ENTRY), field)
        path.write_bytes(write_snapshot(np.frombuffer(changed, SNAPSHOT_ENTRY)))
    else:
        path.write_bytes(_changed(np.frombuffer(path.read_bytes(), FORMATS[suffix]), field))


@pytest.mark.parametrize(("suffix", "field"), FIELDS, ids=[f"{suffix}-{name}" for suffix, name in FIELDS])
def test_each_field_is_checked_or_named(scene: Scene, suffix: str, field: str) -> None:
    _plant(scene, suffix, field)
    found = [each.what for each in findings(scene, scene.copy) if each.severity is Severity.ERROR]
    assert bool(found) != (f"{suffix} {field}" in NOT_JUDGED), found


TEXT_FIELDS = [
    ("orders-0/leader-epoch-checkpoint", "version", "0\n2", "1\n2"),
    ("orders-0/leader-epoch-checkpoint", "count", "0\n2", "0\n3"),
    ("orders-0/leader-epoch-checkpoint", "epoch", "1 13", "2 13"),
    ("orders-0/leader-epoch-checkpoint", "start offset inside a batch", "1 13", "1 12"),
    ("orders-0/leader-epoch-checkpoint", "start offset behind a batch", "1 13", "1 14"),
    ("orders-0/leader-epoch-checkpoint", "start_offset", "0 0\n", "0 1\n"),
    ("orders-0/partition.metadata", "version", "version: 0", "version: 1"),
    ("orders-0/partition.metadata", "topic_id", r"topic_id: \S+", "topic_id: rrjIEPi2Syy2oLkAHtcIlw"),
    ("meta.properties", "version", "version=1", "version=7"),
    ("meta.properties", "cluster.id", "cluster.id=5", "cluster.id=6"),
    ("meta.properties", "node.id", "node.id=1", "node.id=2"),
    ("meta.properties", "directory.id", "NF-xw", "NF-xx"),
    *(
        (name, field, old, new)
        for name in ("cleaner-offset", "recovery-point-offset", "replication-offset")
        for field, old, new in (
            ("version", "0\n1", "1\n1"),
            ("count", "0\n1", "0\n2"),
            ("offset", "orders 0 1", "orders 0 99"),
            ("partition", "orders 0", "orders 1"),
        )
    ),
]


@pytest.mark.parametrize(("file", "field", "old", "new"), TEXT_FIELDS)
def test_each_field_of_a_text_file_is_checked_or_named(scene: Scene, file: str, field: str, old: str, new: str) -> None:
    """U-56: as for the binary files."""
    path = scene.log_dir / (f"{file}-checkpoint" if file.endswith("-offset") else file)
    changed, count = re.subn(old, new, path.read_text(), count=1)
    assert count
    path.write_text(changed)
    found = [each.what for each in findings(scene, None) if each.severity is Severity.ERROR]
    named = f"{'cleaner-offset-checkpoint' if field == 'partition' else path.name} {field}" in NOT_JUDGED
    assert bool(found) != named, found


def test_the_docs_name_the_unchecked_fields() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()
    assert [name for name in NOT_JUDGED if f"`{name.replace(' ', '` ', 1)}" not in page] == []


def test_a_time_below_minus_one_is_a_warning(scene: Scene) -> None:
    """F-2: Kafka stores it, and its cleaner copies the batch whole or stops at it."""
    scene.put(13, encode_batch([record("d", "5", 0, -7)], base_offset=13, leader_epoch=1))
    kinds = {(each.severity, each.kind.text) for each in findings(scene, None)}
    assert (Severity.WARNING, "timestamp-negative") in kinds


@pytest.mark.parametrize(("message", "wrong"), [(-7, False), (-1, False), (-8, True), (-5, True), (0, True)])
def test_the_largest_time_of_records_below_minus_one(scene: Scene, message: int, wrong: bool) -> None:
    """U-52, F-2: a producer's batch has the largest time of its records, a rebuilt batch has -1."""
    batch = encode_batch([record("d", "5", 0, -7)], base_offset=13, leader_epoch=1, max_timestamp=message)
    scene.put(13, batch)
    kinds = {(each.severity, each.kind.text) for each in findings(scene, None)}
    assert ((Severity.ERROR, "max-timestamp-wrong") in kinds) is wrong


def test_an_active_producer_missing_from_a_snapshot_is_reported(scene: Scene) -> None:
    """F-10: also a producer with only a marker left, and one that has expired since the snapshot."""
    marker = encode_marker(13, commit=True, producer_id=11, timestamp=T, leader_epoch=1)
    scene.put(13, marker)
    for now_ms, active in ((s.NOW, True), (T + 86_400_000, False)):
        found = [each.what for each in findings(scene, None, now_ms=now_ms) if each.rule == "F-10"]
        assert found == (["producer 11 is missing, its last batch ends at offset 13"] if active else [])
    os.utime(scene.file(14, ".snapshot"), (T / 1000 + 60, T / 1000 + 60))
    found = [each.what for each in findings(scene, None, now_ms=T + 86_400_000) if each.rule == "F-10"]
    assert "producer 11 is missing, its last batch ends at offset 13" in found


def test_a_running_broker_truncates_no_damage(scene: Scene) -> None:
    """U-32: damage that the next start would truncate is an error while the broker runs and serves it."""
    (scene.log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    write_checkpoint(scene.log_dir / RECOVERY_POINTS, {s.NAME: 14})
    path = scene.file(14)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    for broker_runs, severity in ((False, Severity.WARNING), (True, Severity.ERROR)):
        around = read_surroundings(scene.log_dir, Findings(), broker_runs=broker_runs)
        verdict = verify_in_surroundings(scene.partition, around, VerifyRequest(now_ms=s.NOW))
        found = [each.severity for each in verdict.findings.kept if each.rule in {"F-1", "F-2"}]
        assert found == [severity]


def test_a_section_that_cleanerd_did_not_clean_itself(scene: Scene) -> None:
    """U-56: after ``--first-dirty`` a key without a record from there on may be there twice."""
    scene.put(0, s.SECOND_CLEANED + s.LAST_OF_7)
    for unproven_below, severity in ((0, Severity.ERROR), (13, Severity.ERROR), (14, Severity.WARNING)):
        found = findings(scene, None, unproven_below=unproven_below)
        assert [(each.severity, each.rule) for each in found] == [(severity, "C-45")]


HELD_MARKER = encode_marker(8, commit=True, producer_id=11, producer_epoch=1, timestamp=T, delete_horizon=s.HORIZON)


@pytest.mark.parametrize(("now_ms", "wrong"), [(s.HORIZON - 1, True), (s.HORIZON, False)])
def test_a_marker_of_an_active_producer(scene: Scene, now_ms: int, wrong: bool) -> None:
    """R192-1: it expires at its delete horizon, as with Kafka, and not before."""
    data = encode_batch([record("x", "1", 0)], base_offset=7, transactional=True, producer_id=11, base_sequence=0)
    (scene.copy / f"{7:020d}.log").write_bytes(data + HELD_MARKER)
    scene.put(7, data)
    found = findings(scene, scene.copy, now_ms=now_ms, producer_expiration_ms=2**60)
    assert any("the marker with epoch 1 of producer 11" in each.what for each in found) is wrong


@pytest.mark.parametrize(("clean_below", "wrong"), [(14, True), (15, False)])
def test_aborted_data_behind_the_end_of_a_cleaning(scene: Scene, clean_below: int, wrong: bool) -> None:
    """C-45.1: a segment is rewritten whole; aborted data anywhere in it is removed, committed data is not."""
    first = encode_batch([record("f", "1", 0)], base_offset=14, leader_epoch=1)
    aborted = s.transactional(15, record("z", "1", 0), sequence=2, epoch=1)
    end = s.marker(16, commit=False, epoch=1)
    last = encode_batch([record("f", "2", 0), record("g", "1", 1)], base_offset=17, leader_epoch=1)
    (scene.copy / f"{14:020d}.log").write_bytes(first + aborted + end + last)
    scene.put(14, first + end + encode_batch([record("g", "1", 1)], base_offset=17, leader_epoch=1))
    found = [each.offset for each in findings(scene, scene.copy, clean_below=clean_below) if each.rule == "C-45.1"]
    assert found == ([15, 17] if wrong else [17])


def test_the_largest_time_of_a_batch(scene: Scene) -> None:
    """F-2: if the indexes match the header, only the records show the fault."""
    header = np.frombuffer(s.SECOND_CLEANED[:HEADER_BYTES], HEADER)
    scene.put(0, seal(_changed(header, "max_timestamp") + s.SECOND_CLEANED[HEADER_BYTES:]) + s.LAST_OF_7_CLEANED)
    assert [(each.kind.text, each.offset) for each in findings(scene, None)] == [("max-timestamp-wrong", 3)]
