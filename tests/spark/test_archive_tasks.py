"""A cleaned copy of an archive by Spark's executors: the same as by this process, whatever happens to tasks."""

from __future__ import annotations

import functools
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cleaner.survey import CleaningOptions
from cleanerd.config.load import load_settings
from cleanerd.resolution.selection import EVERYTHING
from cleanerd.spark.archive.partition import clean_one
from cleanerd.spark.archive.run import clean_archive
from cleanerd.spark.archive.target import MANIFEST
from cleanerd.spark.stores import path_of
from tests.spark.archives import cleaned_locally, files_of, make_archive, manifest_of, settings
from tests.spark.rich_log import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from cleanerd.spark.archive.partition import ArchiveJob, Work
    from cleanerd.spark.archive.run import Archive, CleansOne
    from tests.spark.s3 import Store

pytestmark = pytest.mark.long

Capsys = pytest.CaptureFixture[str]


def archive_by(
    session: SparkSession | None, source: Path, output: Path, state: Path, clean: CleansOne = clean_one
) -> Archive:
    """As the command, with a dirty log."""
    messages = [word for word in settings(state) if word != "--set"]
    options = CleaningOptions(now_ms=NOW_MS, force=True, from_start=True)
    return clean_archive(session, [source], output, load_settings((), messages), EVERYTHING, options, clean=clean)


def found_in(output: Path) -> dict[str, bytes]:
    (one,) = manifest_of(output)["log_dirs"]
    return files_of(output / one["path"])


def first_fails(place: Path, how: str, job: ArchiveJob, work: Work) -> Iterator[pa.RecordBatch]:
    """The first attempt at a partition fails after it sent everything; the second sends it again."""
    batches = list(clean_one(job, work))
    marker = place / str(work.name)
    if not marker.exists():
        marker.touch()
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError("injected")
    yield from batches


def killed_early(place: Path, job: ArchiveJob, work: Work) -> Iterator[pa.RecordBatch]:
    """Files of an attempt that no other attempt writes are left in the archive's directory."""
    marker = place / str(work.name)
    if not marker.exists():
        marker.touch()
        left = job.target / job.run / job.sources[0].name / marker.name / "stray.log"
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"half of it")
        os.kill(os.getpid(), signal.SIGKILL)
    yield from clean_one(job, work)


def test_tasks_write_the_bytes_of_the_local_engine(spark: SparkSession, tmp_path: Path, capsys: Capsys) -> None:
    """All kinds of logs: the same bytes and the same report as with ``clean``."""
    path = make_archive(tmp_path / "data")
    alone = archive_by(None, path, tmp_path / "alone", tmp_path / "state")
    archive = archive_by(spark, path, tmp_path / "out", tmp_path / "state")
    assert (archive.exit_code, archive.manifest) == (0, str(tmp_path / "out" / MANIFEST))
    assert found_in(tmp_path / "out") == found_in(tmp_path / "alone") == cleaned_locally(capsys, path)
    for ours, theirs in zip(archive.results, alone.results, strict=True):
        assert {**ours.to_json(), "seconds": 0} == {**theirs.to_json(), "seconds": 0}


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_tasks_that_fail_once(spark: SparkSession, tmp_path: Path, capsys: Capsys, how: str) -> None:
    """Files that are sent twice are there once, and right."""
    path = make_archive(tmp_path / "data", "offset-0", "transactions-0")
    (tmp_path / "marks").mkdir()
    clean = functools.partial(first_fails, tmp_path / "marks", how)
    archive = archive_by(spark, path, tmp_path / "out", tmp_path / "state", clean)
    assert archive.exit_code == 0
    assert len(list((tmp_path / "marks").iterdir())) == 2
    assert found_in(tmp_path / "out") == cleaned_locally(capsys, path)


def test_objects_of_a_killed_task_are_removed(spark: SparkSession, tmp_path: Path, capsys: Capsys) -> None:
    """They are deleted before the manifest is put."""
    path = make_archive(tmp_path / "data", "offset-0", "transactions-0")
    (tmp_path / "marks").mkdir()
    clean = functools.partial(killed_early, tmp_path / "marks")
    assert archive_by(spark, path, tmp_path / "out", tmp_path / "state", clean).exit_code == 0
    assert found_in(tmp_path / "out") == cleaned_locally(capsys, path)


def fails(_job: ArchiveJob, _work: Work) -> Iterator[pa.RecordBatch]:
    raise AssertionError("a bug of ours")
    yield


def test_a_task_that_always_fails(spark: SparkSession, tmp_path: Path) -> None:
    """A bug is not a refusal: the run ends, and leaves nothing."""
    path = make_archive(tmp_path / "data", "offset-0")
    with pytest.raises(Exception, match="a bug of ours"):
        archive_by(spark, path, tmp_path / "out", tmp_path / "state", fails)
    assert not (tmp_path / "out").exists() or files_of(tmp_path / "out") == {}


def test_executors_and_a_store(spark: SparkSession, store: Store, tmp_path: Path, capsys: Capsys) -> None:
    """They fetch and send by themselves, each a part of the partitions."""
    path = make_archive(tmp_path / "data", "offset-0", "offset-1", "transactions-0", "time-0")
    url = store.put(path, "tasks/data")
    environment: Any = spark.sparkContext.environment
    values = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    environment.update(values)
    try:
        archive = archive_by(spark, path_of(url), path_of("s3://archive/tasks-cleaned"), tmp_path / "state")
    finally:
        for key in values:
            del environment[key]
    assert archive.exit_code == 0
    for each in store.client.list_objects_v2(Bucket="archive", Prefix="tasks-cleaned/")["Contents"]:
        downloaded = tmp_path / each["Key"]
        downloaded.parent.mkdir(parents=True, exist_ok=True)
        store.client.download_file("archive", each["Key"], str(downloaded))
    assert found_in(tmp_path / "tasks-cleaned") == cleaned_locally(capsys, path)
