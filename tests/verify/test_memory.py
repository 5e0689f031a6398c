"""What is kept of a segment's batches has a bound that is known beforehand; what that costs is told (U-35)."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from cleanerd.log import memory
from cleanerd.log.memory import MIB, Memory
from cleanerd.verify import indexes, segment
from cleanerd.verify.finding import Findings
from cleanerd.verify.indexes import check_indexes
from cleanerd.verify.kinds import Kind
from cleanerd.verify.listing import bytes_of, list_partition
from cleanerd.verify.partition import Question, verify_partition
from cleanerd.verify.segment import BATCH_BYTES, check_segment
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import keyed_batch
from tests.verify.scene import CLEAN_TO, NOW, make_scene

if TYPE_CHECKING:
    from pathlib import Path

MOST = 4
"""Batches in the largest segment of the scene."""


@pytest.mark.parametrize("enough", [True, False])
def test_a_segment_of_too_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enough: bool) -> None:
    """Its indexes are left out, and that is an error with its place; everything else is proved all the same."""
    scene = make_scene(tmp_path)
    scene.patch(scene.file(7, ".timeindex"), 0, b"\0" * 7)
    damaged = scene.file(7).read_bytes()
    monkeypatch.setattr(segment, "facts_bytes", lambda: BATCH_BYTES * MOST - (not enough))
    whole = verify_partition(scene.partition, Question(now_ms=NOW, clean_to=CLEAN_TO))
    kinds = [(found.kind, found.file) for found in whole.findings.kept]
    left_out = (Kind.NOT_VERIFIED, str(scene.file(7)))
    assert (left_out in kinds) != enough
    assert ((Kind.TIME_INDEX_WRONG, str(scene.file(7, ".timeindex"))) in kinds) == enough
    assert {kind for kind, _ in kinds} <= {Kind.NOT_VERIFIED, Kind.TIME_INDEX_WRONG, Kind.TIME_INDEX_UNFINISHED}
    scene.patch(scene.file(7), len(damaged) - 1, bytes([damaged[-1] ^ 1]))
    again = verify_partition(scene.partition, Question(now_ms=NOW, clean_to=CLEAN_TO))
    assert Kind.BATCH_DAMAGED in {found.kind for found in again.findings.kept}
    assert again.records == whole.records - 1 or again.batches == whole.batches - 1


def test_memory_stays_below_what_is_reckoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 bytes a batch cover columns and comparison; over the limit nothing is kept."""
    count = 40_000
    one = keyed_batch(0, [("k", "v")])
    content = b"".join(number.to_bytes(8, "big") + one[8:] for number in range(count))
    path = make_log_dir(tmp_path, {"orders-0": Partition({0: content, count: b""})}) / "orders-0"
    file = list_partition(path).segments[0]
    monkeypatch.setattr(segment, "CHUNK_BYTES", 64 * 1024)
    taken = []
    for limit in (BATCH_BYTES * count, 0):
        monkeypatch.setattr(segment, "facts_bytes", lambda limit=limit: limit)
        findings = Findings(100)
        tracemalloc.start()
        facts, columns = check_segment(file, findings, lambda _: None, lambda _: None, tail_may_be_cut=False)
        if columns is not None:
            check_indexes(facts, columns, findings)
        taken.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (facts.batches, facts.end_offset, facts.whole) == (count, count, True)
        assert [found.kind for found in findings.kept] == ([] if limit else [Kind.NOT_VERIFIED])
    whole, nothing = taken
    assert nothing < whole - 30 * count, "the columns are not kept"
    assert whole < BATCH_BYTES * count + 512 * 1024, "with its chunk of 64 KiB"


def test_an_index_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may plant one: nothing of it is read."""
    scene = make_scene(tmp_path)
    with scene.file(7, ".index").open("r+b") as file:
        file.truncate(8 * MIB)
    monkeypatch.setattr(indexes, "facts_bytes", lambda: 8 * indexes.ENTRY_COPIES * MIB - 1)
    monkeypatch.setattr(indexes, "bytes_of", lambda path: None if ".index" in path.name else bytes_of(path))
    verdict = verify_partition(scene.partition, Question(now_ms=NOW, clean_to=CLEAN_TO))
    assert (Kind.NOT_VERIFIED, str(scene.file(7, ".index"))) in [(one.kind, one.file) for one in verdict.findings.kept]


def test_the_limit_follows_from_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rule as for large batches, and together they fit."""

    def limits(bytes_: int) -> tuple[int, int]:
        memory.facts_bytes.cache_clear()
        memory.batch_bytes.cache_clear()
        monkeypatch.setattr(memory, "measure", lambda: Memory(bytes_, "a test"))
        return memory.facts_bytes(), memory.batch_bytes()

    try:
        (small, _), (large, batch) = limits(512 * MIB), limits(2048 * MIB)
    finally:
        memory.facts_bytes.cache_clear()
        memory.batch_bytes.cache_clear()
    assert 100 * MIB < small < 256 * MIB < large < 1024 * MIB
    assert large + batch < 2048 * MIB
