"""The kept facts of a segment's batches have a known limit, and its consequences are reported (U-35)."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cleanerd.format.batch import CONTROL, TRANSACTIONAL
from cleanerd.format.control import ControlType
from cleanerd.host.memory import MIB, Memory, batch_bytes, facts_bytes
from cleanerd.verify.finding import Findings
from cleanerd.verify.indexes import check_indexes
from cleanerd.verify.kinds import FindingKind
from cleanerd.verify.listing import SegmentFile, list_partition
from cleanerd.verify.partition import VerifyRequest, verify_partition
from cleanerd.verify.segment import BATCH_BYTES, check_segment
from cleanerd.verify.transactions import MARKER_BYTES, Transactions, check_txn_index
from cleanerd.verify.walk import ReadLimits
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.verify.cleaned_partition import CLEAN_TO, NOW, make_scene

if TYPE_CHECKING:
    from pathlib import Path

MOST = 4
"""Batches in the largest segment of the partition."""


@pytest.mark.parametrize("enough", [True, False])
def test_a_segment_of_too_many_batches(tmp_path: Path, enough: bool) -> None:
    """Its indexes are not checked, which is an error with its place; everything else is checked."""
    scene = make_scene(tmp_path)
    scene.patch(scene.file(7, ".timeindex"), 0, b"\0" * 7)
    damaged = scene.file(7).read_bytes()
    read_limits = ReadLimits(facts_bytes=BATCH_BYTES * MOST - (not enough))
    question = VerifyRequest(now_ms=NOW, clean_below=CLEAN_TO, read_limits=read_limits)
    whole = verify_partition(scene.partition, question)
    kinds = [(found.kind, found.file) for found in whole.findings.kept]
    left_out = (FindingKind.NOT_VERIFIED, str(scene.file(7)))
    assert (left_out in kinds) != enough
    assert ((FindingKind.TIME_INDEX_WRONG, str(scene.file(7, ".timeindex"))) in kinds) == enough
    assert {kind for kind, _ in kinds} <= {
        FindingKind.NOT_VERIFIED,
        FindingKind.TIME_INDEX_WRONG,
        FindingKind.TIME_INDEX_UNFINISHED,
    }
    scene.patch(scene.file(7), len(damaged) - 1, bytes([damaged[-1] ^ 1]))
    again = verify_partition(scene.partition, question)
    assert FindingKind.BATCH_DAMAGED in {found.kind for found in again.findings.kept}
    assert again.records == whole.records - 1 or again.batches == whole.batches - 1


def test_memory_stays_below_its_estimate(tmp_path: Path) -> None:
    """64 bytes per batch are enough for columns and comparison; over the limit none are kept."""
    count = 40_000
    one = keyed_batch(0, [("k", "v")])
    content = b"".join(number.to_bytes(8, "big") + one[8:] for number in range(count))
    path = make_log_dir(tmp_path, {"orders-0": Partition({0: content, count: b""})}) / "orders-0"
    file = list_partition(path).segments[0]
    taken = []
    for limit in (BATCH_BYTES * count, 0):
        read_limits = ReadLimits(64 * 1024, limit)
        findings = Findings(100)
        tracemalloc.start()
        facts, columns = check_segment(
            file, findings, lambda _: None, lambda _: None, tail_may_be_cut=False, read_limits=read_limits
        )
        if columns is not None:
            check_indexes(facts, columns, findings)
        taken.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (facts.batches, facts.end_offset, facts.whole) == (count, count, True)
        assert [found.kind for found in findings.kept] == ([] if limit else [FindingKind.NOT_VERIFIED])
    whole, nothing = taken
    assert nothing < whole - 30 * count, "the columns are not kept"
    assert whole < BATCH_BYTES * count + 512 * 1024, "with its chunk of 64 KiB"


def test_damage_takes_no_memory(tmp_path: Path) -> None:
    """U-35: damaged batches take no memory, whatever their number; a few are reported, the others counted."""
    read_limits = ReadLimits(chunk_bytes=64 * 1024)
    one = bytearray(keyed_batch(0, [("k", "v")]))
    one[-1] ^= 1
    peaks = []
    for count in (500, 3_500):
        content = b"".join(number.to_bytes(8, "big") + one[8:] for number in range(count))
        path = make_log_dir(tmp_path / str(count), {"orders-0": Partition({0: content, count: b""})}) / "orders-0"
        tracemalloc.start()
        verdict = verify_partition(path, VerifyRequest(now_ms=NOW, clean_below=0, limit=100, read_limits=read_limits))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        damaged = [found for found in verdict.findings.kept if found.kind is FindingKind.BATCH_DAMAGED]
        assert (len(damaged), verdict.findings.omitted) == (100, count - 100)
        assert verdict.to_json()["findings_omitted"] == count - 100
        assert FindingKind.RECORD_DAMAGED not in {found.kind for found in verdict.findings.kept}, (
            "it was reported already"
        )
    assert peaks[1] - peaks[0] < 3_000 * 16


def markers_of(count: int) -> Any:
    """Transactions of one batch each, all aborted, in the kernel's columns."""
    is_marker = np.tile([False, True], count)
    return SimpleNamespace(
        attributes=np.where(is_marker, TRANSACTIONAL | CONTROL, TRANSACTIONAL),
        magic=np.full(2 * count, 2),
        base_offset=np.arange(2 * count),
        producer_id=np.repeat(np.arange(count) % 100, 2),
        control_type=np.where(is_marker, int(ControlType.ABORT), -1),
    )


