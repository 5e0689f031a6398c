"""A broker whose agent is reached over the loopback, as where Java has no unix sockets (A-33, A-34, A-35).

Any process of the host can connect to such a port.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import stat
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from cleanerd.broker.agent_client import AgentClient
from cleanerd.errors import AgentUnavailableError
from cleanerd_lab.demo.broker import Broker
from tests.agent.announcing import Listening, announce, proof
from tests.agent.building import changed_build
from tests.agent.live import JAR, PROPERTIES, Live, attach, build_of, is_another_build
from tests.agent.raw_client import Asking
from tests.brokers.node import error_lines, wait_until
from tests.cli.clean_log_dirs import Shell
from tests.kafka.judge import fetch
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

ARGUMENT: Final = f"-javaagent:{JAR}=transport=loopback"
PLACES: Final = 64
INFO: Final = b'{"v":1,"id":1,"op":"info"}\n'


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[Live]:
    """A broker of 4.3 with these arguments of its JVM."""
    jars = fetch("4.3")
    work_dir = Path(tempfile.mkdtemp(prefix="loopback-"))
    broker = Broker(jars.libs, work_dir, version=jars.version, properties=PROPERTIES, jvm_args=arguments)
    try:
        broker.start()
        yield Live(broker)
    finally:
        broker.kill()
        shutil.rmtree(work_dir)


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with started(ARGUMENT) as found:
        yield found


def announced(live: Live) -> dict[str, Any]:
    """The content of the announcement; waits until it exists."""
    wait_until("the announcement exists", live.socket.is_file)
    found: dict[str, Any] = json.loads(live.socket.read_bytes())
    return found


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)


def answer_to_hello(one: socket.socket, number: bytes) -> bytes:
    """The agent's number and proof."""
    one.sendall(b"CLEANERD" + number)
    found = b""
    while len(found) < 64 and (some := one.recv(64 - len(found))):
        found += some
    return found


def is_refused(one: socket.socket) -> bool:
    """Whether the agent closes the connection without a response."""
    try:
        return one.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.long
def test_the_port_and_its_announcement(live: Live) -> None:
    """A-33: bound to 127.0.0.1 only, announced in a file of mode 0600, with 256 bits.

    ``info`` and ``doctor`` report it.
    """
    facts = announced(live)
    status = live.socket.lstat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_nlink) == (0o600, os.geteuid(), 1)
    assert len(bytes.fromhex(facts["secret"])) == 32
    assert facts["network"] == os.readlink("/proc/self/ns/net")
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    ending = f":{facts['port']:04X}"
    listening = {words[1].removesuffix(ending) for words in lines if words[1].endswith(ending) and words[3] == "0A"}
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert len(listening) == 1
    with live.asking() as asking:
        info = asking.ask("info")
    assert (info["transport"], info["socket"], info["self_test"]) == ("loopback", str(live.socket), "passed")
    assert not list(live.socket.parent.glob("*.new"))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(tmp_path, capsys, monkeypatch)


@pytest.mark.long
def test_a_swap_over_the_loopback_port(live: Live, shell: Shell) -> None:
    """The protocol is the same: a plan's groups are swapped, and ``clean --live`` needs no further setting."""
    topic = live.topic("over-tcp")
    request = topic.request(topic.stage(output_bytes=12_000))
    with live.asking() as asking:
        assert len(asking.ask("swap", **request)["done"]) > 1
    assert topic.read() == topic.latest
    again = live.topic("by-verb", transactions=False)
    again.wait_until_settled()
    options = ("--live", "--yes", "--force", "--quiet", "--json", "--partition", "by-verb-0")
    answer = shell("clean", *options, live.socket.parent)
    assert answer.code == 0, answer.err
    assert [row["outcome"] for row in answer.json["partitions"]] == ["cleaned"]
    assert again.read() == again.latest
    assert "TCP on 127.0.0.1, each side with a proof" in shell("agent", "info", live.socket.parent).out
    assert "reached by TCP on 127.0.0.1" in shell("doctor", "-v", live.socket.parent).out
    assert error_lines(live.broker.log_text()) == []


