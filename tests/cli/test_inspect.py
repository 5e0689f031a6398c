"""``cleanerd inspect``: every file that a broker keeps, by its name (cli.md)."""

import json
import shutil
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanerd.cli.inspect import KINDS
from cleanerd.cli.main import run
from tests.format.worked_examples import F0, F1, A, B, D, E, G
from tests.support.format_bytes import batch, config, metadata, metadata_batch, record, snapshot, topic

GOLDEN = Path(__file__).parent.parent / "format" / "golden"
RELEASES = ["kafka-3.9.2", "kafka-4.3.1"]
LOG = "00000000000000000000.log"
SECRETS = ["hunter2", "alice", "bob", "ScramLoginModule"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data"))


def inspected(capsys: Capture, path: Path, *options: str, code: int = 0) -> dict[str, Any]:
    """The JSON object; the exit code is checked."""
    assert run(["inspect", str(path), "--json", *options]) == code
    out = capsys.readouterr().out
    document = json.loads(out)
    assert isinstance(document, dict)
    assert next(iter(document)) == "schema"
    assert document["schema"] == 1
    return document


def shown(capsys: Capture, path: Path, *options: str, code: int = 0) -> str:
    """The text."""
    assert run(["inspect", str(path), *options]) == code
    return capsys.readouterr().out


def segment(tmp_path: Path, *batches: bytes, name: str = LOG) -> Path:
    path = tmp_path / name
    path.write_bytes(b"".join(batches))
    return path


# ---- everything in a real log directory


@pytest.mark.parametrize("release", RELEASES)
def test_every_file_of_a_broker(capsys: Capture, release: str) -> None:
    """Each one decodes, as text and as JSON, and no secret comes out (U-24)."""
    files = [path for path in sorted((GOLDEN / release).rglob("*")) if path.name != "dump-log-segments.json"]
    assert len(files) > 25
    for path in files:
        for options in ([], ["--records"]):
            document = inspected(capsys, path, *options)
            assert "error" not in document, path
            out = json.dumps(document) + shown(capsys, path, *options)
            for secret in SECRETS:
                assert secret not in out, path


def test_a_segment_in_batches(capsys: Capture, tmp_path: Path) -> None:
    """F-13: a row per batch, sums in front."""
    path = segment(tmp_path, A, B, D, E)
    document = inspected(capsys, path)
    assert document["kind"] == "segment"
    assert (document["batch_count"], document["record_count"]) == (4, 6)
    assert (document["first_offset"], document["last_offset"]) == (100, 300)
    assert [row["position"] for row in document["batches"]] == [0, 96, 187, 248]
    assert document["batches"][1]["delete_horizon_ms"] == 1700086400000
    assert document["batches"][1]["base_timestamp"] is None  # the horizon stands in its place
    assert document["batches"][3]["flags"] == ["transactional", "control"]
    text = shown(capsys, path)
    assert "2023-11-14T22:13:20.007Z" in text
    assert "delete horizon" in text
    assert "4000/1:10" in text


def test_a_segment_in_records(capsys: Capture, tmp_path: Path) -> None:
    document = inspected(capsys, segment(tmp_path, A, E), "--records")
    assert [row["offset"] for row in document["records"]] == [100, 101, 102, 300]
    assert [row["value"] for row in document["records"][:3]] == ["v1", None, "v2"]
    assert [row["value_bytes"] for row in document["records"][:3]] == [2, -1, 2]
    assert document["records"][2]["headers"] == [{"name": "h", "value": "x", "value_bytes": 1}]
    assert document["records"][3]["control"] == {"type": "COMMIT", "coordinator_epoch": 7}
    text = shown(capsys, tmp_path / LOG, "--records")
    assert "h=x" in text
    assert "type=COMMIT coordinator_epoch=7" in text


def test_old_messages(capsys: Capture, tmp_path: Path) -> None:
    """F-3: magic 0 and 1, with absolute offsets of what is in a wrapper."""
    path = segment(tmp_path, F1, F0, G, batch(63, [record(0, b"k", b"v")]))
    assert inspected(capsys, path)["magic"] == [0, 1, 2]
    document = inspected(capsys, path, "--records")
    assert [row["offset"] for row in document["records"]] == [50, 51, 60, 62, 63]


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--from-offset", "101"], [101, 102, 200, 201]),
        (["--to-offset", "101"], [100, 101]),
        (["--from-offset", "102", "--to-offset", "200"], [102, 200]),
        (["--from-offset", "150", "--to-offset", "160"], []),
        (["--limit", "3"], [100, 101, 102]),
        (["--limit", "0"], [100, 101, 102, 200, 201]),
    ],
)
def test_bounds(capsys: Capture, tmp_path: Path, options: list[str], offsets: list[int]) -> None:
    """Both offsets belong to the range; a batch may lie across its edges."""
    path = segment(tmp_path, A, batch(200, [record(0, b"a", b"b"), record(1, b"c", b"d")]))
    document = inspected(capsys, path, "--records", *options)
    assert [row["offset"] for row in document["records"]] == offsets


