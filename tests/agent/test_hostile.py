"""Hostile clients of the agent's socket: any input, without any effect (A-28, A-29, A-31, A-32)."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from cleanerd.broker.agent_client import AgentClient
from cleanerd.errors import AgentRefusalError
from cleanerd.errors import RefusedError as UnsentError
from tests.agent.raw_client import Asking, RefusedError
from tests.brokers.node import error_lines, wait_until
from tests.support.patience import PATIENCE_SECONDS
from tests.support.root import needs_root

if TYPE_CHECKING:
    from tests.agent.live import Live

pytestmark = [pytest.mark.kafka, pytest.mark.broker]

INFO: Final = b'{"v":1,"id":1,"op":"info"}\n'
OTHER_USER: Final = 65534
PLACES: Final = 64

NO_REQUESTS: Final = {
    "nothing": b"\n",
    "text": b"hello\n",
    "no UTF-8": b'{"id":"\xff\xfe"}\n',
    "overlong": b'{"id":"\xc0\xaf"}\n',
    "half": b'{"v":1,"id":1\n',
    "two values": b'{"v":1} {"v":1}\n',
    "trailing comma": b'{"v":1,}\n',
    "single quotes": b"{'v':1}\n",
    "name twice": b'{"v":1,"id":1,"id":2,"op":"info"}\n',
    "fraction": b'{"v":1.0,"id":1,"op":"info"}\n',
    "exponent": b'{"v":1e0,"id":1,"op":"info"}\n',
    "leading zero": b'{"v":01,"id":1,"op":"info"}\n',
    "65 bits": b'{"v":9223372036854775808,"id":1,"op":"info"}\n',
    "NaN": b'{"v":NaN,"id":1,"op":"info"}\n',
    "plus": b'{"v":+1,"id":1,"op":"info"}\n',
    "control character": b'{"v":1,"id":"\x01","op":"info"}\n',
    "bad escape": b'{"v":1,"id":"\\x41","op":"info"}\n',
    "digits that are none": ('{"v":1,"id":"\\u' + "\N{ARABIC-INDIC DIGIT ZERO}" * 4 + '","op":"info"}\n').encode(),
    "list": b"[1]\n",
    "deep": b"[" * 40 + b"]" * 40 + b"\n",
    "very deep": b"[" * 1_000_000 + b"\n",
    "many values": b"[" + b"[]," * 300_000 + b"1]\n",
    "id of another kind": b'{"v":1,"id":[1],"op":"info"}\n',
    "long id": b'{"v":1,"id":"' + b"x" * 300 + b'","op":"info"}\n',
}


def errors_of(live: Live) -> list[str]:
    """Lines with errors in the broker's log."""
    return error_lines(live.broker.log_text())


@pytest.mark.parametrize("line", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
def test_a_malformed_request_ends_the_connection(live: Live, line: bytes) -> None:
    """Strict JSON, a bounded number of values and levels; a response, then the end of the connection."""
    with live.asking() as asking:
        asking.send(line)
        answer = asking.answer()
        assert answer is not None
        assert (answer["id"], answer["ok"], answer["code"], answer["done"]) == (None, False, "bad_request", [])
        assert len(answer["error"]) < 500
        assert asking.answer() is None
    with live.asking() as asking:
        assert asking.ask("info")["accepting_swaps"] is True


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"v":2,"id":1,"op":"info"}\n', "unsupported"),
        (b'{"id":1,"op":"info"}\n', "unsupported"),
        (b'{"v":1,"id":1,"op":"aborted"}\n', "unsupported"),
        (b'{"v":1,"id":1,"op":"truncate","topic":"t","partition":0}\n', "unsupported"),
        (b'{"v":1,"id":1,"op":"inject"}\n', "unsupported"),
        (b'{"v":1,"id":1}\n', "bad_request"),
        (b'{"v":1,"id":1,"op":"info","more":true}\n', "bad_request"),
        (b'{"v":1,"id":1,"op":"log","topic":"t"}\n', "bad_request"),
        (b'{"v":1,"id":1,"op":"log","topic":"t","partition":2147483648}\n', "bad_request"),
        (b'{"v":1,"id":1,"op":"log","topic":"../..","partition":0}\n', "no_log"),
        (b'{"v":1,"id":1,"op":"resume","topic":"__consumer_offsets","partition":7}\n', "no_log"),
    ],
)
def test_absurd_requests_are_refused(live: Live, line: bytes, code: str) -> None:
    """A-31: each is refused, and the connection's next request is served; the test operations do not exist."""
    with live.asking() as asking:
        asking.send(line + INFO)
        refused, info = asking.answer(), asking.answer()
    assert refused is not None
    assert (refused["id"], refused["code"]) == (1, code)
    assert info is not None
    assert info["ok"] is True


def test_random_bytes(live: Live) -> None:
    """A-32: random bytes of every length, half of them similar to JSON."""
    chance = random.Random(6)
    for round_ in range(150):
        noise = chance.randbytes(chance.randrange(1, 3000))
        if round_ % 2:
            noise = bytes(chance.choice(b'{}[]",:0123456789\\utrefalsn \n') for _ in range(len(noise)))
        with live.asking() as asking:
            try:
                asking.send(noise + b"\n")
                answer = asking.answer()
            except BrokenPipeError:
                continue  # an earlier random line ended it
            assert answer is None or answer["ok"] is False
    with live.asking() as asking:
        assert asking.ask("info")["ready"] is True


