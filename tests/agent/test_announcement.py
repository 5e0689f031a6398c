"""Cleanerd trusts an announced port only with a proof (A-29, A-33, A-34)."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.broker import agent_transport
from cleanerd.broker.agent_client import AgentClient, AgentLostError
from cleanerd.broker.live_broker import find_socket
from cleanerd.errors import AgentUnavailableError
from tests.agent.announcing import Listening, announce, proof
from tests.agent.live import JAR
from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import needs_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OF_UNIX = {"Peers", "Peers$Kernel", "SocketFile", "UnixTransport"}


@pytest.fixture
def listening() -> Iterator[Callable[[Callable[[socket.socket], None]], Listening]]:
    made: list[Listening] = []

    def begin(behave: Callable[[socket.socket], None]) -> Listening:
        made.append(Listening(behave))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def test_the_secret_is_never_sent(tmp_path: Path, listening: Any) -> None:
    """A-34: the agent proves itself first. A foreign process at a killed broker's port gets only a random number."""
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", secrets.token_bytes(64), secrets.token_bytes(100)):
        stranger = listening(lambda connection, answer=answer: (connection.sendall(answer), connection.shutdown(1)))
        announce(tmp_path / "a", stranger.port)
        with pytest.raises(AgentUnavailableError, match="another process uses the port"):
            AgentClient.connect(tmp_path / "a")
        (hello,) = stranger.came
        assert len(hello) == 40
        assert hello[:8] == b"CLEANERD"


def test_a_listener_that_returns_the_received_bytes(tmp_path: Path, listening: Any) -> None:
    """A-34: a proof includes its side and both numbers."""
    known: list[bytes] = []

    def with_the_sides_mixed_up(connection: socket.socket) -> None:
        number = secrets.token_bytes(32)
        connection.sendall(number + proof("client", server.came[-1][8:], number))

    def with_a_proof_of_before(connection: socket.socket) -> None:
        if not known:
            number = secrets.token_bytes(32)
            known.append(number + proof("agent", server.came[-1][8:], number))
        connection.sendall(known[0])

    server = listening(with_the_sides_mixed_up)
    announce(tmp_path / "a", server.port)
    with pytest.raises(AgentUnavailableError, match="another process uses the port"):
        AgentClient.connect(tmp_path / "a")
    server = listening(with_a_proof_of_before)
    announce(tmp_path / "a", server.port)
    AgentClient.connect(tmp_path / "a").close()
    with pytest.raises(AgentUnavailableError, match="another process uses the port"):
        AgentClient.connect(tmp_path / "a")