def test_markers_are_columns(tmp_path: Path) -> None:
    """U-35: an ABORT marker and its transaction take 56 bytes; too many are not compared, which is reported."""
    count, batches = 10_000, markers_of(10_000)
    transactions = Transactions()
    tracemalloc.start()
    transactions.add(batches)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 80 * count, "each was several objects: 400 bytes"
    markers = transactions.markers()
    assert markers is not None
    assert markers.offset.tolist() == list(range(1, 2 * count, 2))
    assert markers.first.tolist() == list(range(0, 2 * count, 2))
    assert markers.since[[0, 99, 100]].tolist() == [-1, -1, 1]
    ranges = transactions.invisible().ranges
    assert ranges[:2].tolist() == [[0, 0, 1], [0, 200, 201]]
    assert (len(ranges), ranges[-1].tolist()) == (count, [99, 2 * count - 2, 2 * count - 1])
    transactions = Transactions(read_limits=ReadLimits(facts_bytes=MARKER_BYTES * 9))
    transactions.add(markers_of(10))
    assert transactions.markers() is None
    findings = Findings()
    file = SegmentFile(tmp_path / f"{0:020d}.log", 0, 9, 9, sealed=True)
    check_txn_index(file, None, findings, whole=True, end_offset=0)
    assert [(one.kind, one.file) for one in findings.kept] == [
        (FindingKind.NOT_VERIFIED, str(file.companion(".txnindex")))
    ]
    transactions.add(markers_of(9))
    assert transactions.markers() is not None, "those of the next segment fit"


def test_an_index_that_is_too_large(tmp_path: Path) -> None:
    """Any user may plant one: it is not read."""
    scene = make_scene(tmp_path)
    with scene.file(7, ".index").open("r+b") as file:
        file.truncate(1 << 40)  # More than any machine's memory: reading it would never return a finding.
    verdict = verify_partition(scene.partition, VerifyRequest(now_ms=NOW, clean_below=CLEAN_TO))
    assert (FindingKind.NOT_VERIFIED, str(scene.file(7, ".index"))) in [
        (one.kind, one.file) for one in verdict.findings.kept
    ]


def test_the_limit_follows_from_the_memory() -> None:
    """The same rule as for large batches; together they fit."""

    def limits(bytes_: int) -> tuple[int, int]:
        memory = Memory(bytes_, "a test")
        return facts_bytes(memory), batch_bytes(memory)

    (small, _), (large, batch) = limits(512 * MIB), limits(2048 * MIB)
    assert 100 * MIB < small < 256 * MIB < large < 1024 * MIB
    assert large + batch < 2048 * MIB
