"""A retained record that is older than those it supersedes stays as long as its key's last write (U-65)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.verify.partition import VerifyRequest, verify_partition
from cleanerd.verify.rules import KeyRules
from tests.cleaner.driver import NAME, clean, clean_all, config, resources
from tests.cleaner.strategy_cases import BY_HEADER, NOW, T, offsets, rec
from tests.support.log_dirs import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    Partition,
    batches_of,
    make_log_dir,
    write_checkpoint,
    write_segment,
)
from tests.support.logs import encode_batch, encode_legacy
from tests.support.stored_records import partition_records

if TYPE_CHECKING:
    from pathlib import Path

    from cleanerd.format.batch import BatchHeader

WRITE_TIME: dict[str, Any] = {
    **BY_HEADER, "cleanup_policy": "compact,delete", "compaction_winner_retention": "write-time", "segment_bytes": 100
}  # fmt: skip
RULES = KeyRules("header", b"version", winner_retention="write-time")


def log_of(root: Path, segments: dict[int, bytes]) -> Path:
    return make_log_dir(root / "logs", {NAME: Partition(segments)})


def grow(log_dir: Path, base: int, data: bytes) -> None:
    """Write one more segment, which is the active one."""
    write_segment(log_dir / NAME, base, data)
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
        write_checkpoint(log_dir / name, {NAME: base + 100})


def headers(log_dir: Path) -> list[BatchHeader]:
    logs = sorted((log_dir / NAME).glob("*.log"))
    found = [batch.header for log in logs for batch in batches_of(log.read_bytes())]
    return [header for header in found if header.record_count]


def largest_ms(log_dir: Path) -> dict[int, int]:
    """By base offset of batches with records: the largest timestamp after ``T``."""
    return {each.base_offset: each.max_timestamp - T for each in headers(log_dir)}


def times(log_dir: Path) -> dict[int, int]:
    return {each.record.offset: each.record.timestamp - T for each in partition_records(log_dir / NAME)}


@pytest.mark.parametrize("codec", [0, 4])
def test_the_batch_of_a_retained_record_takes_over_the_time_of_superseded_ones(tmp_path: Path, codec: int) -> None:
    """U-65: version 9 was written first. Its batch has the key's last write time, its record keeps its own time.

    The wrong rule leaves 10, the time of the record.
    """
    log_dir = log_of(
        tmp_path,
        {
            0: encode_batch([rec("k", 9, at=10), rec("x", 1, at=20)], codec=codec),
            2: encode_batch([rec("k", 5, at=700), rec("y", 1, at=30)], base_offset=2),
            4: b"",
        },
    )
    copy = tmp_path / "copy"
    shutil.copytree(log_dir / NAME, copy)
    clean_all(log_dir, NOW, config(**WRITE_TIME))
    assert offsets(log_dir / NAME, 4) == [0, 1, 3]
    assert largest_ms(log_dir) == {0: 700, 2: 700}
    assert times(log_dir) == {0: 10, 1: 20, 3: 30}
    assert (log_dir / NAME / f"{0:020d}.timeindex").read_bytes()[:8] == (T + 700).to_bytes(8, "big")
    for against in (None, copy):
        question = VerifyRequest(now_ms=NOW, producer_expiration_ms=1, clean_below=4, against=against, rules=RULES)
        assert verify_partition(log_dir / NAME, question).findings.in_order() == []
    assert clean_all(log_dir, NOW, config(**WRITE_TIME)).outcome == "unchanged", "once is enough"


def test_verify_still_finds_a_largest_timestamp_that_is_too_low(tmp_path: Path) -> None:
    """U-65, F-2: above its records' times is right, below is not; compared with a copy it may not fall either."""
    log_dir = log_of(tmp_path, {0: encode_batch([rec("k", 9, at=10)], max_timestamp=T + 9), 1: b""})
    copy = log_of(tmp_path / "before", {0: encode_batch([rec("k", 9, at=10)], max_timestamp=T + 99), 1: b""})
    question = VerifyRequest(now_ms=NOW, producer_expiration_ms=1, clean_below=1, rules=RULES)
    found = verify_partition(log_dir / NAME, question).findings.in_order()
    assert [each.kind.text for each in found] == ["max-timestamp-wrong"]
    question = VerifyRequest(now_ms=NOW, producer_expiration_ms=1, clean_below=1, rules=RULES, against=copy / NAME)
    found = verify_partition(log_dir / NAME, question).findings.in_order()
    assert "batch-header-changed" in [each.kind.text for each in found]