def test_a_request_without_a_valid_proof_is_refused(live: Live) -> None:
    """A-34: a request without a proof, a wrong proof, the agent's own, and one of an earlier connection."""
    facts = announced(live)
    number = secrets.token_bytes(32)
    with connected(facts["port"]) as one:
        one.sendall(INFO * 3)
        assert is_refused(one)
    with connected(facts["port"]) as one:
        one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:9092\r\n\r\n")
        assert is_refused(one)
    with connected(facts["port"]) as one:
        assert len(answer_to_hello(one, number)) == 64
        one.sendall(bytes(32) + INFO)
        assert is_refused(one)
    with connected(facts["port"]) as one:
        one.sendall(answer_to_hello(one, number)[32:] + INFO)
        assert is_refused(one)
    key = bytes.fromhex(facts["secret"])
    with connected(facts["port"]) as one:
        agents_number = answer_to_hello(one, number)[:32]
        good = proof("client", number, agents_number, key)
        one.sendall(good + INFO)
        assert b'"ok":true' in one.recv(100_000)
    with connected(facts["port"]) as one:
        assert answer_to_hello(one, number)[:32] != agents_number
        one.sendall(good + INFO)
        assert is_refused(one)
    with live.asking() as asking:
        assert asking.ask("info")["accepting_swaps"] is True


def test_a_silent_client_is_disconnected(live: Live) -> None:
    """A-35: after five seconds, without using the slot of a served client. Floods do not use one either."""
    port = announced(live)["port"]
    with contextlib.ExitStack() as stack:
        served = [stack.enter_context(live.asking()) for _ in range(PLACES)]
        for asking in served:
            asking.ask("info")
        half = stack.enter_context(connected(port))
        half.settimeout(60)
        half.sendall(b"CLEANERD")
        assert is_refused(half)
        with contextlib.suppress(ConnectionError), connected(port) as endless:
            for _ in range(1000):
                endless.sendall(b"x" * 65536)
        for asking in served:
            assert asking.ask("info")["ready"] is True
        with live.asking() as one_more:
            one_more.send(INFO)
            reported = one_more.answer()
        assert reported is not None
        assert reported["code"] == "too_many"
    wait_until("the places are free", lambda: _answers(live))
    with live.asking() as asking:
        errors = asking.ask("info")["errors"]
    reported_of = [error for error in errors if "did not prove that they may read" in error]
    assert 1 <= len(reported_of) <= 3, "once a minute at most: any process can cause it"


@pytest.mark.long
def test_a_hundred_silent_clients(live: Live) -> None:
    """A-35: sixteen may be silent, and one more disconnects the oldest.

    In this test for ten minutes, not five seconds.
    """
    longer = ("PROOF_SECONDS = 5", "PROOF_SECONDS = 600")
    patient = changed_build(live.broker.work_dir, "patient", "LoopbackListener.java", longer)
    with contextlib.ExitStack() as stack:
        replace_build(live, patient)
        stack.callback(replace_build, live, JAR)
        port = announced(live)["port"]
        silent = [stack.enter_context(connected(port)) for _ in range(100)]
        wait_until("most are hung up on", lambda: sum(map(_has_ended, silent)) >= 84)
        with live.asking() as asking:
            assert asking.ask("info")["ready"] is True
        assert [_has_ended(one) for one in silent] == [True] * 85 + [False] * 15


def replace_build(live: Live, jar: Path) -> None:
    """Replace the running build by another one."""
    before = build_of(live)[0]
    attach(live, jar, "transport=loopback")
    wait_until("the other build", lambda: is_another_build(live, before))


