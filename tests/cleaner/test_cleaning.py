"""The whole cleaner against the model: random logs and ranges, several rounds, the real kernel, the real swap."""

from __future__ import annotations

import random
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.log import read
from tests.cleaner.driver import NAME, clean, config, resources, scratch
from tests.cleaner.model import Rules, check_cleaned, check_files, newest
from tests.cleaner.random_log import NOW_MS, LogMaker
from tests.support.length import at_length
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Partition,
    make_log_dir,
    read_checkpoint,
    read_segments,
    snapshot_bytes,
    tree,
    write_checkpoint,
    write_segment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.log.topic_config import TopicConfig

EXPIRATION_MS = 60_000
INTERVAL_BYTES = 200
KEYS_OF_A_SHARD = 3
"""What the smallest map takes with a load of a thousandth."""


class World:
    """A log that grows and is cleaned by turns."""

    def __init__(self, root: Path, seed: int, segments: int, batches: int) -> None:
        self.pick = random.Random(seed)
        self.path = root / "logs"
        self.now_ms = NOW_MS
        self.maker = LogMaker(seed)
        self.retention_ms = self.pick.choice((1, 400, 100_000))
        logs = {}
        for _ in range(segments):
            base = self.maker.offset
            logs[base] = self.maker.segment(self.pick.randint(1, batches), self.now_ms)
            self.maker.skip(self.pick.choice((0, 0, 5)))
        self.active = max(logs)
        make_log_dir(self.path, {NAME: Partition(logs, index_interval_bytes=INTERVAL_BYTES)})
        self.set_ends()

    @property
    def partition(self) -> Path:
        return self.path / NAME

    def grow(self, batches: int) -> None:
        """Roll, and write some more; sometimes the broker leaves a producer snapshot as it does when it rolls."""
        self.now_ms += self.pick.choice((1, 300, 40_000))
        for _ in range(self.pick.randint(1, 2)):
            self.active = self.maker.offset
            if self.pick.random() < 0.5:
                snapshot = self.partition / f"{self.active:020d}.snapshot"
                snapshot.write_bytes(snapshot_bytes(list(self.maker.producers.values())))
            data = self.maker.segment(self.pick.randint(1, batches), self.now_ms)
            write_segment(self.partition, self.active, data, interval_bytes=INTERVAL_BYTES)
        self.set_ends()

    def set_ends(self) -> None:
        """High watermark and recovery point: usually the log end, sometimes in the middle of the log."""
        self.bound = self.active
        for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
            offset = self.maker.offset if self.pick.random() < 0.8 else self.pick.randint(0, self.maker.offset)
            write_checkpoint(self.path / name, {NAME: offset})
            bases = [base for base in read_segments(self.partition) if base <= offset]
            self.bound = min(self.bound, bases[-1])

    def protected(self) -> set[int]:
        """Last data offsets of the producers that a broker would remember."""
        alive = (p for p in self.maker.producers.values() if self.now_ms - p.timestamp_ms < EXPIRATION_MS)
        return {producer.last_offset for producer in alive}

    def options(self) -> CleaningOptions:
        """What somebody may ask for."""
        kind = self.pick.choice(("next", "next", "from start", "first dirty", "up to", "both"))
        first = self.pick.randint(0, self.bound) if kind in ("first dirty", "both") else None
        return CleaningOptions(
            now_ms=self.now_ms,
            force=True,
            from_start=kind == "from start",
            first_dirty_offset=first,
            up_to_offset=self.pick.randint(first or 0, self.bound) if kind in ("up to", "both") else None,
        )

    def topic(self, least_segment_bytes: int = 200) -> TopicConfig:
        """Segment limits from tiny to large."""
        return config(
            segment_bytes=self.pick.choice((least_segment_bytes, 700, 3000, 1 << 20)),
            segment_index_bytes=self.pick.choice((24, 1 << 16)),
            index_interval_bytes=INTERVAL_BYTES,
            delete_retention_ms=self.retention_ms,
        )

    def resources(self) -> Resources:
        return resources(
            expiration_ms=EXPIRATION_MS,
            chunk_bytes=self.pick.choice((64, 1000, 65536)),
            map_bytes=1,
            map_load=self.pick.choice((0.002, 0.85)),
        )


