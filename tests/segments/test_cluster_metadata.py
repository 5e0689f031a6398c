"""The cluster's topics and settings from the metadata log (U-23, U-24)."""

import struct
import uuid
from pathlib import Path

import pytest

from cleanerd.errors import CleanerdError, CorruptionError, UnsupportedLogError
from cleanerd.format.names import uuid_from_base64
from cleanerd.segments import cluster_metadata
from cleanerd.segments.cluster_metadata import read_cluster_metadata
from cleanerd.segments.metadata_image import ClusterMetadata
from tests.segments.metadata_logs import GOLDEN, ID1, ID2, ID3, LOG, golden, read, release
from tests.support.format_bytes import (
    ABORT,
    BEGIN,
    END,
    batch,
    config,
    control_batch,
    feature,
    metadata,
    metadata_batch,
    record,
    remove_topic,
    snapshot,
    topic,
)
from tests.support.system_calls import system_call

# ---- real brokers


@pytest.mark.parametrize(
    ("release", "topics", "metadata_version", "as_of"),
    [
        (
            "kafka-3.9.2",
            {
                "__transaction_state": "0xlJ_HduTVqP-hkdl-ZKQA",
                "again": "vQH_iZubTTW9q_O1mTgM6Q",
                "later": "Y5jEY4OoTSKNKMZF6rhQwA",
                "orders": "xQwFF0lpRRGVrIe6ybFkhw",
                "payments.v1": "y1ZsDNqwSnmIycJ3BPGDyw",
                "plain": "S693ni0URxCaSgGlLID5hQ",
            },
            21,
            94,
        ),
        (
            "kafka-4.3.1",
            {
                "__transaction_state": "XrBZ73f_T4m9jqZTQ8Q3Aw",
                "again": "g7IGfN_yR-OggQbGmSHikA",
                "later": "YDGShQb0TPqKtf1ue_vrYQ",
                "orders": "w6Wfi1PdQ0O_w2e2Xq92wA",
                "payments.v1": "pdKHRcctQIympM3a3lPmsQ",
                "plain": "M64qaCIgQE27MViRJcYGUQ",
            },
            30,
            102,
        ),
    ],
)
def test_real_brokers(release: str, topics: dict[str, str], metadata_version: int, as_of: int) -> None:
    """U-23: snapshot and tail. The topic ids are those that the broker's admin API listed at the end."""
    found = read(GOLDEN / release / "__cluster_metadata-0")
    assert found.topics == {name: uuid_from_base64(text) for name, text in topics.items()}
    assert found.topic_configs == {
        "__transaction_state": {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": "104857600",
        },
        "again": {"cleanup.policy": "delete"},  # the deleted topic's retention.ms is gone
        "later": {"cleanup.policy": "compact"},
        "orders": {
            "cleanup.policy": "compact",
            "delete.retention.ms": "54321",  # set twice
            "file.delete.delay.ms": "1000",
            "index.interval.bytes": "100",
            "max.message.bytes": "2000000",
            "min.cleanable.dirty.ratio": "0.75",  # changed after the snapshot
            "segment.index.bytes": "4096",
        },
        "payments.v1": {"cleanup.policy": "compact,delete"},  # segment.ms was removed
    }
    assert found.broker_default_configs == {"log.cleaner.backoff.ms": "1500"}
    assert found.broker_configs == {1: {"log.cleaner.min.compaction.lag.ms": "33"}}
    assert found.features["metadata.version"] == metadata_version
    assert found.brokers[1].features["metadata.version"][1] == metadata_version
    assert found.as_of == as_of


@release
def test_snapshot_changes_nothing(release: str, tmp_path: Path) -> None:
    """U-23: snapshot and tail give the same as the whole log."""
    copy = golden(release, tmp_path)
    with_snapshot = read(copy)
    for path in copy.glob("*.checkpoint"):
        path.unlink()
    assert read(copy) == with_snapshot