def test_what_the_limit_leaves_out_is_counted(capsys: Capture, tmp_path: Path) -> None:
    path = segment(tmp_path, A, batch(200, [record(0, b"a", b"b"), record(1, b"c", b"d")]))
    assert inspected(capsys, path, "--records", "--limit", "2")["records_omitted"] == 3
    document = inspected(capsys, path, "--limit", "1")
    assert (document["batches_omitted"], document["batch_count"], document["record_count"]) == (1, 2, 5)
    assert "... and 3 more" in shown(capsys, path, "--records", "--limit", "2")


def test_bytes_that_are_no_text(capsys: Capture, tmp_path: Path) -> None:
    """Base64 in JSON, hexadecimal in the table; long values are cut there; a terminal is not steered."""
    rows = [record(0, b"\xff\x00", b"x" * 200), record(1, b"\x1b[31m", b""), record(2, None, b"y" * 70000)]
    path = segment(tmp_path, batch(0, rows))
    first, second, third = inspected(capsys, path, "--records")["records"]
    assert (first["key"], first["key_base64"], first["key_bytes"]) == (None, "/wA=", 2)
    assert first["value"] == "x" * 200
    assert (second["key"], second["value"], second["value_bytes"]) == ("\x1b[31m", "", 0)
    assert (third["value_bytes"], third["value_cut"]) == (70000, True)
    text = shown(capsys, path, "--records")
    assert "0xff00" in text
    assert f"{'x' * 60}... (200 bytes)" in text
    assert "\x1b" not in text


# ---- damage


def test_decoded_as_far_as_it_goes(capsys: Capture, tmp_path: Path) -> None:
    """What is in front of the damage is shown; then one line with file and byte, exit code 5."""
    damaged = bytearray(E)
    damaged[70] ^= 1
    path = segment(tmp_path, A, bytes(damaged), D)
    assert run(["inspect", str(path)]) == 5
    captured = capsys.readouterr()
    assert captured.out.count("\n") > 5
    place = f"cleanerd: {path} at byte 96: CRC-32C of the batch at offset 300 is "
    assert captured.err.startswith(place)
    assert captured.err.endswith(", f5fa61a7 is stored\n")
    assert captured.err.count("\n") == 1
    document = inspected(capsys, path, code=5)
    assert document["batch_count"] == 1
    assert document["error"]["position"] == 96
    assert document["error"]["where"] == str(path)


