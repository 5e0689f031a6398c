"""An S3 server of this process, moto's, behind a proxy that fails (``faulty.py``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from moto.server import ThreadedMotoServer

from cleanerd.spark.stores import path_of
from tests.spark.faulty import Faulty, put_before

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUCKET = "archive"
SECRET = "a-secret-that-must-not-be-shown"  # noqa: S105 - of a server that knows none
_XML = {"Content-Type": "text/xml"}
_SLOW_DOWN = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code>'
    b"<Message>Please reduce your request rate.</Message></Error>"
)
_DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>InvalidAccessKeyId</Code>'
    b"<Message>The AWS Access Key Id you provided does not exist in our records.</Message></Error>"
)
_ANSWERS = {"slow": (503, _SLOW_DOWN, _XML), "denied": (403, _DENIED, _XML)}
ARCHIVE_PARTITIONS = ("offset-0", "transactions-1", "old-0", "version-0")


@dataclass
class Store(Faulty):
    """``client``: without the proxy."""

    client: Any = None

    def in_pages(self, path: str) -> str:
        return re.sub(r"max-keys=\d+", f"max-keys={self.page}", path) if self.page else path

    def put(self, directory: Path, prefix: str) -> str:
        """Upload a whole directory; returns its URL."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.client.upload_file(str(path), BUCKET, f"{prefix}/{path.relative_to(directory)}")
        return f"s3a://{BUCKET}/{prefix}"


def start() -> tuple[Store, Callable[[], None]]:
    """The store, and a function that stops it."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    behind = moto.get_host_and_port()
    client = boto3.client(
        "s3", endpoint_url=f"http://{behind[0]}:{behind[1]}", region_name="us-east-1",
        aws_access_key_id="test", aws_secret_access_key=SECRET,
    )  # fmt: skip
    client.create_bucket(Bucket=BUCKET)
    store = Store("", _ANSWERS, client=client)
    stop_proxy = put_before(store, behind)

    def stop() -> None:
        stop_proxy()
        moto.stop()

    return store, stop


def keys(store: Store, prefix: str) -> list[str]:
    found = store.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return [each["Key"] for page in found for each in page.get("Contents", ()) if not each["Key"].endswith("/")]


def downloaded(store: Store, prefix: str, into: Path) -> Path:
    """All files below a prefix, downloaded."""
    for key in keys(store, prefix + "/"):
        path = into / key.removeprefix(prefix + "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        store.client.download_file(BUCKET, key, str(path))
    return into


def from_store(store: Store, url: str, into: Path) -> Path:
    """A source with the store's times, as a download has them."""
    path = path_of(url)
    downloaded(store, "/".join(path.parts[2:]), into)
    return into
