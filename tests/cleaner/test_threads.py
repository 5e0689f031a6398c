"""The same bytes for any number of threads; and one bad partition among several that are cleaned at once."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.cleaner import cleaner
from cleanerd.cleaner.chunk_rows import RewriteStart
from cleanerd.cleaner.cleaner import Cleaning, CleaningStopped
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.cli.main import run
from cleanerd.errors import CorruptionError
from cleanerd.format.index import OFFSET_ENTRY
from cleanerd.format.names import TopicPartition
from cleanerd.segments import pool
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.segments.pool import ReaderPool
from cleanerd.segments.reading import SegmentReader
from cleanerd.state.cleaner_checkpoint import StateStore
from tests.cleaner.driver import Silent, clean, clean_all, config, resources, scratch
from tests.support.log_dirs import Partition, make_log_dir, tree
from tests.support.logs import keyed_batch
from tests.support.now_open import open_descriptors
from tests.support.thread_limits import no_more_threads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.plan import CleaningPlan
    from cleanerd.cleaner.rewrite import WrittenSegment
    from cleanerd.segments.pool import PartReader
    from cleanerd.segments.segment import Segment

NOW_MS = 1_800_000_000_000
CHUNK_BYTES = 65536


def _segment(rng: random.Random, base: int, count: int) -> tuple[bytes, int]:
    """Some batches of a few records, mixed codecs, a few tombstones; and the offset after them."""
    data = []
    for _ in range(count):
        entries = [
            (f"key-{rng.randrange(900)}", None if rng.random() < 0.05 else "v" * rng.randrange(200))
            for _ in range(rng.randrange(1, 12))
        ]
        data.append(keyed_batch(base, entries, codec=rng.choice([0, 0, 0, 1, 2, 3, 4])))
        base += len(entries)
    return b"".join(data), base


def _partition(seed: int, *, cleaner_offset: int | None = None) -> Partition:
    rng = random.Random(seed)
    segments: dict[int, bytes] = {}
    base = 0
    for _ in range(3):
        data, end = _segment(rng, base, 400)
        segments[base] = data
        base = end
    segments[base] = b""
    return Partition(segments, cleaner_offset=cleaner_offset)


def _plan(log_dir: Path, chunk_bytes: int) -> CleaningPlan:
    """All of ``orders-0`` dirty."""
    found, options = read_log_dir(log_dir), CleaningOptions(now_ms=NOW_MS, force=True)
    surveyed = survey(found, TopicPartition("orders", 0), config(), StateStore(log_dir.parent / "state"), options)
    with SegmentReader.open(str(log_dir / "orders-0")) as reader:
        return make_plan(found, surveyed, resources(chunk_bytes=chunk_bytes), options, reader)


class _StopsAt(Silent):
    """Stops a cleaning after this many chunks."""

    def __init__(self, chunk: int) -> None:
        self._left = chunk

    def advance(self, done_bytes: int) -> None:
        self._left -= 1 if done_bytes else 0
        if self._left < 0:
            raise CleaningStopped


def _segments(log_dir: Path, name: str) -> dict[str, bytes]:
    found = (log_dir / name).iterdir()
    return {path.name: path.read_bytes() for path in found if path.suffix in {".log", ".index", ".timeindex"}}


@pytest.mark.slow
@pytest.mark.parametrize("cleaner_offset", [None, 2500])
def test_same_bytes_with_any_number_of_workers(tmp_path: Path, cleaner_offset: int | None) -> None:
    """OP-2: workers and shards change the time of a cleaning, and nothing else."""
    results = {}
    for workers, map_bytes in ((1, 1 << 20), (2, 1 << 20), (4, 49152), (3, 1 << 20)):
        log_dir = make_log_dir(tmp_path / f"w{workers}", {"orders-0": _partition(7, cleaner_offset=cleaner_offset)})
        with_resources = replace(resources(chunk_bytes=CHUNK_BYTES, map_bytes=map_bytes), workers=workers)
        result = clean_all(log_dir, NOW_MS, with_resources=with_resources, from_start=False)
        assert result.removed.superseded > 1000
        results[workers] = (_segments(log_dir, "orders-0"), result.records_kept, result.removed)
    assert results[1] == results[2] == results[3] == results[4]


LOGS: Final = [_partition(seed, cleaner_offset=offset) for seed, offset in ((11, None), (12, 1800), (13, 3600))]


@pytest.mark.long
@settings(deadline=None, max_examples=15)
@given(
    partition=st.sampled_from(LOGS),
    workers=st.integers(2, 5),
    chunk_bytes=st.sampled_from([4096, 10_000, 40_000, 1 << 20]),
    load=st.floats(0.03, 0.85),
    topic=st.sampled_from([{}, {"compaction_strategy": "timestamp"}]),
)
def test_several_threads_and_one_thread_write_the_same(
    partition: Partition, workers: int, chunk_bytes: int, load: float, topic: dict[str, object]
) -> None:
    """OP-2, U-20: however the log is cut, and wherever the map becomes full."""
    found = []
    for threads, size, map_load in ((1, 1 << 20, 0.85), (workers, chunk_bytes, load)):
        with scratch() as place:
            log_dir = make_log_dir(place / "d", {"orders-0": partition})
            given_resources = replace(resources(chunk_bytes=size, map_bytes=1, map_load=map_load), workers=threads)
            result = clean_all(log_dir, NOW_MS, config("orders", **topic), given_resources, from_start=False)
            found.append((_segments(log_dir, "orders-0"), result.records_kept, result.removed))
    assert found[0] == found[1]


def _spoil(log_dir: Path, rng: random.Random) -> None:
    """Index entries with wrong positions; bytes that are wrong, missing or doubled."""
    for index in sorted((log_dir / "orders-0").glob("*.index")):
        log = index.with_suffix(".log")
        size = log.stat().st_size
        positions = sorted({rng.randrange(2 * size + 1) for _ in range(rng.choice([0, 1, 5, 20]))})
        entries = [*enumerate(positions, 1)]
        if rng.random() < 0.3:
            rng.shuffle(entries)
        if rng.random() < 0.6:
            cut = rng.choice([0, 0, 3])
            index.write_bytes(np.array(entries, dtype=OFFSET_ENTRY).tobytes()[cut:])
        if size and rng.random() < 0.25:
            data, at = bytearray(log.read_bytes()), rng.randrange(size)
            end = rng.choice([at + 1, at + 300, size])
            data[at:end] = rng.choice([bytes([data[at] ^ 8]) + data[at + 1 : end], bytes(len(data[at:end])), b""])
            log.write_bytes(data + rng.choice([b"", b"", data[:at]]))


@pytest.mark.long
@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    partition=st.sampled_from(LOGS),
    workers=st.integers(2, 8),
    chunk_bytes=st.sampled_from([500, 4096, 30_000]),
    largest=st.sampled_from([1 << 30, 3000]),
)
def test_several_threads_report_the_same_damage_as_one(
    seed: int, partition: Partition, workers: int, chunk_bytes: int, largest: int
) -> None:
    """OP-2, C-57: the first in the log, with the same words; wrong index entries change nothing."""
    found = []
    for threads in (1, workers):
        with scratch() as place, pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool, "LEAST_HANDED_OVER_BYTES", 1)
            log_dir = make_log_dir(place / "d", {"orders-0": partition})
            _spoil(log_dir, random.Random(seed))
            small = replace(resources(chunk_bytes=chunk_bytes, max_unpacked_bytes=largest), workers=threads)
            result = clean(log_dir, CleaningOptions(now_ms=NOW_MS, force=True), config("orders"), small)
            reason = result.reason.replace(str(place), "")
            found.append((_segments(log_dir, "orders-0"), type(result.error), reason, result.removed))
    assert found[0] == found[1]


def test_the_rewrite_begins_at_batches(tmp_path: Path) -> None:
    """Positions where a rewrite may begin: about a read buffer apart for chunks of any length, with right numbers."""
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": _partition(7)})
    markers = {}
    for workers, chunk_bytes in ((1, 1 << 14), (1, 1 << 20), (3, 1 << 14)):
        plan = _plan(log_dir, chunk_bytes)
        with (
            ReaderPool(plan.path, workers=workers, chunk_bytes=chunk_bytes) as pool,
            SegmentReader.open(plan.path) as whole_reader,
        ):
            (decided, *_) = Cleaning(plan, pool, Silent()).decide().segments
            (batches,) = whole_reader.headers(decided.source.segment)
        markers[workers, chunk_bytes] = decided.rewrite_starts
        for marker in decided.rewrite_starts:
            assert int(batches.position[marker.batch]) == marker.position
            assert int(batches.first_record[marker.batch]) == marker.record
    assert markers[1, 1 << 20] == (RewriteStart(0, 0, 0),)
    for key in ((1, 1 << 14), (3, 1 << 14)):
        distances = np.diff([marker.position for marker in markers[key]])
        assert len(distances) > 8
        assert distances.max() < 2 << 14


@pytest.mark.parametrize("workers", [1, 3])
def test_stopped_between_two_chunks(tmp_path: Path, workers: int) -> None:
    """The progress object may stop it at any chunk: the log stays, no file stays open or is left."""
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": _partition(7)})
    before, descriptors = tree(log_dir), open_descriptors()
    for chunk in (0, 1, 6):
        plan = _plan(log_dir, 1 << 14)
        with ReaderPool(plan.path, workers=workers, chunk_bytes=1 << 14) as pool:
            cleaning = Cleaning(plan, pool, _StopsAt(chunk))
            with pytest.raises(CleaningStopped):
                cleaning.decide()
    assert tree(log_dir) == before
    assert open_descriptors() <= descriptors


@pytest.mark.parametrize("spoil", ["batch", "index"])
def test_verified_by_several_readers(tmp_path: Path, spoil: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-29: a damaged batch in the last part, and an index entry for a part that is not at a batch."""
    real = cleaner.verify_staged
    parts = []

    def damaged(readers: PartReader, staged: Segment, written: WrittenSegment, **decided: int) -> None:
        if spoil == "batch":
            with open(f"{readers.path}/{staged.base:020d}.log", "r+b") as file:
                file.seek(staged.size_bytes - 1)
                file.write(b"\x5a")
        else:
            entries = np.frombuffer(written.offset_index, OFFSET_ENTRY).copy()
            entries["position"] += 1
            written = replace(written, offset_index=entries.tobytes())
        parts.append(len(written.offset_index))
        real(readers, staged, written, **decided)

    monkeypatch.setattr(cleaner, "verify_staged", damaged)  # between the write and its check
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": _partition(9)})
    before = tree(log_dir)
    with_resources = replace(resources(chunk_bytes=16_384), workers=3)
    result = clean(log_dir, CleaningOptions(now_ms=NOW_MS, force=True), config("orders"), with_resources)
    assert parts
    assert isinstance(result.error, CorruptionError)
    assert tree(log_dir) == before