@pytest.mark.parametrize(
    ("name", "data", "position"),
    [
        (LOG, A + E[:-1], 96),
        (LOG, A + b"\xff" * 30, 112),
        (LOG, batch(0, [b"\x7f\x00"]), 62),
        (LOG, A + batch(103, [b"x"], attributes=6), 96),
        ("00000000000000000000.index", struct.pack(">iiii", 5, 100, 4, 200), 8),
        ("00000000000000000000.index", b"\0\0\0\1\0\0\0\1\0", 8),
        ("00000000000000000000.timeindex", struct.pack(">qiqi", 5, 1, 5, 2), 12),
        ("00000000000000000000.txnindex", b"\x01" + bytes(33), 0),
        ("00000000000000000000.snapshot", b"\x00\x01" + bytes(8), 2),
        ("cleaner-offset-checkpoint", b"0\n1\na 0\n", 4),
        ("leader-epoch-checkpoint", b"0\n1\n\n", 4),
        ("meta.properties", b"version=\\u12", 0),
        ("partition.metadata", b"version: 0\ntopic_id: x", 11),
        ("manifest.json", b'{"format": 1,', 13),
        ("manifest.json", '{"ü": '.encode() + b"}", 7),
        ("state.json", b"\xff", 0),
        ("quorum-state", b"", 0),
        (".kafka_cleanshutdown", b"{", 1),
        ("00000000000000000001-0000000001.checkpoint", snapshot()[:-3], 144),
    ],
)
def test_damaged_files(capsys: Capture, tmp_path: Path, name: str, data: bytes, position: int) -> None:
    path = segment(tmp_path, data, name=name)
    document = inspected(capsys, path, "--records", code=5)
    assert document["error"]["position"] == position
    assert run(["inspect", str(path), "--records"]) == 5
    assert f"{path} at byte {position}: " in capsys.readouterr().err


def test_good_entries_before_a_bad_one(capsys: Capture, tmp_path: Path) -> None:
    path = segment(tmp_path, struct.pack(">iiiiii", 5, 100, 9, 200, 7, 300), name="00000000000000000100.index")
    document = inspected(capsys, path, code=5)
    assert document["entries"] == [{"offset": 105, "position": 100}, {"offset": 109, "position": 200}]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    data=st.binary(max_size=120)
    | st.sampled_from([A, E, G, snapshot()]).flatmap(
        lambda good: st.tuples(st.integers(0, len(good) - 1), st.integers(0, 255)).map(
            lambda change: good[: change[0]] + bytes([change[1]]) + good[change[0] + 1 :]
        )
    ),
    options=st.sampled_from([[], ["--records"]]),
)
def test_garbage(tmp_path: Path, kind: str, data: bytes, options: list[str]) -> None:
    """Any bytes as any kind of file: decoded or exit code 5 (4 for a metadata record of a later version)."""
    path = tmp_path / "file"
    path.write_bytes(data)
    assert run(["inspect", str(path), "--as", kind, "--quiet", *options]) in {0, 4, 5}


# ---- indexes, tails


def test_indexes_show_absolute_offsets(capsys: Capture, tmp_path: Path) -> None:
    """The base offset comes from the name, with any state suffix."""
    for name in ("00000000000000000100.index", "00000000000000000100.index.swap"):
        path = segment(tmp_path, struct.pack(">ii", 5, 100) + bytes(80), name=name)
        document = inspected(capsys, path)
        assert document["entries"] == [{"offset": 105, "position": 100}]
        assert document["zero_tail_bytes"] == 80
    assert inspected(capsys, path, "--from-offset", "106")["entries"] == []


def test_partial_entry_of_a_transaction_index(capsys: Capture, tmp_path: Path) -> None:
    """F-8: no damage, but shown."""
    entry = struct.pack(">hqqqq", 0, 4000, 290, 300, 301)
    document = inspected(capsys, segment(tmp_path, entry, b"\0\0\1", name="00000000000000000000.txnindex"))
    assert document["partial_entry_bytes"] == 3
    assert document["aborted_transactions"][0]["first_offset"] == 290


def test_preallocated_segment(capsys: Capture, tmp_path: Path) -> None:
    """F-1: a tail of zeros is no damage."""
    path = segment(tmp_path, A, bytes(5000))
    assert inspected(capsys, path)["zero_tail_bytes"] == 5000
    path.write_bytes(A + bytes(5000) + b"\x01")
    assert inspected(capsys, path, code=5)["error"]["position"] == 96


# ---- secrets