def _has_ended(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        one.settimeout(PATIENCE_SECONDS)


def _answers(live: Live) -> bool:
    with live.asking() as asking:
        asking.send(INFO)
        answer = asking.answer()
    return answer is not None and answer["ok"] is True


def test_a_deleted_or_replaced_announcement(live: Live) -> None:
    """U-31, A-33: another port is announced with another secret; connected clients stay connected."""
    with live.asking() as known:
        seen = [announced(live)]
        elsewhere = live.broker.work_dir / "elsewhere"
        elsewhere.write_text("somebody's")
        for replace in (lambda _: None, lambda path: path.write_text("{}"), lambda path: path.symlink_to(elsewhere)):
            live.socket.unlink()  # the next file may get its inode number
            replace(live.socket)
            (live.socket.parent / ".cleanerd-agent.sock.new").symlink_to(elsewhere)
            wait_until("it listens again", lambda: _is_announced_again(live, seen))
            seen.append(announced(live))
            assert stat.S_IMODE(live.socket.lstat().st_mode) == 0o600
            assert known.ask("info")["ready"] is True
            with connected(seen[-1]["port"]) as one:
                number = secrets.token_bytes(32)
                agents_number = answer_to_hello(one, number)[:32]
                one.sendall(proof("client", number, agents_number, bytes.fromhex(seen[-2]["secret"])))
                assert is_refused(one), "the secret of before"
        assert elsewhere.read_text() == "somebody's"
    assert not list(live.socket.parent.glob("*.new"))


def _is_announced_again(live: Live, seen: list[dict[str, Any]]) -> bool:
    if live.socket.is_symlink() or not live.socket.is_file():
        return False
    text = live.socket.read_text()
    return "secret" in text and json.loads(text) not in seen


@pytest.mark.long
def test_a_broker_that_is_killed(live: Live) -> None:
    """A-33: its file stays, and a process that gets its port learns no secret; the next start announces a new one."""
    left = announced(live)
    live.broker.kill()
    assert announced(live) == left
    with pytest.raises(AgentUnavailableError, match=r"no agent answers here|another process uses the port"):
        AgentClient.connect(live.socket)
    silent = socket.create_server(("127.0.0.1", left["port"]))
    with silent, pytest.raises(AgentUnavailableError, match="no agent answers here: timed out"):
        AgentClient.connect(live.socket, timeout_seconds=0.3)
    live.broker.start()
    with live.asking() as asking:
        assert asking.ask("info")["transport"] == "loopback"
    assert announced(live)["secret"] != left["secret"]
    live.broker.stop()
    assert not live.socket.exists()
    live.broker.start()
    with live.asking() as asking:
        assert asking.ask("info")["ready"] is True


@pytest.mark.long
def test_a_place_where_another_agent_answers(live: Live) -> None:
    """A-28, A-33: another agent's file is not replaced, and a dead agent's file is."""
    place = live.broker.work_dir / "taken"
    place.mkdir(mode=0o700)
    path = place / "agent.sock"
    other = Listening(lambda connection: _prove(connection, other))
    announce(path, other.port)
    before = path.read_bytes()
    another = ("Java 11 has no HexFormat.", "Another build.")
    jar = changed_build(live.broker.work_dir, "elsewhere", "Hex.java", another)
    try:
        attach(live, jar, "transport=loopback", f"socket={path}")
        wait_until("the log has the reason", lambda: _says_why(live) or path.read_bytes() != before)
        assert path.read_bytes() == before
        other.close()
        with Asking(path) as asking:
            assert asking.ask("info")["socket"] == str(path)
        assert path.read_bytes() != before
    finally:
        other.close()
        attach(live, JAR, "transport=loopback")
        wait_until("the shipped build listens", lambda: live.socket.exists() and _answers(live))
    assert not list(place.iterdir())


def _prove(connection: socket.socket, listening: Listening) -> None:
    agents_number = secrets.token_bytes(32)
    connection.sendall(agents_number + proof("agent", listening.came[-1][8:], agents_number))


@pytest.mark.long
def test_two_agents_at_one_place(live: Live) -> None:
    """A-28, A-33: a file whose agent answers is not replaced, also if it uses the other way; a stale one is."""
    place = live.broker.work_dir / "shared"
    place.mkdir(mode=0o700)
    path = place / "agent.sock"
    with started(f"{ARGUMENT},socket={path}") as first:
        wait_until("the first listens", path.is_file)
        before = path.read_bytes()
        with started(f"{ARGUMENT},socket={path}") as second, started(f"-javaagent:{JAR}=socket={path}") as third:
            for other in (second, third):
                wait_until("the log has the reason", partial(_says_why, other))
            assert path.read_bytes() == before
            with Asking(path) as asking:
                assert asking.ask("info")["log_dirs"] == [str(first.broker.log_dirs[0])]
            first.broker.kill()
            wait_until("another agent uses the file", lambda: not path.is_file() or path.read_bytes() != before)
            with Asking(path) as asking:
                assert asking.ask("info")["log_dirs"] != [str(first.broker.log_dirs[0])]


def _says_why(live: Live) -> bool:
    return "is in use by another process" in live.broker.log_text()
