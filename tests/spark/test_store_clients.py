"""The environment's settings of a store, and pyarrow's arguments made from them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.errors import ConfigError
from cleanerd.spark import stores
from cleanerd.spark.store_clients import AZURITE, client_of
from cleanerd.spark.stores import path_of
from tests.compatibility.page import TOP

if TYPE_CHECKING:
    from pathlib import Path

KEY = "c2VjcmV0LW9mLW5vYm9keQ=="
MESSAGES = "AZURE_STORAGE_CONNECTION_STRING"


def azure_words(host: str) -> dict[str, Any]:
    """The arguments of ``AzureFileSystem``."""
    _, (words,) = client_of("abfs", host, 1).__reduce__()
    return {key: value for key, value in words.items() if value}


def authorities(blob: str, dfs: str, scheme: str = "https") -> dict[str, str]:
    return {"blob_storage_authority": blob, "dfs_storage_authority": dfs} | {
        f"{kind}_storage_scheme": scheme for kind in ("blob", "dfs")
    }


@pytest.mark.parametrize(
    ("message", "host", "words"),
    [
        ("", "c@mine.dfs.core.windows.net", authorities(".blob.core.windows.net", ".dfs.core.windows.net")),
        ("", "c@mine.blob.core.windows.net", authorities(".blob.core.windows.net", ".dfs.core.windows.net")),
        # pyarrow's own reading of this URL treats the container as the account
        ("", "c@mine.dfs.core.usgov.example", authorities(".blob.core.usgov.example", ".dfs.core.usgov.example")),
        (
            f"AccountName=mine;AccountKey={KEY};EndpointSuffix=core.private.example",
            "c@mine.dfs.core.windows.net",
            authorities(".blob.core.private.example", ".dfs.core.private.example") | {"account_key": KEY},
        ),
        (
            f"BlobEndpoint=https://mine.blob.near.example/;AccountName=mine;AccountKey={KEY}",
            "c@mine.dfs.core.windows.net",
            authorities(".blob.near.example", ".dfs.near.example") | {"account_key": KEY},
        ),
        (
            f"AccountName=other;AccountKey={KEY};EndpointSuffix=core.private.example",
            "c@mine.dfs.core.windows.net",
            authorities(".blob.core.windows.net", ".dfs.core.windows.net"),
        ),
        (
            "UseDevelopmentStorage=true",
            "c@devstoreaccount1.dfs.core.windows.net",
            authorities("127.0.0.1:10000", "127.0.0.1:10000", "http") | {"account_key": AZURITE["AccountKey"]},
        ),
        (
            "AccountName=mine;SharedAccessSignature=sv=1&sig=a%3D",
            "c@mine.dfs.core.windows.net",
            authorities(".blob.core.windows.net", ".dfs.core.windows.net") | {"sas_token": "?sv=1&sig=a%3D"},
        ),
        (
            "BlobEndpoint=https://mine.blob.near.example/;QueueEndpoint=https://x/;SharedAccessSignature=sv=1&sig=a%3D",
            "c@mine.dfs.core.windows.net",
            authorities(".blob.near.example", ".dfs.near.example") | {"sas_token": "?sv=1&sig=a%3D"},
        ),
    ],
)  # fmt: skip
def test_azure(monkeypatch: pytest.MonkeyPatch, message: str, host: str, words: dict[str, str]) -> None:
    """The server, its name, and our credentials."""
    monkeypatch.setenv(MESSAGES, message)
    assert azure_words(host) == {"account_name": host.partition("@")[2].partition(".")[0]} | words


def test_an_address_of_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, and no key is shown."""
    monkeypatch.setenv(MESSAGES, f"BlobEndpoint=https://other.blob.near.example;AccountName=mine;AccountKey={KEY}")
    with pytest.raises(
        ConfigError, match="BlobEndpoint in AZURE_STORAGE_CONNECTION_STRING is not an address of mine"
    ) as raised:
        path_of("abfs://c@mine.dfs.core.windows.net/x").status()  # type: ignore[attr-defined]
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("address", ["me:SECRET@127.0.0.1:9", "127.0.0.1:x", "127.0.0.1:99999", "a b:9", ""])
@pytest.mark.parametrize("url", ["s3://c/x", "gs://c/x", "abfs://c@mine.dfs.core.windows.net/x"])
def test_an_invalid_address(monkeypatch: pytest.MonkeyPatch, url: str, address: str) -> None:
    """Refused, without a possible secret in the message: Microsoft's library would abort the process."""
    stores._system.cache_clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
    monkeypatch.setenv("AWS_REGION", "x")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
    monkeypatch.setenv(MESSAGES, f"AccountName=mine;AccountKey={KEY};BlobEndpoint=http://{address}/mine")
    with pytest.raises(ConfigError, match=r"is not (an address of|a server's address)") as raised:
        path_of(url).status()  # type: ignore[attr-defined]
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "abfs://c@mine.dfs.core.windows.net:x/x",
        "abfs://c/x",
        "abfss://mine.dfs.core.windows.net/c/x",
        "abfs://c@mine/x",
        "abfs://c@mine.file.core.windows.net/x",
    ],
)
def test_a_url_without_an_account(url: str) -> None:
    """Some of these are valid for pyarrow, which reads other containers than intended."""
    with pytest.raises(ConfigError, match="names no container and account") as raised:
        path_of(url)
    assert raised.value.hint == "abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


def test_hdfs_without_its_library(tmp_path: Path) -> None:
    """A message with all requirements. In a new process: pyarrow searches the library once."""
    program = f"from cleanerd.spark.stores import path_of; path_of('hdfs://127.0.0.1:1/{tmp_path.name}').status()"
    bare = {"PATH": os.environ["PATH"], "ARROW_LIBHDFS_DIR": str(tmp_path), "PYTHONPATH": str(TOP)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=bare)
    assert "ConfigError: hdfs://127.0.0.1:1: " in done.stderr
    assert "HDFS needs JAVA_HOME, libhdfs.so below HADOOP_HOME or in ARROW_LIBHDFS_DIR, Hadoop's jars" in done.stderr
