"""A cleaned copy of an archive equals, byte for byte, the result of ``cleanerd clean`` on the same directory."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.errors import SegmentChangedError
from cleanerd.spark.archive import partition, source
from cleanerd.spark.archive.source import contents_of
from cleanerd.spark.archive.target import MANIFEST, require_no_overlap
from cleanerd.spark.stores import path_of
from tests.kafka.judge import ToLoad
from tests.spark.archives import (
    TOPICS,
    archived,
    cleaned_dir,
    cleaned_locally,
    files_of,
    make_archive,
    manifest_of,
)
from tests.spark.rich_log import NOW_MS
from tests.support.log_dirs import Partition, make_log_dir, read_checkpoint
from tests.support.logs import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.judge import Judge

Capsys = pytest.CaptureFixture[str]


def test_as_clean_on_a_copy(tmp_path: Path, capsys: Capsys) -> None:
    """Every strategy, codec, old formats, transactions: the same files with the same times; an unchanged source."""
    path = make_archive(tmp_path / "data")
    before = {name: (data, (path / name).stat().st_mtime_ns) for name, data in files_of(path).items()}
    code, document, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert code == 0, reported
    assert {row["outcome"] for row in document["partitions"]} == {"cleaned"}
    assert document["manifest"] == str(tmp_path / "out" / MANIFEST)
    assert {row["log_dir"] for row in document["partitions"]} == {str(path)}
    found = cleaned_dir(tmp_path / "out")
    assert files_of(found) == cleaned_locally(capsys, path)
    assert {name: (data, (path / name).stat().st_mtime_ns) for name, data in files_of(path).items()} == before
    assert not (tmp_path / "state").exists()
    manifest = manifest_of(tmp_path / "out")
    (one,) = manifest["log_dirs"]
    assert (one["left_out"], one["not_compacted"], one["source"]) == ([], [], str(path))
    for row in one["partitions"]:
        name = f"{row['topic']}-{row['partition']}"
        sizes = {file["name"]: file["size_bytes"] for file in row["source_files"]}
        assert sizes == {each.name: each.stat().st_size for each in (path / name).iterdir()}
        for file in row["files"]:
            assert file["modified_ms"] == (found / name / file["name"]).stat().st_mtime_ns // 1_000_000
        assert row["bytes_after"] < row["bytes_before"]


@pytest.mark.long
@pytest.mark.kafka
def test_kafkas_loader_accepts_it(tmp_path: Path, capsys: Capsys, judge_43: Judge) -> None:
    """As after a clean shutdown, and as after none: no segment is truncated, no record lost."""
    path = make_archive(tmp_path / "data")
    assert archived(capsys, path, tmp_path / "out", tmp_path / "state")[0] == 0
    found = cleaned_dir(tmp_path / "out")
    points = read_checkpoint(found / "recovery-point-offset-checkpoint")
    for clean in (True, False):
        logs = [ToLoad(str(tmp_path / str(clean) / name), str(found / name), clean, 0, points[name]) for name in TOPICS]
        for name, loaded in zip(TOPICS, judge_43.load(logs, now_ms=NOW_MS, batches=True), strict=True):
            assert loaded.error is None, (name, loaded.message)
            assert loaded.log_end_offset == points[name]
            assert {file for file in files_of(found / name) if file.endswith(".log")} == {
                file for file in loaded.files if file.endswith(".log")
            }


def test_an_archive_of_a_cleaned_archive(tmp_path: Path, capsys: Capsys) -> None:
    """The result for the cleaned archive is the same again; a target that holds an archive is refused."""
    path = make_archive(tmp_path / "data")
    archived(capsys, path, tmp_path / "out", tmp_path / "state")
    first = cleaned_dir(tmp_path / "out")
    code, _, _ = archived(capsys, first, tmp_path / "again", tmp_path / "state")
    assert code == 0
    assert files_of(cleaned_dir(tmp_path / "again")) == cleaned_locally(capsys, first)
    code, _, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert (code, "has an archive already (cleanerd-archive.json)" in reported) == (3, True)


def test_partitions_that_cannot_be_cleaned_are_left_out(tmp_path: Path, capsys: Capsys) -> None:
    """Damaged, planted, or not known to be compacted: reported, not in the archive, and the others are."""
    path = make_archive(tmp_path / "data", "offset-0", "offset-1", "transactions-0", "time-0")
    damaged = sorted((path / "offset-1").glob("*.log"))[1]
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)
    planted = sorted((path / "time-0").glob("*.log"))[0]
    planted.rename(tmp_path / "elsewhere.log")
    planted.symlink_to(tmp_path / "elsewhere.log")
    shutil.copytree(path / "offset-0", path / "unknown-0")
    (path / "linked-0").symlink_to(path / "offset-0")
    code, document, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert code == 6
    outcomes = {f"{row['topic']}-{row['partition']}": row["outcome"] for row in document["partitions"]}
    assert outcomes == {
        "offset-0": "cleaned", "transactions-0": "cleaned",
        "offset-1": "quarantined", "time-0": "quarantined", "linked-0": "refused",
    }  # fmt: skip
    (one,) = manifest_of(tmp_path / "out")["log_dirs"]
    assert [f"{each['topic']}-{each['partition']}" for each in one["left_out"]] == ["linked-0", "offset-1", "time-0"]
    assert one["not_compacted"] == [{"topic": "unknown", "partition": 0}]
    reasons = {each["topic"]: each["reason"] for each in one["left_out"]}
    assert reasons["offset"].startswith(str(damaged))
    assert "it is a symbolic link" in reasons["time"]
    found = cleaned_dir(tmp_path / "out")
    assert {each.name for each in found.iterdir() if each.is_dir()} == {"offset-0", "transactions-0"}
    for name in ("recovery-point", "replication", "cleaner"):
        assert set(read_checkpoint(found / f"{name}-offset-checkpoint")) == {"offset-0", "transactions-0"}
    assert "not in the archive, as they could not be cleaned: 3 partitions" in reported
    assert "not known to be compacted: 1 partition (unknown-0)" in reported


def test_without_a_cleaned_partition_there_is_no_archive(tmp_path: Path, capsys: Capsys) -> None:
    """And the target stays empty."""
    path = make_archive(tmp_path / "data", "offset-0")
    (path / "offset-0" / f"{0:020}.log").write_bytes(b"\xff" * 200)
    code, document, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert (code, document["manifest"]) == (5, None)
    assert "nothing was cleaned, so no archive was written" in reported
    assert files_of(tmp_path / "out") == {}


def test_clean_partitions_are_copied_into_the_archive(tmp_path: Path, capsys: Capsys) -> None:
    """A clean enough partition is copied unchanged, like one with an active segment alone."""
    path = make_archive(tmp_path / "data", "offset-0", "transactions-0")
    batch = encode_batch([Record(key=b"k", value=b"v")], base_offset=0)
    make_log_dir(tmp_path / "other", {"flag-0": Partition({0: batch})})
    shutil.copytree(tmp_path / "other" / "flag-0", path / "flag-0")
    code, document, _ = archived(
        capsys, path, tmp_path / "out", tmp_path / "state", "--set", "topics.offset.min.cleanable.dirty.ratio=1"
    )
    assert code == 0
    assert {row["topic"]: row["outcome"] for row in document["partitions"]}["flag"] == "skipped"
    found = cleaned_dir(tmp_path / "out")
    assert files_of(found / "flag-0") == files_of(path / "flag-0")


def test_an_archive_of_a_running_broker(tmp_path: Path, capsys: Capsys) -> None:
    """Without a clean-shutdown file it is refused; with --unclean it equals ``clean``, with a torn end or not."""
    path = make_archive(tmp_path / "data", "offset-0", "transactions-0", clean_shutdown=False)
    code, document, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert (code, document["manifest"], document["partitions"]) == (4, None, [])
    assert "The broker was not stopped cleanly" in reported
    assert "--unclean" in reported
    active = sorted((path / "offset-0").glob("*.log"))[-1]
    active.write_bytes(active.read_bytes()[:-7])
    code, document, _ = archived(capsys, path, tmp_path / "out", tmp_path / "state", "--unclean")
    assert code == 0
    assert {row["outcome"] for row in document["partitions"]} == {"cleaned"}
    assert files_of(cleaned_dir(tmp_path / "out")) == cleaned_locally(capsys, path, "--unclean")


def test_refused_targets(tmp_path: Path, capsys: Capsys) -> None:
    """Inside, around and equal to a source, by any name; one that holds other files; a file."""
    path = make_archive(tmp_path / "all" / "data", "offset-0")
    (tmp_path / "link").symlink_to(tmp_path / "all")
    for place in (path, path / "out", tmp_path / "all", tmp_path / "link" / "data" / "x" / "y", tmp_path):
        code, _, reported = archived(capsys, path, place, tmp_path / "state")
        assert (code, "is inside the source" in reported) == (3, True), place
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes").touch()
    code, _, reported = archived(capsys, path, tmp_path / "other", tmp_path / "state")
    assert (code, "has files that do not belong to an archive (notes)" in reported) == (3, True)
    code, _, reported = archived(capsys, path, tmp_path / "other" / "notes", tmp_path / "state")
    assert (code, "other/notes" in reported) == (1, True)
    for more in (("--shards", "2"), ("--keep-replaced", str(tmp_path))):
        code, _, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state", *more)
        assert (code, f"{more[0]} cannot be used with --output" in reported) == (2, True)
    assert not (tmp_path / "out").exists()


def test_urls_that_overlap() -> None:
    """Whatever the case of the scheme; names that share only a prefix do not overlap."""
    near = path_of("s3a://b/backup/1")
    for text in ("s3://b/backup/1", "s3://b/backup", "s3n://b/backup/1/out", "s3://b"):
        with pytest.raises(Exception, match="is inside the source"):
            require_no_overlap(path_of(text), [near])
    with pytest.raises(Exception, match=r"has \. or \.\. in it"):
        require_no_overlap(path_of("s3://b/x/../backup/1"), [near])
    require_no_overlap(path_of("s3://b/backup/10"), [near])
    require_no_overlap(path_of("s3://c/backup/1"), [near])
    with pytest.raises(Exception, match="is inside the source"):
        require_no_overlap(
            path_of("abfss://c@a.dfs.core.windows.net/x"), [path_of("abfs://c@a.dfs.core.windows.net/x/y")]
        )
    with pytest.raises(Exception, match="is inside the source"):
        require_no_overlap(
            path_of("abfs://c@a.blob.core.windows.net/x"), [path_of("abfs://c@a.dfs.core.windows.net/x/y")]
        )
    require_no_overlap(path_of("abfss://d@a.dfs.core.windows.net/x"), [path_of("abfs://c@a.dfs.core.windows.net/x/y")])


def when_fetched(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """``change`` happens between the reading of a partition and its copy."""
    real = source.fetch

    def fetch(contents: Any, into: Path) -> Any:
        change(contents)
        return real(contents, into)

    monkeypatch.setattr(partition, "fetch", fetch)  # no test could otherwise hit that moment


@pytest.mark.parametrize("kind", ["longer", "new", "gone"])
def test_a_source_that_changes(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """While one partition is fetched: that partition is left out."""
    path = make_archive(tmp_path / "data", "offset-0", "offset-1")

    def change(contents: Any) -> None:
        if contents.place.name == "offset-1":
            last = sorted(contents.place.glob("*.log"))[-1]
            if kind == "longer":
                with last.open("ab") as file:
                    file.write(b"\0")
            elif kind == "new":
                (contents.place / f"{10**6:020}.log").touch()
            else:
                last.unlink()

    when_fetched(monkeypatch, change)
    code, document, _ = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert code == 6
    reasons = {row["partition"]: row["reason"] for row in document["partitions"]}
    assert (reasons[0], "the log changed while it was read" in reasons[1]) == ("", True)
    assert [row["partition"] for row in manifest_of(tmp_path / "out")["log_dirs"][0]["partitions"]] == [0]


def test_checkpoints_that_change(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is unknown which time the directory shows: none of it is used."""
    path = make_archive(tmp_path / "data", "offset-0")
    other = make_archive(tmp_path / "more" / "data", "time-0")

    def change(_contents: Any) -> None:
        (path / "recovery-point-offset-checkpoint").write_text("0\n0\n")

    when_fetched(monkeypatch, change)
    code, document, reported = archived(capsys, [path, other], tmp_path / "out", tmp_path / "state")
    assert code == 6
    assert "recovery-point-offset-checkpoint: the log changed while it was read: it is another file now" in reported
    assert [row["topic"] for row in document["partitions"]] == ["time"]
    manifest = manifest_of(tmp_path / "out")
    assert [each["source"] for each in manifest["log_dirs"]] == [str(other)]
    assert len(manifest["errors"]) == 1


