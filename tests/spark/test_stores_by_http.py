"""Logs in Google's and Microsoft's stores are read as the same bytes on a disk are, by emulators and with failures."""

from __future__ import annotations

import base64
import pickle
import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cleanerd.errors import CleanerdError, ConfigError, MachineError, SegmentChangedError
from cleanerd.spark import retries, stores
from cleanerd.spark.api import ReadableLogs
from cleanerd.spark.archive.target import target_of
from cleanerd.spark.source.data_source import KafkaSegments
from cleanerd.spark.source.options import options_from
from cleanerd.spark.stores import path_of
from tests.cleaner.driver import NAME
from tests.spark import azure
from tests.spark.archives import archived, cleaned_locally, files_of, make_archive, manifest_of
from tests.spark.other_store import Always, NowAndThen, Replace
from tests.spark.reading import EVERYTHING, offsets, read_rows, schema_of
from tests.spark.rich_log import NOW_MS, RichLog
from tests.spark.served import STARTERS, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.spark.other_store import OtherStore

pytestmark = pytest.mark.long

MIB = 1 << 20
FIRST = f"{NAME}/{0:020d}.log"
COMPARED = EVERYTHING.replace(",segment", "")
READ = r"^GET [^ ?]*\.log(\?[^ ]*)? ."
"""A request for a byte range of a segment."""
LISTING = re.compile(r"comp=list|/o\?")


@pytest.fixture(scope="module", params=list(STARTERS))
def server(request: pytest.FixtureRequest) -> Iterator[OtherStore]:
    with serving(request.param) as store:
        yield store


@pytest.fixture
def store(server: OtherStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherStore]:
    """Without faults and without requests yet; pauses before a repeated request are short."""
    monkeypatch.setenv(retries.PAUSE_SECONDS, "0.001")
    server.control.clear()
    yield server
    server.control.clear()


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RichLog(3, transactions=True).write(tmp_path_factory.mktemp("lake") / "logs", 2, 20)


@pytest.fixture(scope="module")
def url(server: OtherStore, log_dir: Path) -> str:
    return server.put(log_dir, "backup/1/data")


@pytest.fixture(scope="module")
def small_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests in which each request fails: Google's library and Microsoft's wait a second before they ask again."""
    return RichLog(5).write(tmp_path_factory.mktemp("lake") / "logs", 1, 4)


def reads(store: OtherStore) -> list[str]:
    """The requested ranges of segments."""
    return [wanted for method, path, wanted in store.requests if re.search(READ, f"{method} {path} {wanted}")]


def test_the_same_rows(store: OtherStore, url: str, log_dir: Path) -> None:
    """By views, in pieces, by offsets, and through a pattern: all columns as from the disk."""
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
    assert offsets(f"{store.root}/back*/?/data") == offsets(log_dir) == offsets(f"{url}/{NAME}")


def test_a_directory_next_to_one_with_a_longer_name(store: OtherStore, log_dir: Path) -> None:
    """Both are found, whatever sorts before the slash; and no object represents either."""
    for name in ("data", "data-2", "data!"):
        store.put(log_dir, f"beside/{name}")
    top = path_of(f"{store.root}/beside")
    assert isinstance(top, stores.StorePath)
    assert [(each.name, each.listed is not None and each.listed.is_dir) for each in top.children()] == [
        ("data", True), ("data!", True), ("data-2", True)
    ]  # fmt: skip
    assert offsets(f"{store.root}/beside/data") == offsets(log_dir)
    assert len(top.files_below()) == 3 * len([each for each in log_dir.rglob("*") if each.is_file()])
    assert [found for name in ("dat", "data-") if (found := (top / name).status()) is not None] == []
    found = (top / "data").status()
    assert found is not None
    assert found.is_dir


def test_a_listing_in_pages(store: OtherStore, log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store answers with about a thousand names at once: here with three, with the same rows."""
    url = store.put(log_dir, "pages/data")
    if (reported := store.environment.get("AZURE_STORAGE_CONNECTION_STRING")) is not None:
        # A key signs the whole request, which the proxy changes; this signature does not cover the page size.
        signed = re.sub("AccountKey=[^;]*", f"SharedAccessSignature={azure.signature('rl')}", reported)
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", signed)
        stores._system.cache_clear()
    for each in range(3):
        store.put(log_dir, f"pages/{each}")
    names = {f"pages/data/{path.relative_to(log_dir)}" for path in log_dir.rglob("*") if path.is_file()}
    expected = offsets(log_dir)
    store.control.clear()
    store.control.page(3)
    assert offsets(url) == expected
    top = path_of(f"{store.root}/pages")
    assert isinstance(top, stores.StorePath)
    assert [each.name for each in top.children()] == ["0", "1", "2", "data"]
    assert len(top.files_below()) == 4 * len(names)
    listings = [path for method, path, _ in store.requests if method == "GET" and LISTING.search(path)]
    assert len(listings) > 4 * len(names) // 3
    stores._system.cache_clear()


