"""``cleanerd inspect``: every file of a broker, by its name."""

import json
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanerd.cli.main import run
from cleanerd.inspection.kind_names import KIND_NAMES
from cleanerd.inspection.kinds import KINDS
from tests.cli.inspecting import GOLDEN, LOG, RELEASES, SECRETS, Capture, inspected, segment, shown
from tests.format.worked_examples import F0, F1, A, B, D, E, G
from tests.support.format_bytes import batch, config, metadata, metadata_batch, record, snapshot


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "kafka-4.3.1", tmp_path / "data"))


# ---- everything in a real log directory


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_every_file_of_a_broker(capsys: Capture, release: str) -> None:
    """Each one decodes, as text and as JSON, and no secret appears (U-24)."""
    files = [path for path in sorted((GOLDEN / release).rglob("*")) if path.name != "dump-log-segments.json"]
    assert len(files) > 25
    for path in files:
        for options in ([], ["--records"]):
            document = inspected(capsys, path, *options)
            assert "error" not in document, path
            out = json.dumps(document) + shown(capsys, path, *options)
            for secret in SECRETS:
                assert secret not in out, path


def test_the_kinds_are_those_with_a_decoder() -> None:
    """``--help`` lists the kinds without importing their decoders."""
    assert sorted(KINDS) == list(KIND_NAMES)


def test_a_segment_in_batches(capsys: Capture, tmp_path: Path) -> None:
    """F-13: a row per batch, sums first."""
    path = segment(tmp_path, A, B, D, E)
    document = inspected(capsys, path)
    assert document["kind"] == "segment"
    assert (document["batch_count"], document["record_count"]) == (4, 6)
    assert (document["first_offset"], document["last_offset"]) == (100, 300)
    assert [row["position"] for row in document["batches"]] == [0, 96, 187, 248]
    assert document["batches"][1]["delete_horizon_ms"] == 1700086400000
    assert document["batches"][1]["base_timestamp"] is None  # the delete horizon replaces the timestamp
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
    """F-3: magic 0 and 1, with absolute offsets of the messages in a wrapper."""
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
    """Both offsets belong to the range; a batch may cross its edges."""
    path = segment(tmp_path, A, batch(200, [record(0, b"a", b"b"), record(1, b"c", b"d")]))
    document = inspected(capsys, path, "--records", *options)
    assert [row["offset"] for row in document["records"]] == offsets


def test_records_beyond_the_limit_are_counted(capsys: Capture, tmp_path: Path) -> None:
    path = segment(tmp_path, A, batch(200, [record(0, b"a", b"b"), record(1, b"c", b"d")]))
    assert inspected(capsys, path, "--records", "--limit", "2")["records_omitted"] == 3
    document = inspected(capsys, path, "--limit", "1")
    assert (document["batches_omitted"], document["batch_count"], document["record_count"]) == (1, 2, 5)
    assert "... and 3 more" in shown(capsys, path, "--records", "--limit", "2")


def test_bytes_that_are_not_text(capsys: Capture, tmp_path: Path) -> None:
    """Base64 in JSON, hexadecimal in the table; long values are cut there; no control sequence reaches a terminal."""
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


def test_everything_before_the_damage_is_decoded(capsys: Capture, tmp_path: Path) -> None:
    """Records before the damage are shown; then one line with file and byte, exit code 5."""
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


@pytest.mark.long
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
    """F-8: not damage, but shown."""
    entry = struct.pack(">hqqqq", 0, 4000, 290, 300, 301)
    document = inspected(capsys, segment(tmp_path, entry, b"\0\0\1", name="00000000000000000000.txnindex"))
    assert document["partial_entry_bytes"] == 3
    assert document["aborted_transactions"][0]["first_offset"] == 290


def test_preallocated_segment(capsys: Capture, tmp_path: Path) -> None:
    """F-1: a tail of zeros is not damage."""
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
    """U-24: also under another name, and when ``--as`` calls it a plain segment."""
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
        metadata(4, b"hunter2", version=1),  # a version that only a later cleanerd supports
    ],
)
def test_a_later_segment_of_the_metadata_log(capsys: Capture, tmp_path: Path, value: bytes) -> None:
    """U-24: it begins with an ordinary record, and is in another directory."""
    path = segment(tmp_path, metadata_batch(7, value), name="00000000000000000007.log")
    code = run(["inspect", str(path), "--records"])
    assert code in {0, 4}
    captured = capsys.readouterr()
    assert "hunter2" not in captured.out + captured.err


def test_plain_records_are_not_metadata(capsys: Capture, tmp_path: Path) -> None:
    path = segment(tmp_path, batch(0, [record(0, None, b"\x01"), record(1, None, b"\x02\x03")]))
    assert inspected(capsys, path, "--records")["kind"] == "segment"
