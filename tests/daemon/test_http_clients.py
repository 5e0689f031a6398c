"""cleanerd.daemon.http.server: no disk, no hanging client and no bug blocks it, and no resource is left."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import gc
import io
import json
import os
import socket
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.daemon.http.connections import Connections
from cleanerd.daemon.view import PartitionView
from tests.daemon.serving import explain_little, serving
from tests.daemon.views import NOW_MS, busy, partition, view
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.daemon.serving import Served


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(busy(30)) as running:
        yield running


def test_no_answer_but_explain_opens_a_file(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape never touches a disk: it still works when every file access fails."""

    def fail(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a disk was touched")

    for module, name in (
        (builtins, "open"), (io, "open"), (os, "open"), (os, "stat"), (os, "lstat"), (os, "scandir"), (os, "listdir"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, fail)  # every function that accesses a disk, in any module
    paths = ("/metrics", "/status", "/healthz", "/readyz", "/", "/page/app.js", "/partition/x-0",
             f"/status/{served.stage.shown.partitions[0].name}")  # fmt: skip
    answers = [served.get(path).status for path in paths]
    monkeypatch.undo()
    assert answers == [200] * len(paths)


def test_clients_that_hang_delay_no_other_client(served: Served) -> None:
    """Half a request, no request, an unread body: others are answered at once, and the server stops quickly."""
    hanging = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(20)]
    for n, each in enumerate(hanging):
        if n % 3:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n" + (b"\r\n" if n % 3 == 1 else b""))
    began = time.monotonic()
    assert served.get("/metrics").status == 200
    assert time.monotonic() - began < 100
    began = time.monotonic()
    served.stop()
    assert time.monotonic() - began < 100
    for each in hanging:
        each.close()
    served.start()


@pytest.mark.long
def test_more_clients_than_allowed() -> None:
    """The longest idle connection is closed, and the newest one is served."""
    with serving(view(), connections=partial(Connections, most=8)) as served:
        idle = []
        for _ in range(12):
            idle.append(socket.create_connection(("127.0.0.1", served.port)))
            time.sleep(0.02)
        assert served.get("/healthz").status == 200
        for each in idle:
            each.settimeout(0.3)
        ended = [_has_ended(each) for each in idle]
        assert ended == [True] * 5 + [False] * 7
        for each in idle:
            each.close()


def test_idle_connections_are_closed() -> None:
    with (
        serving(view(), connections=partial(Connections, idle_seconds=0.5)) as served,
        socket.create_connection(("127.0.0.1", served.port)) as idle,
    ):
        idle.settimeout(PATIENCE_SECONDS)
        assert _has_ended(idle)
        assert served.get("/healthz").status == 200


def test_it_can_be_started_again(served: Served) -> None:
    port = served.port
    served.stop()
    with pytest.raises(OSError, match="refused"):
        served.get("/healthz")
    served.start()
    assert served.port == port
    assert served.get("/healthz").status == 200


@pytest.mark.slow
def test_a_request_that_is_not_http_is_a_quiet_400(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise any client could fill the journal."""
    gc.collect()  # ignore messages about objects of an earlier test
    caplog.clear()
    for nonsense in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.settimeout(PATIENCE_SECONDS)
            client.sendall(nonsense)
            assert client.recv(100).startswith(b"HTTP/1.0 400")
    # Only the server's: libraries of other tests in this process may log at any time.
    assert [each for each in caplog.records if each.name.startswith(("aiohttp", "asyncio", "cleanerd"))] == []
    assert served.get("/healthz").status == 200


def test_a_snapshot_that_fails_is_a_500_and_the_server_continues(served: Served) -> None:
    good = served.stage.shown
    served.stage.shown = None  # type: ignore[assignment]
    answer = served.get("/status")
    assert answer.status == 500
    assert "Traceback" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    served.stage.shown = good
    assert served.get("/status").status == 200


@pytest.mark.slow
def test_no_thread_and_no_descriptor_is_left() -> None:
    """Started and stopped fifty times."""

    def once() -> None:
        with serving(view(made_ms=NOW_MS), explain_little) as served:
            served.get("/metrics")

    once()
    before = (len(os.listdir("/proc/self/fd")), threading.active_count())
    for _ in range(50):
        once()

    def more() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")) - before[0], threading.active_count() - before[1]

    deadline = time.monotonic() + PATIENCE_SECONDS
    while max(more()) > 1:  # an idle thread ends when it is scheduled again
        assert time.monotonic() < deadline, more()
        time.sleep(0.01)


def _asks(served: Served, path: str, window_bytes: int = 4096) -> socket.socket:
    """A client that sent its request and does not read; its receive buffer has this size."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
    client.connect(("127.0.0.1", served.port))
    client.settimeout(PATIENCE_SECONDS)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return client


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_clients_that_do_not_read_share_a_body() -> None:
    """D-13: each client holds a copy of one page. Each requests a state that has a body of its own."""
    shown = busy(6000)
    with serving(shown, connections=partial(Connections, most_body_bytes=16 << 20)) as served:
        size = len(served.get("/status").body)
        assert size > 3 << 20
        before = _resident_bytes()
        clients = []
        for n in range(60):
            served.stage.shown = replace(shown, made_ms=shown.made_ms + n)
            clients.append(_asks(served, "/status"))
            assert served.get("/livez").status == 200
        assert served.get("/status").json()["made_ms"] == shown.made_ms + 59
        grown = _resident_bytes() - before
        for client in clients:
            client.close()
    assert grown < 48 << 20, f"{grown:,} bytes for {len(clients)} clients and bodies of {size:,} bytes"


def test_clients_that_hold_the_oldest_body_are_disconnected() -> None:
    """D-13: above the limit their connections end; the newest ones continue."""
    shown = busy(8000)  # more than the kernel buffers for a client
    with serving(shown, connections=partial(Connections, most_body_bytes=1)) as served:
        size = len(served.get("/status").body)
        old = [_asks(served, "/status") for _ in range(2)]
        for client in old:
            assert client.recv(8) == b"HTTP/1.1"
        served.stage.shown = replace(shown, made_ms=shown.made_ms + 1)
        new = _asks(served, "/status", window_bytes=1 << 18)
        assert new.recv(8) == b"HTTP/1.1"
        assert [_received_bytes(client) < size for client in old] == [True, True]
        assert _received_bytes(new) > size


def test_a_large_body_arrives_whole_and_a_head_without_it(served: Served) -> None:
    """D-13: in pages, with its length."""
    shown = served.stage.shown = busy(3000)
    answer = served.get("/status")
    assert int(answer.headers["content-length"]) == len(answer.body) > 1 << 20
    assert answer.json()["partitions"] == json.loads(json.dumps([each.to_json() for each in shown.partitions]))
    head = served.get("/status", method="HEAD")
    assert (head.body, head.headers["content-length"]) == (b"", answer.headers["content-length"])


def test_no_explanation_is_made_for_clients_that_disconnected() -> None:
    """D-14: many requests whose clients are gone delay no other client."""
    requests: list[str] = []
    go_on = threading.Event()

    async def explain(name: str) -> dict[str, Any]:
        requests.append(name)
        while not go_on.is_set():
            await asyncio.sleep(0.01)
        return await explain_little(name)

    shown = view(partitions=tuple(partition("orders", n) for n in range(60)))
    with serving(shown, explain) as served:
        clients = [_asks(served, f"/explain/orders-{n}") for n in range(50)]
        _until(lambda: len(requests) == 2)
        stays = _asks(served, "/explain/orders-30")
        for client in clients:
            client.close()
        assert served.get("/livez").status == 200
        honest = _asks(served, "/explain/orders-55")
        time.sleep(0.1)
        go_on.set()
        for client in (stays, honest):
            assert client.recv(12) == b"HTTP/1.1 200"
            client.close()
        assert sorted(requests[2:]) == ["orders-30", "orders-55"]
        assert served.get("/explain/orders-10").status == 200, "it answers the next request"


def test_a_partition_is_found_by_its_name_alone() -> None:
    """D-15: a request reads a few partitions, whatever their number."""
    shown = busy(3000)
    seen: list[int] = []

    class Counted(tuple[PartitionView, ...]):
        __slots__ = ()

        def __getitem__(self, place: Any) -> Any:
            seen.append(place)
            return super().__getitem__(place)

        def __iter__(self) -> Iterator[PartitionView]:
            raise AssertionError("all partitions were scanned")

    with serving(shown) as served:
        served.stage.shown = replace(shown, partitions=Counted(shown.partitions))
        for each in (shown.partitions[0], shown.partitions[1500], shown.partitions[-1]):
            assert served.get(f"/status/{each.name}").json()["partition"] == each.partition
        for name in ("no-such-0", "zzz-9", "aaa-0", "noname"):
            assert served.get(f"/status/{name}").status == 404
    assert len(seen) <= 6 * 16


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _received_bytes(client: socket.socket) -> int:
    """The bytes that the client reads until its connection ends."""
    taken = 0
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # from now on it reads quickly
    with contextlib.suppress(ConnectionResetError), client:
        while read := len(client.recv(1 << 20)):
            taken += read
    return taken


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