@release
def test_older_snapshot_and_longer_tail(release: str, tmp_path: Path) -> None:
    """Starting in the middle of a segment, found through its index or without it."""
    copy = golden(release, tmp_path)
    expected = read(copy)
    max(copy.glob("*.checkpoint")).unlink()
    assert read(copy) == expected
    (copy / "00000000000000000000.index").write_bytes(b"damaged")
    assert read(copy) == expected
    (copy / "00000000000000000000.index").unlink()
    assert read(copy) == expected


@release
def test_snapshot_alone(release: str, tmp_path: Path) -> None:
    """A node that has just fetched a snapshot has no log yet."""
    copy = golden(release, tmp_path)
    (copy / LOG).unlink()
    found = read(copy)
    assert found.as_of in {61, 68}
    assert found.topic_configs["orders"]["min.cleanable.dirty.ratio"] == "0.25"
    assert "later" not in found.topics
    assert found.as_of_ms > 0


@pytest.mark.slow
@release
def test_every_prefix_of_the_log(release: str, tmp_path: Path) -> None:
    """U-23: a broker may be writing: wherever the file ends, the complete batches before count."""
    copy = golden(release, tmp_path)
    whole = (copy / LOG).read_bytes()
    last = -1
    for size in range(0, len(whole), 41):
        (copy / LOG).write_bytes(whole[:size])
        as_of = read(copy).as_of
        assert as_of >= last
        last = as_of


@release
def test_secrets_stay_out(release: str) -> None:
    """U-24: the files have SCRAM users, a JAAS line and a key password; neither values nor keys are returned."""
    directory = GOLDEN / release / "__cluster_metadata-0"
    assert any(b"hunter2" in path.read_bytes() for path in directory.iterdir())
    shown = repr(read(directory))
    for part in ("hunter2", "jaas", "ssl.", "alice", "bob", "hidden"):
        assert part not in shown


# ---- cases for which crafted files are needed


def test_log_from_the_start(directory: Path) -> None:
    """Control batches and unrelated records are skipped."""
    (directory / LOG).write_bytes(
        control_batch(0, 2, b"\0\0\0\0\0\1\x01\x01\0")
        + metadata_batch(1, feature("metadata.version", 7), topic("a", ID1), metadata(20))
        + metadata_batch(4, config(2, "a", "cleanup.policy", "compact"), config(4, "", "log.segment.bytes", "1"))
        + metadata_batch(
            6, config(4, "3", "log.cleaner.threads", "2"), config(8, "3", "cleanup.policy", "x"), timestamp=55
        )
    )
    assert read(directory) == ClusterMetadata(
        topics={"a": ID1},
        topic_configs={"a": {"cleanup.policy": "compact"}},
        broker_default_configs={"log.segment.bytes": "1"},
        broker_configs={3: {"log.cleaner.threads": "2"}},
        features={"metadata.version": 7},
        brokers={},
        as_of=8,
        as_of_ms=55,
    )


def test_several_segments(directory: Path) -> None:
    """The last segment at or below the snapshot's end, and all after it."""
    (directory / LOG).write_bytes(b"never read: the snapshot covers it")
    (directory / "00000000000000000005.log").write_bytes(
        metadata_batch(5, topic("old", ID3), topic("a", ID1), topic("b", ID2))
    )
    (directory / "00000000000000000008.log").write_bytes(metadata_batch(8, config(2, "b", "cleanup.policy", "compact")))
    (directory / "00000000000000000007-0000000001.checkpoint").write_bytes(snapshot(topic("a", ID1)))
    found = read(directory)
    assert found.topics == {"a": ID1, "b": ID2}  # 5 and 6 are below the snapshot's end
    assert (found.as_of, found.topic_configs) == (9, {"b": {"cleanup.policy": "compact"}})


