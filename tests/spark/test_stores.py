"""Logs in an object store are read as the same bytes on a disk are, by the protocol of S3 and with its failures."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from cleanerd.cli.main import run
from cleanerd.errors import CleanerdError, ConfigError, MachineError, SegmentChangedError
from cleanerd.fsio.safe_open import ROOM_BYTES
from cleanerd.spark import store_tries
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.source.data_source import KafkaSegments
from cleanerd.spark.source.options import options_from
from cleanerd.spark.stores import path_of
from cleanerd.verify.listing import bytes_of
from tests.cleaner.driver import NAME
from tests.spark import faulty, s3
from tests.spark.in_tasks import check_read_in_tasks, sent_to_workers
from tests.spark.reading import EVERYTHING, offsets, read_rows, schema_of
from tests.spark.rich_log import NOW_MS, RichLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.s3 import Store

MIB = 1 << 20
FIRST = f"{NAME}/{0:020d}.log"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RichLog(3, transactions=True).write(tmp_path_factory.mktemp("lake") / "logs", 2, 20)


@pytest.fixture(scope="module")
def url(server: Store, log_dir: Path) -> str:
    return server.put(log_dir, "backup/1/data")


@pytest.mark.long
def test_the_same_rows(store: Store, url: str, log_dir: Path) -> None:
    """By every view, in pieces, by offsets and times, and through a pattern: all columns as from the disk."""
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
        assert {row["segment"].replace("s3://", "s3a://").startswith(url) for row in rows} == {True}
    assert offsets("s3://archive/back*/?/data") == offsets(log_dir) == offsets(f"{url}/{NAME}")


@pytest.mark.long
def test_a_listing_in_pages(store: Store, url: str, log_dir: Path) -> None:
    """S3 answers with a thousand names at once: here with three."""
    files = sum(path.is_file() for path in log_dir.rglob("*"))
    expected, requests = offsets(log_dir), len(store.requests)
    store.page = 3
    assert offsets(url) == expected
    assert len(path_of(url).files_below()) == files  # type: ignore[attr-defined]
    listings = [path for _, path, _ in store.requests[requests:] if "list-type" in path]
    assert len(listings) > files // 3


@pytest.mark.long
@pytest.mark.parametrize("fault", ["slow", "drop", "cut"])
def test_a_store_that_fails_now_and_then(store: Store, url: str, log_dir: Path, fault: str) -> None:
    """Each request is throttled once, not answered, or broken off half way: nothing is missing, nothing twice."""
    store.fault = faulty.now_and_then(fault)
    assert read_rows(url, columns=EVERYTHING.replace(",segment", "")) == read_rows(
        log_dir, columns=EVERYTHING.replace(",segment", "")
    )
    assert len(store.requests) > 20


@pytest.mark.parametrize("fault", ["slow", "drop"])
def test_a_store_that_always_fails(store: Store, url: str, fault: str) -> None:
    """It gets a few tries and no more; the error names the URL."""
    store.fault = lambda _number, method, path, _range: fault if method == "GET" and path.endswith(".log") else None
    with pytest.raises(
        MachineError, match=r"^s3://archive/backup/1/data/orders-0/[0-9]{20}\.log: cannot be read, tried 8 times"
    ):
        read_rows(url)
    requests = [path for method, path, _ in store.requests if method == "GET" and path.endswith(".log")]
    # The HTTP client retries a connection that is closed at once, too.
    assert store_tries.TRIES <= len(requests) <= 2 * store_tries.TRIES


def test_ranges(store: Store) -> None:
    """Each byte is fetched once, in ranges of 4 to 8 MiB, and none behind the range to read; a jump costs little."""
    data = random.Random(1).randbytes(30 * MIB)
    store.client.put_object(Bucket=s3.BUCKET, Key="large", Body=data)
    room = np.empty(4 * MIB, np.uint8)
    upto = 27 * MIB + 5
    with path_of("s3://archive/large").opened(upto) as file:  # type: ignore[attr-defined]
        got = bytearray()
        while len(got) < upto:
            count = min(len(room), upto - len(got))
            assert file.read_into(room.data[:count], len(got)) == count
            got += room[:count].tobytes()
        assert bytes(got) == data[:upto]
        ranges = [wanted for method, _, wanted in store.requests if method == "GET"]
        edges = [tuple(map(int, each.removeprefix("bytes=").split("-"))) for each in ranges]
        assert sum(last + 1 - first for first, last in edges) == upto
        assert all(last - first < 8 * MIB for first, last in edges)
        assert len(edges) <= 6
        store.requests.clear()
        assert file.read_into(room.data[:10], 99) == 10
        assert room[:10].tobytes() == data[99:109]
        assert file.only_zeros(30 * MIB, 31 * MIB)
        assert not file.only_zeros(5, 9)
    assert [wanted for _, _, wanted in store.requests if wanted] == ["bytes=99-65634", "bytes=5-65540"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("entries", "room", "most", "requests"),
    [
        (400, 10 * MIB, 2 * ROOM_BYTES + 96, 3),  # the active segment of a running broker, copied with its index
        (0, 10 * MIB, ROOM_BYTES + 96, 2),
        (40_000, 10 * MIB, 8 * ROOM_BYTES + 96, 5),
        (400, 3200, 3200, 1),
        (40_000, 320_000, 320_096, 2),  # a closed segment's: all of it at once
        (
            12_288,
            196_608 + 8,
            2 * ROOM_BYTES + 16 + 96,
            3,
        ),  # entries to the end of a piece, and fewer zeros than no index has
    ],
)
def test_the_preallocated_space_of_an_index_is_not_fetched(
    store: Store, entries: int, room: int, most: int, requests: int
) -> None:
    """F-6: a broker preallocates 10 MiB for an index; only the entries are fetched."""
    data = b"".join(number.to_bytes(8, "big") for number in range(1, entries + 1)).ljust(room, b"\0")
    store.client.put_object(Bucket=s3.BUCKET, Key="backup/0.index", Body=data)
    path = path_of("s3://archive/backup/0.index")
    store.requests.clear()
    found = bytes_of(path, has_room=True)
    assert found is not None
    assert found.rstrip(b"\0") == data.rstrip(b"\0")
    assert data.startswith(found)
    edges = [
        tuple(map(int, wanted.removeprefix("bytes=").split("-")))
        for method, _, wanted in store.requests
        if method == "GET"
    ]
    assert sum(last + 1 - first for first, last in edges) <= most
    assert len(edges) == requests
    assert bytes_of(path) == data


def _planned(url: str) -> tuple[Any, list[Any]]:
    """The partitions as the driver passes them to the tasks."""
    texts = {"path": url, "view": "raw"}
    reader = KafkaSegments(texts).reader(schema_of(options_from(texts).columns))
    return pickle.loads(pickle.dumps((reader, reader.partitions())))  # noqa: S301 - our own


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("gone", "it is gone"),
        ("shorter", "it became shorter: [0-9]+ bytes were listed, it ends at 10"),
        ("other", "it was written to although it is not the active segment"),
    ],
)
def test_an_object_changed_after_the_listing_is_an_error(
    store: Store, log_dir: Path, change: str, reported: str
) -> None:
    """An object that is deleted, truncated or replaced after the listing is an error with its URL, never other rows."""
    url = store.put(log_dir, f"changing/{change}")
    reader, splits = _planned(url)
    key = f"changing/{change}/{FIRST}"
    data = (log_dir / FIRST).read_bytes()
    if change == "gone":
        store.client.delete_object(Bucket=s3.BUCKET, Key=key)
    else:
        body = data[:10] if change == "shorter" else data + data[-100:]
        store.client.put_object(Bucket=s3.BUCKET, Key=key, Body=body)
    with pytest.raises(SegmentChangedError, match=f"s3://archive/{key}: the log changed while it was read: {reported}"):
        [list(reader.read(split)) for split in splits]


def test_an_object_that_is_replaced_while_it_is_read(store: Store, log_dir: Path) -> None:
    """By one of the same size, within the same second: the ranges would be of two objects."""
    url = store.put(log_dir, "replaced")
    reader, splits = _planned(url)
    data = bytearray((log_dir / FIRST).read_bytes())
    data[-1] ^= 1

    def replace(_number: int, method: str, path: str, _range: str) -> None:
        if method == "GET" and path.endswith(FIRST):
            store.fault = None
            store.client.put_object(Bucket=s3.BUCKET, Key=f"replaced/{FIRST}", Body=bytes(data))

    store.fault = replace
    with pytest.raises(CleanerdError, match=f"s3://archive/replaced/{FIRST}.*another object"):
        [list(reader.read(split)) for split in splits]


@pytest.mark.parametrize("before", [b"\0", b"<"])
def test_an_object_deleted_while_it_is_read(store: Store, before: bytes) -> None:
    """Reported at once, as deleted; whatever was in pyarrow's buffer for the store's answer."""
    store.client.put_object(Bucket=s3.BUCKET, Key="going", Body=bytes(70_000))
    with path_of("s3://archive/going").opened() as file:  # type: ignore[attr-defined]
        store.client.delete_object(Bucket=s3.BUCKET, Key="going")
        for count in (65_536, 70_000) * 20:
            memoryview(pa.allocate_buffer(count)).cast("B")[:] = before * count
        requests = len(store.requests)
        with pytest.raises(SegmentChangedError, match="it is gone"):
            file.readall()
        assert len(store.requests) == requests + 1


def test_a_checkpoint_that_is_replaced_after_its_size_was_read(store: Store) -> None:
    """As many bytes of a longer one are a checkpoint, too, with another offset."""
    old, new = (f"0\n1\norders 0 {offset}\n".encode() for offset in (9_999, 100_000))
    store.client.put_object(Bucket=s3.BUCKET, Key="small/checkpoint", Body=old)

    def replace(_number: int, method: str, _path: str, _range: str) -> None:
        if method == "GET":
            store.fault = None
            store.client.put_object(Bucket=s3.BUCKET, Key="small/checkpoint", Body=new)

    store.fault = replace
    with pytest.raises(SegmentChangedError, match=r"small/checkpoint: .*: another object has its name now"):
        bytes_of(path_of("s3://archive/small/checkpoint"))
    assert bytes_of(path_of("s3://archive/small/checkpoint")) == new


@pytest.mark.long
def test_a_search_of_an_object_without_a_path(store: Store, log_dir: Path) -> None:
    """A key in ``DIR//FILE`` is not searched in ``DIR/FILE``: not finding it there would be no proof."""
    url = store.put(log_dir, "odd/data")
    assert ReadableLogs(None, url).find_keys([b"lost"]).found == 0
    data = (log_dir / FIRST).read_bytes()
    store.client.put_object(Bucket=s3.BUCKET, Key=f"odd/data/{NAME}//{0:020d}.log", Body=data)
    with pytest.raises(ConfigError, match=rf"an object is called '{NAME}//{0:020d}.log' there, which no path is"):
        ReadableLogs(None, url).find_keys([b"lost"])
    assert offsets(url) == offsets(log_dir)


