"""Files that real brokers (3.9.2 and 4.3.1) wrote; see ``golden/README.md``."""

import json
import re
from pathlib import Path

import pytest

from cleanerd.format.batch import CODEC_NAMES, parse_frame, parse_header
from cleanerd.format.checkpoint import EpochStart, read_epoch_checkpoint, read_offset_checkpoint
from cleanerd.format.control import ControlType, read_control
from cleanerd.format.index import read_offset_index, read_time_index, read_txn_index
from cleanerd.format.meta import read_meta_properties, read_partition_metadata
from cleanerd.format.metadata import read_metadata_record
from cleanerd.format.metadata_records import record_name
from cleanerd.format.names import TopicPartition, uuid_to_base64
from cleanerd.format.record import Record, records_of
from cleanerd.format.snapshot import read_snapshot

GOLDEN = Path(__file__).parent / "golden"
RELEASES = ["kafka-3.9.2", "kafka-4.3.1"]

release = pytest.mark.parametrize("release", RELEASES)


def batches_of(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        frame = parse_frame(data, at)
        assert frame is not None
        found.append(data[at : at + frame.size_bytes])
        at += frame.size_bytes
    return found


def all_records(path: Path) -> list[Record]:
    return [record for batch in batches_of(path) for record in records_of(batch, limit_bytes=1 << 20)]


@release
def test_every_codec(release: str) -> None:
    """F-4: each codec as the Java producer and broker write it."""
    path = GOLDEN / release / "every-codec.log"
    codecs = {CODEC_NAMES[parse_header(batch).codec] for batch in batches_of(path)}
    assert codecs == set(CODEC_NAMES)
    records = all_records(path)
    expected = [
        Record(
            offset=6 * number + at,
            timestamp=1700000000000 + at,
            key=b"k%d" % (at % 3),
            value=None if at == 4 else b"value-%s-%d" % (codec.encode(), at),
            headers=((b"h", b"x"),),
            attributes=0,
        )
        for number, codec in enumerate(CODEC_NAMES)
        for at in range(6)
    ]
    assert records[: len(expected)] == expected


@release
def test_segment_that_kafka_has_cleaned(release: str) -> None:
    """F-2.2: the tombstone's batch got a horizon, the record kept its timestamp."""
    batches = batches_of(GOLDEN / release / "orders-0" / "00000000000000000000.log")
    headers = [parse_header(batch) for batch in batches]
    assert [header.base_offset for header in headers] == [27, 28, 29, 30]
    horizons = [header.delete_horizon_ms for header in headers]
    assert [at for at, horizon in enumerate(horizons) if horizon is not None] == [1]
    (tombstone,) = records_of(batches[1], limit_bytes=1 << 20)
    assert (tombstone.value, tombstone.timestamp) == (None, 1700000000004)


@release
def test_markers(release: str) -> None:
    """F-2.7: one commit, two aborts."""
    found = []
    for path in sorted((GOLDEN / release / "orders-0").glob("*.log")):
        for batch in batches_of(path):
            if parse_header(batch).is_control:
                assert len(batch) == 78
                found += [read_control(record).type for record in records_of(batch, limit_bytes=100)]
    assert found == [ControlType.COMMIT, ControlType.ABORT, ControlType.ABORT]


@release
def test_indexes(release: str) -> None:
    """F-6, F-7, F-8: every offset entry is the start of a batch that ends at the offset."""
    directory = GOLDEN / release / "orders-0"
    for base in (0, 31):
        name = f"{base:020d}"
        segment = (directory / f"{name}.log").read_bytes()
        offsets = read_offset_index((directory / f"{name}.index").read_bytes())
        assert len(offsets) > 0
        for offset, position in offsets.tolist():
            assert parse_header(segment, position).last_offset == base + offset
        times = read_time_index((directory / f"{name}.timeindex").read_bytes())
        largest = max(parse_header(batch).max_timestamp for batch in batches_of(directory / f"{name}.log"))
        assert times["timestamp"][-1] == largest
    aborted = read_txn_index((directory / "00000000000000000031.txnindex").read_bytes())
    assert aborted[["first_offset", "last_offset"]].tolist() == [(32, 33), (34, 35)]


@pytest.mark.parametrize(
    ("release", "last_offsets"),
    [
        ("kafka-3.9.2", [5, 11, 17, 23, 29, 34]),
        # 4.3.1 bumps the epoch with every transaction, and the marker's new epoch clears the last data offset
        ("kafka-4.3.1", [-1, 5, 11, 17, 23, 29]),
    ],
)
def test_producer_snapshots(release: str, last_offsets: list[int]) -> None:
    """F-10: the transactional producer and the five others."""
    entries = read_snapshot((GOLDEN / release / "orders-0" / "00000000000000000036.snapshot").read_bytes(), "f")
    assert len(entries) == 6
    assert entries["current_txn_first_offset"].tolist() == [-1] * 6
    assert sorted(entries["last_offset"].tolist()) == last_offsets
    (transactional,) = entries[entries["coordinator_epoch"] >= 0]
    assert transactional["producer_epoch"] == (0 if last_offsets[0] == 5 else 3)
    assert transactional["coordinator_epoch"] == 0
    empty = (GOLDEN / release / "__cluster_metadata-0").glob("*.snapshot")
    assert [len(read_snapshot(path.read_bytes(), "f")) for path in empty] == [0, 0]


@release
def test_checkpoints(release: str) -> None:
    """F-9, F-11."""
    directory = GOLDEN / release
    cleaner = read_offset_checkpoint((directory / "cleaner-offset-checkpoint").read_bytes(), "f")
    assert cleaner == {TopicPartition("orders", 0): 31}
    assert read_offset_checkpoint((directory / "log-start-offset-checkpoint").read_bytes(), "f") == {}
    for name in ("recovery-point", "replication"):
        offsets = read_offset_checkpoint((directory / f"{name}-offset-checkpoint").read_bytes(), "f")
        assert len(offsets) == 7
        assert offsets[TopicPartition("orders", 0)] == 36
    epochs = read_epoch_checkpoint((directory / "orders-0" / "leader-epoch-checkpoint").read_bytes(), "f")
    assert epochs[0] == EpochStart(0, 0)


@pytest.mark.parametrize(
    ("release", "topic_id", "directory_id"),
    [
        ("kafka-3.9.2", "xQwFF0lpRRGVrIe6ybFkhw", "WVYjAg1XwwX8QPKKQH4e5Q"),
        ("kafka-4.3.1", "w6Wfi1PdQ0O_w2e2Xq92wA", "YNkFdDzLESgTlU4pc6YhHQ"),
    ],
)
def test_identities(release: str, topic_id: str, directory_id: str) -> None:
    """F-5, F-11: the topic id is the one that the broker's admin API returned."""
    directory = GOLDEN / release
    found = read_partition_metadata((directory / "orders-0" / "partition.metadata").read_bytes(), "f")
    assert uuid_to_base64(found) == topic_id
    meta = read_meta_properties((directory / "meta.properties").read_bytes(), "f")
    assert (meta.version, meta.cluster_id, meta.node_id) == (1, "MkU3OEVBNTcwNTJENDM2Qg", 1)
    assert meta.directory_id is not None
    assert uuid_to_base64(meta.directory_id) == directory_id


@release
def test_metadata_records_as_kafka_dumps_them(release: str) -> None:
    """The same as the output of Kafka's DumpLogSegments for these files, type by type."""
    expected = json.loads((GOLDEN / release / "dump-log-segments.json").read_text())
    for path in sorted((GOLDEN / release / "__cluster_metadata-0").iterdir()):
        if path.suffix not in {".log", ".checkpoint"}:
            continue
        types = []
        for batch in batches_of(path):
            if not parse_header(batch).is_control:
                for record in records_of(batch, limit_bytes=1 << 20):
                    name = record_name(read_metadata_record(record.value))
                    types.append(re.sub("(?<!^)([A-Z])", r"_\1", name).upper())
        assert types == expected[path.name]
        assert len(types) > 20
