"""The service manager's socket, when it is not read."""

from __future__ import annotations

import contextlib
import secrets
import socket
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.notify import Notifier

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("abstract", [False, True])
def test_a_notification_that_systemd_did_not_accept_is_sent_again(tmp_path: Path, *, abstract: bool) -> None:
    """Systemd reads nothing during a daemon-reload, and its queue is short. It ends a start that never notified it."""
    name = f"@cleanerd-{secrets.token_hex(8)}" if abstract else str(tmp_path / "notify")
    address = "\0" + name[1:] if abstract else name
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as others,
    ):
        manager.bind(address)
        manager.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                others.sendto(b"OTHERS=1", address)
        notifier = Notifier({"NOTIFY_SOCKET": name})
        notifier.ready("well")
        notifier.status("better")
        notifier.resend()
        heard = _read(manager)
        assert set(heard) == {b"OTHERS=1"}
        notifier.resend()
        notifier.resend()
        notifier.status("better")
        notifier.status("better")
        assert _read(manager) == [b"READY=1\nSTATUS=well", b"STATUS=better"]


def test_a_missing_notify_socket_is_no_error(tmp_path: Path) -> None:
    """A socket that is gone is ignored; so is a missing service manager."""
    for name in (str(tmp_path / "none"), "", "not/absolute"):
        notifier = Notifier({"NOTIFY_SOCKET": name})
        notifier.ready("well")
        notifier.resend()
        notifier.stopping()


def _read(manager: socket.socket) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(manager.recv(4096))
    return found