@pytest.mark.parametrize("place", ["__cluster_metadata-0", "elsewhere"])
@pytest.mark.parametrize("kind", [[], ["--as", "segment"], ["--as", "metadata"]])
@pytest.mark.parametrize("release", RELEASES)
def test_a_copied_metadata_log_keeps_its_secrets(
    capsys: Capture, tmp_path: Path, place: str, kind: list[str], release: str
) -> None:
    """U-24: also under another name, and when somebody calls it a plain segment."""
    (tmp_path / place).mkdir()
    path = tmp_path / place / "copy.log"
    shutil.copy(GOLDEN / release / "__cluster_metadata-0" / LOG, path)
    document = inspected(capsys, path, "--records", "--limit", "0", *kind)
    types = {row["type"] for row in document["records"]}
    assert {"UserScramCredentialRecord", "TopicRecord", "LEADER_CHANGE"} <= types
    hidden = [row["fields"]["key"] for row in document["records"] if row["fields"].get("value") == "<hidden>"]
    assert "listener.name.plaintext.ssl.key.password" in hidden
    assert not [secret for secret in SECRETS if secret in json.dumps(document)]


@pytest.mark.parametrize(
    "value",
    [
        config(4, "1", "ssl.key.password", "hunter2"),
        metadata(11, b"\x06alice hunter2"),
        metadata(4, b"hunter2", version=1),  # a version that only a later cleanerd knows
    ],
)
def test_a_later_segment_of_the_metadata_log(capsys: Capture, tmp_path: Path, value: bytes) -> None:
    """U-24: it begins with an ordinary record, and lies somewhere else."""
    path = segment(tmp_path, metadata_batch(7, value), name="00000000000000000007.log")
    code = run(["inspect", str(path), "--records"])
    assert code in {0, 4}
    captured = capsys.readouterr()
    assert "hunter2" not in captured.out + captured.err


def test_plain_records_are_no_metadata(capsys: Capture, tmp_path: Path) -> None:
    path = segment(tmp_path, batch(0, [record(0, None, b"\x01"), record(1, None, b"\x02\x03")]))
    assert inspected(capsys, path, "--records")["kind"] == "segment"


# ---- directories


def test_a_partition(capsys: Capture, log_dir: Path) -> None:
    document = inspected(capsys, log_dir / "orders-0")
    assert (document["kind"], document["topic"], document["partition"]) == ("partition", "orders", 0)
    assert document["topic_id"] == "w6Wfi1PdQ0O_w2e2Xq92wA"
    assert (document["cleaner_offset"], document["high_watermark"]) == (31, 36)
    first, second = document["segments"]
    assert (first["base_offset"], first["batches"], first["records"], first["last_offset"]) == (0, 4, 4, 30)
    assert (first["codecs"], first["magic"]) == (["none", "zstd"], [2])
    # The tombstone's batch has a horizon, so its base timestamp says nothing about its records.
    assert (first["min_timestamp"], first["max_timestamp"]) == (1700000000003, 1700000001000)
    assert (first["aborted_transactions"], second["aborted_transactions"]) == (None, 2)
    assert "2023-11-14T22:13:20.003Z" in shown(capsys, log_dir / "orders-0")


def test_damage_in_one_segment_does_not_hide_the_others(capsys: Capture, log_dir: Path) -> None:
    """What is in front of the damage still counts."""
    path = log_dir / "orders-0" / LOG
    path.write_bytes(path.read_bytes()[:300])
    document = inspected(capsys, log_dir / "orders-0", code=5)
    assert [row["batches"] for row in document["segments"]] == [3, 5]
    assert "at byte 287" in document["segments"][0]["error"]
    assert document["error"]["position"] == 287


def test_a_damaged_index_shows_in_the_row(capsys: Capture, log_dir: Path) -> None:
    (log_dir / "orders-0" / "00000000000000000031.timeindex").write_bytes(b"\xff" * 13)
    document = inspected(capsys, log_dir / "orders-0", code=5)
    assert "13 bytes are no multiple" in document["segments"][1]["error"]
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
    assert document["files_in_transit"] == ["00000000000000000104.log.swap"]


