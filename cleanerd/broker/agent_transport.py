"""The two ways to reach the agent in a broker's JVM: a unix socket or a loopback port (A-28, A-29, A-33, A-34).

The file at the agent's path shows which: a socket, or a plain file with a port and a secret, if its Java has no unix
sockets. Only the broker's user and root can read that file or connect to the socket. The secret is never sent: both
sides prove that they know it, the agent first.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cleanerd.errors import AgentUnavailableError
from cleanerd.fsio.safe_open import close_quietly, open_to_read

SOCKET: Final = ".cleanerd-agent.sock"
"""U-31: the agent's file, in the broker's first log directory that is online."""

_PROBE_SECONDS: Final = 2.0
_QUEUE_SECONDS: Final = 0.02
_MAX_PATH_BYTES: Final = 100
_MAX_ANNOUNCEMENT_BYTES: Final = 1024
_HELLO: Final = b"CLEANERD"
_NUMBER_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_AGENT: Final = b"cleanerd-agent 1: agent"
_CLIENT: Final = b"cleanerd-agent 1: client"
_NETWORK: Final = "/proc/self/ns/net"
_PEER: Final = struct.Struct("3i")
"""struct ucred: pid, uid, gid."""
_RESTART: Final = "start the broker with the agent, or run cleanerd agent attach"
_PLANTED: Final = "find out who created it, remove it, and run cleanerd agent attach"


class _Announcement(BaseModel):
    """The file's content. ``network``: the network namespace of the port, as ``/proc`` names it."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    cleanerd_agent: Literal[1]
    port: Annotated[int, Field(ge=1, le=65535)]
    secret: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    network: str | None = None


def leads_to_agent(path: Path) -> bool:
    """Whether a socket or an announcement may exist at ``path``; a link is refused."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def is_listening(path: Path) -> bool:
    """Whether a process accepts a connection at ``path``, or may."""
    try:
        connect(path, _PROBE_SECONDS).close()
    except (ConnectionRefusedError, FileNotFoundError, AgentUnavailableError):
        return False
    except OSError:
        return True  # it exists, but does not answer now
    return True


def connect(path: Path, timeout_seconds: float) -> socket.socket:
    """A connection to the agent at ``path``, which may have any length.

    Raises:
        AgentUnavailableError: the file or the listener there is not the broker's.
        OSError: no process listens there.
    """
    if stat.S_ISREG(path.lstat().st_mode):
        return _by_loopback(path, timeout_seconds)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(timeout_seconds)
        with _short(path) as address:
            _connect_despite_signals(connection, address, time.monotonic() + timeout_seconds)
        _require_broker(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_despite_signals(connection: socket.socket, address: str, deadline: float) -> None:
    """Connect, again after a signal: for a unix socket Python then reports success.

    If the queue of connections is full, this tries again until the deadline (A-37).

    Raises:
        OSError: no process listens there.
    """
    while True:
        try:
            connection.connect(address)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_QUEUE_SECONDS)
    try:
        connection.getpeername()
    except OSError:
        connection.connect(address)


def _require_broker(connection: socket.socket, path: Path) -> None:
    """A-29, in reverse: require that the agent runs as root, this user or the directory's owner.

    Raises:
        AgentUnavailableError: another user made that socket.
        OSError: the directory's ``stat`` fails.
    """
    _, server, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    owner = path.parent.stat().st_uid
    if server not in {0, os.geteuid(), owner}:
        raise AgentUnavailableError(
            f"the socket is served by uid {server}, but its directory belongs to uid {owner}: this is not the broker",
            where=str(path),
            hint=_PLANTED,
        )


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """An address for ``path`` that fits into a socket's 108 bytes."""
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        close_quietly(directory)


def _by_loopback(path: Path, timeout_seconds: float) -> socket.socket:
    """A connection to the announced port, after both sides have proven that they know the secret."""
    deadline = time.monotonic() + timeout_seconds
    announced = _read(path)
    ours = _network()
    if announced.network is not None and ours is not None and announced.network != ours:
        raise AgentUnavailableError(
            "the agent listens on the loopback of another network namespace, which cannot be reached from here",
            where=str(path),
            hint="run cleanerd in the network of the broker's container (in the same pod; with docker: --network "
            "container:NAME), or run the broker on Java 17 or newer, which has unix sockets",
        )
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(timeout_seconds)
        connection.connect(("127.0.0.1", announced.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _prove(connection, bytes.fromhex(announced.secret), deadline, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _read(path: Path) -> _Announcement:
    """The announcement, if only the broker's user and root can have written or read it.

    Raises:
        AgentUnavailableError: another user could.
        OSError: it cannot be read.
    """
    descriptor = open_to_read(os.fspath(path), one_name=True)
    try:
        found = os.fstat(descriptor)
        owner = path.parent.stat().st_uid
        if found.st_uid not in {0, os.geteuid(), owner}:
            problem = f"belongs to uid {found.st_uid}, but its directory to uid {owner}: this is not the broker's"
        elif found.st_mode & 0o077:
            problem = f"has mode {found.st_mode & 0o777:04o}: others can read the secret in it, or write another"
        elif found.st_size > _MAX_ANNOUNCEMENT_BYTES:
            problem = f"has {found.st_size} bytes, and announces no agent"
        else:
            problem = ""
        data = b"" if problem else os.read(descriptor, _MAX_ANNOUNCEMENT_BYTES)
    finally:
        close_quietly(descriptor)
    if problem:
        raise AgentUnavailableError(problem, where=str(path), hint=_PLANTED)
    try:
        return _Announcement.model_validate_json(data)
    except ValidationError:
        raise AgentUnavailableError("announces no agent", where=str(path), hint=_PLANTED) from None


def _prove(connection: socket.socket, secret: bytes, deadline: float, path: Path) -> None:
    """A-34: the agent's proof first, then ours, each over two random numbers of this connection.

    Raises:
        AgentUnavailableError: the listener does not know the secret.
        OSError: the connection broke.
    """
    mine = secrets.token_bytes(_NUMBER_BYTES)
    connection.sendall(_HELLO + mine)
    answer = _received(connection, _NUMBER_BYTES + _PROOF_BYTES, deadline)
    theirs, proof = answer[:_NUMBER_BYTES], answer[_NUMBER_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, _AGENT, mine, theirs)):
        raise AgentUnavailableError(
            "another process uses the port in it: the broker that wrote it has ended",
            where=str(path),
            hint=_RESTART,
        )
    connection.sendall(_proof(secret, _CLIENT, mine, theirs))


def _proof(secret: bytes, side: bytes, clients: bytes, agents: bytes) -> bytes:
    return hmac.digest(secret, side + clients + agents, hashlib.sha256)


def _received(connection: socket.socket, count: int, deadline: float) -> bytes:
    """``count`` bytes, or fewer if the other side closes; later bytes stay unread. TimeoutError at the deadline."""
    data = b""
    while len(data) < count:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        some = connection.recv(count - len(data))
        if not some:
            break
        data += some
    return data


def _network() -> str | None:
    try:
        return os.readlink(_NETWORK)
    except OSError:
        return None
