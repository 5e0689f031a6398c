"""Keys counted in parts and put together, compared with a dictionary."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter, defaultdict
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from cleanerd.spark import profile
from cleanerd.spark.key_counts import (
    COMPETES,
    HOT_KEYS,
    KeyTally,
    RecordTotals,
    added,
    at_shares,
    folded,
    in_several,
    shard_of,
    summary,
)
from cleanerd.spark.logs import find_logs
from cleanerd.spark.profile import profile_logs
from cleanerd.spark.record_scan import WITH_TIMESTAMP, RecordFact, SegmentWork
from cleanerd.verify.listing import SegmentFile
from cleanerd.verify.rules import KAFKAS_RULES
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

Known = dict[tuple[int, int], list[tuple[int, int, int, int, int]]]


def batch_of(rows: list[dict[str, int]]) -> pa.RecordBatch:
    columns = [pa.array([row.get(field.name, 0) for row in rows], field.type) for field in WITH_TIMESTAMP]
    return pa.RecordBatch.from_arrays(columns, schema=WITH_TIMESTAMP)


def made(seed: int) -> tuple[list[dict[str, int]], Known]:
    """Random records, some of which do not count; hashes that share a half; and the counted ones by key."""
    pick = random.Random(seed)
    rows, known = [], defaultdict(list)
    for offset in range(400):
        has_version, deleted = pick.random() < 0.7, pick.random() < 0.2
        flags = COMPETES | (RecordFact.HAS_VERSION * has_version) | (RecordFact.TOMBSTONE * deleted)
        key = (pick.choice([-(2**63), -7, 0, 2**63 - 1]), pick.randrange(4))
        version, size = pick.randrange(-3, 3) * has_version, pick.randrange(1, 9)
        if pick.random() < 0.2:
            flags &= ~int(pick.choice([RecordFact.SEALED, RecordFact.VISIBLE, RecordFact.HAS_KEY]))
        else:
            known[key].append((has_version, version, offset, size, deleted))
        row = {"offset": offset, "key_high": key[0], "key_low": key[1], "version": version, "flags": int(flags)}
        rows.append({**row, "size": size})
    return rows, known


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("shards", [1, 3])
def test_added_up_in_any_parts(seed: int, shards: int) -> None:
    """Split and added up in any order, the counts equal a dictionary's: retained records by version (R280-4), sums."""
    rows, known = made(seed)
    pick = random.Random(seed)
    summaries: list[dict[str, Any]] = []
    for shard in range(shards):
        several = []
        edges = [0, *sorted(pick.sample(range(1, len(rows)), 4)), len(rows)]
        for first, end in pairwise(edges):
            tally = KeyTally(0, shard, shards)
            tally.add(batch_of(rows[first:end]))
            several.append(tally.keys())
        pick.shuffle(several)
        keys = added([added(several[:2]), *several[2:]])
        assert (shard_of(keys["high"], shards) == shard).all()
        for row in range(len(keys["high"])):
            records = known[int(keys["high"][row]), int(keys["low"][row])]
            assert tuple(int(keys[name][row]) for name in ("has_version", "version", "offset", "size", "deleted")) == (
                max(records)
            )
            assert (keys["records"][row], keys["bytes"][row]) == (len(records), sum(each[3] for each in records))
        summaries += summary(keys)
    found = folded(summaries)[0]
    assert found["keys"] == len(known)
    assert found["superseded"] == sum(len(records) - 1 for records in known.values())
    assert found["deleted_keys"] == sum(max(records)[4] for records in known.values())
    assert found["overtaken"] == sum(max(each)[2] != max(row[2] for row in each) for each in known.values())
    assert found["missing_versions"] == Counter(filter(lambda each: each is not None, map(missing, known.values())))
    hottest = sorted(((len(each), max(each)[2], sum(row[3] for row in each)) for each in known.values()), reverse=True)
    assert found["hot"] == [[records, size, offset] for records, offset, size in hottest[:HOT_KEYS]]


def missing(records: list[tuple[int, int, int, int, int]]) -> int | None:
    """Numbers between the lowest and the highest version that no record has, down to a power of two."""
    versions = [version for has, version, *_ in records if has]
    if len(versions) < 2:
        return None
    count = max(versions) - min(versions) + 1 - len(versions)
    return 1 << (count.bit_length() - 1) if count > 0 else 0


