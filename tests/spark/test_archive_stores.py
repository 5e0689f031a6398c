"""A cleaned copy of an archive in an object store: from a store, to a store, and with a store's failures."""

from __future__ import annotations

import contextlib
import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from botocore.exceptions import ClientError

from cleanerd import _kernel
from cleanerd.cli.main import run
from cleanerd.errors import ConfigError, MachineError, RefusedError
from cleanerd.spark.archive import run as driver
from cleanerd.spark.archive.source import contents_of, fetch
from cleanerd.spark.archive.target import MANIFEST, check_new, target_of
from cleanerd.spark.stores import path_of
from tests.spark import faulty, s3
from tests.spark.archives import (
    CLEAN,
    archived,
    cleaned_locally,
    files_of,
    make_archive,
    manifest_of,
    only_cleaned_dir,
    settings,
)
from tests.spark.s3 import ARCHIVE_PARTITIONS, downloaded, keys

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.s3 import Store

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_archive(tmp_path_factory.mktemp("lake") / "data", *ARCHIVE_PARTITIONS)


@pytest.fixture(scope="module")
def url(server: Store, log_dir: Path) -> str:
    return server.put(log_dir, "archives/1/data")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.long
def test_from_store_to_store(
    store: Store, url: str, log_dir: Path, tmp_path: Path, capsys: Capsys, state: Path
) -> None:
    """The cleaned archive, downloaded, equals ``clean`` on a copy of the archive, which stays as it was."""
    before = {key: store.client.head_object(Bucket=s3.BUCKET, Key=key)["ETag"] for key in keys(store, "archives/1/")}
    code, document, reported = archived(capsys, url, "s3://archive/cleaned/1", state)
    assert code == 0, reported
    assert document["manifest"] == f"s3://archive/cleaned/1/{MANIFEST}"
    assert before == {
        key: store.client.head_object(Bucket=s3.BUCKET, Key=key)["ETag"] for key in keys(store, "archives/1/")
    }
    output = downloaded(store, "cleaned/1", tmp_path / "out")
    assert files_of(only_cleaned_dir(output)) == cleaned_locally(capsys, log_dir)
    (one,) = manifest_of(output)["log_dirs"]
    assert one["source"] == url.replace("s3a:", "s3:")
    tags = {f"archives/1/data/{row['topic']}-{row['partition']}/{file['name']}": file["etag"].strip('"')
            for row in one["partitions"] for file in row["source_files"]}  # fmt: skip
    assert tags.items() <= {key: tag.strip('"') for key, tag in before.items()}.items()
    assert len(tags) > 20
    puts = [path for method, path, _ in store.requests if method in ("PUT", "POST")]
    assert puts[-1].endswith(f"/cleaned/1/{MANIFEST}")
    assert all("/cleaned/1/" in path for path in puts)
    code, _, reported = archived(capsys, url, "s3a://archive/cleaned/1", state)
    assert (code, "has an archive already" in reported) == (3, True)


@pytest.mark.long
@pytest.mark.parametrize("way", ["down", "up"])
def test_between_store_and_disk(
    store: Store, url: str, log_dir: Path, tmp_path: Path, capsys: Capsys, state: Path, way: str
) -> None:
    """Either end may be on a disk."""
    if way == "down":
        assert archived(capsys, url, tmp_path / "out", state)[0] == 0
    else:
        assert archived(capsys, log_dir, "s3://archive/up", state)[0] == 0
        downloaded(store, "up", tmp_path / "out")
    assert files_of(only_cleaned_dir(tmp_path / "out")) == cleaned_locally(capsys, log_dir)


@pytest.mark.long
@pytest.mark.parametrize("fault", [*(pytest.param(each, marks=pytest.mark.long) for each in ("slow", "drop")), "cut"])
def test_a_store_that_fails_now_and_then(
    store: Store, url: str, log_dir: Path, tmp_path: Path, capsys: Capsys, state: Path, fault: str
) -> None:
    """Every request is throttled once, not answered, or half answered."""
    store.fault = faulty.now_and_then(fault)
    code, _, reported = archived(capsys, url, f"s3://archive/shaky/{fault}", state)
    store.fault = None
    assert code == 0, reported
    assert len(store.requests) > len(set(store.requests)) + 20
    output = downloaded(store, f"shaky/{fault}", tmp_path / "out")
    assert files_of(only_cleaned_dir(output)) == cleaned_locally(capsys, log_dir)


