"""``cleanerd inspect`` on directories, on our own files, and on files that are not a broker's."""

import json
import shutil
import struct
import uuid
import zlib
from pathlib import Path

import pytest

from cleanerd.cli.main import run
from tests.cli.clean_log_dirs import write_metadata
from tests.cli.inspecting import GOLDEN, LOG, Capture, inspected, segment, shown
from tests.format.worked_examples import F0, F1, A, G
from tests.support.format_bytes import batch, record, snapshot, topic
from tests.support.log_dirs import Partition, make_log_dir
from tests.support.logs import Record, encode_batch, encode_legacy, encode_marker, keyed_batch


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data"))


# ---- directories


def test_a_partition(capsys: Capture, log_dir: Path) -> None:
    document = inspected(capsys, log_dir / "orders-0")
    assert (document["kind"], document["topic"], document["partition"]) == ("partition", "orders", 0)
    assert document["topic_id"] == "w6Wfi1PdQ0O_w2e2Xq92wA"
    assert (document["cleaner_checkpoint"], document["high_watermark"]) == (31, 36)
    first, second = document["segments"]
    assert (first["base_offset"], first["batches"], first["records"], first["last_offset"]) == (0, 4, 4, 30)
    assert (first["codecs"], first["magic"]) == (["none", "zstd"], [2])
    # The tombstone's batch has a horizon, so its base timestamp does not belong to its records.
    assert (first["min_timestamp"], first["max_timestamp"]) == (1700000000003, 1700000001000)
    assert (first["aborted_transactions"], second["aborted_transactions"]) == (None, 2)
    assert "2023-11-14T22:13:20.003Z" in shown(capsys, log_dir / "orders-0")


def test_damage_in_one_segment_does_not_hide_the_others(capsys: Capture, log_dir: Path) -> None:
    """Everything before the damage still counts."""
    path = log_dir / "orders-0" / LOG
    path.write_bytes(path.read_bytes()[:300])
    document = inspected(capsys, log_dir / "orders-0", code=5)
    assert [row["batches"] for row in document["segments"]] == [3, 5]
    assert "at byte 287" in document["segments"][0]["error"]
    assert document["error"]["position"] == 287


def test_a_damaged_index_shows_in_the_row(capsys: Capture, log_dir: Path) -> None:
    (log_dir / "orders-0" / "00000000000000000031.timeindex").write_bytes(b"\xff" * 13)
    document = inspected(capsys, log_dir / "orders-0", code=5)
    assert "13 bytes are not a multiple" in document["segments"][1]["error"]
    assert document["segments"][1]["batches"] == 5


def test_a_partition_with_preallocated_and_empty_segments(capsys: Capture, tmp_path: Path) -> None:
    """F-1, F-5, F-6/7.2: zero tails and files of 0 bytes are normal."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    segment(directory, A, bytes(3000))
    segment(directory, struct.pack(">ii", 2, 96), bytes(8000), name="00000000000000000000.index")
    segment(directory, name="00000000000000000103.log")
    segment(directory, F1, G, name="00000000000000000104.log.swap")
    document = inspected(capsys, directory)
    assert [(row["batches"], row["records"]) for row in document["segments"]] == [(1, 3), (0, 0)]
    assert document["segments"][0]["zero_tail_bytes"] == 3000
    assert document["segments"][0]["offset_index_entries"] == 1
    assert document["pending_files"] == ["00000000000000000104.log.swap"]


def test_bounds_of_a_partition(capsys: Capture, log_dir: Path) -> None:
    """Segments that can hold an offset of the range; the last one has no known end."""
    bases = [(["--to-offset", "30"], [0]), (["--from-offset", "31"], [31]), (["--from-offset", "30"], [0, 31])]
    for options, expected in bases:
        document = inspected(capsys, log_dir / "orders-0", *options)
        assert [row["base_offset"] for row in document["segments"]] == expected
    assert inspected(capsys, log_dir / "orders-0", "--from-offset", "9999")["segments"][0]["base_offset"] == 31
    assert inspected(capsys, log_dir / "orders-0", "--limit", "1")["segments_omitted"] == 1


def test_old_messages_in_a_partition(capsys: Capture, tmp_path: Path) -> None:
    """The row of a segment has its lowest and highest magic."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    segment(directory, F0, G, batch(63, [record(0, b"k", b"v")]))
    assert inspected(capsys, directory)["segments"][0]["magic"] == [0, 1, 2]


