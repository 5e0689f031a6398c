"""After any failure to listen, the agent listens again without a restart of the broker (U-31, A-03, A-28)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cleanerd_lab.demo.broker import Broker
from tests.agent.building import build
from tests.agent.live import JAR, PROPERTIES, Live, attach, build_of, is_another_build
from tests.agent.raw_client import Asking
from tests.brokers.node import wait_until
from tests.kafka.judge import fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.fixtures import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

NAME_OF_60 = "é" * 60
"""60 characters, 120 bytes: a socket address has at most 107."""


@dataclass(slots=True)
class Threadless:
    """A broker whose agent cannot start a thread of a name while a file for that name exists."""

    live: Live
    place: Path
    jar: Path

    def deny(self, name: str) -> Path:
        path = self.place / f"{name}.none"
        path.touch()
        return path


@pytest.fixture(scope="module")
def threadless() -> Iterator[Threadless]:
    """Started without a usable temporary directory, and at first without a thread for the agent."""
    jars = fetch("4.3")
    work_dir = Path(tempfile.mkdtemp(prefix="comes-back-"))
    place = work_dir / "threads"
    place.mkdir()
    jar = build(work_dir, "threadless")
    arguments = ["-Djava.io.tmpdir=/nonexistent", f"-Dcleanerd.test.threads={place}", f"-javaagent:{jar}"]
    broker = Broker(jars.libs, work_dir / "broker", version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    found = Threadless(Live(broker), place, jar)
    found.deny("cleanerd-agent")
    try:
        broker.start()
        yield found
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


@pytest.fixture(autouse=True)
def _threads_again(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove the files of a failed test, which would affect the next tests."""
    yield
    if "listening" in request.fixturenames:
        place = request.getfixturevalue("listening").place
        for path in place.glob("*.none"):
            path.unlink()


def serves(live: Live) -> bool:
    """Whether a new client gets a response; does not wait for that."""
    if not live.socket.is_socket():
        return False
    try:
        with Asking(live.socket) as asking:
            asking.send(b'{"v":1,"id":1,"op":"info"}\n')
            answer = asking.answer()
    except (ConnectionError, FileNotFoundError):
        return False
    return answer is not None and answer["ok"] is True


@pytest.mark.long
def test_no_thread_at_the_start(threadless: Threadless) -> None:
    """A-01: the broker starts, stderr names the missing thread, and the same jar can be attached later."""
    live = threadless.live
    assert not live.socket.exists()
    assert "cleanerd agent: not started" in live.broker.log_text()
    (threadless.place / "cleanerd-agent.none").unlink()
    attach(live, threadless.jar)
    wait_until("it listens", lambda: serves(live))
    assert build_of(live)[2] == "agentmain"


@pytest.fixture(scope="module")
def listening(threadless: Threadless) -> Threadless:
    """The same broker once its agent has its thread, whichever test runs first."""
    (threadless.place / "cleanerd-agent.none").unlink(missing_ok=True)
    if not serves(threadless.live):
        attach(threadless.live, threadless.jar)
        wait_until("it listens", lambda: serves(threadless.live))
    return threadless


@pytest.mark.long
def test_no_thread_to_accept_clients(listening: Threadless) -> None:
    """A-02, A-03: an agent that does not listen is replaced by the same build; one that listens is not."""
    live = listening.live
    none = listening.deny("cleanerd-agent-accept")
    attach(live, JAR)
    wait_until("the shipped build", lambda: is_another_build(live, build_of_jar(listening.jar)))
    attach(live, listening.jar)  # it starts without a thread that accepts
    wait_until("the socket of the other build", lambda: _gets_no_response(live))
    before = made(live)
    attach(live, listening.jar)
    wait_until("another socket", lambda: made(live) not in {before, None})
    none.unlink()
    wait_until("it listens", lambda: serves(live))
    before = made(live)
    attach(live, listening.jar)
    time.sleep(1)
    assert (serves(live), made(live)) == (True, before)


def made(live: Live) -> int | None:
    """Creation time of its socket; an inode's number may be reused."""
    return live.socket.stat().st_ctime_ns if live.socket.is_socket() else None