@pytest.mark.long
def test_a_store_that_accepts_nothing(store: Store, url: str, capsys: Capsys, state: Path) -> None:
    """No partition is in the archive, so there is none; the reason is reported, and nothing is left."""
    store.fault = lambda _number, method, path, _range: "slow" if method == "PUT" and path.endswith(".log") else None
    code, document, reported = archived(capsys, url, "s3://archive/full", state, "--partition", "offset-0")
    store.fault = None
    assert (code, document.get("manifest", "none said")) == (1, None), (document, reported)
    assert {row["outcome"] for row in document["partitions"]} == {"failed"}
    assert "cannot be written, tried 8 times" in reported
    assert keys(store, "full/") == []


@pytest.mark.long
def test_some_uploads_fail(store: Store, url: str, tmp_path: Path, capsys: Capsys, state: Path) -> None:
    """The files of such a partition are removed again: the prefix holds exactly the files of the manifest."""
    store.fault = lambda _number, method, path, _range: (
        "denied" if method == "PUT" and "/old-0/" in path and path.endswith(".log") else None
    )
    code, document, _ = archived(capsys, url, "s3://archive/partly", state)
    store.fault = None
    assert code == 6
    assert {row["topic"]: row["outcome"] for row in document["partitions"]}["old"] == "refused"
    output = downloaded(store, "partly", tmp_path / "out")
    assert [row["topic"] for row in manifest_of(output)["log_dirs"][0]["left_out"]] == ["old"]


@pytest.mark.long
def test_an_object_that_is_replaced(store: Store, log_dir: Path, tmp_path: Path, capsys: Capsys, state: Path) -> None:
    """By one of the same size and second while its partition is fetched: that partition is left out."""
    url = store.put(log_dir, "replaced/data")
    name = f"old-0/{0:020}.log"
    data = (log_dir / name).read_bytes()

    def replace(_number: int, method: str, path: str, _range: str) -> None:
        if method == "GET" and path.endswith(name):
            store.fault = None
            store.client.put_object(Bucket=s3.BUCKET, Key=f"replaced/data/{name}", Body=data[::-1])

    store.fault = replace
    code, document, _ = archived(capsys, url, tmp_path / "out", state)
    assert code == 6
    (row,) = [row for row in document["partitions"] if row["topic"] == "old"]
    assert "the log changed while it was read" in row["reason"]
    assert row["reason"].startswith("s3://archive/replaced/data/old-0")
    assert (tmp_path / "out" / MANIFEST).exists()


@pytest.mark.long
def test_hostile_keys(store: Store, log_dir: Path, tmp_path: Path, capsys: Capsys, state: Path) -> None:
    """Keys that lead elsewhere, are empty, or a file and a directory at once do nothing outside of their partition."""
    url = store.put(log_dir, "hostile/data")
    for key in ("../x", "old-0/../x", "old-0//etc/passwd", "/etc/passwd", "old-0/./y", "..-0/z", "old-0/deep/file"):
        with contextlib.suppress(ClientError):  # this server does not accept all of them
            store.client.put_object(Bucket=s3.BUCKET, Key=f"hostile/data/{key}", Body=b"evil")
    assert len(keys(store, "hostile/")) > len(keys(store, "archives/1/"))
    store.client.put_object(Bucket=s3.BUCKET, Key="hostile/data/offset-0", Body=b"a file too")
    store.client.put_object(Bucket=s3.BUCKET, Key=f"hostile/data/version-0/{0:020}.log/x", Body=b"a directory too")
    store.client.put_object(Bucket=s3.BUCKET, Key=f"hostile/data/transactions-1/{'x' * 300}", Body=b"a name")
    code, document, _ = archived(capsys, url, tmp_path / "deep" / "out", state)
    assert code == 6
    reported = {row["topic"]: row["reason"] for row in document["partitions"]}
    assert reported["old"] == ""
    assert "a file has its name too" in reported["offset"]
    assert f"both a file and a directory are called '{0:020}.log'" in reported["version"]
    assert "which no file of a broker is" in reported["transactions"]
    assert files_of(only_cleaned_dir(tmp_path / "deep" / "out") / "old-0").keys() == {
        name.partition("/")[2] for name in cleaned_locally(capsys, log_dir) if name.startswith("old-0/")
    }
    assert {each.name for each in (tmp_path / "deep").iterdir()} == {"out"}


@pytest.mark.long
def test_a_listing_of_thousands(store: Store) -> None:
    """All of its pages are read."""
    for number in range(1001):
        store.client.put_object(Bucket=s3.BUCKET, Key=f"huge/data/t-0/{number:020}.index", Body=b"")
    contents = contents_of(path_of("s3://archive/huge/data/t-0"))
    assert len(contents.files) == 1001