def test_a_broker_that_starts_meanwhile(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """It first removes its clean-shutdown file; a copy of it would claim that the broker was stopped."""
    path = make_archive(tmp_path / "data", "offset-0")

    def change(_contents: Any) -> None:
        (path / ".kafka_cleanshutdown").unlink()

    when_fetched(monkeypatch, change)
    code, _, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert code != 0
    assert ".kafka_cleanshutdown: the log changed while it was read: it is gone" in reported
    assert not (tmp_path / "out" / MANIFEST).exists()


def test_a_file_that_is_written_to_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its size and time were as listed when it was opened."""
    path = make_archive(tmp_path / "data", "offset-0") / "offset-0"
    contents = contents_of(path)
    real = source._Copy.write

    def write(self: Any, data: memoryview) -> None:
        real(self, data)
        (path / self._path.name).write_bytes(b"other")

    monkeypatch.setattr(source._Copy, "write", write)  # at this very moment
    with pytest.raises(SegmentChangedError, match="it was written to during the copy"):
        source.fetch(contents, tmp_path / "copy")


def test_a_full_disk(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the needed space, the file system, and what to do, before and during the copy."""
    path = make_archive(tmp_path / "data", "offset-0")
    code, document, reported = archived(
        capsys, path, tmp_path / "out", tmp_path / "state", "--set", f"cleanerd.disk.reserve={2**60}"
    )
    assert (code, document["partitions"][0]["outcome"]) == (1, "failed")
    assert "a copy takes " in reported
    assert "TMPDIR, spark.local.dir" in reported

    def full(_self: Any, _data: memoryview) -> None:
        raise source._failed(tmp_path / "copy" / "x", OSError(28, "No space left on device"))

    monkeypatch.setattr(source._Copy, "write", full)  # no test fills a disk
    code, document, reported = archived(capsys, path, tmp_path / "out", tmp_path / "state")
    assert (code, document["partitions"][0]["outcome"]) == (1, "failed")
    assert "the disk became full: No space left on device (make room" in reported
    assert files_of(tmp_path / "out") == {}


def test_a_damaged_listing(tmp_path: Path) -> None:
    """Names that no broker uses, below a partition."""
    path = make_archive(tmp_path / "data", "offset-0") / "offset-0"
    os.mkfifo(path / "pipe")
    with pytest.raises(Exception, match="pipe: cannot be read: it is not a plain file"):
        source.fetch(contents_of(path), tmp_path / "copy")
    (path / "pipe").unlink()
    (path / "new\nline").touch()
    with pytest.raises(Exception, match="which no file of a broker is"):
        contents_of(path)


def test_several_directories(tmp_path: Path, capsys: Capsys) -> None:
    """Of the same name: they are reported apart; a pattern matches them all; an invalid one stops no other."""
    first = make_archive(tmp_path / "1" / "data", "offset-0")
    second = make_archive(tmp_path / "2" / "data", "time-0")
    (tmp_path / "3" / "data").mkdir(parents=True)
    code, document, reported = archived(capsys, tmp_path / "*" / "data", tmp_path / "out", tmp_path / "state")
    assert code == 6
    assert "has no meta.properties" in reported
    assert len(document["errors"]) == 1
    paths = {each["source"]: each["path"].partition("/")[2] for each in manifest_of(tmp_path / "out")["log_dirs"]}
    assert paths == {str(first): "1-data", str(second): "2-data"}
    assert files_of(cleaned_dir(tmp_path / "out", "1-data")) == cleaned_locally(capsys, first)


def test_only_some(tmp_path: Path, capsys: Capsys) -> None:
    """``--partition``: the others are not in the archive, nor in its checkpoints."""
    path = make_archive(tmp_path / "data", "offset-0", "offset-1", "time-0")
    code, document, _ = archived(
        capsys, path, tmp_path / "out", tmp_path / "state", "--partition", "offset-1", "--partition", "ti*"
    )
    assert (code, len(document["partitions"])) == (0, 2)
    found = cleaned_dir(tmp_path / "out")
    assert set(read_checkpoint(found / "replication-offset-checkpoint")) == {"offset-1", "time-0"}
