"""A cleaning's output size, reported before it is written (U-54), and outputs that grow (U-53, U-55)."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from cleanerd.cleaner.cleaner import Cleaning
from cleanerd.cleaner.planning import make_plan
from cleanerd.cleaner.survey import CleaningOptions, survey
from cleanerd.errors import LogGrowsError
from cleanerd.format.names import TopicPartition
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.round import stage_partition
from tests.cleaner.driver import NAME, Silent, clean, clean_all, config, resources, scratch
from tests.cleaner.well_packed import NOW, well_packed_log
from tests.support.log_dirs import Partition, make_log_dir, read_segments, tree
from tests.support.logs import Record, encode_batch, keyed_batch
from tests.swap.live_round import clean_beside, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources
    from cleanerd.config.topic_config import TopicConfig


@pytest.fixture
def root() -> Iterator[Path]:
    with scratch() as path:
        yield path / "logs"


def planned(root: Path, topic: TopicConfig, with_resources: Resources) -> tuple[int, list[tuple[int, int]]]:
    """The planned reduction of the log, and the sizes before and after by group."""
    log_dir, options = read_log_dir(root), CleaningOptions(now_ms=NOW, force=True, from_start=True)
    found = survey(log_dir, TopicPartition("orders", 0), topic, StateStore(root.parent / "none"), options)
    with with_resources.readers(str(root / NAME)) as pool:
        cleaning = Cleaning(make_plan(log_dir, found, with_resources, options, pool.reader), pool, Silent())
        cleaning.decide()
        return cleaning.saved_bytes(), cleaning.output_sizes()


def size_of(root: Path) -> int:
    return sum(path.stat().st_size for path in (root / NAME).glob("*.log"))


def random_log(rng: random.Random) -> dict[int, bytes]:
    """Closed segments of all codecs, with tombstones that get a horizon, and an active one."""
    segments: dict[int, bytes] = {}
    offset = 0
    for _ in range(rng.randint(1, 5)):
        base, data = offset, b""
        for _ in range(rng.randint(1, 6)):
            codec, count = rng.randint(0, 4), rng.randint(1, 60)
            records = [
                Record(
                    b"k%d" % rng.randint(0, 40),
                    None if rng.random() < 0.1 else rng.choice((b"x", b"abc", rng.randbytes(9))) * rng.randint(0, 30),
                    NOW - rng.randint(0, 10**9),
                )
                for _ in range(count)
            ]
            data += encode_batch(records, base_offset=offset, codec=codec)
            offset += count
        segments[base] = data
    segments[offset] = keyed_batch(offset, [("tail", "t")])
    return segments


@pytest.mark.parametrize("seed", range(60))
def test_the_plan_is_exact(root: Path, seed: int) -> None:
    """U-54: to the byte, whatever the strategy, the codec, the horizons and the groups.

    For transactions and older formats every cleaning of the differential tests is compared with its plan.
    """
    rng = random.Random(seed)
    make_log_dir(root, {NAME: Partition(random_log(rng))})
    strategy = rng.choice(("offset", "timestamp"))
    topic = config(segment_bytes=rng.choice((600, 4000, 1 << 30)), compaction_strategy=strategy)
    with_resources = resources(chunk_bytes=rng.choice((256, 1 << 20)))
    before = size_of(root)
    saved, sizes = planned(root, topic, with_resources)
    result = clean_all(root, NOW, topic, with_resources)
    assert before - size_of(root) == saved, seed
    assert sum(after for _, after in sizes) == result.bytes_written, seed


def test_no_cleaning_that_makes_the_log_larger(root: Path) -> None:
    """U-54: it is refused with its cost, and done nevertheless if the operator insists."""
    make_log_dir(root, {NAME: Partition(well_packed_log())})
    before = tree(root)
    saved, _ = planned(root, config(), resources())
    assert saved < 0
    result = clean(root, CleaningOptions(now_ms=NOW, from_start=True), config(min_cleanable_dirty_ratio=0))
    assert isinstance(result.error, LogGrowsError)
    assert "larger" in result.reason
    assert tree(root) == before
    size = size_of(root)
    deadline = config(min_cleanable_dirty_ratio=0, max_compaction_lag_ms=10**12)
    assert clean(root, CleaningOptions(now_ms=NOW, from_start=True), deadline).outcome == "cleaned"
    assert size_of(root) == size - saved


@pytest.mark.parametrize("codec", [0, 2, 3, 4])
def test_a_batch_that_followers_would_refuse_gets_no_horizon(root: Path, codec: int) -> None:
    """U-95: followers refuse batches above segment.bytes, and a horizon lengthens each record's timestamp.

    Such a batch is copied byte for byte if all its records stay, although its first timestamp is not its base.
    """
    records = [Record(b"k%d" % number, b"v%d" % (number * 7919), NOW) for number in range(60)]
    data = encode_batch([*records, Record(b"gone", None, NOW)], codec=codec, base_timestamp=NOW - 1)
    found = {}
    for room in (0, 1000):
        make_log_dir(root, {NAME: Partition({0: data, 61: keyed_batch(61, [("tail", "t")])})})
        topic = config(segment_bytes=len(data) + room)
        next_purge_ms = clean_all(root, NOW, topic).next_purge_ms
        assert (next_purge_ms is None) == (room == 0), "no removal is due without a horizon"
        cleaned = (root / NAME / f"{0:020d}.log").read_bytes()
        assert len(cleaned) > len(data) if room else cleaned == data
        clean_all(root, NOW + 10**12, topic)
        (stored,) = read_segments(root / NAME)[0]
        found[room] = stored.header.delete_horizon_ms is not None, len(stored.records)
        shutil.rmtree(root)
    assert found == {0: (False, 61), 1000: (True, 60)}, "without a horizon the tombstone stays"


@pytest.mark.parametrize("batches", [2, 9])
def test_a_segment_that_grows_too_large_is_split(root: Path, batches: int) -> None:
    """U-55: nothing is lost, no segment passes the limit, and the log is cleaned."""
    logs = well_packed_log(batches)
    make_log_dir(root, {NAME: Partition(logs)})
    limit = len(logs[0]) + 5
    result = clean_all(root, NOW, config(), resources(most_segment_bytes=limit))
    assert any("would pass the size of a segment: split into" in note for note in result.notes)
    sizes = {int(path.stem): path.stat().st_size for path in (root / NAME).glob("*.log")}
    assert max(sizes.values()) <= limit
    assert len(sizes) > 2
    kept = [record for _, stored in sorted(read_segments(root / NAME).items()) for b in stored for record in b.records]
    assert [record.key for record in kept] == [*(b"u%d" % row for row in range(batches)), b"k", b"tail"]


def test_one_batch_that_grows_too_large_is_refused(root: Path) -> None:
    """U-55: it cannot be split; the message shows the way out."""
    logs = well_packed_log(1)
    make_log_dir(root, {NAME: Partition(logs)})
    before = tree(root)
    with_resources = resources(most_segment_bytes=len(logs[0]) + 1)
    result = clean(root, CleaningOptions(now_ms=NOW, from_start=True, force=True), None, with_resources)
    assert "is one batch" in result.reason
    assert "kafka-delete-records.sh" in str(result.error)
    assert tree(root) == before


@pytest.mark.parametrize("live", [True, False])
def test_a_running_broker_cannot_split_it(root: Path, live: bool) -> None:
    """U-55: the log is as before, and the message says that the broker has to be stopped for it."""
    logs = well_packed_log(9)
    with_resources = resources(most_segment_bytes=len(logs[0]) + 5)
    options = CleaningOptions(now_ms=NOW, from_start=True, force=True)
    with running(root, Partition(logs)) as agent:
        before = tree(root / NAME)
        if live:
            result = clean_beside(agent, options, config(), with_resources=with_resources)
        else:
            (root / ".kafka_cleanshutdown").touch()
            store = StateStore(root.parent / "state")
            name = TopicPartition("orders", 0)
            result = stage_partition(read_log_dir(root), store, with_resources, name, config(), options, Silent())
        assert tree(root / NAME) == before
    assert result.outcome == "quarantined"
    assert "has to be split first" in result.reason
    assert "stop the broker and run cleanerd clean" in str(result.error)