def test_commands(store: OtherStore, url: str, log_dir: Path) -> None:
    """An audit and a profile by this process return the same as for the directory."""
    assert ReadableLogs(None, url).profile() == ReadableLogs(None, log_dir).profile()
    store.put(log_dir, "worse")
    worst = sorted((log_dir / NAME).glob("*.log"))[1]
    store.control.delete(f"worse/{NAME}/{worst.name}")
    lost = ReadableLogs(None, f"{store.root}/worse").audit(url, clean_below=0, now_ms=NOW_MS, digest_key=bytes(16))
    assert lost.found > 0
    whole = ReadableLogs(None, url).audit(log_dir, clean_below=0, now_ms=NOW_MS, digest_key=bytes(16))
    assert whole.found == 0


@pytest.mark.parametrize(
    "fault", [*(pytest.param(each, marks=pytest.mark.long) for each in ("slow", "broken", "drop")), "cut"]
)
def test_a_store_that_fails_now_and_then(store: OtherStore, small_dir: Path, fault: str) -> None:
    """Each request is throttled once, not answered, or broken off half way: nothing is missing, nothing twice."""
    url = store.put(small_dir, f"shaky/{fault}")
    store.control.fail(NowAndThen(fault))
    assert read_rows(url, columns=COMPARED) == read_rows(small_dir, columns=COMPARED)
    assert len(store.requests) > len(set(store.requests)) + 5  # a cut answer is continued, with another range


