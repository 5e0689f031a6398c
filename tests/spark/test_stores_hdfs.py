"""Logs in a real HDFS are read as the same bytes on a disk; its nodes stop and come back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import ConfigError, MachineError, RefusedError, SegmentChangedError
from cleanerd.spark import retries, stores
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.archive.target import MANIFEST, target_of
from cleanerd.spark.stores import StorePath, path_of
from tests.cleaner.driver import NAME
from tests.spark.archives import archived, cleaned_locally, files_of, make_archive, manifest_of
from tests.spark.hdfs.cluster import started_hdfs
from tests.spark.in_tasks import check_read_in_tasks, sent_to_workers
from tests.spark.reading import EVERYTHING, offsets, read_rows
from tests.spark.rich_log import NOW_MS, RichLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.hdfs.cluster import HdfsCluster

pytestmark = pytest.mark.long

FIRST = f"{NAME}/{0:020d}.log"


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    with started_hdfs(tmp_path_factory.mktemp("hdfs") / "one") as found, pytest.MonkeyPatch.context() as patch:
        for key, value in found.environment.items():
            patch.setenv(key, value)
        yield found
        stores._system.cache_clear()


@pytest.fixture(scope="module")
def root(hdfs: HdfsCluster) -> str:
    return f"hdfs://127.0.0.1:{hdfs.port}/archive"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RichLog(3, transactions=True).write(tmp_path_factory.mktemp("lake") / "logs", 2, 20)


@pytest.fixture(scope="module")
def url(root: str, log_dir: Path) -> str:
    return put(log_dir, f"{root}/backup/1/data")


def put(directory: Path, url: str) -> str:
    """Upload a whole directory; returns its URL."""
    place = path_of(url)
    assert isinstance(place, StorePath)
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            put_bytes(place / str(path.relative_to(directory)), path.read_bytes())
    return url


def put_bytes(place: Path, data: bytes) -> None:
    assert isinstance(place, StorePath)
    with place.system.open_output_stream(place.inner, compression=None) as stream:
        stream.write(data)


def test_the_same_rows(root: str, url: str, log_dir: Path) -> None:
    """By views, in pieces, by offsets, through a pattern, and by the name node of Hadoop's configuration."""
    everywhere = {"columns": EVERYTHING, "strategies": {"orders": {"compaction.strategy": "timestamp"}}}
    for requested in (
        {"view": "committed"},
        {"view": "raw", "splitBytes": "3000"},
        {"view": "latest"},
        {"view": "all", "startingOffsets": {"orders": {"0": 7}}, "endingOffsets": {"orders": {"0": 60}}},
    ):
        rows, local_rows = read_rows(url, **everywhere, **requested), read_rows(log_dir, **everywhere, **requested)
        assert [{**row, "segment": ""} for row in rows] == [{**row, "segment": ""} for row in local_rows]
        assert rows
        assert {row["segment"].startswith(url) for row in rows} == {True}
    assert offsets(f"{root}/back*/?/data") == offsets(log_dir) == offsets(f"{url}/{NAME}")
    assert offsets("hdfs:///archive/backup/1/data") == offsets(log_dir)


def test_commands(root: str, url: str, log_dir: Path) -> None:
    """An audit and a profile by this process return the same as for the directory."""
    assert ReadableLogs(None, url).profile() == ReadableLogs(None, log_dir).profile()
    worse = path_of(put(log_dir, f"{root}/worse"))
    assert isinstance(worse, StorePath)
    lost = sorted((log_dir / NAME).glob("*.log"))[1]
    worse.system.delete_file(f"{worse.inner}/{NAME}/{lost.name}")
    assert ReadableLogs(None, str(worse)).audit(url, clean_below=0, now_ms=NOW_MS, digest_key=bytes(16)).found > 0
    assert ReadableLogs(None, url).audit(log_dir, clean_below=0, now_ms=NOW_MS, digest_key=bytes(16)).found == 0


def test_a_read_in_tasks(hdfs: HdfsCluster, url: str, log_dir: Path, spark: SparkSession) -> None:
    """By Spark's workers, each of which starts Java for libhdfs."""
    with sent_to_workers(spark, hdfs.environment):
        check_read_in_tasks(spark, url, log_dir)


