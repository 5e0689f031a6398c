"""The daemon's control socket: its path, and the error message when no daemon answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

import pytest
import uvloop

from cleanerd.config.load import load_settings
from cleanerd.daemon.control import ControlServer
from cleanerd.daemon.control_client import control_socket, find_control_socket, send_request
from cleanerd.errors import RefusedError
from tests.cleaner.driver import scratch
from tests.support.root import as_other_user, needs_root

if TYPE_CHECKING:
    from pathlib import Path


def test_where_the_socket_is(tmp_path: Path) -> None:
    """As configured, otherwise in $RUNTIME_DIRECTORY, otherwise in the state directory."""
    plain = load_settings([], [f"cleanerd.state.dir={tmp_path}"], {})
    assert control_socket(plain, {"RUNTIME_DIRECTORY": "/run/cleanerd:/run/other"}).parts[-2:] == (
        "cleanerd", "control.sock",
    )  # fmt: skip
    assert control_socket(plain, {}) == tmp_path / "control.sock"
    message = load_settings([], [f"cleanerd.control.socket={tmp_path}/there"], {})
    assert control_socket(message, {"RUNTIME_DIRECTORY": "/run/cleanerd"}) == tmp_path / "there"
    assert find_control_socket(message, {}) == tmp_path / "there"


def test_no_daemon_answers(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="does not answer"):
        send_request(tmp_path / "none", "status")
    with pytest.raises(RefusedError, match="does not answer: AF_UNIX path too long"):
        send_request(tmp_path / ("n" * 120), "status")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "silent"))
        silent.listen()
        with pytest.raises(RefusedError, match="does not answer: timed out"):
            send_request(tmp_path / "silent", "status", timeout_seconds=0.05)
    assert os.path.exists(tmp_path)


@needs_root
def test_a_socket_without_access() -> None:
    """Neither its directory nor the socket may be read: the message says so, and which users have access."""
    with scratch() as root:
        root.chmod(0o700)
        message = load_settings([], [f"cleanerd.state.dir={root / 'state'}"], {})

        def reported() -> str:
            try:
                send_request(find_control_socket(message, {}), "status")
            except RefusedError as error:
                return str(error)
            return "it answered"

        answer = as_other_user(reported)
        assert f"{root / 'state' / 'control.sock'}: the daemon does not answer: Permission denied" in answer
        assert "the daemon's user and root" in answer


def started(path: Path) -> None:
    """The daemon's side of the socket, as the daemon runs it."""

    async def story() -> None:
        server = ControlServer(path, {})
        await server.start()
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


def test_a_socket_that_accepts_no_connection_is_not_stale(tmp_path: Path) -> None:
    """Of a stopped or too busy daemon: its socket was removed, and no client could reach it again."""
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as busy, contextlib.ExitStack() as waiting:
        busy.bind(str(path))
        busy.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                client.setblocking(False)
                client.connect(str(path))
        inode = path.stat().st_ino
        with pytest.raises(RefusedError, match="another process listens there and does not answer"):
            started(path)
        assert path.stat().st_ino == inode


def test_the_socket_of_another_daemon_stays(tmp_path: Path) -> None:
    """Our socket was removed, and another daemon created its own: our shutdown does not remove that one."""
    path = tmp_path / "control.sock"

    async def story() -> None:
        ours, others = ControlServer(path, {}), ControlServer(path, {})
        await ours.start()
        path.unlink()
        await others.start()
        await ours.stop()
        assert path.is_socket()
        await others.stop()
        assert not path.exists()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