def test_the_time_passes_on_and_never_falls(tmp_path: Path) -> None:
    """U-65: version 11 takes over the time that version 9 took over.

    A batch that loses a record keeps its largest timestamp. The wrong rules: the time of the record that is superseded,
    10; the largest of the retained records, 20.
    """
    topic = config(**WRITE_TIME)
    log_dir = log_of(
        tmp_path,
        {
            0: encode_batch([rec("k", 9, at=10), rec("x", 1, at=20), rec("z", 1, at=700)]),
            3: encode_batch([rec("k", 5, at=700), rec("y", 1, at=30)], base_offset=3),
            5: b"",
        },
    )
    clean_all(log_dir, NOW, topic)
    grow(log_dir, 5, encode_batch([rec("z", 2, at=40)], base_offset=5))
    grow(log_dir, 6, b"")
    clean(log_dir, CleaningOptions(now_ms=NOW, force=True), topic)
    assert offsets(log_dir / NAME, 6) == [0, 1, 4, 5]
    assert largest_ms(log_dir)[0] == 700, "the time that k took over"
    assert largest_ms(log_dir)[5] == 700, "the time that z took over, of a batch of the clean section"
    grow(log_dir, 6, encode_batch([rec("k", 11, at=50)], base_offset=6))
    grow(log_dir, 7, b"")
    clean(log_dir, CleaningOptions(now_ms=NOW, force=True), topic)
    assert offsets(log_dir / NAME, 7) == [1, 4, 5, 6]
    assert largest_ms(log_dir)[6] == 700


def test_a_retained_record_in_the_clean_section_takes_over_as_well(tmp_path: Path) -> None:
    """U-65: the first dirty offset is in a segment; the superseded record is behind it."""
    segments = {
        0: encode_batch([rec("k", 9, at=10)]),
        1: encode_batch([rec("x", 9, at=20)], base_offset=1) + encode_batch([rec("k", 3, at=800)], base_offset=2),
        3: encode_batch([rec("x", 3, at=900), rec("y", 1)], base_offset=3),
        5: b"",
    }
    log_dir = log_of(tmp_path, segments)
    result = clean(log_dir, CleaningOptions(now_ms=NOW, force=True, first_dirty_offset=2), config(**WRITE_TIME))
    assert result.error is None, result.reason
    assert offsets(log_dir / NAME, 5) == [0, 1, 4]
    assert largest_ms(log_dir) == {0: 800, 1: 900, 3: 900}


def test_in_many_shards_as_in_one(tmp_path: Path) -> None:
    """U-65, U-20: each shard knows the retained records of its keys only."""
    count = 300
    found = []
    for load in (0.85, 0.004):  # with room for three keys, one log in 200 has four keys in a pass, however many passes
        log = {
            0: b"".join(encode_batch([rec(f"k{n}", 9, at=n)], base_offset=n) for n in range(count)),
            count: encode_batch([rec(f"k{n}", 5, at=count + n) for n in range(count)], base_offset=count),
            2 * count: b"",
        }
        log_dir = log_of(tmp_path / str(load), log)
        result = clean_all(log_dir, NOW, config(**WRITE_TIME), resources(map_bytes=1, map_load=load))
        found.append((result.passes, largest_ms(log_dir)))
    assert found[0][0] == 1 < found[1][0]
    assert found[0][1] == found[1][1] == dict.fromkeys(range(count), 2 * count - 1)


def test_with_append_time_the_records_keep_theirs(tmp_path: Path) -> None:
    """U-65: with append time a batch's time is that of its records: one with a later time changes to create time."""
    log_dir = log_of(
        tmp_path,
        {
            0: encode_batch([rec("k", 9), rec("x", 1)], log_append_time=T + 10),
            2: encode_batch([rec("k", 5), rec("y", 1)], base_offset=2, log_append_time=T + 700),
            4: b"",
        },
    )
    clean_all(log_dir, NOW, config(**WRITE_TIME))
    assert largest_ms(log_dir) == {0: 700, 2: 700}
    assert times(log_dir) == {0: 10, 1: 10, 3: 700}
    assert [each.is_log_append_time for each in headers(log_dir)] == [False, True]


@pytest.mark.parametrize(("convert", "outcome"), [(True, "cleaned"), (False, "refused")])
def test_v1_takes_over_a_time_only_as_v2(tmp_path: Path, convert: bool, outcome: str) -> None:
    """U-65: a batch of v1 has no time besides its records'. If it stays v1 nothing is cleaned, and that is reported."""
    old = encode_legacy(0, b"k", b"v", timestamp=T + 10)
    log_dir = log_of(tmp_path, {0: old, 1: encode_batch([rec("k", at=5), rec("y", at=700)], base_offset=1), 3: b""})
    topic = config(**{**WRITE_TIME, "compaction_strategy": "timestamp"})
    options = CleaningOptions(now_ms=NOW, force=True, from_start=True)
    result = clean(log_dir, options, topic, replace(resources(), convert_legacy=convert))
    assert result.outcome == outcome, result.reason
    if convert:
        assert largest_ms(log_dir)[0] == 700
    else:
        assert "v0 or v1" in str(result.error)


def test_record_time_is_the_default(tmp_path: Path) -> None:
    """U-65: batches keep their times unless the topic's setting says otherwise; ``offset`` never changes them."""
    topics = (
        {**WRITE_TIME, "compaction_winner_retention": "record-time"},
        {**WRITE_TIME, "compaction_strategy": "offset"},
    )
    for number, values in enumerate(topics):
        log = {0: encode_batch([rec("k", 9, at=10), rec("x", 1, at=20)]), 2: encode_batch([rec("k", 5)], base_offset=2)}
        log_dir = log_of(tmp_path / str(number), {**log, 3: b""})
        clean_all(log_dir, NOW, config(**values))
        assert largest_ms(log_dir)[0] == 20