def test_damage_between_workers_leaves_the_log(tmp_path: Path) -> None:
    """OP-10: found by a worker or not, damage leaves everything as it was."""
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": _partition(8)})
    log = min((log_dir / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) * 3 // 4] ^= 0x55
    log.write_bytes(data)
    before = tree(log_dir)
    with pytest.raises(AssertionError, match=r"CRC|record|batch"):
        clean_all(log_dir, NOW_MS, with_resources=replace(resources(chunk_bytes=CHUNK_BYTES), workers=3))
    assert tree(log_dir) == before


def _spoiled(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 0x55])


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_damage_holds_no_file_and_no_map(tmp_path: Path, workers: int) -> None:
    """Thousands of partitions may have some, and all results are reported at the end: none holds a file or map."""
    data = b"".join(keyed_batch(base, [(f"k{base}", "v" * 60)]) for base in range(2000))
    # Found by the consumer of the chunks, while the segment is open.
    again = (
        data
        + _spoiled(keyed_batch(2000, [("k", "v")]))
        + b"".join(keyed_batch(n, [("k", "v")]) for n in range(2001, 5000))
    )
    log_dir = make_log_dir(tmp_path / "d", {"orders-0": Partition({0: again, 5000: b""})})
    descriptors = open_descriptors()
    with_resources = replace(resources(chunk_bytes=CHUNK_BYTES), workers=workers)
    result = clean(log_dir, CleaningOptions(now_ms=NOW_MS, force=True), config("orders"), with_resources)
    assert isinstance(result.error, CorruptionError)
    assert "CRC" in result.reason
    assert not {path for path in open_descriptors() - descriptors if path.endswith(".log")}
    assert result.error.__traceback__ is None