def test_a_log_directory(capsys: Capture, log_dir: Path) -> None:
    (log_dir / "gone-0.65170b1fe958483ca6d1cf6cf7159257-delete").mkdir()
    document = inspected(capsys, log_dir)
    assert (document["kind"], document["node_id"], document["clean_shutdown"]) == ("log directory", 1, True)
    (row,) = document["partitions"]
    assert (row["name"], row["segments"], row["size_bytes"], row["cleaner_checkpoint"]) == ("orders-0", 2, 754, 31)
    assert document["other_directories"] == [
        "__cluster_metadata-0",
        "gone-0.65170b1fe958483ca6d1cf6cf7159257-delete",
    ]


def test_a_damaged_partition_does_not_hide_the_others(capsys: Capture, log_dir: Path) -> None:
    (log_dir / "broken-0").mkdir()
    document = inspected(capsys, log_dir, code=5)
    assert [row["segments"] for row in document["partitions"]] == [None, 2]
    assert "has no segment" in document["partitions"][0]["error"]


def test_the_metadata_directory(capsys: Capture, log_dir: Path) -> None:
    """The state of the cluster: topics by name with their log settings."""
    document = inspected(capsys, log_dir / "__cluster_metadata-0")
    assert document["kind"] == "cluster metadata"
    assert [row["topic"] for row in document["topics"]][:2] == ["__transaction_state", "again"]
    assert document["topics"][1]["configs"] == {"cleanup.policy": "delete"}
    assert document["broker_configs"] == {"1": {"log.cleaner.min.compaction.lag.ms": "33"}}


# ---- our own files, and files that are not a broker's


def test_staged_plan(capsys: Capture, tmp_path: Path) -> None:
    """The manifest as facts and tables, the journal as lines, the directory as segments."""
    directory = tmp_path / "20260101t000000-0123abcd"
    directory.mkdir()
    manifest = {
        "format": 1,
        "created_ms": 1700000000000,
        "groups": [{"base": 0, "end": 9, "files": {"log": {"bytes": 5}}}],
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))
    (directory / "journal").write_bytes(b"begin x 0 9 %08x\nbegin x 9 1" % zlib.crc32(b"begin x 0 9"))
    segment(directory, A)
    assert inspected(capsys, directory / "manifest.json")["groups"][0]["files"] == {"log": {"bytes": 5}}
    assert "2023-11-14T22:13:20.000Z" in shown(capsys, directory / "manifest.json")
    assert inspected(capsys, directory / "journal")["lines"] == [
        {"line": "begin x 0 9", "whole": True},
        {"line": "11 bytes", "whole": False},
    ]
    assert inspected(capsys, directory)["kind"] == "directory of segments"


def test_names_without_a_known_kind(capsys: Capture, tmp_path: Path) -> None:
    """Bad usage, with a solution: ``--as`` works. A path that does not exist is 3, as in every command."""
    path = segment(tmp_path, A, name="mystery.bin")
    assert run(["inspect", str(path)]) == 2
    assert "--as KIND" in capsys.readouterr().err
    assert inspected(capsys, path, "--as", "segment")["batch_count"] == 1
    (tmp_path / "empty").mkdir()
    assert run(["inspect", str(tmp_path / "empty")]) == 2
    assert run(["inspect", str(tmp_path), "--as", "segment"]) == 2
    assert run(["inspect", str(tmp_path / "missing")]) == 3


def test_metadata_snapshot(capsys: Capture, tmp_path: Path) -> None:
    path = segment(
        tmp_path, snapshot(topic("t", uuid.UUID(int=5))), name="00000000000000000001-0000000001.checkpoint.part"
    )
    document = inspected(capsys, path, "--records")
    assert [row["type"] for row in document["records"]] == ["SNAPSHOT_HEADER", "TopicRecord", "SNAPSHOT_FOOTER"]
    assert document["records"][1]["fields"] == {"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAABQ"}


# ---- strategies


def test_topics_of_a_log_directory(capsys: Capture, log_dir: Path) -> None:
    """R192-4: message format and max.message.bytes per topic, with the strategy and the source of the number."""
    (row,) = inspected(capsys, log_dir)["topics"]
    assert row == {
        "topic": "orders",
        "partitions": 1,
        "lowest_magic": 2,
        "highest_magic": 2,
        "max_message_bytes": 2000000,
        "max_message_bytes_origin": "topic configuration",
        "strategy": "offset",
    }
    by_time = ["--set", "topics.orders.compaction.strategy=timestamp"]
    assert inspected(capsys, log_dir, *by_time)["topics"][0]["strategy"] == "timestamp"


