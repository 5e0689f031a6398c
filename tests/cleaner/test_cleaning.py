"""The whole cleaner compared with the model: random logs and ranges, several cleanings, the real kernel and swap."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.segments import blocks
from tests.cleaner.driver import NAME, clean, resources, scratch
from tests.cleaner.growing_log import EXPIRATION_MS, INTERVAL_BYTES, GrowingLog
from tests.cleaner.model import Rules, check_cleaned, check_files, newest
from tests.support.length import at_length
from tests.support.log_dirs import (
    CLEANER_CHECKPOINT,
    read_checkpoint,
    read_segments,
    tree,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.cleaner.result import CleaningResult
    from cleanerd.config.topic_config import TopicConfig

KEYS_OF_A_SHARD = 3
"""The keys that the smallest map holds with a load of a thousandth."""


ON_DISK = "/var/tmp"  # noqa: S108
"""Keys are written to a file without a name there (U-43)."""


def clean_and_check(world: GrowingLog, options: CleaningOptions, topic: TopicConfig) -> CleaningResult:
    """Clean a copy first, with other shards and chunks; then the log itself, and compare with the model."""
    before = read_segments(world.partition)
    checkpoint = world.path / CLEANER_CHECKPOINT
    proven = read_checkpoint(checkpoint).get(NAME, 0) if checkpoint.exists() else 0
    inodes = {log.name: log.stat().st_ino for log in world.partition.glob("*.log")}
    copy = world.path.parent / "copy"
    shutil.copytree(world.path, copy / "logs")
    smallest = resources(
        expiration_ms=EXPIRATION_MS, map_bytes=1, map_load=0.001, chunk_bytes=world.pick.choice((1, 100))
    )
    smallest = replace(smallest, map_dir=ON_DISK if len(before) % 2 else "")
    with blocks_of_one_byte():
        other = clean(copy / "logs", options, topic, smallest)
    result = clean(world.path, options, topic, world.resources())
    assert result.error is None, result.reason
    # The copy has no stored state, so its first dirty offset is Kafka's checkpoint: the same one.
    assert other.outcome == result.outcome
    after = read_segments(world.partition)
    assert files(world.partition) == files(copy / "logs" / NAME), "the result depends on shards or chunks"
    shutil.rmtree(copy)
    if result.outcome == "skipped":
        assert after == before
        return result
    assert result.end_offset <= world.bound
    # C-06: the clean section may end above a high watermark that is lower now.
    bound = max(world.bound, *(base for base in before if base <= min(result.first_dirty_offset, world.active)))
    span = (result.first_dirty_offset, result.end_offset, bound)
    rules = Rules(*span, options.now_ms, world.retention_ms, world.protected(), proven, topic.segment_bytes)
    check_cleaned(before, after, rules)
    sources = [batch for base, batches in before.items() if base < rules.end for batch in batches]
    if len(newest(sources, rules)) > KEYS_OF_A_SHARD:
        on_disk = any(note.startswith("the keys were written to disk") for note in other.notes)
        assert other.passes > 1 or on_disk, "the compared logs are not empty"
    changed = [base for base in after if inodes[f"{base:020d}.log"] != inode(world.partition, base)]
    if topic.segment_index_bytes > 1000:
        check_files(world.partition, changed, INTERVAL_BYTES)
    check_sizes(world.partition, changed, before, after, topic)
    assert result.records_read == sum(len(batch.records) for batch in sources)
    assert result.records_read - result.records_kept == result.removed.total
    assert not (world.partition / ".kstage").exists()
    return result


@contextmanager
def blocks_of_one_byte() -> Iterator[None]:
    """Chunks begin and end anywhere, and not at the edges of pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "DIRECT_ALIGNMENT", 1)
        yield


def inode(path: Path, base: int) -> int:
    return (path / f"{base:020d}.log").stat().st_ino


def files(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir() if entry.is_file()}


def check_sizes(path: Path, changed: list[int], before: object, after: dict[int, object], topic: TopicConfig) -> None:
    """U-17: merged segments fit the segment size; C-63."""
    for base in changed:
        following = min((other for other in after if other > base), default=2**63)
        sources = [other for other in before if base <= other < following]  # type: ignore[attr-defined]
        if len(sources) > 1:
            assert (path / f"{base:020d}.log").stat().st_size <= topic.segment_bytes


COUNTS = {"segments": st.integers(1, 6), "batches": st.integers(1, 8), "rounds": st.integers(1, 4)}


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), **COUNTS)
@example(seed=1, segments=6, batches=8, rounds=4)
@example(seed=2991718889, segments=5, batches=7, rounds=3)  # a high watermark below the clean section
def test_rounds(seed: int, segments: int, batches: int, rounds: int) -> None:
    """C-37..C-52, R192-1, U-13, U-20, OP-2: each record equals the model's, for any shards, chunks and ranges."""
    with scratch() as root:
        run_rounds(root, seed, segments, batches, rounds)


@pytest.mark.long
@pytest.mark.timeout(1500)
@settings(max_examples=at_length(600), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), **COUNTS)
def test_many_cleanings(seed: int, segments: int, batches: int, rounds: int) -> None:
    """The same, for longer."""
    with scratch() as root:
        run_rounds(root, seed, segments, batches, rounds)


@pytest.mark.long
def test_a_segment_below_the_checkpoint_written_again(tmp_path: Path) -> None:
    """U-10, found at random: --first-dirty wrote the last clean segment again, and Kafka's checkpoint went back."""
    run_rounds(tmp_path, 135, segments=1, batches=1, rounds=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_rounds_on_a_disk(tmp_path: Path, seed: int) -> None:
    """The same on a file system that has direct I/O."""
    run_rounds(tmp_path, seed, segments=4, batches=30, rounds=2)


def run_rounds(root: Path, seed: int, segments: int, batches: int, rounds: int) -> None:
    """Clean and grow in turns."""
    world = GrowingLog(root, seed, segments, batches)
    clean_to = 0
    for _ in range(rounds):
        options = world.options()
        result = clean_and_check(world, options, world.topic())
        moves = options.first_dirty_offset is None or options.first_dirty_offset <= clean_to
        if result.outcome != "skipped" and moves:
            clean_to = max(clean_to, result.end_offset)
            assert read_checkpoint(world.path / CLEANER_CHECKPOINT) == {NAME: clean_to}
        world.grow(batches)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), segments=st.integers(2, 6), batches=st.integers(1, 8))
def test_second_run_changes_nothing(seed: int, segments: int, batches: int) -> None:
    """A fixed point (C-32): with the same clock a second cleaning of the whole log changes nothing, inodes included."""
    with scratch() as root:
        world = GrowingLog(root, seed, segments, batches)
        # Every source counts with the header that the end of a group keeps. In segments with few other bytes, the
        # estimate separates groups that the second cleaning would join.
        topic = world.topic(700)
        options = CleaningOptions(now_ms=world.now_ms, force=True, from_start=True)
        first = clean(world.path, options, topic, world.resources())
        left = tree(world.path)
        second = clean(world.path, options, topic, world.resources())
        assert (first.error, second.error) == (None, None)
        assert second.outcome in {"unchanged", "skipped"}
        assert second.removed.total == 0
        assert tree(world.path, without=(".lock", CLEANER_CHECKPOINT)) == {
            name: facts for name, facts in left.items() if name != CLEANER_CHECKPOINT
        }
