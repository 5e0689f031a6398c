"""A server of Google Cloud Storage of this process, gcp-storage-emulator's, behind a proxy that fails (``faulty.py``).

It answers with all names of a bucket at once, from which the proxy makes pages as Google does. It ignores the requested
generation of an object.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit
from urllib.request import Request, urlopen

import pyarrow.fs as pafs
from gcp_storage_emulator.server import Server

from tests.spark.faulty import put_before
from tests.spark.other_store import BUCKET, Served, started

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.faulty import Answer
    from tests.spark.other_store import OtherStore


def _printed(status: int, reason: str, message: str) -> Answer:
    """As Google answers."""
    body = '{"error": {"code": %d, "message": "%s", "errors": [{"domain": "global", "reason": "%s", "message": "%s"}]}}'
    return status, (body % (status, message, reason, message)).encode(), {"Content-Type": "application/json"}


_ANSWERS = {
    "slow": _printed(429, "rateLimitExceeded", "The object exceeded the rate limit for object reads."),
    "broken": _printed(503, "backendError", "We encountered an internal error. Please try again."),
    "denied": _printed(401, "authError", "Invalid Credentials"),
    "forbidden": _printed(
        403, "vpcServiceControls",
        "Request is prohibited by organization's policy. vpcServiceControlsUniqueIdentifier: abc",
    ),
}  # fmt: skip


class _Emulator(Served):
    def a_page(self, path: str, data: bytes) -> bytes:
        url = urlsplit(path)
        if not self.page or not url.path.endswith("/o"):
            return data
        answer = json.loads(data)
        found = [("items", each, each["name"]) for each in answer.pop("items", [])]
        found += [("prefixes", each, each) for each in answer.pop("prefixes", [])]
        found.sort(key=lambda each: each[2])
        begin = int(parse_qs(url.query).get("pageToken", ["0"])[0])
        for kind, each, _ in found[begin : begin + self.page]:
            answer.setdefault(kind, []).append(each)
        if begin + self.page < len(found):
            answer["nextPageToken"] = str(begin + self.page)
        return json.dumps(answer).encode()


def serve() -> tuple[Served, Callable[[], None]]:
    """The store of this process, and a function that stops it."""
    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    server = Server("127.0.0.1", 0, in_memory=True, default_bucket=BUCKET)
    server.start()
    behind = server._api._httpd.server_address[:2]
    system = pafs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override="{}:{}".format(*behind))
    store = _Emulator("", _ANSWERS, system=system)
    stop_proxy = put_before(store, behind)

    def stop() -> None:
        stop_proxy()
        server.stop()

    return store, stop


def put_by_name(endpoint: str, name: str, data: bytes) -> None:
    """Upload with any name, also one that pyarrow rejects."""
    url = f"{endpoint}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={quote(name, safe='')}"
    request = Request(url, data, {"Content-Type": "application/octet-stream"}, method="POST")  # noqa: S310 - a server of ours
    urlopen(request).close()  # noqa: S310


def start() -> OtherStore:
    """In a new process."""
    store = started(__name__, f"gs://{BUCKET}", "gs://nowhere")
    store.environment = {"STORAGE_EMULATOR_HOST": store.control.endpoint()}
    return store