@pytest.mark.parametrize("fault", ["slow", "drop"])
def test_a_store_that_always_fails(store: OtherStore, url: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets a few tries and no more; the error names the URL."""
    monkeypatch.setenv(retries.TRIES, "2")  # each of which contains some of the library's own
    store.control.fail(Always(fault, READ))
    with pytest.raises(
        MachineError, match=rf"^{re.escape(url)}/orders-0/[0-9]{{20}}\.log: cannot be read, tried 2 times"
    ):
        read_rows(url)
    # Microsoft's library reopens a connection that is closed at once ten times, in each of its four tries.
    assert 2 <= len(reads(store)) <= 2 * 4 * 10


def test_ranges(store: OtherStore) -> None:
    """Each byte is fetched once, in ranges of 4 to 8 MiB, and none behind the range to read."""
    data = random.Random(1).randbytes(20 * MIB)
    store.control.put_bytes("large.log", data)
    room = np.empty(4 * MIB, np.uint8)
    upto = 17 * MIB + 5
    with path_of(f"{store.root}/large.log").opened(upto) as file:  # type: ignore[attr-defined]
        got = bytearray()
        while len(got) < upto:
            count = min(len(room), upto - len(got))
            assert file.read_into(room.data[:count], len(got)) == count
            got += room[:count].tobytes()
        assert bytes(got) == data[:upto]
        edges = [tuple(map(int, each.removeprefix("bytes=").split("-"))) for each in reads(store)]
        assert sum(last + 1 - first for first, last in edges) == upto
        assert all(last - first < 8 * MIB for first, last in edges)
        assert file.read_into(room.data[:10], 99) == 10
        assert room[:10].tobytes() == data[99:109]


def _planned(url: str) -> tuple[Any, list[Any]]:
    """The partitions as the driver passes them to the tasks."""
    texts = {"path": url, "view": "raw"}
    reader = KafkaSegments(texts).reader(schema_of(options_from(texts).columns))
    return pickle.loads(pickle.dumps((reader, reader.partitions())))  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ("gone", "it is gone"),
        ("shorter", "it became shorter: [0-9]+ bytes were listed, it ends at 10"),
        ("other", "it was written to although it is not the active segment"),
    ],
)
def test_an_object_changed_after_the_listing_is_an_error(
    store: OtherStore, log_dir: Path, change: str, reported: str
) -> None:
    """An object that is deleted, truncated or replaced after the listing is an error with its URL, never other rows."""
    url = store.put(log_dir, f"changing/{change}")
    reader, splits = _planned(url)
    data = (log_dir / FIRST).read_bytes()
    if change == "gone":
        store.control.delete(f"changing/{change}/{FIRST}")
    else:
        store.control.put_bytes(f"changing/{change}/{FIRST}", data[:10] if change == "shorter" else data + data[-100:])
    where = re.escape(f"{url}/{FIRST}")
    with pytest.raises(SegmentChangedError, match=f"{where}: the log changed while it was read: {reported}"):
        [list(reader.read(split)) for split in splits]


def test_an_object_that_is_replaced_while_it_is_read(store: OtherStore, log_dir: Path) -> None:
    """By one of the same size, within the same second: the ranges would be of two objects."""
    url = store.put(log_dir, "replaced")
    reader, splits = _planned(url)
    data = bytearray((log_dir / FIRST).read_bytes())
    data[-1] ^= 1

    store.control.fail(Replace(READ, f"replaced/{FIRST}", bytes(data)))
    with pytest.raises(CleanerdError, match=f"{re.escape(url)}/{FIRST}.*(another object|CRC|checksum|it is gone)"):
        [list(reader.read(split)) for split in splits]


@pytest.mark.parametrize("fault", ["denied", "forbidden"])
def test_wrong_credentials(store: OtherStore, url: str, fault: str) -> None:
    """For every request: reported at once, with what to do."""
    store.control.fail(Always(fault))
    with pytest.raises(
        ConfigError, match=rf"^{re.escape(url)}: the store refuses access: credentials are missing, wrong"
    ) as raised:
        read_rows(url)
    assert "searches them in the environment" in str(raised.value.hint)
    assert len(store.requests) < 4
    store.control.fail(Always(fault, READ))
    with pytest.raises(ConfigError, match=rf"^{re.escape(url)}/orders-0/.*: the store refuses access: credentials"):
        read_rows(url)


def test_refused(store: OtherStore) -> None:
    """No such bucket or directory: a clear message, at once."""
    with pytest.raises(ConfigError, match=rf"^{store.elsewhere}/data: there is no bucket or container nowhere$"):
        read_rows(f"{store.elsewhere}/data")
    with pytest.raises(ConfigError, match=rf"^{store.root}/nothing: no such directory$"):
        read_rows(f"{store.root}/nothing")
    with pytest.raises(ConfigError, match=rf"^{store.root}/nothing: no such directory$"):
        path_of(f"{store.root}/nothing").children()  # type: ignore[attr-defined]
    assert len(store.requests) < 20


def test_a_topic_with_the_name_of_an_error(store: OtherStore, small_dir: Path) -> None:
    """The store's message is read without the names in it: a throttled request for such a topic is retried."""
    url = store.put(small_dir / NAME, "named/ACCESS_DENIED-credential-0").rpartition("/")[0]
    store.control.fail(NowAndThen("slow"))
    assert {log.name.topic for log in ReadableLogs(None, url).found()} == {"ACCESS_DENIED-credential"}


def test_a_cleaned_copy(store: OtherStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the store and to it: the result of ``clean`` on a copy of the archive."""
    log_dir = make_archive(tmp_path / "data", "offset-0", "transactions-1")
    url = store.put(log_dir, "archives/1/data")
    code, _, reported = archived(capsys, url, f"{store.root}/cleaned/1", tmp_path / "state")
    assert code == 0, reported
    output = store.downloaded("cleaned/1", tmp_path / "out")
    (one,) = manifest_of(output)["log_dirs"]
    assert files_of(output / one["path"]) == cleaned_locally(capsys, log_dir)
    code, _, reported = archived(capsys, url, f"{store.root}/cleaned/1", tmp_path / "state")
    assert (code, "has an archive already" in reported) == (3, True)


def test_a_directory_is_removed(store: OtherStore) -> None:
    """Whether an object represents it or not; other directories stay."""
    for name in ("run-1/x", "run-1/deep/y", "run-12/z"):
        store.control.put_bytes(f"removed/{name}", b"x")
    target = target_of(path_of(f"{store.root}/removed"))
    target.remove("run-1")
    target.remove("run-1")
    assert target.names() == ["run-12"]
    assert target.sizes_below("run-12") == {"z": 1}


@pytest.fixture
def message(store: OtherStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Use another connection string than the server's from now on."""

    def say(text: str) -> None:
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
        stores._system.cache_clear()

    yield say
    monkeypatch.undo()
    stores._system.cache_clear()


@pytest.mark.parametrize("server", ["abfs"], indirect=True)
def test_connection_strings(store: OtherStore, log_dir: Path, message: Callable[[str], None], tmp_path: Path) -> None:
    """A signature instead of the key, an address with the account's name in it.

    A wrong key is reported, and not shown.
    """
    url = store.put(log_dir, "signed/data")
    endpoint = store.control.endpoint()
    path = f"BlobEndpoint={endpoint}/{azure.ACCOUNT};AccountName={azure.ACCOUNT};"
    message(f"DefaultEndpointsProtocol=http;{path}SharedAccessSignature={azure.signature('rl')}")
    assert offsets(url) == offsets(log_dir)
    message(f"DefaultEndpointsProtocol=http;{path}SharedAccessSignature={azure.signature('w')}")
    with pytest.raises(ConfigError, match=rf"^{re.escape(url)}: the store refuses"):
        read_rows(url)
    port = endpoint.rpartition(":")[2]
    message(azure.connection_string(f"http://{azure.ACCOUNT}.blob.localhost:{port}"))
    assert offsets(url) == offsets(log_dir)
    wrong = base64.b64encode(b"another key").decode()
    message(azure.connection_string(f"{endpoint}/{azure.ACCOUNT}", wrong))
    with pytest.raises(ConfigError, match=rf"^{re.escape(url)}: the store refuses") as raised:
        read_rows(url)
    assert wrong not in str(raised.value)
