"""Other brokers' daemons report their checkpoints, and wrong answers are handled (U-79)."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.admin.peers import FoundDaemons, Peers, first_dirty_offsets
from cleanerd.errors import CleanerdError
from cleanerd.policy.state_digest import ReplicaDigests, StateDigest
from cleanerd_lab.demo.ports import free_port
from tests.daemon.serving import serving
from tests.daemon.views import log_dir, partition, view
from tests.support.answering import answering

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
OTHER_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


def status(*partitions: dict[str, Any], node_id: Any = 2, cluster_id: Any = CLUSTER) -> dict[str, Any]:
    directory = {"path": "/d1", "node_id": node_id, "cluster_id": cluster_id}
    return {"log_dirs": [directory], "partitions": list(partitions)}


def entry(topic: Any = "t", number: Any = 0, offset: Any = 5, at: str = "/d1") -> dict[str, Any]:
    return {"topic": topic, "partition": number, "first_dirty_offset": offset, "log_dir": at}


def body(data: bytes, code: int = 200, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """A byte at a time, each within the timeout."""
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        pass


def ask(address: str, **limits: Any) -> dict[str, dict[int, int]] | str:
    found = Peers(**limits).points([(2, address)], CLUSTER, 1)
    assert found is not None
    return found[2]


def test_a_daemon() -> None:
    """U-79: a real server's answer, with the checkpoints of the requested broker."""
    partitions = partition("t", 0, first_dirty_offset=7), partition("t", 1, first_dirty_offset=None), partition("u", 3)
    shown = view(partitions=partitions, log_dirs=(log_dir(partitions[0].log_dir, node_id=2, cluster_id=CLUSTER),))
    with serving(shown) as served:
        found = ask(f"127.0.0.1:{served.port}")
    assert isinstance(found, dict)
    assert found["t"] == {0: 7}
    assert set(found) == {"t", "u"}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param(status(entry(), entry("u", 3, 0)), {"t": {0: 5}, "u": {3: 0}}, id="two topics"),
        pytest.param(status(entry(offset=None)), {}, id="never surveyed"),
        pytest.param(status(entry(offset=9), entry(offset=4)), {"t": {0: 4}}, id="twice: the lower one"),
        pytest.param(status(entry(offset=9), entry(offset=None)), {"t": {}}, id="twice, one of them unknown"),
        pytest.param(status(entry(at="/d2")), {}, id="of another log directory"),
        pytest.param(status(entry(), node_id=3), "its daemon reports no log directory of broker 2", id="of broker 3"),
        pytest.param(
            status(entry(), cluster_id=OTHER_CLUSTER),
            f"its daemon reports the cluster {OTHER_CLUSTER}, not {CLUSTER}",
            id="of another cluster",
        ),
        pytest.param(
            status(entry(), cluster_id=None), f"its daemon reports the cluster None, not {CLUSTER}", id="of no cluster"
        ),
    ],
)
def test_an_answer(document: dict[str, Any], expected: object) -> None:
    """U-79: only the report of the broker's own daemon about this cluster."""
    assert first_dirty_offsets(document, 2, CLUSTER) == expected


def test_without_a_cluster_id_of_ones_own() -> None:
    assert isinstance(first_dirty_offsets(status(entry(), cluster_id=None), 2, None), str)


HOSTILE = [
    [], {}, 7, None, "x", {"log_dirs": 3, "partitions": []}, {"log_dirs": [[]], "partitions": []},
    status(entry(offset=-1)), status(entry(offset=2**63)), status(entry(offset="9")), status(entry(offset=True)),
    status(entry(offset=9.5)), status(entry(number=-1)), status(entry(number=2**31)), status(entry(number="0")),
    status(entry(number=[])), {**status(), "partitions": [3]}, {**status(), "partitions": {"t": 1}},
    {"log_dirs": [{"path": [], "node_id": 2, "cluster_id": CLUSTER}], "partitions": []},
]  # fmt: skip


@pytest.mark.parametrize("document", HOSTILE, ids=lambda each: json.dumps(each)[:60])
def test_an_invalid_answer(document: Any) -> None:
    """U-79: none of it is used."""
    with answering(body(json.dumps(document).encode())) as address:
        assert "is not a supported cleanerd version" in ask(address)


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"\xff", b"{", b'{"log_dirs": NaN, "partitions": 1}'])
def test_an_answer_that_is_not_json(data: bytes) -> None:
    with answering(body(data)) as address:
        assert "is not a supported cleanerd version" in ask(address)