def test_a_large_object(store: Store, tmp_path: Path) -> None:
    """It is sent in parts, some of which fail, and is downloaded unchanged."""
    data = random.Random(1).randbytes((25 << 20) + 3)
    (tmp_path / "large").write_bytes(data)
    target = target_of(path_of("s3://archive/large"))
    store.fault = faulty.now_and_then("slow")
    written = target.put_file("run-1/data/large", tmp_path / "large")
    store.fault = None
    assert len([path for method, path, _ in store.requests if method == "PUT"]) >= 3
    assert (written.size_bytes, written.crc32c) == (len(data), _kernel.crc32c(np.frombuffer(data, np.uint8)))
    (copied,) = fetch(contents_of(path_of("s3://archive/large/run-1/data")), tmp_path / "copy")
    assert copied.crc32c == written.crc32c
    assert (tmp_path / "copy" / "large").read_bytes() == data


@pytest.mark.long
def test_two_runs_at_once(store: Store, url: str, capsys: Capsys, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one to put a manifest finds one there: it is refused, and removes only its own files."""
    real = driver._finished
    inner: list[Any] = []

    def finished(*arguments: Any) -> Any:
        done = real(*arguments)
        if not inner:
            inner.append(None)
            inner.append(archived(capsys, url, "s3://archive/both", state))
        return done

    monkeypatch.setattr(driver, "_finished", finished)  # the second run is whole before the first puts its manifest
    code, document, reported = archived(capsys, url, "s3://archive/both", state)
    assert code == RefusedError.exit_code
    assert (inner[1][0], document) in ((0, None), (0, document))
    assert "another run wrote its archive here at the same time" in reported
    (key,) = [key for key in keys(store, "both/") if key.endswith(MANIFEST)]
    body = json.loads(store.client.get_object(Bucket=s3.BUCKET, Key=key)["Body"].read())
    assert {key.split("/")[1] for key in keys(store, "both/run-")} == {body["run"]}


@pytest.mark.long
def test_a_manifest_that_may_have_been_written(
    store: Store, url: str, tmp_path: Path, capsys: Capsys, state: Path
) -> None:
    """The store accepts it and its answers are lost: it may exist, so the files that it lists stay."""

    def fault(_number: int, _method: str, path: str, _range: str) -> str | None:
        if not path.endswith(MANIFEST) or not [
            each for each in store.requests if each[0] == "PUT" and MANIFEST in each[1]
        ]:
            return None
        return None if store.requests[-1][0] == "PUT" else "slow"

    store.fault = fault
    code, _, reported = archived(capsys, url, "s3://archive/lost", state)
    store.fault = None
    assert code == MachineError.exit_code, reported
    assert files_of(only_cleaned_dir(downloaded(store, "lost", tmp_path / "out")))


@pytest.mark.long
def test_refused(store: Store, url: str, capsys: Capsys, state: Path) -> None:
    """Overlapping prefixes, no such bucket, credentials in the URL, no directory: reported before anything is read."""
    for place in (url, f"{url}/cleaned", "s3://archive/archives", "s3://archive"):
        code, _, reported = archived(capsys, url, place, state)
        assert (code, "is inside the source" in reported or "is around it" in reported) == (3, True), place
    code, _, reported = archived(capsys, url, "s3://nowhere/x", state)
    assert (code, "there is no bucket or container nowhere" in reported) == (3, True)
    for source, place in ((url, f"s3://me:{s3.SECRET}@archive/x"), (f"s3://me:{s3.SECRET}@archive/x", "/tmp/x")):  # noqa: S108
        words = ["spark", "clean", source, "--output", place, *CLEAN, *settings(state)]
        assert run(words) == ConfigError.exit_code
        reported = capsys.readouterr().err
        assert "contains credentials" in reported
        assert s3.SECRET not in reported
    code, _, reported = archived(capsys, "s3://archive/nothing", "s3://archive/x", state)
    assert (code, "no such directory" in reported) == (3, True)
    store.client.put_object(Bucket=s3.BUCKET, Key="notes/readme", Body=b"mine")
    with pytest.raises(ConfigError, match=r"has files that do not belong to an archive \(readme\)"):
        check_new(target_of(path_of("s3://archive/notes")))
    assert keys(store, "notes/") == ["notes/readme"]


@pytest.mark.long
def test_objects_of_a_killed_run_are_reported_and_stay(
    store: Store, url: str, tmp_path: Path, capsys: Capsys, state: Path
) -> None:
    """It is reported and stays: it may belong to another run that has not ended."""
    store.client.put_object(Bucket=s3.BUCKET, Key="again/run-20260101t000000-00000000/data/x", Body=b"left")
    code, _, reported = archived(capsys, url, "s3://archive/again", state)
    assert code == 0
    assert "run-20260101t000000-00000000 is of a run that did not end" in reported
    assert "again/run-20260101t000000-00000000/data/x" in keys(store, "again/")
    document = json.loads(store.client.get_object(Bucket=s3.BUCKET, Key=f"again/{MANIFEST}")["Body"].read())
    assert document["run"] != "run-20260101t000000-00000000"