def test_the_largest_difference_of_versions() -> None:
    """A difference of two versions need not fit in a signed 64-bit number."""
    for versions in ([-(2**63), 2**63 - 1], [5, 9, 7], [1, 2, 3], [4, 4, 4], [0, 2**62]):
        tally = KeyTally(0)
        flags = int(COMPETES | RecordFact.HAS_VERSION)
        tally.add(batch_of([{"offset": at, "version": v, "flags": flags} for at, v in enumerate(versions)]))
        (reported,) = summary(tally.keys())
        count = max(versions) - min(versions) + 1 - len(versions)
        expected = 0 if count <= 0 else min(1 << (count.bit_length() - 1), 1 << 62)
        assert reported["missing_versions"] == [[expected], [1]], versions


def test_the_age_of_the_dirty_section() -> None:
    """Of closed segments, above the clean section, with a timestamp; nothing without a first dirty offset."""
    sealed = int(COMPETES | RecordFact.CLEANED)
    rows = [
        {"offset": 0, "timestamp": 5, "flags": sealed | RecordFact.BELOW},
        {"offset": 1, "timestamp": -1, "flags": sealed},
        {"offset": 2, "timestamp": 900, "flags": sealed},
        {"offset": 3, "timestamp": 800, "flags": sealed},
        {"offset": 4, "timestamp": 7, "flags": sealed & ~int(RecordFact.SEALED)},
        {"offset": 5, "timestamp": 6, "flags": COMPETES},
    ]
    tally = KeyTally(0)
    tally.add(batch_of([{**row, "size": 10} for row in rows]))
    assert (tally.totals.dirty_since_ms, tally.totals.numbers["dirty_bytes"]) == (800, 30)
    other = RecordTotals(dirty_since_ms=700)
    for totals in (other, deepcopy(tally.totals), RecordTotals()):
        tally.totals.add(totals)
    assert (tally.totals.dirty_since_ms, tally.totals.numbers["dirty_bytes"]) == (700, 60)


def test_a_log_without_keys() -> None:
    """All counts are zero."""
    assert summary(added([])) == []
    assert at_shares({}, (0.5, 0.9)) == (0, 0, 0)


def test_shares() -> None:
    """The second smallest of four is the half."""
    assert at_shares({1: 2, 5: 1, 9: 1}, (0.5, 0.75, 0.76)) == (1, 5, 9, 9)
    values = np.sort(np.random.default_rng(1).integers(0, 50, 999))
    counts = dict(zip(*(each.tolist() for each in np.unique(values, return_counts=True)), strict=True))
    assert at_shares(counts, (0.5, 0.9)) == (values[499], values[899], values[-1])


def test_more_keys_than_fit(tmp_path: Any) -> None:
    """Alone and with little memory: shard by shard, with the same result."""
    data = b"".join(encode_batch([Record(b"%d" % (at % 70), b"v" * (at % 9))], base_offset=at) for at in range(200))
    first = b"".join(encode_batch([Record(b"%d" % at, b"v")], base_offset=at) for at in range(4))
    few = Partition({0: first, 4: b""}, indexes=False)
    partitions = {"t-0": Partition({0: data, 200: b""}, indexes=False), "u-0": few, "u-1": few}
    path = make_log_dir(tmp_path / "logs", partitions)
    logs = find_logs([path], (), lambda _topic: KAFKAS_RULES)
    at_once = profile_logs(None, logs)
    by_shards = profile_logs(None, logs, most_keys=20, added_records=10)
    assert by_shards == at_once
    assert [(each.keys, each.elsewhere) for each in at_once] == [(70, 0), (4, 4), (4, 4)], "OP-19: only topic u has two"


NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("timestamp", "unit"),
    [(NOW_MS // 1000, "seconds"), (NOW_MS * 1_000_000, "nanoseconds"), (NOW_MS, None), (-1, None)],
)
def test_timestamps_in_another_unit(tmp_path: Path, timestamp: int, unit: str | None) -> None:
    """OP-18: as in explain and plan, for the first segment with one, also from a task of Spark."""
    right, whose = encode_batch([Record(b"a", b"1", NOW_MS)]), {"producer_id": 4711, "producer_epoch": 0}
    wrong = [encode_batch([Record(b"b", b"1", timestamp)], base_offset=at, base_sequence=0, **whose) for at in (1, 2)]
    path = make_log_dir(tmp_path / "logs", {"t-0": Partition({0: right, 1: wrong[0], 2: wrong[1], 3: b""})})
    (found,) = profile_logs(None, find_logs([path], (), lambda _topic: KAFKAS_RULES))
    expected = (
        f"{path}/t-0/{1:020d}.log: the batch at offset 1 of producer 4711 has the timestamp {timestamp}, which is"
    )
    assert found.wrong_time.startswith(f"{expected} in {unit}: ") if unit else found.wrong_time == ""


@pytest.mark.long
def test_memory_of_a_task_and_a_shard() -> None:
    """Three times as many records take no more: a task sends its keys in parts, a shard adds up what waits.

    NumPy's arrays are measured; 1.2 million rows and all of their keys at once would be 450 MB.
    """
    rows_a_batch = 32_768

    def scanned(work: SegmentWork, _schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        pick = np.random.default_rng(7)
        for number in range(work.file):
            columns: dict[str, NDArray[Any]] = {
                "flags": np.full(rows_a_batch, COMPETES),
                "size": np.full(rows_a_batch, 100),
                "offset": np.arange(rows_a_batch) + number * rows_a_batch,
                "key_high": pick.integers(0, 2**62, rows_a_batch),
                "key_low": pick.integers(0, 2**62, rows_a_batch),
            }
            none = np.zeros(rows_a_batch, np.int64)
            arrays = [pa.array(columns.get(each.name, none)).cast(each.type) for each in WITH_TIMESTAMP]
            yield pa.RecordBatch.from_arrays(arrays, schema=WITH_TIMESTAMP)

    def largest_mib(batches: int, *, shard: bool) -> float:
        tracemalloc.start()
        try:
            gone = SegmentFile(Path("gone.log"), 0, 1, 1, sealed=True)
            work = SegmentWork(0, batches, gone, 0, b"", KAFKAS_RULES, [])  # the file's number says how many
            blocks = profile.count_segment(1, work, scanned)
            kept = 0
            for reported in profile.count_shard(blocks) if shard else blocks:
                kept += len(reported)
            assert kept
            return tracemalloc.get_traced_memory()[1] / (1 << 20)
        finally:
            tracemalloc.stop()

    few, many, shard = largest_mib(12, shard=False), largest_mib(36, shard=False), largest_mib(12, shard=True)
    assert many < few + 10, (few, many)
    assert many < 180, many
    assert shard < 260, shard


def test_the_same_key_of_another_topic_is_elsewhere_in_no_partition() -> None:
    """OP-19: also where it comes next in the order of topics and hashes."""
    topics, hashes = np.array([0, 0, 1, 1], np.int32), np.array([3, 5, 5, 7], np.int64)
    assert not in_several(topics, hashes, hashes).any()
    assert in_several(np.zeros(4, np.int32), hashes, hashes).tolist() == [False, True, True, False]


def test_keys_in_several_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """OP-19: by tasks and by this process; deleted keys and other topics do not count.

    Above a limit this process returns None, except for a topic with one partition.
    """
    logs = {
        "orders-0": [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2")],
        "orders-1": [(b"a", b"1"), (b"b", b"1"), (b"b", None), (b"d", b"1")],
        "orders-2": [(b"a", b"1"), (b"c", b"1"), (b"e", b"1")],
        "users-0": [(b"e", b"1"), (b"a", b"1")],
    }
    log_dir = make_log_dir(
        tmp_path / "logs",
        {
            name: Partition({0: encode_batch([Record(*each) for each in records]), len(records): b""}, indexes=False)
            for name, records in logs.items()
        },
    )
    found = find_logs([log_dir], (), lambda _topic: KAFKAS_RULES)

    def elsewhere(session: SparkSession | None, **limits: int) -> dict[str, int | None]:
        return {str(each.name): each.elsewhere for each in profile_logs(session, found, **limits)}

    expected = {"orders-0": 2, "orders-1": 1, "orders-2": 2, "users-0": 0}
    assert elsewhere(spark) == expected
    assert elsewhere(None) == expected
    assert elsewhere(None, most_keys=3) == {"orders-0": None, "orders-1": None, "orders-2": None, "users-0": 0}
