"""cleanerd.daemon.http.server: no disk, no hanging client and no bug holds it up, and nothing is left behind."""

from __future__ import annotations

import builtins
import gc
import io
import os
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.http.connections import Connections
from tests.daemon.serving import explain_little, serving
from tests.daemon.views import NOW_MS, busy, view
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.daemon.serving import Served


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(busy(30)) as running:
        yield running


def test_no_answer_but_explain_opens_a_file(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape never touches a disk: with every way to a file broken, everything is still answered."""

    def fail(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("a disk was touched")

    for module, name in (
        (builtins, "open"), (io, "open"), (os, "open"), (os, "stat"), (os, "lstat"), (os, "scandir"), (os, "listdir"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, fail)  # whatever way to a disk there is, in any module
    paths = ("/metrics", "/status", "/healthz", "/readyz", "/", "/page/app.js", "/partition/x-0",
             f"/status/{served.stage.shown.partitions[0].name}")  # fmt: skip
    answers = [served.get(path).status for path in paths]
    monkeypatch.undo()
    assert answers == [200] * len(paths)


def test_clients_that_hang_delay_nobody(served: Served) -> None:
    """Half a request, no request, and a body that nobody reads: others are answered at once, and stop is quick."""
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
def test_more_clients_than_there_is_room_for() -> None:
    """The one that was silent longest makes room; its connection ends, the newest one is served."""
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


def test_connections_that_do_nothing_are_cut() -> None:
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
def test_a_request_that_is_no_http_is_a_quiet_400(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Anybody could fill the journal otherwise."""
    gc.collect()  # what an earlier test left may be told of when it goes
    caplog.clear()
    for nonsense in (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.port)) as client:
            client.settimeout(PATIENCE_SECONDS)
            client.sendall(nonsense)
            assert client.recv(100).startswith(b"HTTP/1.0 400")
    # Of the server: the libraries of other tests in this process speak up whenever they like.
    assert [each for each in caplog.records if each.name.startswith(("aiohttp", "asyncio", "cleanerd"))] == []
    assert served.get("/healthz").status == 200


def test_a_view_that_fails_is_a_500_and_no_end(served: Served) -> None:
    good = served.stage.shown
    served.stage.shown = None  # type: ignore[assignment]
    answer = served.get("/status")
    assert answer.status == 500
    assert "Traceback" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    served.stage.shown = good
    assert served.get("/status").status == 200


@pytest.mark.slow
def test_nothing_is_left_behind() -> None:
    """Started and stopped fifty times: no thread and no descriptor more."""

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
    while max(more()) > 1:  # a thread that has nothing to do any more ends when it has its turn
        assert time.monotonic() < deadline, more()
        time.sleep(0.01)


def _has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