def test_a_line_without_an_end(live: Live) -> None:
    """A-32: the limit is 4 MiB, whatever follows; and only two long lines are read at a time."""
    with live.asking() as asking:
        answer = None
        try:
            for _ in range(100):
                asking.send(b"x" * 64 * 1024)
        except (BrokenPipeError, ConnectionResetError):
            pass
        else:
            answer = asking.answer()
        assert answer is None or answer["code"] == "bad_request"
    with live.asking() as first, live.asking() as second, live.asking() as third:
        for asking in (first, second):
            asking.send(b" " * 200_000)
        wait_until("both are being read", lambda: first.unread() == second.unread() == 0)
        third.send(b" " * 100_000)
        refused = third.answer()
        assert refused is not None
        assert refused["code"] == "busy"
        first.send(INFO)
        answered = first.answer()
        assert answered is not None
        assert answered["ok"] is True


def test_a_thousand_connections(live: Live) -> None:
    """A-32: 64 are served, the others are refused; after they close, the next one is served."""
    sockets = []
    reported = 0
    try:
        while len(sockets) < PLACES:  # the previous test's connections end when their threads run
            one = _connected(live)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(INFO)
            if b'"ok":true' in _received(one):
                sockets.append(one)
            else:
                one.close()
        sockets += [_connected(live) for _ in range(1000 - PLACES)]
        for one in sockets[PLACES:]:
            reported += b'"too_many"' in _received(one)
        threads = len(os.listdir(f"/proc/{live.broker.pid}/task"))
        sockets[0].sendall(INFO)
        assert b'"ok":true' in sockets[0].recv(100_000)
    finally:
        for one in sockets:
            one.close()
    assert reported == 1000 - PLACES
    assert threads < 200

    def served() -> bool:
        with live.asking() as asking:
            asking.send(INFO)
            answer = asking.answer()
            return answer is not None and answer["ok"] is True

    wait_until("the next one is served", served)


def _connected(live: Live) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(live.socket))  # without a timeout it waits while the backlog is full
    one.settimeout(PATIENCE_SECONDS)
    return one


def _received(one: socket.socket) -> bytes:
    """The beginning of a response; a client that is disconnected was one too many."""
    try:
        return one.recv(100_000)
    except (ConnectionResetError, BrokenPipeError):
        return b'"too_many"'


def test_a_client_that_disconnects(live: Live) -> None:
    """In the middle of a line, or before its response arrived."""
    for data in (b'{"v":1,"id":1,"op":"in', INFO * 50):
        for _ in range(20):
            with live.asking() as asking:
                asking.send(data)
    wait_until("all places are free", lambda: _free_places(live) == 8)


def _free_places(live: Live) -> int:
    found = [live.asking() for _ in range(8)]
    try:
        served = 0
        for asking in found:
            try:
                asking.send(INFO)
                answer = asking.answer()
            except (BrokenPipeError, ConnectionResetError):
                continue
            served += answer is not None and answer["ok"] is True
        return served
    finally:
        for asking in found:
            asking.close()


@needs_root
def test_another_user(live: Live) -> None:
    """A-29: even if the path to the socket is accessible, another user gets no response."""
    program = (
        "import os, socket, sys\n"
        f"os.setgid({OTHER_USER}); os.setuid({OTHER_USER})\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(240)\n"
        "try:\n    s.connect(sys.argv[1])\n"
        "except PermissionError:\n    print('closed'); sys.exit()\n"
        "try:\n"
        f"    s.sendall({INFO!r}); print(s.recv(100))\n"
        "except (BrokenPipeError, ConnectionResetError):\n    print(b'')\n"
    )

    def as_another_user() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, str(live.socket)],
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_SECONDS,
        )
        return done.stdout.strip()

    assert as_another_user() == "closed"
    places = [live.broker.work_dir, live.socket.parent]
    modes = [place.stat().st_mode for place in places]
    try:
        for place in places:
            place.chmod(0o755)
        live.socket.chmod(0o666)
        assert as_another_user() == "b''"
    finally:
        live.socket.chmod(0o600)
        for place, mode in zip(places, modes, strict=True):
            place.chmod(mode)
    with live.asking() as asking:
        errors = asking.ask("info")["errors"]
    user = pwd.getpwuid(OTHER_USER).pw_name
    assert f"refused a connection of user {user}: only the broker's user and root may connect" in errors


def test_as_many_segments_as_a_request_can_name(live: Live) -> None:
    """A-32: cleanerd does not send what an agent cannot accept: it would be reported as a broken connection."""
    rows = [
        {"base": 1000 * number, "size": 1_000_000, "ino": 10_000_000 + number, "mtime_ms": 1_764_000_000_000}
        for number in range(41_000)
    ]
    with AgentClient.connect(live.socket) as client:
        with pytest.raises(AgentRefusalError, match="a string is expected"):
            client.call("swap", witnesses=rows[:39_000])
        with pytest.raises(UnsentError, match="too many segments"):
            client.call("swap", witnesses=rows)


def test_the_broker_is_unaffected(live: Live) -> None:
    """R-3, U-27: no error in its log, its memory is not exhausted by the agent, and it serves requests."""
    assert "Kafka Server started" in live.broker.log_text()
    assert errors_of(live) == []
    lines = [line for line in live.broker.log_text().splitlines() if "cleanerd agent" in line]
    assert len(lines) < 1000
    with live.asking() as asking, pytest.raises(RefusedError) as refused:
        asking.ask("log", topic="x" * 3000, partition=0)
    assert len(json.dumps(refused.value.answer)) < 5000
    assert isinstance(asking, Asking)