def clean_and_check(world: World, options: CleaningOptions, topic: TopicConfig) -> CleaningResult:
    """Clean a copy first, in another number of shards and chunks; then the log itself, and compare with the model."""
    before = read_segments(world.partition)
    checkpoint = world.path / CLEANER_CHECKPOINT
    proven = read_checkpoint(checkpoint).get(NAME, 0) if checkpoint.exists() else 0
    inodes = {log.name: log.stat().st_ino for log in world.partition.glob("*.log")}
    copy = world.path.parent / "copy"
    shutil.copytree(world.path, copy / "logs")
    smallest = resources(
        expiration_ms=EXPIRATION_MS, map_bytes=1, map_load=0.001, chunk_bytes=world.pick.choice((1, 100))
    )
    with blocks_of_one_byte():
        other = clean(copy / "logs", options, topic, smallest)
    result = clean(world.path, options, topic, world.resources())
    assert result.error is None, result.reason
    # Nothing is remembered of the copy, so its clean point is Kafka's checkpoint: the same one.
    assert other.outcome == result.outcome
    after = read_segments(world.partition)
    assert files(world.partition) == files(copy / "logs" / NAME), "the result depends on shards or chunks"
    shutil.rmtree(copy)
    if result.outcome == "skipped":
        assert after == before
        return result
    assert result.end_offset <= world.bound
    span = (result.first_dirty_offset, result.end_offset, world.bound)
    rules = Rules(*span, options.now_ms, world.retention_ms, world.protected(), proven)
    check_cleaned(before, after, rules)
    sources = [batch for base, batches in before.items() if base < rules.end for batch in batches]
    if len(newest(sources, rules)) > KEYS_OF_A_SHARD:
        assert other.shards > 1, "the comparison is of something"
    changed = [base for base in after if inodes[f"{base:020d}.log"] != inode(world.partition, base)]
    if topic.segment_index_bytes > 1000:
        check_files(world.partition, changed, INTERVAL_BYTES)
    check_sizes(world.partition, changed, before, after, topic)
    assert result.records_read == sum(len(batch.records) for batch in sources)
    assert result.records_read - result.records_kept == result.dropped.total
    assert not (world.partition / ".kstage").exists()
    return result


@contextmanager
def blocks_of_one_byte() -> Iterator[None]:
    """Chunks begin and end anywhere, and not at the edges of pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "DIRECT_ALIGNMENT", 1)
        yield


def inode(path: Path, base: int) -> int:
    return (path / f"{base:020d}.log").stat().st_ino


def files(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir() if entry.is_file()}


def check_sizes(path: Path, changed: list[int], before: object, after: dict[int, object], topic: TopicConfig) -> None:
    """U-17: what was merged fits the segment size; C-63."""
    for base in changed:
        following = min((other for other in after if other > base), default=2**63)
        sources = [other for other in before if base <= other < following]  # type: ignore[attr-defined]
        if len(sources) > 1:
            assert (path / f"{base:020d}.log").stat().st_size <= topic.segment_bytes


COUNTS = {"segments": st.integers(1, 6), "batches": st.integers(1, 8), "rounds": st.integers(1, 4)}


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), **COUNTS)
@example(seed=1, segments=6, batches=8, rounds=4)
def test_rounds(seed: int, segments: int, batches: int, rounds: int) -> None:
    """C-37..C-52, R192-1, U-13, U-20, OP-2: each record as the model says, whatever shards, chunks and ranges."""
    with scratch() as root:
        run_rounds(root, seed, segments, batches, rounds)


@pytest.mark.long
@pytest.mark.timeout(1500)
@settings(max_examples=at_length(600), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), **COUNTS)
def test_many_rounds(seed: int, segments: int, batches: int, rounds: int) -> None:
    """The same, for longer."""
    with scratch() as root:
        run_rounds(root, seed, segments, batches, rounds)


def test_a_segment_below_the_clean_point_put_anew(tmp_path: Path) -> None:
    """U-10, found by chance: --first-dirty wrote the last clean segment again, and Kafka's checkpoint went back."""
    run_rounds(tmp_path, 135, segments=1, batches=1, rounds=4)


@pytest.mark.parametrize("seed", range(3))
def test_rounds_on_a_disk(tmp_path: Path, seed: int) -> None:
    """The same on a file system that has direct I/O."""
    run_rounds(tmp_path, seed, segments=4, batches=30, rounds=2)


def run_rounds(root: Path, seed: int, segments: int, batches: int, rounds: int) -> None:
    """Clean and grow by turns."""
    world = World(root, seed, segments, batches)
    clean_to = 0
    for _ in range(rounds):
        options = world.options()
        result = clean_and_check(world, options, world.topic())
        moves = options.first_dirty_offset is None or options.first_dirty_offset <= clean_to
        if result.outcome != "skipped" and moves:
            clean_to = max(clean_to, result.end_offset)
            assert read_checkpoint(world.path / CLEANER_CHECKPOINT) == {NAME: clean_to}
        world.grow(batches)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), segments=st.integers(2, 6), batches=st.integers(1, 8))
def test_second_run_changes_nothing(seed: int, segments: int, batches: int) -> None:
    """A fixed point (C-32): with the same clock the whole log, looked at again, stays as it is, inodes included."""
    with scratch() as root:
        world = World(root, seed, segments, batches)
        # Every source counts with the header that the end of a group keeps. In segments that hold only a few of these
        # the estimate keeps apart what the second run would join.
        topic = world.topic(700)
        options = CleaningOptions(now_ms=world.now_ms, force=True, from_start=True)
        first = clean(world.path, options, topic, world.resources())
        left = tree(world.path)
        second = clean(world.path, options, topic, world.resources())
        assert (first.error, second.error) == (None, None)
        assert second.outcome in {"unchanged", "skipped"}
        assert second.dropped.total == 0
        assert tree(world.path, without=(".lock", CLEANER_CHECKPOINT)) == {
            name: facts for name, facts in left.items() if name != CLEANER_CHECKPOINT
        }