def test_unfinished_snapshots_do_not_count(directory: Path) -> None:
    """U-23: newest *complete* snapshot: its name is final and its footer exists."""
    whole = snapshot(topic("newer", ID2))
    (directory / "00000000000000000002-0000000001.checkpoint").write_bytes(snapshot(topic("a", ID1)))
    (directory / "00000000000000000003-0000000001.checkpoint").write_bytes(whole[: len(whole) - 5])
    (directory / "00000000000000000004-0000000001.checkpoint").write_bytes(b"")
    (directory / "00000000000000000005-0000000001.checkpoint.part").write_bytes(whole)
    (directory / "00000000000000000006-0000000001.checkpoint.deleted").write_bytes(whole)
    found = read(directory)
    assert (found.topics, found.as_of, found.as_of_ms) == ({"a": ID1}, 2, 900)


def test_empty_directory(directory: Path) -> None:
    assert read(directory).as_of == 0


def test_recreated_topic(directory: Path) -> None:
    """Topics by id: removing the old topic after the new one's creation keeps the new one."""
    (directory / LOG).write_bytes(
        metadata_batch(0, topic("a", ID1), config(2, "a", "retention.ms", "5"), remove_topic(ID1))
        + metadata_batch(3, topic("a", ID2), config(2, "a", "cleanup.policy", "compact"))
        + metadata_batch(5, remove_topic(ID1), remove_topic(ID3))
    )
    found = read(directory)
    assert found.topics == {"a": ID2}
    assert found.topic_configs == {"a": {"cleanup.policy": "compact"}}


def test_removed_settings(directory: Path) -> None:
    (directory / LOG).write_bytes(
        metadata_batch(
            0,
            config(2, "a", "retention.ms", None),
            config(2, "a", "retention.ms", "5"),
            config(2, "a", "retention.ms", None),
            feature("f", 3),
            feature("f", 0),
        )
    )
    found = read(directory)
    assert (found.topic_configs, found.features) == ({}, {})


@pytest.mark.parametrize(
    ("values", "topics", "as_of"),
    [
        ([BEGIN, topic("a", ID1)], {}, 0),  # open: not yet
        ([BEGIN, topic("a", ID1), END], {"a": ID1}, 3),
        ([BEGIN, topic("a", ID1), ABORT], {}, 3),
        ([topic("b", ID2), BEGIN, topic("a", ID1), remove_topic(ID2), ABORT], {"b": ID2}, 5),
        ([topic("b", ID2), BEGIN, topic("a", ID1), remove_topic(ID2), END], {"a": ID1}, 5),
        ([BEGIN, END, BEGIN, topic("a", ID1), END, topic("b", ID2)], {"a": ID1, "b": ID2}, 6),
    ],
    ids=["open", "ended", "aborted", "aborted removal", "ended removal", "two"],
)
@pytest.mark.parametrize("split", [False, True])
def test_metadata_transactions(
    directory: Path, values: list[bytes], topics: dict[str, uuid.UUID], as_of: int, split: bool
) -> None:
    """U-23, KIP-868: records of a transaction count when it ends; it may span batches."""
    whole = metadata_batch(0, *values)
    single = b"".join(metadata_batch(at, value) for at, value in enumerate(values))
    (directory / LOG).write_bytes(single if split else whole)
    found = read(directory)
    assert (found.topics, found.as_of) == (topics, as_of)


def test_transaction_that_ends_too_late(directory: Path) -> None:
    """U-23: its end is too young, so none of it counts."""
    (directory / LOG).write_bytes(
        metadata_batch(0, topic("a", ID1), timestamp=10)
        + metadata_batch(1, BEGIN, topic("b", ID2), timestamp=20)
        + metadata_batch(3, END, timestamp=30)
    )
    assert read_cluster_metadata(directory, only_before_ms=30).topics == {"a": ID1}
    assert read_cluster_metadata(directory, only_before_ms=31).topics == {"a": ID1, "b": ID2}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([END], "offset 0 ends a transaction that never began"),
        ([ABORT], "offset 0 ends a transaction that never began"),
        ([BEGIN, BEGIN], "offset 1 begins a transaction inside a transaction"),
        ([BEGIN, END, END], "offset 2 ends"),
    ],
)
def test_transactions_out_of_order(directory: Path, values: list[bytes], problem: str) -> None:
    (directory / LOG).write_bytes(metadata_batch(0, *values))
    with pytest.raises(CorruptionError, match=problem):
        read(directory)