def test_an_announced_port_that_does_not_answer(tmp_path: Path, listening: Any) -> None:
    """A-33: a killed broker's file, and a silent process at its port: cleanerd gives up in time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    announce(tmp_path / "a", port)
    with pytest.raises(AgentUnavailableError, match=r"no agent answers here|another process uses the port"):
        AgentClient.connect(tmp_path / "a")
    silent = listening(lambda _connection: None)
    announce(tmp_path / "a", silent.port)
    with pytest.raises(AgentUnavailableError, match="no agent answers here: timed out"):
        AgentClient.connect(tmp_path / "a", timeout_seconds=0.3)


def test_an_agent_that_disconnects_after_its_proof(tmp_path: Path, listening: Any) -> None:
    """The connection is lost, as with a unix socket: whether a request was executed is unknown."""

    def hang_up(connection: socket.socket) -> None:
        number = secrets.token_bytes(32)
        connection.sendall(number + proof("agent", server.came[-1][8:], number))
        connection.recv(32)
        connection.shutdown(socket.SHUT_RDWR)

    server = listening(hang_up)
    announce(tmp_path / "a", server.port)
    with AgentClient.connect(tmp_path / "a") as client, pytest.raises(AgentLostError):
        client.call("info")


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"mode": 0o640}, "has mode 0640: others can read"),
        ({"mode": 0o604}, "has mode 0604"),
        ({"mode": 0o602}, "has mode 0602"),
        ({"more": "x" * 1024}, "announces no agent"),
        ({"port": 0}, "announces no agent"),
        ({"port": 65536}, "announces no agent"),
        ({"port": "80"}, "announces no agent"),
        ({"secret": "5" * 62}, "announces no agent"),
        ({"secret": ""}, "announces no agent"),
        ({"cleanerd_agent": 2}, "announces no agent"),
        ({"network": "net:[1]"}, "another network namespace"),
    ],
)
def test_invalid_announcement_files(tmp_path: Path, listening: Any, changes: dict[str, Any], reported: str) -> None:
    """A-33: files that others may read or write, too long files, and paths into another container are rejected."""
    server = listening(lambda _connection: None)
    announce(tmp_path / "a", **({"port": server.port} | changes))
    with pytest.raises(AgentUnavailableError, match=reported):
        AgentClient.connect(tmp_path / "a")
    assert server.came == []


def test_links_are_not_followed(tmp_path: Path, listening: Any) -> None:
    """A-33, U-33: a link or a file with a second name is not opened, and a link in a log directory is not found."""
    server = listening(lambda _connection: None)
    announce(tmp_path / "elsewhere", server.port)
    place = tmp_path / "logs" / agent_transport.SOCKET
    place.parent.mkdir()
    assert find_socket(None, [place.parent]) is None
    place.symlink_to(tmp_path / "elsewhere")
    assert find_socket(None, [place.parent]) is None
    with pytest.raises(AgentUnavailableError):
        AgentClient.connect(place)
    place.unlink()
    place.hardlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentUnavailableError, match="hard links"):
        AgentClient.connect(place)
    (tmp_path / "elsewhere").unlink()
    assert find_socket(None, [place.parent]) == place
    place.write_bytes(b"\xff{")
    with pytest.raises(AgentUnavailableError, match="announces no agent"):
        AgentClient.connect(place)
    place.unlink()
    os.mkfifo(place)
    assert find_socket(None, [place.parent]) is None
    with pytest.raises(AgentUnavailableError):
        AgentClient.connect(place)
    assert server.came == []


@needs_root
def test_an_announcement_of_another_user_is_rejected(tmp_path: Path, listening: Any) -> None:
    """A-29: it belongs to neither root, this user nor the owner of its directory."""
    server = listening(lambda connection: connection.shutdown(1))
    announce(tmp_path / "a", server.port)
    os.chown(tmp_path / "a", 65534, 65534)
    with pytest.raises(AgentUnavailableError, match="belongs to uid 65534, but its directory to uid 0"):
        AgentClient.connect(tmp_path / "a")
    assert server.came == []
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(AgentUnavailableError, match="another process uses the port"):
        AgentClient.connect(tmp_path / "a")


def test_the_class_files_load_in_java_11() -> None:
    """A-04: all but the unix socket's classes are for Java 11, and the stub's for Java 8."""
    with zipfile.ZipFile(JAR) as jar:
        versions = {name: jar.read(name)[7] for name in jar.namelist() if name.endswith(".class")}
    newer = {Path(name).stem for name, version in versions.items() if version > 55}
    assert newer == OF_UNIX
    assert {version for name, version in versions.items() if "/stub/" in name} == {52}
    assert {version for name, version in versions.items() if "/stub/" not in name} == {55, 61}


def test_a_java_that_is_too_old() -> None:
    """A-01: the JVM starts nevertheless, and its output names the Java release that the agent needs."""
    work_dir = Path(tempfile.mkdtemp(prefix="too-old-"))
    try:
        with zipfile.ZipFile(JAR) as jar, zipfile.ZipFile(work_dir / "a.jar", "w") as changed:
            for name in jar.namelist():
                data = jar.read(name)
                if name == "implementation/cleanerd/agent/Entry.class":
                    data = data[:6] + (9999).to_bytes(2, "big") + data[8:]
                changed.writestr(name, data)
        command = ["java", "-Xmx64m", f"-javaagent:{work_dir / 'a.jar'}", "-version"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    finally:
        shutil.rmtree(work_dir)
    assert done.returncode == 0
    assert "cleanerd agent: not started: java.lang.UnsupportedClassVersionError" in done.stderr
    assert "(Java 11 or newer is needed)" in done.stderr
    assert "openjdk" in done.stderr
