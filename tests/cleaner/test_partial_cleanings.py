"""D-11: a cleaning whose keys need too many passes ends early, and the next one continues there."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cleanerd.cleaner.map_size import MIN_VERSIONED_MAP_BYTES, VERSIONED_ENTRY_BYTES
from tests.cleaner.driver import NAME, clean, config, resources, scratch
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch
from tests.swap.live_round import content
from tests.swap.offline_round import NOW, force

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.cleaner.resources import Resources
    from cleanerd.cleaner.result import CleaningResult

MAP_KEYS = 40
LOAD = MAP_KEYS * VERSIONED_ENTRY_BYTES / MIN_VERSIONED_MAP_BYTES
"""The number of keys that the smallest map holds, roughly."""

RECORDS = 900


def random_log(seed: int) -> dict[int, bytes]:
    """Three segments of unique and of repeated keys, a fifth of them tombstones, and an active one."""
    pick = random.Random(seed)
    names = pick.choice((5, 60, 400, 4000))
    log: dict[int, bytes] = {}
    offset = 0
    while offset < RECORDS:
        base, segment = offset, bytearray()
        for _ in range(pick.randint(20, 40)):
            records = [
                Record(
                    b"%d" % pick.randrange(names),
                    None if pick.random() < 0.2 else b"v%d" % (offset + n),
                    NOW - pick.randrange(1000),
                    offset_delta=n,
                )
                for n in range(pick.randint(1, 12))
            ]
            segment += encode_batch(records, base_offset=offset)
            offset += len(records)
        log[base] = bytes(segment)
    return {**log, offset: b""}


def limited(passes_bytes: int | None) -> Resources:
    """A map of a few keys, and the passes that it allows."""
    return replace(resources(map_bytes=1, map_load=LOAD), passes_bytes=passes_bytes)


def rounds(root: Path, strategy: str, passes_bytes: int | None) -> list[CleaningResult]:
    """Cleanings until one is not partial."""
    topic = config(compaction_strategy=strategy)
    found: list[CleaningResult] = []
    while not found or found[-1].is_partial:
        found.append(clean(root, force(), topic, limited(passes_bytes), state=root.parent / f"state-{root.name}"))
        assert found[-1].error is None, found[-1].reason
        assert len(found) < 100, "no progress"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["offset", "timestamp"])
@given(seed=st.integers(0, 2**32), passes=st.integers(1, 4))
@settings(max_examples=15)
def test_partial_cleanings_leave_the_result_of_a_single_one(strategy: str, seed: int, passes: int) -> None:
    """D-11: and each one makes progress, with no more passes than allowed."""
    log = random_log(seed)
    with scratch() as base:
        parts, whole = base / "parts", base / "whole"
        for root in (parts, whole):
            make_log_dir(root, {NAME: Partition(log)})
        (single,) = rounds(whole, strategy, None)
        assert not single.is_partial
        most_bytes = passes * sum(map(len, log.values()))
        found = rounds(parts, strategy, most_bytes)
        read = sum(len(data) for base, data in log.items() if base < found[0].end_offset)
        assert found[0].passes * read <= most_bytes
        ends = [each.end_offset for each in found]
        assert ends == sorted(set(ends))
        assert ends[-1] == single.end_offset
        assert content(parts) == content(whole)


def test_a_cleaning_ends_where_the_keys_fill_its_passes(tmp_path: Path) -> None:
    """D-11: it reports that, moves the checkpoint there, and reads one pass only if that is the limit."""
    root = tmp_path / "log"
    values = [Record(b"key-%d" % n, b"v", NOW, offset_delta=n) for n in range(200)]
    make_log_dir(root, {NAME: Partition({0: encode_batch(values), 200: b""})})
    first, *others = rounds(root, "offset", 1)
    assert first.is_partial
    assert first.passes == 1
    assert 0 < first.end_offset <= 3 * MAP_KEYS
    assert any(f"ends at offset {first.end_offset} of 200" in note for note in first.notes)
    assert others[0].first_dirty_offset == first.end_offset
    assert len(content(root)) == 200


def test_without_a_limit_a_cleaning_takes_all_passes(tmp_path: Path) -> None:
    """U-20: offline, no partition waits for its turn."""
    root = tmp_path / "log"
    make_log_dir(root, {NAME: Partition(random_log(3))})
    (found,) = rounds(root, "offset", None)
    assert not found.is_partial
    assert found.passes > 1