def build_of_jar(jar: Path) -> str:
    with zipfile.ZipFile(jar) as found:
        manifest = found.read("META-INF/MANIFEST.MF").decode()
    return next(line.split(": ")[1].strip() for line in manifest.splitlines() if line.startswith("Cleanerd-Agent-B"))


def _gets_no_response(live: Live) -> bool:
    """The socket exists, and a client gets no response."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(5)
        try:
            one.connect(str(live.socket))
            one.sendall(b'{"v":1,"id":1,"op":"info"}\n')
            one.recv(1)
        except TimeoutError:
            return True
        except OSError:
            return False
    return False


@pytest.mark.long
def test_a_moment_without_threads(listening: Threadless) -> None:
    """C-12: an Error while a client is accepted costs only that client."""
    live = listening.live
    with live.asking() as known:
        known.ask("info")  # it has its thread
        none = listening.deny("cleanerd-agent-client")
        assert not serves(live)
        assert not serves(live)
        assert known.ask("info")["ready"] is True
        none.unlink()
    wait_until("it listens", lambda: serves(live))
    with live.asking() as asking:
        assert any("unable to create native thread" in error for error in asking.ask("info")["errors"])


def test_a_deleted_socket_file_is_replaced(listening: Threadless) -> None:
    """U-31: the agent binds it again within seconds; connected clients stay connected."""
    live = listening.live
    with live.asking() as known:
        before = made(live)
        known.ask("info")
        live.socket.unlink()
        wait_until("the agent listens again", lambda: serves(live))
        assert live.socket.stat().st_mode & 0o777 == 0o600
        assert known.ask("info")["socket"] == str(live.socket)
        live.socket.unlink()
        live.socket.write_bytes(b"somebody's file")
        wait_until("the agent replaces the file", lambda: serves(live))
        assert made(live) not in {before, None}
    assert not list(live.socket.parent.glob("*.new"))


def test_a_busy_response_has_the_requests_id(listening: Threadless) -> None:
    """A third long line is refused by its request's id, and the connection continues."""
    live = listening.live
    long = json.dumps({"v": 1, "id": 42, "op": "info", "more": "x" * 200_000}).encode()
    text = json.dumps({"v": 1, "op": "info", "id": "mine", "more": "x" * 200_000}).encode()
    with live.asking() as first, live.asking() as second, live.asking() as third:
        for asking in (first, second):
            asking.send(b" " * 200_000)
        wait_until("both are being read", lambda: first.unread() == second.unread() == 0)
        for line, name in ((long, 42), (text, "mine"), (b" " * 200_000, None)):
            third.send(line[:150_000])
            refused = third.answer()
            assert refused is not None
            assert (refused["id"], refused["ok"], refused["code"], refused["done"]) == (name, False, "busy", [])
            third.send(line[150_000:] + b"\n")
            assert third.ask("info")["ready"] is True


@pytest.fixture
def place() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="place-"))
    yield path
    shutil.rmtree(path)


def test_a_socket_directory_writable_by_others(
    broker_43: StartBroker, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-28: socket=PATH is refused if other users could put a socket there, and used once that is fixed.

    And its length counts in bytes: a path beyond the limit of an address is reached in another way.
    """
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    directory = place / NAME_OF_60
    directory.mkdir(mode=0o700)
    directory.chmod(0o777)
    path = directory / "agent.sock"
    broker = broker_43(jvm_args=(f"-javaagent:{JAR}=socket={path}",))
    wait_until("the log has the reason", lambda: "other users can write to" in broker.log_text())
    assert not list(directory.iterdir())
    directory.chmod(0o700)
    wait_until("it listens", path.is_socket)
    with Asking(Path("/proc/self/fd") / str(_opened(directory)) / "agent.sock") as asking:
        assert asking.ask("info")["socket"] == str(path)
    assert broker.log_text().count("other users can write to") == 1, "reported once, not at each try"
    broker.stop()
    assert not list(directory.iterdir())


def _opened(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
