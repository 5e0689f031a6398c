"""Contents and answers of a store that must not be trusted: odd names, other bytes than requested (D-06)."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from cleanerd.errors import ConfigError, MachineError, SegmentChangedError
from cleanerd.spark import retries, stores
from cleanerd.spark.stores import path_of
from cleanerd.verify.listing import bytes_of, list_partition
from tests.spark import azure, gcs
from tests.spark.other_store import Always, Replace
from tests.spark.reading import offsets
from tests.spark.rich_log import RichLog
from tests.spark.served import STARTERS, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.segments.remote import Ranges
    from tests.spark.other_store import OtherStore

pytestmark = pytest.mark.long

READ = r"^GET [^ ?]*\.log(\?[^ ]*)? ."
"""A request for a byte range of a segment."""

PUT_BY_NAME = {"gs": gcs.put_by_name, "abfs": azure.put_by_name}


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


def put_by_name(store: OtherStore, name: str, data: bytes) -> None:
    PUT_BY_NAME[store.root.partition(":")[0]](store.control.endpoint(), name, data)


def test_names_that_are_not_paths(store: OtherStore) -> None:
    """Empty names and dots in a key: a listing omits them; a command that has to see all reports them at once."""
    name = f"{0:020d}.log"
    for key in ("real/", f"real/{name}", f"real//{5:020d}.log", f"real//{name}", "./x", "/x", "marker/"):
        put_by_name(store, f"odd/{key}", b"x" * len(key))
    top = path_of(f"{store.root}/odd")
    assert isinstance(top, stores.StorePath)
    assert [each.name for each in top.children()] == ["marker", "real"]
    assert [(each.base, each.size_bytes) for each in list_partition(top / "real").segments] == [(0, 29)]
    with pytest.raises(
        ConfigError, match=rf"^{re.escape(store.root)}/odd(/real)?: an object is called '.*' there, which"
    ):
        top.files_below(complete=True)
    assert [str(each).rpartition("odd/")[2] for each in top.files_below()] == [f"real/{name}"]
    for key in (f"real/{name}", "real/", "marker/"):
        put_by_name(store, f"marked/{key}", b"x")
    assert [each.name for each in path_of(f"{store.root}/marked").files_below()] == [name]  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"has \. or \.\. in it, which a store takes for names"):
        path_of(f"{store.root}/odd/../marked")


@pytest.fixture
def at_416(store: OtherStore) -> Iterator[tuple[Ranges, bytes]]:
    """An open object, to be read from a position that looks like an HTTP status; its data."""
    data = random.Random(2).randbytes(3 * 65536)
    store.control.put_bytes("numbers/416.log", data)
    with path_of(f"{store.root}/numbers/416.log").opened(len(data)) as file:  # type: ignore[attr-defined]
        yield file, data


@pytest.mark.parametrize("fault", ["slow", "drop"])
def test_a_position_that_resembles_an_answer(
    store: OtherStore, at_416: tuple[Ranges, bytes], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that does not answer for byte 41600 has not reported that the object became shorter."""
    file, data = at_416
    store.control.fail(Always(fault, READ))
    with monkeypatch.context() as patch:
        patch.setenv(retries.TRIES, "2")
        with pytest.raises(MachineError, match="cannot be read, tried 2 times"):
            file.read_into(bytearray(9), 41600)
    store.control.clear()
    room = bytearray(9)
    assert file.read_into(room, 41600) == 9
    assert room == data[41600:41609]


def test_an_object_deleted_while_it_is_read(store: OtherStore, at_416: tuple[Ranges, bytes]) -> None:
    """Or truncated: reported at once."""
    file, data = at_416
    store.control.put_bytes("numbers/416.log", data[:100])
    with pytest.raises(SegmentChangedError, match="it became shorter"):
        file.read_into(bytearray(9), 41600)
    store.control.delete("numbers/416.log")
    requests = len(store.requests)
    with pytest.raises(SegmentChangedError, match="it is gone"):
        file.read_into(bytearray(9), 41600)
    assert len(store.requests) - requests < stores.PART_TRIES


def test_a_whole_object_instead_of_a_part(
    store: OtherStore, log_dir: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy may answer, or Google for an object that it decompresses: never used as the part."""
    url = store.put(log_dir, "whole/data")
    if url.startswith("abfs"):  # with a key the range is a part of the signed data
        endpoint = f"BlobEndpoint={store.control.endpoint()}/{azure.ACCOUNT};AccountName={azure.ACCOUNT};"
        text = f"DefaultEndpointsProtocol=http;{endpoint}SharedAccessSignature={azure.signature('rl')}"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
        stores._system.cache_clear()
        request.addfinalizer(stores._system.cache_clear)
    assert offsets(url, splitBytes="3000") == offsets(log_dir)
    data = random.Random(3).randbytes(3 * 65536)
    store.control.put_bytes("whole/x.log", data)
    store.control.fail(Always("whole", READ))
    with path_of(f"{store.root}/whole/x.log").opened(len(data)) as file:  # type: ignore[attr-defined]
        file.read_into(bytearray(9), 70_000)
        with pytest.raises(ConfigError, match="was returned whole although a range was requested"):
            file.require_unchanged()


@pytest.mark.parametrize("server", ["gs"], indirect=True)
def test_objects_that_google_decompresses(store: OtherStore) -> None:
    """It is decompressed on the way, and its size is the compressed one."""
    system = path_of(f"{store.root}/packed").system  # type: ignore[attr-defined]
    with system.open_output_stream("archive/packed.log", metadata={"Content-Encoding": "gzip"}) as stream:
        stream.write(b"x" * 100)
    with pytest.raises(
        ConfigError, match=r"^gs://archive/packed.log: is stored with Content-Encoding gzip, so it cannot"
    ):
        path_of(f"{store.root}/packed.log").opened()  # type: ignore[attr-defined]


@pytest.mark.parametrize("server", ["gs"], indirect=True)
def test_a_file_whose_first_answer_fails(store: OtherStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google's library treats it as closed from then on: a new one is opened."""
    monkeypatch.setenv(retries.TRIES, "2")
    store.control.put_bytes("first.log", b"x")
    store.control.fail(Always("slow", "alt=media"))
    with pytest.raises(MachineError, match="cannot be opened, tried 2 times"):
        path_of(f"{store.root}/first.log").opened()  # type: ignore[attr-defined]
    assert len([path for method, path, _ in store.requests if method == "GET" and "alt=media" not in path]) == 2


def test_a_small_file_that_is_replaced_after_its_size_was_read(store: OtherStore) -> None:
    """As many bytes of a longer one may be a checkpoint, too, with another offset."""
    name = "small/replication-offset-checkpoint"
    old, new = (f"0\n1\norders 0 {offset}\n".encode() for offset in (9_999, 100_000))
    store.control.put_bytes(name, old)
    place = path_of(f"{store.root}/{name}")
    assert bytes_of(place) == old
    # Both libraries ask for the size before.
    store.control.fail(Replace(rf"^GET .*{name}(\?[^ ]*)? .", name, new))
    with pytest.raises(SegmentChangedError, match=rf"{name}: the log changed while it was read: "):
        bytes_of(place)
    assert bytes_of(place) == new