def test_errors_and_silence() -> None:
    """U-79: each has its reason, and none takes longer than the timeout."""
    with ExitStack() as open_now:
        forbidden = open_now.enter_context(answering(body(b"", 403)))
        listening = open_now.enter_context(socket.create_server(("127.0.0.1", 0)))
        good = open_now.enter_context(answering(body(json.dumps(status(entry())).encode())))
        moved = open_now.enter_context(answering(body(b"", 302, Location=f"http://{good}/status")))
        slow = open_now.enter_context(answering(dripping))
        addresses = [
            (2, good), (3, forbidden), (4, f"127.0.0.1:{listening.getsockname()[1]}"), (5, moved), (6, slow),
            (7, f"127.0.0.1:{free_port()}"), (1, "192.0.2.1:1"),
        ]  # fmt: skip
        began = time.monotonic()
        found = Peers(answer_seconds=1).points(addresses, CLUSTER, 1)
        assert time.monotonic() - began < 4
    assert found == {
        2: {"t": {0: 5}},
        3: "its daemon answers 403 (Forbidden): see cleanerd.http.hosts",
        4: found[4],
        5: "its daemon answers 302 (Found): see cleanerd.http.hosts",
        6: found[6],
        7: "its daemon does not answer: Connection refused",
    }
    assert "answer" in found[4]
    assert "within 1 s" in found[6] or "too slowly" in found[6]


def test_digests_of_a_daemon() -> None:
    """U-90: an invalid entry has none, and does not affect the checkpoints."""
    good = {"begin_offset": 0, "end_offset": 64, "digest": "ab" * 16, "keys": 3}
    entries = [{**entry(number=number), "fingerprint": "f"} for number in range(6)]
    for each, digests in zip(
        entries, ([good], [{**good, "digest": 5}], "x", None, [{**good, "keys": -1}]), strict=False
    ):
        each["digests"] = digests
    document = status(*entries)
    with answering(body(json.dumps(document).encode())) as address:
        peers = Peers()
        points = peers.points([(1, "x:1"), (2, address)], CLUSTER, 1)
    assert points == {2: {"t": dict.fromkeys(range(6), 5)}}
    assert peers.digests == {
        2: {"t-0": ReplicaDigests(5, "f", (StateDigest(0, 64, "ab" * 16, 3),)), "t-5": ReplicaDigests(5, "f", ())}
    }


def test_a_huge_answer() -> None:
    """U-79: it is not read to its end."""
    with answering(body(b" " * 3_000_000)) as address:
        assert ask(address, most_bytes=1_000_000) == "its daemon answers more than 1,000,000 bytes, or too slowly"


def test_answers_are_kept_for_a_while() -> None:
    """U-79: a scan only queries if the last answer is old; without addresses nothing is queried."""
    now, arguments = [0.0], []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        arguments.append(handler.path)
        body(json.dumps(status(entry(offset=5 if len(arguments) < 3 else 6))).encode())(handler)

    with answering(answer) as address:
        peers = Peers(clock=lambda: now[0])
        assert peers.points((), CLUSTER, 1) is None
        first = peers.points([(2, address)], CLUSTER, 1)
        now[0] = 59.0
        assert peers.points([(2, address)], CLUSTER, 1) is first
        now[0] = 60.0
        assert peers.points([(2, address)], CLUSTER, 1) is first
        assert arguments == ["/status"] * 2
        now[0] = 120.0
        assert peers.points([(2, address)], CLUSTER, 1) == {2: {"t": {0: 6}}}
        assert peers.points([(2, address)], OTHER_CLUSTER, 1) != {2: {"t": {0: 6}}}


def test_daemons_that_are_found_by_a_port() -> None:
    """U-79: a broker that was found once is queried from then on; another cluster, or none, changes nothing."""
    now = [0.0]
    with answering(body(json.dumps(status(entry())).encode())) as address:
        found = [FoundDaemons(((1, "127.0.0.1:1"), (2, address)), CLUSTER)]

        def find() -> FoundDaemons:
            if not found:
                raise CleanerdError("no broker answers")
            return found[0]

        peers = Peers(clock=lambda: now[0])
        assert peers.points(find, CLUSTER, 1) == {2: {"t": {0: 5}}}
        for change in (
            found.clear,
            lambda: found.append(FoundDaemons(((3, address),), OTHER_CLUSTER)),
            lambda: found.__setitem__(0, FoundDaemons((), CLUSTER)),
        ):
            change()
            now[0] += 60
            assert peers.points(find, CLUSTER, 1) == {2: {"t": {0: 5}}}
            assert bool(peers.warning) == (not found or found[0].cluster_id != CLUSTER)