def test_an_attempt_that_is_killed_while_it_writes(root: str) -> None:
    """The second attempt is killed once the first one's file is complete, which stays complete under its name."""
    target = target_of(path_of(f"{root}/killed"))

    def killed() -> Iterator[bytes]:
        yield b"x" * 10
        raise KeyboardInterrupt

    for size in (1000, 2000):
        target.put("run-1/data/file", lambda: iter((b"x" * size,)), modified_ns=0)  # noqa: B023
        with pytest.raises(KeyboardInterrupt):
            target.put("run-1/data/file", killed, modified_ns=0)
        assert target.sizes_below("run-1").pop("data/file") == size
    target.put_new("manifest", b"{}")
    with pytest.raises(RefusedError):
        target.put_new("manifest", b"[]")
    assert sorted(target.names()) == ["manifest", "run-1"]


def test_refused(hdfs: HdfsCluster, root: str, log_dir: Path) -> None:
    """No such directory, or one without read permission: a clear message, at once."""
    with pytest.raises(ConfigError, match=rf"^{root}/nothing: no such directory$"):
        read_rows(f"{root}/nothing")
    locked = put(log_dir, f"{root}/locked")
    hdfs.reported("lock")
    with pytest.raises(ConfigError, match=rf"^{locked}/meta.properties: the store refuses access: credentials"):
        read_rows(locked)


@pytest.mark.parametrize("change", ["gone", "shorter"])
def test_a_file_changed_after_the_listing_is_an_error(root: str, log_dir: Path, change: str) -> None:
    """A file that is deleted or truncated before it is opened is an error with its URL."""
    log = path_of(put(log_dir, f"{root}/changing/{change}")) / FIRST
    assert isinstance(log, StorePath)
    log.system.delete_file(log.inner)
    reported = "it is gone"
    if change == "shorter":
        put_bytes(log, bytes(10))
        reported = "it became shorter: 99 bytes were listed, it ends at 10"
    with pytest.raises(
        SegmentChangedError, match=f"{re.escape(str(log))}: the log changed while it was read: {reported}"
    ):
        log.opened(99)


def test_nodes_that_stop(
    hdfs: HdfsCluster, root: str, url: str, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the data node or the name node: retries, then an error with the cause; when they are back, all rows.

    libhdfs then reports that a file or directory does not exist.
    """
    monkeypatch.setenv(retries.TRIES, "2")
    monkeypatch.setenv(retries.PAUSE_SECONDS, "0.001")
    hdfs.reported("stop data")
    with pytest.raises(MachineError, match=rf"^{url}/.*: cannot be read, tried 2 times"):
        read_rows(url)
    hdfs.reported("start data")
    assert offsets(url) == offsets(log_dir)
    hdfs.reported("stop name")
    with pytest.raises(MachineError, match=rf"^{url}: cannot be read, tried 2 times: ") as raised:
        read_rows(url)
    assert "Hadoop's own message is on standard error" in str(raised.value)
    with pytest.raises(MachineError, match=rf"^{root}: cannot be listed, tried 2 times"):
        path_of(root).children()  # type: ignore[attr-defined]
    hdfs.reported("start name")
    assert offsets(url) == offsets(log_dir)


def test_a_cleaned_copy(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From HDFS and to it: the result of ``clean`` on a copy of the archive.

    The manifest gets its name when complete.
    """
    log_dir = make_archive(tmp_path / "data", "offset-0", "transactions-1")
    code, _, reported = archived(capsys, put(log_dir, f"{root}/archives/data"), f"{root}/cleaned", tmp_path / "state")
    assert code == 0, reported
    place = path_of(f"{root}/cleaned")
    for path in place.files_below():  # type: ignore[attr-defined]
        copy = tmp_path / "out" / path.relative_to(place)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with path.opened() as file:
            copy.write_bytes(file.readall())
    (one,) = manifest_of(tmp_path / "out")["log_dirs"]
    assert files_of(tmp_path / "out" / one["path"]) == cleaned_locally(capsys, log_dir)
    target = target_of(place)
    before = (place / MANIFEST).small()  # type: ignore[attr-defined]
    with pytest.raises(RefusedError, match="another run wrote its archive here"):
        target.put_new(MANIFEST, b"another")
    assert (place / MANIFEST).small() == before  # type: ignore[attr-defined]
    assert len(target.names()) == 2
    new, sent = target_of(path_of(f"{root}/renamed")), []
    real = type(new)._sent  # type: ignore[attr-defined]
    watched = staticmethod(lambda path, pieces: (sent.append(path.name), real(path, pieces))[1])
    monkeypatch.setattr(type(new), "_sent", watched)  # no reader can see later under which name it is sent
    new.put_new(MANIFEST, b"whole")
    assert (len(sent), MANIFEST in sent, new.names()) == (1, False, [MANIFEST])
    target.remove(one["path"].partition("/")[0])
    assert target.names() == ["cleanerd-archive.json"]