@pytest.mark.parametrize("tail", [b"\0" * 100, metadata_batch(1, topic("b", ID2))[:-1], b"\xff" * 16])
def test_tail_of_the_active_segment(directory: Path, tail: bytes) -> None:
    """A partly written batch, or preallocated space, ends the log."""
    (directory / LOG).write_bytes(metadata_batch(0, topic("a", ID1)) + tail)
    assert read(directory).topics == {"a": ID1}


def test_a_cut_segment_before_the_last_is_damage(directory: Path) -> None:
    (directory / LOG).write_bytes(metadata_batch(0, topic("a", ID1)) + b"\xff" * 16)
    (directory / "00000000000000000001.log").write_bytes(metadata_batch(1, topic("b", ID2)))
    with pytest.raises(CorruptionError, match=f"{LOG} at byte [0-9]+: the file ends inside a batch"):
        read(directory)


@pytest.mark.parametrize("name", [LOG, "00000000000000000003-0000000001.checkpoint"])
def test_damaged_byte(directory: Path, name: str) -> None:
    """The CRC of every batch is checked; file and byte position are in the message."""
    good = metadata_batch(0, topic("a", ID1)) if name == LOG else snapshot(topic("a", ID1))
    at = good.index(ID1.bytes)
    (directory / name).write_bytes(good[:at] + b"\x55" + good[at + 1 :])
    with pytest.raises(CorruptionError, match=rf"{name} at byte \d+: CRC-32C"):
        read(directory)


def test_a_damaged_record_names_its_batch(directory: Path) -> None:
    first = metadata_batch(0, topic("a", ID1))
    (directory / LOG).write_bytes(first + metadata_batch(1, b"\x01\x02\x00\x7f"))
    with pytest.raises(CorruptionError, match=f"{LOG} at byte {len(first)}: "):
        read(directory)


def test_huge_batch_is_not_read(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A size in a header must not cause an allocation."""
    monkeypatch.setattr(cluster_metadata, "MAX_BATCH_BYTES", 1000)  # batches of 64 MiB would take seconds
    (directory / LOG).write_bytes(metadata_batch(0, config(2, "a", "retention.ms", "5" * 1000)))
    with pytest.raises(CorruptionError, match="at most 1000 are read"):
        read(directory)
    packed = batch(0, [record(0, None, config(2, "a", "retention.ms", "5" * 5000))], attributes=1)
    assert len(packed) < 1000
    (directory / LOG).write_bytes(packed)
    with pytest.raises(CorruptionError, match="at byte 0: gzip"):
        read(directory)


def test_newer_record_version(directory: Path) -> None:
    (directory / LOG).write_bytes(metadata_batch(0, metadata(4, b"?", version=1)))
    with pytest.raises(UnsupportedLogError, match="ConfigRecord version 1 is not known"):
        read(directory)


def test_unregistered_broker_and_odd_names(directory: Path) -> None:
    """A broker's registration is removed with it; a broker resource without a numeric name is ignored."""
    removal = metadata(1, struct.pack(">iq", 7, 1))
    (directory / LOG).write_bytes(metadata_batch(0, removal, config(4, "x", "log.cleaner.threads", "2")))
    found = read(directory)
    assert (found.brokers, found.broker_configs) == ({}, {})


def test_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(CleanerdError, match=r"metadata log cannot be read.*KRaft"):
        read(tmp_path / "missing")


def test_files_that_vanish_while_reading(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running broker deletes segments that a newer snapshot covers: the log is read again."""
    (directory / LOG).write_bytes(metadata_batch(0, topic("a", ID1)))
    listings = [["00000000000000000000.log", "00000000000000000001.log"], [LOG]]
    system_call(monkeypatch, "listdir", lambda _path: listings.pop(0))
    assert read(directory).topics == {"a": ID1}
    assert listings == []