@pytest.fixture
def many(tmp_path: Path) -> Iterator[Path]:
    """Five partitions, one of them damaged."""
    log_dir = make_log_dir(tmp_path / "d", {f"orders-{number}": _partition(number) for number in range(5)})
    log = min((log_dir / "orders-3").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3])
    return log_dir


@pytest.mark.long
def test_partitions_at_once(
    many: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``log.cleaner.threads``: as one after the other, the bad one left alone, the shared checkpoint complete."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    alone = make_log_dir(tmp_path / "alone", {f"orders-{number}": _partition(number) for number in range(5)})
    common = ["--yes", "--json", "--now-ms", str(NOW_MS), "--set", "topics.orders.cleanup.policy=compact"]
    common += ["--set", "cleanerd.disk.reserve=0"]
    assert run(["clean", *common, str(alone)]) == 0
    capsys.readouterr()
    before = _segments(many, "orders-3")
    assert run(["clean", *common, "--set", "log.cleaner.threads=3", str(many)]) == 6
    output = json.loads(capsys.readouterr().out)["partitions"]
    assert [entry["partition"] for entry in output] == [0, 1, 2, 3, 4]
    assert [entry["outcome"] for entry in output] == ["cleaned"] * 3 + ["quarantined", "cleaned"]
    assert _segments(many, "orders-3") == before
    for number in (0, 1, 2, 4):
        assert _segments(many, f"orders-{number}") == _segments(alone, f"orders-{number}")
    lines = (many / "cleaner-offset-checkpoint").read_text().splitlines()
    assert sorted(line.split()[1] for line in lines[2:]) == ["0", "1", "2", "4"]


@pytest.mark.parametrize("after", [0, 2])
def test_same_bytes_at_a_limit_of_threads(tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """OP-2: it does without readers and a writer that cannot be started."""
    found = []
    for workers in (1, 4):
        log_dir = make_log_dir(tmp_path / f"w{workers}", {"orders-0": _partition(7)})
        with_resources = replace(resources(chunk_bytes=CHUNK_BYTES), workers=workers)
        result = clean_all(log_dir, NOW_MS, with_resources=with_resources)
        found.append((_segments(log_dir, "orders-0"), result.records_kept, result.removed))
        no_more_threads(monkeypatch, "cleanerd-", after=after)
    assert found[0] == found[1]


@pytest.mark.long
def test_partitions_at_once_at_a_limit_of_threads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to do; each partition is unchanged, or cleaned."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    names = [f"orders-{number}" for number in range(3)]
    log_dir = make_log_dir(tmp_path / "d", {name: _partition(row) for row, name in enumerate(names)})
    before = {name: _segments(log_dir, name) for name in names}
    given = ["topics.orders.cleanup.policy=compact", "cleanerd.disk.reserve=0", "log.cleaner.threads=3"]
    command = ["clean", "--yes", "--json", "--now-ms", str(NOW_MS), *(f"--set={each}" for each in given), str(log_dir)]
    with monkeypatch.context() as limit:
        no_more_threads(limit, "cleanerd-cleaner", after=1)
        assert run(command) == 1
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["message"] == "no thread can be started"
    assert "log.cleaner.threads" in error["hint"]
    stopped = {name: _segments(log_dir, name) for name in names}
    assert run(command) == 0
    after = {name: _segments(log_dir, name) for name in names}
    assert all(stopped[name] in (before[name], after[name]) for name in names)
    assert all(before[name] != after[name] for name in names)
