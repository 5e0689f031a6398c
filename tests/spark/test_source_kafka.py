"""The data source's rows compared with Kafka's own decoders on unusual logs of every kind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cleaner.driver import NAME
from tests.spark.reading import EVERYTHING, read_rows
from tests.spark.rich_log import RichLog
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, encode_wrapper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.answers import Dump, ReadBatch
    from tests.kafka.judge import Judge

TOPIC = NAME.rpartition("-")[0]

pytestmark = pytest.mark.kafka

SEEDS = {
    f"{seed}-{codec}": RichLog(seed, codec=codec, transactions=bool(seed % 2), legacy=seed % 3 == 0)
    for seed, codec in enumerate((0, 1, 2, 3, 4, 0, 4))
}
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
TXN = {"transactional": True, "producer_id": 9, "producer_epoch": 3}
MARKER = {"producer_id": 9, "producer_epoch": 3}


def strange(root: Path) -> Path:
    """Holes, empty batches, all message formats, wrappers, an append time, sequences that pass 2^31-1, odd headers."""
    odd = Record(b"", b"", -1, headers=((b"a\xff", None), (b"", b"x"), (b"a\xff", b"")))
    first = [
        encode_legacy(0, b"old", None, magic=0),
        encode_legacy(1, None, b"v1", magic=1, timestamp=17),
        encode_wrapper(5, encode_legacy(0, b"i", b"1") + encode_legacy(2, b"j", None), timestamp=1_700_000_000_000),
        encode_batch([Record(b"a", b"1", offset_delta=2), Record(b"b", None, offset_delta=7)], base_offset=10),
        encode_batch([], base_offset=20, last_offset_delta=4),
        encode_batch([odd, Record(None, b"no key")], base_offset=30, log_append_time=1_800_000_000_000),
    ]
    second = [
        encode_batch(
            [Record(b"s", b"%d" % row) for row in range(4)],
            base_offset=40,
            producer_id=4,
            producer_epoch=1,
            base_sequence=2**31 - 2,
            leader_epoch=7,
        ),
        encode_batch([Record(b"t", b"aborted")], base_offset=50, base_sequence=0, **TXN),
        encode_batch(
            [Record(b"u", b"not transactional")], base_offset=51, producer_id=9, producer_epoch=3, base_sequence=1
        ),
        encode_marker(52, commit=False, **MARKER),
        encode_batch([Record(b"t", b"committed")], base_offset=53, base_sequence=2, **TXN),
    ]
    third = [
        encode_marker(60, commit=True, **MARKER),
        encode_batch([Record(b"t", b"open")], base_offset=61, base_sequence=3, **TXN),
        encode_batch([Record(b"w", b"behind it", headers=((b"version", b"\0" * 8),))], base_offset=62),
    ]
    segments = {0: b"".join(first), 40: b"".join(second), 60: b"".join(third)}
    aborted = {40: [(9, 50, 52, 50)]}
    return make_log_dir(root, {NAME: Partition(segments, aborted=aborted, log_start_offset=12, cleaner_offset=40)})


def logs(root: Path) -> dict[str, Path]:
    found = {name: log.write(root / name, 4, 12) for name, log in SEEDS.items()}
    for path in found.values():
        for snapshot in (path / NAME).glob("*.snapshot"):
            snapshot.unlink()  # it does not know of an open transaction
    return {**found, "strange": strange(root / "strange")}


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory, judge_43: Judge) -> dict[str, tuple[Path, Dump]]:
    found = logs(tmp_path_factory.mktemp("logs"))
    return {name: (path, judge_43.dump(path / NAME)) for name, path in found.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", [*SEEDS, "strange"])
@pytest.mark.parametrize("split_bytes", ["128m", "700"])
def test_raw_rows_equal_kafkas_records(dumped: dict[str, tuple[Path, Dump]], name: str, split_bytes: str) -> None:
    """Every record of every batch as Kafka decodes it, wherever the log is cut."""
    path, dump = dumped[name]
    rows = read_rows(path, view="raw", columns=EVERYTHING, splitBytes=split_bytes)
    expected = [_expected(batch, record) for batch in dump.batches for record in batch.records]
    assert len(expected) > 8
    assert [{key: row[key] for key in expected[0]} for row in rows] == expected


def _expected(batch: ReadBatch, record: Any) -> dict[str, Any]:
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + record.offset - batch.base) % 2**31
    return {
        "key": record.key,
        "value": record.value,
        "topic": TOPIC,
        "partition": 0,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": TYPES[batch.timestamp_type],
        "headers": record.headers or None,
        "leader_epoch": batch.leader_epoch if batch.magic == 2 else -1,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "sequence": sequence,
        "transactional": batch.transactional,
        "control": batch.control,
        "batch_offset": batch.base,
        "position": batch.position,
    }


def _committed(dump: Dump, log_start: int, high_watermark: int) -> list[int]:
    """The offsets that a read_committed consumer gets, computed from the markers in the simplest way."""
    opened: dict[int, list[int]] = {}
    hidden: set[int] = set()
    for batch in dump.batches:
        if batch.control and batch.base < high_watermark:
            data = opened.pop(batch.producer_id, [])
            if batch.records and batch.records[0].key[3] == 0:
                hidden |= set(data)
        elif batch.transactional and not batch.control:
            opened.setdefault(batch.producer_id, []).extend([batch.base, *(r.offset for r in batch.records)])
    below = [min(data) for data in opened.values() if min(data) < high_watermark]
    stable = min([high_watermark, *below])
    found = [record.offset for batch in dump.batches if not batch.control for record in batch.records]
    return [offset for offset in found if log_start <= offset < stable and offset not in hidden]


@pytest.mark.long
@pytest.mark.parametrize("name", [*SEEDS, "strange"])
@pytest.mark.parametrize("split_bytes", ["128m", "700"])
def test_committed_and_all(dumped: dict[str, tuple[Path, Dump]], name: str, split_bytes: str) -> None:
    """``committed`` and ``all`` for each high watermark, and ``visible`` agrees in ``raw``."""
    path, dump = dumped[name]
    checkpoint = path / "replication-offset-checkpoint"
    before = checkpoint.read_text()
    start = 12 if name == "strange" else 0
    end = max(batch.last for batch in dump.batches) + 1
    try:
        for high_watermark in sorted({0, 13, 31, 41, 51, 52, 53, end // 3, end // 2, end}):
            checkpoint.write_text(f"0\n1\n{TOPIC} {0} {high_watermark}\n")
            rows = read_rows(path, columns="offset,visible", splitBytes=split_bytes)
            assert [row["offset"] for row in rows] == _committed(dump, start, high_watermark)
            assert all(row["visible"] for row in rows)
            raw = read_rows(path, view="raw", columns="offset,visible", splitBytes=split_bytes)
            assert [row["offset"] for row in raw if row["visible"]] == [row["offset"] for row in rows]
            everything = [r.offset for batch in dump.batches if not batch.control for r in batch.records]
            uncommitted = read_rows(path, view="all", columns="offset", splitBytes=split_bytes)
            expected = [offset for offset in everything if start <= offset < high_watermark]
            assert [row["offset"] for row in uncommitted] == expected
    finally:
        checkpoint.write_text(before)


def test_strange_logs_read_as_kafka_reads_them(dumped: dict[str, tuple[Path, Dump]]) -> None:
    """By hand: log start inside a segment, an aborted, a committed and an open transaction, the clean section."""
    path, _ = dumped["strange"]
    rows = read_rows(path, columns="offset,in_clean_part,value")
    assert [row["offset"] for row in rows] == [12, 17, 30, 31, 40, 41, 42, 43, 51, 53]
    assert [row["in_clean_part"] for row in rows] == [True] * 4 + [False] * 6
    whole = read_rows(path, bound="end")
    assert [row["offset"] for row in whole] == [12, 17, 30, 31, 40, 41, 42, 43, 51, 53, 62]
    named = read_rows(path, startingOffsets=json.dumps({TOPIC: {"0": 31}}), columns="offset,headers")
    assert named[0] == {"offset": 31, "headers": None}
    assert read_rows(path, columns="offset,headers")[2]["headers"] == (("a\ufffd", None), ("", b"x"), ("a\ufffd", b""))
