"""A server of Azure's blob storage, Azurite, behind a proxy that fails (``faulty.py``).

It has no hierarchical namespace: the different answers of a Data Lake account are not tested.
"""

from __future__ import annotations

import base64
import functools
import hmac
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pyarrow.fs as pafs
import pytest

from cleanerd.spark.store_clients import AZURITE
from cleanerd_lab.demo.ports import free_port
from tests.compatibility.page import TOP
from tests.spark.faulty import put_before
from tests.spark.other_store import BUCKET, Served, started
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.faulty import Answer
    from tests.spark.other_store import OtherStore

ACCOUNT: Final = AZURITE["AccountName"]
_VERSION: Final = "2018-11-09"
"""The version of the signature protocol."""

_PINNED: Final = Path(__file__).parent / "azurite"


def _printed(status: int, code: str, message: str) -> Answer:
    """As Azure answers."""
    body = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return status, body.encode(), {"Content-Type": "application/xml", "x-ms-error-code": code}


_ANSWERS = {
    "slow": _printed(
        503, "ServerBusy", "The server is currently unable to receive requests. Please retry your request."
    ),
    "broken": _printed(500, "InternalError", "The server encountered an internal error. Please retry the request."),
    "denied": _printed(403, "AuthenticationFailed", "Server failed to authenticate the request."),
    "forbidden": _printed(
        403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation."
    ),
}


class _Azurite(Served):
    def in_pages(self, path: str) -> str:
        return f"{path}&maxresults={self.page}" if self.page and "comp=list" in path else path


@functools.cache
def program() -> Path:
    """Azurite's program, of the release that ``azurite/package-lock.json`` pins, installed if necessary."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Azurite needs node and npm: install them (nodejs, npm)")
    place = TOP / ".cache" / "azurite"
    pinned = (_PINNED / "package-lock.json").read_text()
    stamp = place / "package-lock.json"
    if not stamp.exists() or stamp.read_text() != pinned:
        place.parent.mkdir(exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix="azurite.", dir=place.parent))
        shutil.copy(_PINNED / "package.json", new)
        (new / "package-lock.json").write_text(pinned)
        call = ["npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(call, cwd=new, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(new)
            pytest.skip(f"npm cannot fetch Azurite: {done.stderr[-300:]}")
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    return place / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def serve(script: str) -> tuple[Served, Callable[[], None]]:
    """The store of this process, and a function that stops it."""
    port = free_port()
    words = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry"]
    process = subprocess.Popen(["node", script, *words, "--silent", "--skipApiVersionCheck"], stdout=subprocess.DEVNULL)
    _wait(process, port)
    address = f"127.0.0.1:{port}"
    system = pafs.AzureFileSystem(
        ACCOUNT, account_key=AZURITE["AccountKey"], blob_storage_authority=address, dfs_storage_authority=address,
        blob_storage_scheme="http", dfs_storage_scheme="http",
    )  # fmt: skip
    system.create_dir(BUCKET)
    store = _Azurite("", _ANSWERS, system=system)
    stop_proxy = put_before(store, ("127.0.0.1", port))

    def stop() -> None:
        stop_proxy()
        process.terminate()
        process.wait()

    return store, stop


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            assert process.poll() is None, "Azurite has ended"
            assert time.monotonic() < until, "Azurite does not answer"
            time.sleep(0.1)
        else:
            return


def start() -> OtherStore:
    """In a new process; the code under test gets the proxy's address as Azure's own tools would."""
    root = f"@{ACCOUNT}.dfs.core.windows.net"
    store = started(__name__, f"abfs://{BUCKET}{root}", f"abfs://nowhere{root}", script=str(program()))
    store.environment = {"AZURE_STORAGE_CONNECTION_STRING": connection_string(f"{store.control.endpoint()}/{ACCOUNT}")}
    return store


def put_by_name(endpoint: str, name: str, data: bytes) -> None:
    """Upload with any name, also one that pyarrow rejects."""
    url = f"{endpoint}/{ACCOUNT}/{BUCKET}/{quote(name)}?{signature('rwc')}"
    request = Request(url, data, {"x-ms-blob-type": "BlockBlob", "x-ms-version": _VERSION}, method="PUT")  # noqa: S310 - a server of ours
    urlopen(request).close()  # noqa: S310


def connection_string(blob_endpoint: str, key: str = AZURITE["AccountKey"]) -> str:
    """As the portal shows it."""
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={blob_endpoint};"


def signature(permissions: str) -> str:
    """A shared access signature of the account, for its blobs."""
    fields = {"sp": permissions, "ss": "b", "srt": "sco", "st": "", "se": "2099-01-01", "sip": "", "spr": "https,http"}
    text = "\n".join([ACCOUNT, *fields.values(), _VERSION, ""])
    key = base64.b64decode(AZURITE["AccountKey"])
    signed = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return urlencode({key: value for key, value in fields.items() if value} | {"sv": _VERSION, "sig": signed})
