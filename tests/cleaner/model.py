"""The expected result of a cleaning, computed record by record with a plain dictionary (C-37..C-52, U-13)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from cleanerd.format.batch import CODEC_MASK, HAS_DELETE_HORIZON, HEADER_BYTES
from tests.support.log_dirs import index_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from cleanerd.format.record import Record
    from tests.support.log_dirs import StoredBatch

Segments = dict[int, list["StoredBatch"]]
MAX_VARLONG_BYTES = 10
"""A delete horizon becomes the base of a batch's timestamps, so each record's delta may become as long as this."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The inputs of a cleaning.

    ``bound`` is the first uncleanable offset, never below the clean section (C-06). ``proven``: the start of the range
    that is neither known to be clean nor dirty; None: there is none. ``segment_bytes``: of the topic; followers refuse
    larger batches (U-95).
    """

    first_dirty: int
    end: int
    bound: int
    now_ms: int
    retention_ms: int
    protected: Collection[int]
    proven: int | None = None
    segment_bytes: int = 2**31 - 1


def newest(batches: Sequence[StoredBatch], rules: Rules) -> dict[bytes, int]:
    """The offset map: key -> last offset in the dirty range (C-20)."""
    found: dict[bytes, int] = {}
    for batch in batches:
        for record in batch.records:
            if record.key is not None and rules.first_dirty <= record.offset < rules.end:
                found[record.key] = record.offset
    return found


def survives(record: Record, batch: StoredBatch, offsets: Mapping[bytes, int], rules: Rules) -> bool:
    """C-45, in its order."""
    if record.offset >= rules.end:
        return True
    if record.key is None or offsets.get(record.key, -1) > record.offset:
        return False
    horizon = batch.header.delete_horizon_ms
    if rules.proven is not None and rules.proven <= record.offset < rules.first_dirty:
        return True
    return record.value is not None or horizon is None or rules.now_ms < horizon


def check_cleaned(before: Segments, after: Segments, rules: Rules) -> None:
    """Compare the segments below the active one with the model."""
    assert list(after)[-1] == list(before)[-1]
    assert after[list(after)[-1]] == before[list(before)[-1]], "the active segment is never touched"
    assert set(after) <= set(before), "an output takes the base of its first source"
    assert next(iter(after)) == next(iter(before))
    source_batches = [batch for base, batches in before.items() for batch in batches if base < rules.end]
    offsets = newest(source_batches, rules)
    remaining = {batch.header.last_offset: batch for batches in after.values() for batch in batches}
    assert list(remaining) == sorted(remaining)
    ends = {batches[-1].header.last_offset: len(batches) for batches in after.values() if batches}
    for base, batches in before.items():
        for batch in batches:
            left = remaining.pop(batch.header.last_offset, None)
            if base >= rules.end:
                assert left == batch or (left is not None and left.data == batch.data)
                continue
            kept = [record for record in batch.records if survives(record, batch, offsets, rules)]
            _check_batch(batch, left, kept, rules, ends)
    assert not remaining, "no new record may appear"
    _check_ends(before, after)


def _check_batch(
    batch: StoredBatch, left: StoredBatch | None, kept: list[Record], rules: Rules, ends: Mapping[int, int]
) -> None:
    """``ends``: by last offset of a segment, its number of batches."""
    last_offset = batch.header.last_offset
    if left is None:
        assert not kept, f"lost {kept}"
        assert last_offset not in rules.protected, f"the producer's last batch {last_offset} is missing (C-39.1)"
        assert last_offset not in ends
        return
    assert list(left.records) == kept
    if not kept:
        assert last_offset in rules.protected or last_offset in ends, (
            f"batch {last_offset} is empty and kept for nothing"
        )
        _check_empty(batch, left, rules, alone=ends.get(last_offset) == 1)
    else:
        _check_rebuilt(batch, left, kept, rules)
    for field in (
        "base_offset",
        "last_offset",
        "partition_leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    ):
        assert getattr(left.header, field) == getattr(batch.header, field), field


def _check_empty(batch: StoredBatch, left: StoredBatch, rules: Rules, *, alone: bool) -> None:
    """F-2.5: header only, with the time that it had, unless it is there only to close its group (U-13)."""
    if left.data == batch.data:
        assert not batch.records, "emptied before, and its segment is not written again for the time alone"
        return
    assert len(left.data) == HEADER_BYTES
    assert left.header.record_count == 0
    assert left.header.base_timestamp == -1
    assert left.header.attributes == batch.header.attributes & ~(CODEC_MASK | HAS_DELETE_HORIZON)
    last_offset = batch.header.last_offset
    if last_offset in rules.protected or (last_offset + 1 == rules.bound and batch.records):
        assert batch.records
        assert left.header.max_timestamp == batch.header.max_timestamp
    elif last_offset + 1 == rules.bound:
        assert (batch.header.max_timestamp, left.header.max_timestamp) == (0, -1), "it closed a segment alone"
    elif alone:
        assert left.header.max_timestamp == 0, "a search by time would end here"
    else:
        assert left.header.max_timestamp == -1, "records without a time would get it"


def _check_rebuilt(batch: StoredBatch, left: StoredBatch, kept: list[Record], rules: Rules) -> None:
    """C-48..C-52, U-95."""
    horizon = batch.header.delete_horizon_ms
    starts = horizon is None and any(record.value is None for record in kept)
    if starts and left.header.delete_horizon_ms is None and len(batch.data) <= rules.segment_bytes:
        largest = len(left.data) + MAX_VARLONG_BYTES * len(kept)
        assert largest > rules.segment_bytes, "with a delete horizon the batch would still fit"
        starts = False
    if starts and rules.now_ms + rules.retention_ms < 2**63:
        horizon = rules.now_ms + rules.retention_ms
    if len(kept) == len(batch.records) and not starts:
        assert left.data == batch.data, "C-51: copied byte for byte"
        return
    assert left.header.delete_horizon_ms == horizon
    assert left.header.attributes & ~HAS_DELETE_HORIZON == batch.header.attributes & ~HAS_DELETE_HORIZON
    assert left.header.base_timestamp == (kept[0].timestamp if horizon is None else horizon)
    if batch.header.is_log_append_time:
        assert left.header.max_timestamp == batch.header.max_timestamp
    else:
        assert left.header.max_timestamp == max(record.timestamp for record in kept)


def _check_ends(before: Segments, after: Segments) -> None:
    """U-13, S-09: every output ends at the end of the last non-empty of its sources."""
    bases = [*after, 2**63]
    for base, following in pairwise(bases):
        sources = [batches[-1].header.last_offset for b, batches in before.items() if base <= b < following and batches]
        found = after[base][-1].header.last_offset if after[base] else None
        assert found == (sources[-1] if sources else None)


def check_files(path: Path, changed: Collection[int], interval_bytes: int) -> None:
    """The indexes beside the rewritten segments are those that Kafka would write (F-6/7.1)."""
    for base in changed:
        data = (path / f"{base:020d}.log").read_bytes()
        offset_index, time_index = index_bytes(base, data, interval_bytes)
        assert (path / f"{base:020d}.index").read_bytes() == offset_index
        assert (path / f"{base:020d}.timeindex").read_bytes() == time_index
