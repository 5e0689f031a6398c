"""A cleaned copy of an archive: with which compaction settings, from a notebook, and of many partitions."""

from __future__ import annotations

import json
import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from cleanerd.cli.main import run
from cleanerd.errors import RefusedError
from cleanerd.format.meta import read_partition_metadata
from cleanerd.spark.api import ReadableLogs as ReadingLogs
from cleanerd.spark.archive import directory_copy
from cleanerd.spark.archive.target import MANIFEST
from cleanerd.spark.notebook import Logs
from tests.cli.clean_log_dirs import write_metadata
from tests.spark.archives import (
    CLEAN,
    archived,
    cleaned_dir,
    cleaned_locally,
    files_of,
    make_archive,
    make_tiny,
    manifest_of,
    settings,
)
from tests.spark.rich_log import NOW_MS

if TYPE_CHECKING:
    from pathlib import Path


Capsys = pytest.CaptureFixture[str]


def test_a_cleaned_copy_changes_no_state_of_the_archive(tmp_path: Path, capsys: Capsys) -> None:
    """U-46: the settings of a trial on a copy belong to the copy."""
    path = make_archive(tmp_path / "data", "time-0")
    copy = tmp_path / "copy" / "data"
    shutil.copytree(path, copy, copy_function=shutil.copy2)
    assert run(["clean", str(copy), "--yes", *CLEAN, *settings(tmp_path / "state")]) == 0
    by_offset = [word.replace("topics.time.compaction.strategy=timestamp", "topics.x.compaction.strategy=timestamp")
                 for word in settings(tmp_path / "state")]  # fmt: skip
    words = ["spark", "clean", str(path), "--output", str(tmp_path / "out"), *CLEAN, *by_offset]
    capsys.readouterr()
    assert run(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["partitions"]
    assert row["strategy"] == "offset"


@pytest.mark.long
def test_the_archives_own_metadata_is_used(tmp_path: Path, capsys: Capsys) -> None:
    """The controllers' log has the topics, in whichever directory it is; another topic of that name is reported."""
    path = make_archive(tmp_path / "1", "offset-0", "time-0", "old-0")
    other = make_archive(tmp_path / "2", "transactions-0")
    keys = {"cleanup.policy": "compact", "segment.bytes": "4000"}
    write_metadata(
        other,
        topics={"offset": keys, "transactions": keys, "time": keys, "old": {}},
        ids={"offset": topic_id(path, "offset-0"), "time": uuid.UUID(int=77)},
    )
    words = [
        "spark",
        "clean",
        str(path),
        str(other),
        "--output",
        str(tmp_path / "out"),
        *CLEAN,
        *settings(tmp_path)[-6:],
    ]
    capsys.readouterr()
    assert run(words) == 6
    output = capsys.readouterr()
    rows = {row["topic"]: row for row in json.loads(output.out)["partitions"]}
    assert {topic: row["outcome"] for topic, row in rows.items()} == {
        "offset": "cleaned", "transactions": "cleaned", "time": "refused",
    }  # fmt: skip
    assert "it was created again" in rows["time"]["reason"]
    assert "no KRaft metadata log found" not in output.err
    manifest = manifest_of(tmp_path / "out")
    assert [row["topic"] for each in manifest["log_dirs"] for row in each["not_compacted"]] == ["old"]
    copies = [tmp_path / "copies" / each for each in ("1", "2")]
    for place, copy in zip((path, other), copies, strict=True):
        shutil.copytree(place, copy, copy_function=shutil.copy2)
    run(["clean", *map(str, copies), "--yes", *CLEAN, *settings(tmp_path)[-6:]])
    found = files_of(cleaned_dir(tmp_path / "out", "1") / "offset-0")
    assert found == files_of(copies[0] / "offset-0") != files_of(path / "offset-0")
    assert files_of(cleaned_dir(tmp_path / "out", "2") / "transactions-0") == files_of(copies[1] / "transactions-0")


def topic_id(path: Path, name: str) -> uuid.UUID | None:
    file = path / name / "partition.metadata"
    return read_partition_metadata(file.read_bytes(), str(file))


def test_in_a_notebook(tmp_path: Path, capsys: Capsys) -> None:
    """Without a session, with the strategies of the logs."""
    path = make_archive(tmp_path / "data", "offset-0", "time-0")
    messages = [word for word in settings(tmp_path / "state") if word != "--set" and "time.compaction" not in word]
    archive = Logs(None, path, {"time": "timestamp"}).clean(
        tmp_path / "out", messages, force=True, from_start=True, now_ms=NOW_MS
    )
    assert (archive.exit_code, archive.manifest) == (0, str(tmp_path / "out" / MANIFEST))
    assert [str(result.name) for result in archive.results] == ["offset-0", "time-0"]
    found = cleaned_dir(tmp_path / "out")
    assert files_of(found) == cleaned_locally(capsys, path)
    assert [str(log.name) for log in ReadingLogs(None, found).found()] == ["offset-0", "time-0"]
    Logs(None, path, topics=["time"]).clean(tmp_path / "one", messages, force=True, now_ms=NOW_MS)
    assert [row["topic"] for row in manifest_of(tmp_path / "one")["log_dirs"][0]["partitions"]] == ["time"]


def test_a_notebooks_copy_of_an_interrupted_swap(tmp_path: Path) -> None:
    """One partition between the two names of a swap stops no other, as with the command: all were refused."""
    path = make_archive(tmp_path / "data", "offset-0", "offset-1")
    first, second, *_ = sorted((path / "offset-0").glob("*.log"))
    first.with_suffix(".log.swap").write_bytes(first.read_bytes() + second.read_bytes())
    for each in (first, second):
        each.rename(f"{each}.deleted")
    message = settings(tmp_path / "state")[1::2]
    found = Logs(None, path).clean(tmp_path / "out", message, force=True, from_start=True, now_ms=NOW_MS)
    assert [(str(each.name), each.error is None) for each in found.results] == [("offset-0", False), ("offset-1", True)]
    assert ("an unfinished swap" in found.results[0].reason, found.exit_code) == (True, 6)
    with pytest.raises(RefusedError, match="cut off"):
        Logs(None, path).found()


@pytest.mark.long
@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.long)])
def test_many_tiny_partitions(tmp_path: Path, capsys: Capsys, count: int) -> None:
    """The result equals the local engine's; ``tests/bench/test_archive.py`` measures the cost."""
    path = make_tiny(tmp_path / "data", count)
    code, document, _ = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert (code, len(document["partitions"])) == (0, count)
    assert files_of(cleaned_dir(tmp_path / "out")) == cleaned_locally(capsys, path)


def test_the_driver_reads_little(tmp_path: Path) -> None:
    """It fetches no record: only identity, checkpoints and names."""
    path = make_archive(tmp_path / "data", "offset-0")
    copy = directory_copy.copied(path, tmp_path / "copy")
    assert {each.name for each in (tmp_path / "copy").iterdir()} == {each.name for each in path.iterdir()}
    assert not list((tmp_path / "copy" / "offset-0").iterdir())
    assert copy.log_dir.partitions