def test_refused(store: Store, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong credentials, no such bucket or directory, a secret in a URL: clear messages, without the secret."""
    store.fault = lambda *_: "denied"
    with pytest.raises(
        ConfigError, match=r"^s3://archive/backup/1/data: the store refuses access: credentials are missing, wrong"
    ):
        read_rows(url)
    store.fault = None
    with pytest.raises(ConfigError, match=r"^s3://nowhere/data: there is no bucket or container nowhere$"):
        read_rows("s3a://nowhere/data")
    with pytest.raises(ConfigError, match=r"^s3://archive/nothing: no such directory$"):
        read_rows("s3a://archive/nothing")
    for text in (f"s3://AKIA:{s3.SECRET}@archive/x", f"s3://archive/x?secret_key={s3.SECRET}",
                 f"abfs://:{s3.SECRET}@account/x", f"ftp://me:{s3.SECRET}@host/x"):  # fmt: skip
        with pytest.raises(ConfigError, match=r"contains credentials|nothing here reads ftp://") as raised:
            read_rows(text)
        assert s3.SECRET not in str(raised.value)
        assert run(["spark", "profile", text]) == ConfigError.exit_code
        assert run(["spark", "clean", text]) == ConfigError.exit_code
        out = capsys.readouterr()
        assert s3.SECRET not in out.out + out.err
    assert run(["spark", "clean", url]) == ConfigError.exit_code
    assert "is not a directory of this machine" in capsys.readouterr().err


@pytest.mark.long
def test_a_pattern_for_a_command(store: Store, log_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern may match one directory; with two it is ambiguous, which is an error and not a bug."""
    for number in (1, 2):
        store.put(log_dir, f"brokers/{number}/data")
    assert run(["spark", "profile", "s3://archive/brokers/1*/data"]) == 0
    capsys.readouterr()
    assert run(["spark", "profile", "s3://archive/brokers/*/data"]) == ConfigError.exit_code
    output = " ".join(capsys.readouterr().err.split())
    assert "s3://archive/brokers/*/data: means 2 directories (name each of them: s3://archive/brokers/1/data" in output


def test_a_topic_with_the_name_of_an_error(store: Store, tmp_path: Path) -> None:
    """The store's message is read without the names in it: a throttled request for such a topic is retried."""
    shutil.copytree(RichLog(4).write(tmp_path / "logs", 1, 4) / NAME, tmp_path / "logs" / "ACCESS_DENIED-credential-0")
    url = store.put(tmp_path / "logs", "named")
    store.fault = faulty.now_and_then("slow")
    assert {log.name.topic for log in ReadableLogs(None, url).found()} == {"ACCESS_DENIED-credential", "orders"}


@pytest.mark.long
def test_commands_without_spark(
    store: Store, url: str, log_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A small archive is profiled and exported by this process, as a directory is."""

    def requested(*arguments: object) -> Any:
        assert run(["spark", *map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert requested("profile", url) == requested("profile", log_dir)
    there, local_rows = (requested("snapshot", place, "--out", tmp_path / place[-4:]) for place in (url, str(log_dir)))
    assert there["partitions"] == local_rows["partitions"]
    assert there["records"] > 10


@pytest.mark.long
def test_commands_in_tasks(store: Store, url: str, log_dir: Path, tmp_path: Path, spark: SparkSession) -> None:
    """Executors fetch the data themselves: an audit and a proof of erasure return the same as here."""
    worse = tmp_path / "worse"
    shutil.copytree(log_dir, worse)
    lost = sorted((worse / NAME).glob("*.log"))[1]
    lost.unlink()
    cleaned = store.put(worse, "worse")
    values = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    with sent_to_workers(spark, values):
        there, local_rows = (
            ReadableLogs(spark, after).audit(before, clean_below=0, now_ms=NOW_MS, digest_key=bytes(16))
            for after, before in ((cleaned, url), (worse, log_dir))
        )
        assert [(each.findings, each.before, each.after) for each in there.partitions] == [
            (each.findings, each.before, each.after) for each in local_rows.partitions
        ]
        assert there.found > 0
        assert all(each.file.startswith("s3://archive/") for part in there.partitions for each in part.examples)
        everything = Counter(row["key"] for row in read_rows(log_dir, view="raw") if row["key"] is not None)
        (key, count), *_ = everything.most_common(1)
        erased = ReadableLogs(spark, url).find_keys([key])
        assert (erased.found, erased.files) == (count, len(list(log_dir.rglob("*.log"))))
        check_read_in_tasks(spark, url, log_dir)
        assert {each.file for each in erased.occurrences} <= {
            f"s3://archive/backup/1/data/{path.relative_to(log_dir)}" for path in log_dir.rglob("*.log")
        }