def test_bounds_of_a_partition(capsys: Capture, log_dir: Path) -> None:
    """Segments that can hold an offset of the range; the last one has no known end."""
    bases = [(["--to-offset", "30"], [0]), (["--from-offset", "31"], [31]), (["--from-offset", "30"], [0, 31])]
    for options, expected in bases:
        document = inspected(capsys, log_dir / "orders-0", *options)
        assert [row["base_offset"] for row in document["segments"]] == expected
    assert inspected(capsys, log_dir / "orders-0", "--from-offset", "9999")["segments"][0]["base_offset"] == 31
    assert inspected(capsys, log_dir / "orders-0", "--limit", "1")["segments_omitted"] == 1


def test_old_messages_in_a_partition(capsys: Capture, tmp_path: Path) -> None:
    """The lowest and highest magic of a segment are in its row."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    segment(directory, F0, G, batch(63, [record(0, b"k", b"v")]))
    assert inspected(capsys, directory)["segments"][0]["magic"] == [0, 1, 2]


def test_a_log_directory(capsys: Capture, log_dir: Path) -> None:
    (log_dir / "gone-0.65170b1fe958483ca6d1cf6cf7159257-delete").mkdir()
    document = inspected(capsys, log_dir)
    assert (document["kind"], document["node_id"], document["clean_shutdown"]) == ("log directory", 1, True)
    (row,) = document["partitions"]
    assert (row["name"], row["segments"], row["size_bytes"], row["cleaner_offset"]) == ("orders-0", 2, 754, 31)
    assert document["other_directories"] == [
        "__cluster_metadata-0",
        "gone-0.65170b1fe958483ca6d1cf6cf7159257-delete",
    ]


def test_a_damaged_partition_does_not_hide_the_others(capsys: Capture, log_dir: Path) -> None:
    (log_dir / "broken-0").mkdir()
    document = inspected(capsys, log_dir, code=5)
    assert [row["segments"] for row in document["partitions"]] == [None, 2]
    assert "holds no segment" in document["partitions"][0]["error"]


def test_the_metadata_directory(capsys: Capture, log_dir: Path) -> None:
    """The state of the cluster: topics by name with their log settings."""
    document = inspected(capsys, log_dir / "__cluster_metadata-0")
    assert document["kind"] == "cluster metadata"
    assert [row["topic"] for row in document["topics"]][:2] == ["__transaction_state", "again"]
    assert document["topics"][1]["configs"] == {"cleanup.policy": "delete"}
    assert document["broker_configs"] == {"1": {"log.cleaner.min.compaction.lag.ms": "33"}}


# ---- our own files, and what is no broker's file


def test_staged_plan(capsys: Capture, tmp_path: Path) -> None:
    """formats.md 2: the manifest as facts and tables, the journal as lines, the directory as segments."""
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


def test_names_that_say_nothing(capsys: Capture, tmp_path: Path) -> None:
    """Bad usage, with the way out; ``--as`` is that way."""
    path = segment(tmp_path, A, name="mystery.bin")
    assert run(["inspect", str(path)]) == 2
    assert "--as KIND" in capsys.readouterr().err
    assert inspected(capsys, path, "--as", "segment")["batch_count"] == 1
    (tmp_path / "empty").mkdir()
    assert run(["inspect", str(tmp_path / "empty")]) == 2
    assert run(["inspect", str(tmp_path), "--as", "segment"]) == 2
    assert run(["inspect", str(tmp_path / "missing")]) == 2


def test_metadata_snapshot(capsys: Capture, tmp_path: Path) -> None:
    path = segment(
        tmp_path, snapshot(topic("t", uuid.UUID(int=5))), name="00000000000000000001-0000000001.checkpoint.part"
    )
    document = inspected(capsys, path, "--records")
    assert [row["type"] for row in document["records"]] == ["SNAPSHOT_HEADER", "TopicRecord", "SNAPSHOT_FOOTER"]
    assert document["records"][1]["fields"] == {"name": "t", "topic_id": "AAAAAAAAAAAAAAAAAAAABQ"}
