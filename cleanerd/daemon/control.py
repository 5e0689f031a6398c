"""The control socket: one JSON object per line, request and answer (0600, the daemon's user and root only).

``{"op": "pause", "partition": "orders-0"}`` -> ``{"ok": true, "result": {...}}`` or ``{"ok": false, "error": "...",
"code": 4}``, where the code is the exit code of the command that sent it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog

from cleanerd.daemon.log_events import LogEvent
from cleanerd.daemon.with_timeout import with_timeout
from cleanerd.errors import CleanerdError, ConfigError, RefusedError
from cleanerd.fsio.safe_open import close_quietly

MAX_REQUEST_BYTES: Final = 4 << 20
"""More than a command line can have: even a request with ten thousand partitions is accepted."""
MAX_CLIENTS: Final = 32
IDLE_SECONDS: Final = 300.0
DIRECTORY_LOCK_SECONDS: Final = 10.0
"""A starting daemon holds the directory for milliseconds; any user who can read it can hold it indefinitely."""
_TOO_LONG: Final = b"\0"
"""Replaces a line that is too long; no real line equals it, because each ends with a line feed."""
_CREDENTIALS: Final = struct.Struct("=iII")
"""``struct ucred``: process, user, group."""

_log = structlog.get_logger()

Handler: TypeAlias = "Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any] | bytes]]"
"""Executes an operation, given the request."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection."""

    uid: int
    pid: int


class ControlServer:
    """Listens on ``path``. ``handlers``: by operation; a CleanerdError becomes an answer too.

    A handler with a large result returns it as JSON, because encoding thousands of partitions would block the event
    loop.

    ``note`` receives every answered operation: its name, the request, the caller, the refusal.
    """

    def __init__(
        self,
        path: Path,
        handlers: Mapping[str, Handler],
        *,
        note: Callable[[str, Mapping[str, Any], Peer, str], None] = lambda *_: None,
        alone_seconds: float = DIRECTORY_LOCK_SECONDS,
    ) -> None:
        self._alone_seconds = alone_seconds
        self.path = path
        self._handlers = handlers
        self._note = note
        self._server: asyncio.AbstractServer | None = None
        self._bound: os.stat_result
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Bind the socket.

        Raises:
            RefusedError: another daemon answers there.
            ConfigError: the path cannot be used, or another process keeps its directory locked.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            # Two daemons that start at once must not both find no listener, and one remove the other's socket.
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                await self._acquire_directory(directory)
                await self._remove_stale()
                await self._listen()
            finally:
                close_quietly(directory)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"cannot be listened on: {why}", where=str(self.path), hint="see cleanerd.control.socket"
            ) from error

    async def _acquire_directory(self, directory: int) -> None:
        """Wait for the directory's lock, for a limited time: a reader of the directory must not delay the start."""
        until = time.monotonic() + self._alone_seconds
        while True:
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    locked = ConfigError(
                        "another process keeps this directory locked",
                        where=str(self.path.parent),
                        hint="lslocks names the process; end it, or set cleanerd.control.socket to another directory",
                    )
                    locked.exit_code = RefusedError.exit_code  # temporary: systemd should start the unit again
                    raise locked from None
                await asyncio.sleep(0.05)
            else:
                return

    async def _listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Restrict the mode before any client can connect: a socket file gets the mode of its descriptor.
        os.fchmod(listener.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        before = os.umask(0o177)
        try:
            listener.bind(str(self.path))
            self._bound = os.lstat(self.path)
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=MAX_REQUEST_BYTES)

    async def stop(self) -> None:
        """Close the socket and every connection to it."""
        if self._server is None:
            return
        self._server.close()
        for client in list(self._clients):
            client.cancel()
        with contextlib.suppress(OSError):  # if ours was removed, another daemon's may exist now
            if os.path.samestat(os.lstat(self.path), self._bound):
                self.path.unlink()
        self._server = None

    async def _remove_stale(self) -> None:
        if not self.path.is_socket():
            return
        try:
            _, writer = await asyncio.open_unix_connection(str(self.path))
        except (ConnectionRefusedError, FileNotFoundError):  # no process listens there any more
            self.path.unlink(missing_ok=True)
            return
        except OSError as error:  # another user's, or one of a process that is too busy to accept
            message = f"another process listens there and does not answer: {error.strerror}"
            raise RefusedError(message, where=str(self.path), hint="end it, or set cleanerd.control.socket") from error
        process = _peer_of(writer).pid
        writer.close()
        raise RefusedError(
            f"another cleanerd (process {process}) answers there",
            where=str(self.path),
            hint="one daemon manages a log directory",
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        peer = _peer_of(writer)
        if task is None or len(self._clients) >= MAX_CLIENTS or peer.uid not in {0, os.geteuid()}:
            writer.close()
            return
        self._clients.add(task)
        try:
            while line := await with_timeout(IDLE_SECONDS, _line(reader)):
                answer = await self._answer(line, peer)
                writer.write(_encoded(answer))
                # Do not wait for a client that does not read.
                await with_timeout(IDLE_SECONDS, writer.drain())
                if line == _TOO_LONG:
                    return
        except (TimeoutError, OSError, ValueError, asyncio.CancelledError):
            return
        finally:
            self._clients.discard(task)
            writer.close()

    async def _answer(self, line: bytes, peer: Peer) -> dict[str, Any]:
        if line == _TOO_LONG:
            return {"ok": False, "error": f"the request is longer than {MAX_REQUEST_BYTES} bytes", "code": 2}
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return {"ok": False, "error": "not a JSON object", "code": 2}
        operation = request.get("op") if isinstance(request, dict) else None
        handler = self._handlers.get(operation) if isinstance(operation, str) else None
        if handler is None:
            return {"ok": False, "error": f"unknown operation {operation!r}", "code": 2}
        try:
            result = await handler(request)
        except CleanerdError as error:
            self._note(str(operation), request, peer, str(error))
            return {"ok": False, "error": str(error), "code": error.exit_code}
        except Exception as error:  # noqa: BLE001 - a request must not end the daemon
            _log.exception(LogEvent.REQUEST_FAILED, operation=operation)
            return {"ok": False, "error": f"unexpected error: {type(error).__name__}: {error}", "code": 1}
        self._note(str(operation), request, peer, "")
        return {"ok": True, "result": result}


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # StreamReader's error for a line above its limit
        return _TOO_LONG


def _encoded(answer: Mapping[str, Any]) -> bytes:
    result = answer.get("result")
    if isinstance(result, bytes):
        return b'{"ok": true, "result": ' + result + b"}\n"
    return json.dumps(answer, default=str).encode() + b"\n"


def _peer_of(writer: asyncio.StreamWriter) -> Peer:
    """The caller, as reported by the kernel (SO_PEERCRED)."""
    connection = writer.get_extra_info("socket")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(credentials)
    return Peer(uid, pid)
