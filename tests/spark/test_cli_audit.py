"""The commands as a driver runs them: arguments, tables, JSON, exit codes. One test uses spark-submit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.cli.main import run
from cleanerd.format.names import TopicPartition
from cleanerd.segments.batch_file import read_batches
from cleanerd.segments.log_dir import read_log_dir
from cleanerd.spark.launch import DRIVER_VARIABLE
from cleanerd.state.cleaner_checkpoint import StateStore
from cleanerd.swap.lock import LogDirLock
from cleanerd.swap.round import clean_partition
from cleanerd.swap.session import LockedDir
from tests.cleaner.driver import Silent, config, resources
from tests.support.log_dirs import Partition, make_log_dir, write_checkpoint
from tests.support.logs import Record, encode_batch
from tests.verify import cleaned_partition as s
from tests.verify.cleaned_partition import NOW, Scene, make_scene

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cleanerd.config.topic_config import TopicConfig


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return make_scene(tmp_path)


@pytest.fixture(autouse=True)
def driver(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process is the driver, with the session of the tests."""
    monkeypatch.setenv(DRIVER_VARIABLE, "1")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))


def requested(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any]]:
    code = run(["spark", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def reported(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run(["spark", *map(str, arguments)])
    out = capsys.readouterr()
    return code, out.out, out.err


def audit(capsys: pytest.CaptureFixture[str], scene: Scene, *more: object) -> tuple[int, dict[str, Any]]:
    return requested(capsys, "audit", scene.copy.parent, scene.log_dir, "--now-ms", NOW, *more)


def test_an_audit_of_a_right_log(capsys: pytest.CaptureFixture[str], scene: Scene) -> None:
    """The checkpoint has the first dirty offset; the digest key makes digests comparable."""
    code, document = audit(capsys, scene, "--digest-key", "00" * 16)
    (partition,) = document["partitions"]
    assert code == 0
    assert document["schema"] == 1
    assert document["digest_key"] == "00" * 16
    assert (partition["topic"], partition["clean_below"], partition["strategy"]) == ("orders", s.CLEAN_TO, "offset")
    assert set(partition["findings"].values()) == {0}
    again = audit(capsys, scene, "--digest-key", "00" * 16)[1]["partitions"][0]
    assert again["after"]["digest"] == partition["after"]["digest"] != partition["before"]["digest"]


@pytest.mark.long
def test_an_audit_of_a_damaged_log(capsys: pytest.CaptureFixture[str], scene: Scene) -> None:
    """Exit code 5, the fault, its place, and an explanation of the terms."""
    scene.put(0, s.SECOND_CLEANED + s.LAST_OF_7)
    code, document = audit(capsys, scene)
    assert code == 5
    assert document["findings"] == 1
    (example,) = document["partitions"][0]["examples"]
    assert (example["kind"], example["offset"], example["key"]) == ("duplicated", 5, "d")
    code, out, _ = reported(capsys, "audit", scene.copy.parent, scene.log_dir, "--now-ms", NOW)
    assert code == 5
    assert f"orders-0 duplicated offset 5 key d: {scene.file(0)} byte {len(s.SECOND_CLEANED)} record 0" in out
    assert "1 duplicated" in out


def _single(at: int, keys: int) -> bytes:
    return encode_batch([Record(b"k%d" % (at % keys), b"%d" % at)], base_offset=at)


def _cleaned_and_tampered(root: Path, checkpoint: int | None, topic: TopicConfig) -> tuple[Path, Path, int]:
    """BEFORE, AFTER, and the number of records that were removed by hand after a cleaning up to offset 60."""
    segments = {0: range(40), 40: range(40, 60), 60: range(60, 80)}
    logs = {base: b"".join(_single(at, 10 if at < 40 else 20) for at in found) for base, found in segments.items()}
    log_dir = make_log_dir(root / "logs", {"orders-0": Partition(logs, indexes=False)})
    shutil.copytree(log_dir, root / "before")
    with LogDirLock.acquire(log_dir, settle_seconds=0) as lock:
        locked = LockedDir(read_log_dir(log_dir), lock, StateStore(root / "state"), resources())
        options = CleaningOptions(now_ms=NOW, force=True)
        result = clean_partition(locked, TopicPartition("orders", 0), topic, options, Silent())
    assert result.outcome == "cleaned", result.reason
    removed = 0
    for file in sorted((log_dir / "orders-0").glob("*.log")):
        batches = [each.data for each in read_batches(file, cut_tail_ends=True, limit_bytes=10**6)]
        kept = [data for number, data in enumerate(batches) if number % 3 != 1]
        removed += len(batches) - len(kept)
        file.write_bytes(b"".join(kept))
    if checkpoint is None:
        (log_dir / "cleaner-offset-checkpoint").unlink(missing_ok=True)
    else:
        write_checkpoint(log_dir / "cleaner-offset-checkpoint", {"orders-0": checkpoint})
    return root / "before", log_dir, removed


@pytest.mark.parametrize(
    ("checkpoint", "strategy"), [(60, "offset"), (None, "offset"), (500, "offset"), (None, "header")]
)
def test_every_lost_record_is_counted_with_an_unusable_checkpoint(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, checkpoint: int | None, strategy: str
) -> None:
    """U-10: a checkpoint with repeated lines, without the partition, or above the log's end.

    With versions there is none.
    """
    changes = {} if strategy == "offset" else {"compaction_strategy": "header", "compaction_strategy_header": "ver"}
    before, after, removed = _cleaned_and_tampered(tmp_path, checkpoint, config(**changes))
    settings = [f"topics.orders.{key.replace('_', '.')}={value}" for key, value in changes.items()]
    sets = [word for each in settings for word in ("--set", each)]
    code, document = requested(capsys, "audit", before, after, "--now-ms", NOW, *sets)
    (partition,) = document["partitions"]
    assert (code, partition["clean_below"], partition["superseded_checked"]) == (5, 60, True)
    assert {kind: count for kind, count in partition["findings"].items() if count} == {"lost": removed, "shortened": 1}


def test_a_checkpoint_above_the_end_of_the_log_is_not_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """U-10: without a state of ours. All of the log would count as clean, and half of it as superseded."""
    before, after, _ = _cleaned_and_tampered(tmp_path, 500, config())
    shutil.rmtree(tmp_path / "state")
    code, document = requested(capsys, "audit", before, after, "--now-ms", NOW)
    (partition,) = document["partitions"]
    assert (code, partition["clean_below"], partition["superseded_checked"]) == (5, None, False)
    assert partition["findings"]["duplicated"] == 0
    sure = requested(capsys, "audit", before, after, "--now-ms", NOW, "--partition", "orders-0", "--clean-below", 500)[
        1
    ]
    assert sure["partitions"][0]["clean_below"] == 500, "a value on the command line is used unchanged"


@pytest.mark.parametrize("witness", ["state", "copy"])
def test_a_lowered_checkpoint_does_not_weaken_an_audit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, witness: str
) -> None:
    """U-10: a superseded record above Kafka's lowered checkpoint is a check that was not made, not a right log."""
    before, after, _ = _cleaned_and_tampered(tmp_path, 20, config())
    shutil.rmtree(after / "orders-0")
    shutil.copytree(before / "orders-0", after / "orders-0")  # every superseded record exists
    write_checkpoint(after / "cleaner-offset-checkpoint", {"orders-0": 0})
    if witness == "copy":
        shutil.rmtree(tmp_path / "state")
        write_checkpoint(before / "cleaner-offset-checkpoint", {"orders-0": 60})
    asking = ("audit", before, after, "--now-ms", NOW)
    code, document = requested(capsys, *asking)
    (partition,) = document["partitions"]
    assert (code, partition["clean_below"], partition["superseded_checked"]) == (5, 0, False)
    _, out, err = reported(capsys, *asking)
    assert "not checked" in out
    assert "says clean up to 0, but the log was clean up to 60 before" in err
    for offset, superseded in ((60, 40), (0, 0)):
        sure = requested(capsys, *asking, "--partition", "orders-0", "--clean-below", offset)[1]["partitions"][0]
        assert (sure["superseded_checked"], sure["findings"]["duplicated"]) == (True, superseded)


@pytest.mark.long
def test_the_first_segment_is_missing(capsys: pytest.CaptureFixture[str], scene: Scene) -> None:
    """No cleaner removes the first segment; retention may have done so, if the operator of the audit confirms it."""
    for suffix in (".log", ".index", ".timeindex"):
        scene.file(0, suffix).unlink()
    code, out, err = reported(capsys, "audit", scene.copy.parent, scene.log_dir, "--now-ms", NOW)
    assert code == 5
    assert "2 lost" in out
    assert "orders-0: AFTER begins at offset 7, BEFORE at 0" in err
    code, document = audit(capsys, scene, "--partition", "orders-0", "--log-start", "7")
    assert (code, document["partitions"][0]["log_start_offset"]) == (0, 7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ONE",), "two directories"),
        (("ONE", "TWO", "--clean-below", "3"), "exactly one --partition"),
        (("ONE", "TWO", "--expect-absent"), "needs --key"),
        (("ONE", "TWO", "--digest-key", "abc"), "32 hexadecimal digits"),
        (("ONE", "TWO", "--partition", "nope-0"), "no such partition"),
        (("ONE", "TWO", "--strategy", "best"), "is not offset, timestamp or header:NAME"),
        (("ONE", "--key", "zz", "--hex"), "not a hexadecimal key"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], scene: Scene, arguments: tuple[str, ...], message: str) -> None:
    places = {"ONE": str(scene.copy.parent), "TWO": str(scene.log_dir)}
    code, _, err = reported(capsys, "audit", *(places.get(each, each) for each in arguments))
    assert code in {2, 3}
    assert message in err


@pytest.mark.long
def test_replaced_and_kept_segments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """S-40: after two cleanings ``--keep-replaced`` holds both logs' segments; BEFORE is one of them or both.

    By version only cleanerd's own state has the first dirty offset (U-10).
    """

    def batch(at: int, version: int) -> bytes:
        header = (b"ver", version.to_bytes(8, "big"))
        return encode_batch([Record(b"k%d" % (at % 3), b"%d" % at, headers=(header,))], base_offset=at)

    def segments(first: int, end: int) -> dict[int, bytes]:
        return {base: b"".join(batch(at, at * 7 % 5) for at in range(base, base + 4)) for base in range(first, end, 4)}

    kept = tmp_path / "kept"
    kept.mkdir()
    log_dir = make_log_dir(tmp_path / "logs", {"orders-0": Partition({**segments(0, 12), 12: b""})})
    topic = config(compaction_strategy="header", compaction_strategy_header="ver")
    settings = (
        "--set",
        "topics.orders.compaction.strategy=header",
        "--set",
        "topics.orders.compaction.strategy.header=ver",
    )
    for round_number in range(2):
        with LogDirLock.acquire(log_dir, settle_seconds=0) as lock:
            store = StateStore(tmp_path / "state")
            locked = LockedDir(read_log_dir(log_dir), lock, store, resources(), keep_replaced=kept)
            options = CleaningOptions(now_ms=NOW + round_number, force=True)
            result = clean_partition(locked, TopicPartition("orders", 0), topic, options, Silent())
        assert result.outcome == "cleaned", result.reason
        if not round_number:
            fresh = make_log_dir(tmp_path / "fresh", {"orders-0": Partition({**segments(12, 24), 24: b""})})
            (fresh / "orders-0" / "partition.metadata").unlink()
            for file in (fresh / "orders-0").iterdir():
                shutil.copy(file, log_dir / "orders-0" / file.name)
            for checkpoint in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                shutil.copy(fresh / checkpoint, log_dir / checkpoint)
    plans = sorted(kept.iterdir())
    assert len(plans) == 2
    for before in (kept, plans[1]):
        code, document = requested(capsys, "audit", before, log_dir, *settings)
        (partition,) = document["partitions"]
        assert (code, partition["clean_below"], partition["strategy"]) == (0, 24, "header"), partition
    code, document = requested(capsys, "audit", kept, log_dir, *settings)
    assert document["partitions"][0]["before"]["records"] == 24
    assert document["partitions"][0]["after"]["records"] == 3
    code, document = requested(
        capsys, "audit", kept, log_dir, "--partition", "orders-0", "--clean-below", "24", "--strategy", "offset"
    )
    assert (code, document["partitions"][0]["findings"]["stale"]) == (5, 2), (
        "a right log is right only with its own settings"
    )


def test_erasure(capsys: pytest.CaptureFixture[str], scene: Scene, tmp_path: Path) -> None:
    """Several keys, from a file too; 1 with --expect-absent, 0 when there is no copy."""
    code, document = requested(capsys, "audit", scene.log_dir, scene.copy.parent, "--key", "f", "--expect-absent")
    assert (code, document["found"]) == (1, 2)
    assert [row["file"] for row in document["keys"][0]["occurrences"]] == [
        str(scene.file(14)),
        str(scene.copy / scene.file(14).name),
    ]
    (tmp_path / "keys").write_text("66\n7777\n")
    code, out, _ = reported(capsys, "audit", scene.log_dir, "--keys-file", tmp_path / "keys", "--hex")
    assert code == 0
    assert "ww: nowhere (4 files" in out
    code, out, _ = reported(capsys, "audit", scene.log_dir, "--key", "nothing", "--expect-absent")
    assert (code, out.startswith("nothing: nowhere")) == (0, True)


def test_profile(capsys: pytest.CaptureFixture[str], scene: Scene) -> None:
    code, document = requested(capsys, "profile", scene.copy.parent, "--set", "log.cleaner.dedupe.buffer.size=2097152")
    (partition,) = document["partitions"]
    assert code == 0
    assert (partition["topic"], partition["keys"], partition["no_key"], partition["passes"]) == ("orders", 6, 1, 1)
    code, out, _ = reported(capsys, "profile", scene.copy.parent, "--partition", "orders-0")
    assert code == 0
    assert "orders-0" in out
    assert "1 without a key" in out
    assert re.search(r"^orders +1 .*\n1 partition: ", out, re.MULTILINE)


def test_snapshot(capsys: pytest.CaptureFixture[str], spark: SparkSession, scene: Scene, tmp_path: Path) -> None:
    """A table of the current records; an existing directory is never written into."""
    out = tmp_path / "out"
    code, document = requested(capsys, "snapshot", scene.log_dir, "--out", out)
    assert (code, document["records"], document["partitions"][0]["end_offset"]) == (0, 6, 18)
    rows = {bytes(row.key): (row.offset, bytes(row.value)) for row in spark.read.parquet(str(out)).collect()}
    assert (rows[b"a"], rows[b"f"]) == ((17, b"9"), (16, b"1"))
    assert b"c" not in rows
    code, _, err = reported(capsys, "snapshot", scene.log_dir, "--out", out)
    assert code == 3
    assert "exists already" in err


@pytest.mark.long
def test_through_spark_submit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is passed on, and only the result is on stdout."""
    monkeypatch.delenv(DRIVER_VARIABLE)
    scene.put(0, s.SECOND_CLEANED + s.LAST_OF_7)
    command = [sys.executable, "-m", "cleanerd", "spark", "audit", str(scene.copy.parent), str(scene.log_dir)]
    command += ["--master", "local[2]", "--conf", "spark.driver.memory=1g", "--now-ms", str(NOW), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 5, done.stderr
    assert json.loads(done.stdout)["findings"] == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "command", [("profile", "now"), ("snapshot", "now", "--out", "table"), ("audit", "then", "now")]
)
def test_relative_paths(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    """Executors work in other directories: in these tests too, their Python was started elsewhere."""
    segments = {0: encode_batch([Record(b"k", b"v"), Record(b"l", b"w")]), 2: b""}
    for name in ("then", "now"):
        make_log_dir(tmp_path / name, {"t-0": Partition(segments, indexes=False)})
    monkeypatch.chdir(tmp_path)
    code, out, err = reported(capsys, *command, "--quiet")
    assert (code, err) == (0, ""), out