def test_topics_with_old_formats(capsys: Capture, tmp_path: Path) -> None:
    """R192-4: lowest and highest over the segments and partitions of the topic."""
    partitions = {
        "old-0": Partition({0: encode_legacy(0, b"k", b"v", magic=0), 1: encode_legacy(1, b"k", b"v")}),
        "old-1": Partition({0: keyed_batch(0, [("k", "v")])}),
        "none-0": Partition({0: b""}),
    }
    rows = {row["topic"]: row for row in inspected(capsys, make_log_dir(tmp_path / "d", partitions))["topics"]}
    assert (rows["old"]["partitions"], rows["old"]["lowest_magic"], rows["old"]["highest_magic"]) == (2, 0, 2)
    assert rows["none"]["lowest_magic"] is None
    assert "0-2" in shown(capsys, tmp_path / "d")


def test_the_metadata_log_is_in_another_log_directory(capsys: Capture, tmp_path: Path) -> None:
    """As for every other command: the settings list the broker's directories, one of which has the topics' policies."""
    path, other = (make_log_dir(tmp_path / name, {f"{name}-0": Partition({0: b""})}) for name in ("a", "b"))
    write_metadata(other, topics={"a": {"max.message.bytes": "77"}})
    (row,) = inspected(capsys, path, "--set", f"cleanerd.log.dirs={path},{other}")["topics"]
    assert (row["max_message_bytes"], row["max_message_bytes_origin"]) == (77, "topic configuration")


def test_a_topic_with_a_wrong_setting_does_not_hide_the_others(capsys: Capture, tmp_path: Path) -> None:
    partitions = {f"{topic}-0": Partition({0: keyed_batch(0, [("k", "v")])}) for topic in ("good", "bad")}
    mistake = ["--set", "topics.bad.tombstone.mode=header"]
    bad, good = inspected(capsys, make_log_dir(tmp_path / "d", partitions), *mistake)["topics"]
    assert "tombstone.header is blank" in bad["problem"]
    assert (good["topic"], "problem" in good) == ("good", False)


def with_versions(tmp_path: Path, *, tail: bytes = b"") -> Path:
    """Versions -5 and 2^62, a malformed one, none; a record without a key and a marker, which do not count."""
    values: list[bytes | None] = [struct.pack(">q", -5), struct.pack(">q", 2**62), b"short", None]
    records = [
        Record(key=b"k", value=b"v", headers=() if value is None else ((b"v", value),), timestamp=1) for value in values
    ]
    far = Record(key=b"k", value=b"v", timestamp=2**45)
    data = encode_batch([*records, Record(value=b"v")]) + encode_marker(5, commit=True, producer_id=1)
    partition = Partition({0: data, 6: encode_batch([far], base_offset=6) + tail}, indexes=False)
    return make_log_dir(tmp_path / "d", {"orders-0": partition}) / "orders-0"


def test_versions_of_a_partition(capsys: Capture, tmp_path: Path) -> None:
    """R280-6: absent and malformed are counted apart; negative versions are versions.

    Zeros at the end are not damage.
    """
    path = with_versions(tmp_path, tail=bytes(500))
    document = inspected(capsys, path, "--strategy", "header:v")
    expected = {
        "strategy": "header:v",
        "records_with_key": 5,
        "without_version": 3,
        "without_version_share": 0.6,
        "malformed_versions": 1,
        "smallest_version": -5,
        "largest_version": 2**62,
        "far_future_timestamps": 1,
    }
    assert {key: document[key] for key in expected} == expected
    by_time = inspected(capsys, path, "--strategy", "timestamp")
    assert (by_time["without_version"], by_time["smallest_version"], by_time["largest_version"]) == (0, 1, 2**45)
    assert "without_version" not in inspected(capsys, path)


def test_versions_in_the_forks_encoding(capsys: Capture, tmp_path: Path) -> None:
    """The topic's setting decides how the header is written; eight bytes are not a varlong."""
    path = with_versions(tmp_path)
    varlong = ["--set", "topics.orders.compaction.strategy.header.encoding=varlong"]
    document = inspected(capsys, path, "--strategy", "header:v", *varlong)
    assert document["largest_version"] != 2**62


def test_strategies_are_for_partitions(capsys: Capture, tmp_path: Path) -> None:
    path = with_versions(tmp_path)
    for where in (path.parent, path / LOG):
        assert run(["inspect", str(where), "--strategy", "timestamp"]) == 2
    assert run(["inspect", str(path), "--strategy", "newest"]) == 2
    capsys.readouterr()
