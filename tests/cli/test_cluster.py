"""``cleanerd cluster status``: daemons side by side, what differs, and what a script is told."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.cli.cluster import DEFAULT_PORT, read_targets, status_url
from cleanerd.cli.cluster_compare import SIZES_DIFFER_BYTES, DaemonAnswer, compare
from cleanerd.daemon.view import DaemonTotals, QuarantineView
from cleanerd.errors import ConfigError
from cleanerd.policy.state_digest import StateDigest
from cleanerd_lab.demo.ports import free_port
from tests.daemon.serving import serving
from tests.daemon.views import GIB, HEADER_FINGERPRINT, NOW_MS, log_dir, partition, view

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cleanerd.daemon.view import DaemonView
    from tests.cli.clean_log_dirs import Shell


def daemon(*partitions: Any, **changes: Any) -> DaemonView:
    totals = DaemonTotals(bytes_before=4 * GIB, bytes_after=GIB)
    return view(partitions=partitions, log_dirs=(log_dir(),), totals=totals, **changes)


def answers(**views: DaemonView) -> list[DaemonAnswer]:
    return [DaemonAnswer(name, json.loads(json.dumps(shown.to_json()))) for name, shown in views.items()]


def test_daemons_that_agree() -> None:
    """The same rules, the same clean points: nothing to tell, exit code 0, savings of all together."""
    found = compare(answers(a=daemon(partition("orders", 0)), b=daemon(partition("orders", 0))))
    assert found.exit_code == 0
    assert (found.bytes_before, found.bytes_after) == (8 * GIB, 2 * GIB)
    assert (found.drift, found.undelegated, found.quarantined, found.clean_points, found.sizes) == ((), (), (), (), ())
    assert [(row.node_ids, row.kafka, row.cleanerd) for row in found.rows] == [((3,), ("4.3.1",), "0.1.0")] * 2


def test_topics_that_are_cleaned_by_different_rules() -> None:
    """U-6: also when the replicas are of different partitions; what nobody has looked at yet says nothing."""
    other = partition("orders", 1, strategy="header", fingerprint=HEADER_FINGERPRINT)
    unknown = partition("orders", 2, strategy="", fingerprint="")
    found = compare(answers(a=daemon(partition("orders", 0), unknown), b=daemon(other)))
    (drift,) = found.drift
    assert drift.what == "orders"
    assert drift.by_target["a"].startswith("offset (")
    assert drift.by_target["b"].startswith("header (")
    assert found.exit_code == 1
    assert compare(answers(a=daemon(unknown), b=daemon(other))).drift == ()


def test_topics_that_are_not_delegated() -> None:
    """U-8: wrong on one host alone too; where no delegation is needed there is nothing to say."""
    found = compare(answers(a=daemon(partition("x", 0, delegated=True)), b=daemon(partition("x", 0, delegated=False))))
    assert [(each.what, list(each.by_target)) for each in found.undelegated] == [("x", ["b"])]
    assert found.exit_code == 1
    assert compare(answers(a=daemon(partition("x", 0, delegated=None)))).exit_code == 0


def test_replicas_that_differ_are_told_and_are_no_fault() -> None:
    """Each host cleans at its own time. A size counts from half as much again, and not below 16 MiB."""
    small = partition("orders", 0, clean_offset=10, size_bytes=2 * SIZES_DIFFER_BYTES)
    large = replace(small, clean_offset=900, size_bytes=3 * SIZES_DIFFER_BYTES)
    found = compare(answers(a=daemon(small), b=daemon(large), c=daemon(replace(large, clean_offset=None))))
    assert [(each.what, dict(each.by_target)) for each in found.clean_points] == [("orders-0", {"a": "10", "b": "900"})]
    assert [each.what for each in found.sizes] == ["orders-0"]
    assert found.exit_code == 0
    for size in (3 * SIZES_DIFFER_BYTES - 1, 2 * SIZES_DIFFER_BYTES):
        assert compare(answers(a=daemon(small), b=daemon(replace(large, size_bytes=size)))).sizes == ()
    tiny = compare(answers(a=daemon(replace(small, size_bytes=1)), b=daemon(replace(small, size_bytes=1000))))
    assert tiny.sizes == ()


def test_replicas_with_different_latest_states() -> None:
    """U-90: by the highest offset that both have; they are wrong, also where a third daemon has no digest yet."""
    of = {text: (StateDigest(0, 64, text * 16, 7), StateDigest(0, 96, text * 16, 9)) for text in ("0a", "0b")}
    one, other = (partition("orders", 0, clean_offset=10, digests=of[text]) for text in of)
    third = partition("orders", 0, clean_offset=10)
    found = compare(answers(a=daemon(one), b=daemon(other), c=daemon(third)))
    assert [(each.what, dict(each.by_target)) for each in found.states] == [
        ("orders-0 below offset 96", {"a": "0a0a0a0a (9 keys)", "b": "0b0b0b0b (9 keys)"})
    ]
    assert found.exit_code == 1
    cleaned = replace(third, clean_offset=100)
    for same in (answers(a=daemon(one), b=daemon(one)), answers(a=daemon(one), b=daemon(other), c=daemon(cleaned))):
        assert compare(same).states == ()


def test_quarantine_illness_and_silence_have_their_codes() -> None:
    """4 for who does not answer, whatever else there is; 1 for who is unwell."""
    held = partition("orders", 0, quarantine=QuarantineView("damaged", NOW_MS, 1, None))
    assert compare(answers(a=daemon(held))).exit_code == 1
    assert compare(answers(a=daemon(healthy=False, unhealthy_reason="no disk"))).exit_code == 1
    silent = DaemonAnswer("b", None, "does not answer")
    assert compare([*answers(a=daemon(held)), silent]).exit_code == 4


def test_releases_that_differ() -> None:
    assert compare(answers(a=daemon(), b=daemon(version="0.2.0"))).versions == ("0.1.0", "0.2.0")


def test_real_servers_in_a_table(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line a daemon; lists under them; 80 columns; and a proxy of the environment is not asked."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    nobody = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        one = stack.enter_context(serving(daemon(partition("orders", 0, clean_offset=5))))
        other = stack.enter_context(serving(daemon(partition("orders", 0, clean_offset=7, delegated=False))))
        hosts = [f"127.0.0.1:{one.port}", f"localhost:{other.port}"]
        answer = shell("cluster", "status", *hosts)
        assert answer.code == 1, answer.err
        lines = answer.out.splitlines()
        assert lines[1].split()[:5] == [hosts[0], "3", "4.3.1", "0.1.0", "auto"]
        assert "not delegated (1):" in lines
        assert any(f"orders-0  5: {hosts[0]}; 7: {hosts[1]}" in line for line in lines)
        assert lines[-1] == "2 daemons of 2 answered; reclaimed since their starts: 8.0 -> 2.0 GiB (-75 %)"
        assert max(map(len, lines)) <= 80
        answer = shell("cluster", "status", *hosts, nobody, "--json")
    assert answer.code == 4
    assert answer.json["ok"] is False
    assert answer.json["rows"][2]["remarks"] == f"does not answer: {os.strerror(errno.ECONNREFUSED)}"
    assert [each["what"] for each in answer.json["undelegated"]] == ["orders"]


def test_a_server_that_is_no_daemon(shell: Shell) -> None:
    """Another server, or a release of ours from before: said so, no traceback."""
    with serving(daemon()) as served:
        answer = shell("cluster", "status", f"http://127.0.0.1:{served.port}/page/app.js?", "--json")
    assert answer.code == 4
    assert answer.json["rows"][0]["remarks"] == "responded, but is not a supported cleanerd version"
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        deaf.listen()
        port = deaf.getsockname()[1]
    assert shell("cluster", "status", f"127.0.0.1:{port}").code == 4


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff", b"[]", b"[" * 100_000, b'{"partitions": [], "totals": {"bytes_before": 1e999, "bytes_after": 0}}',
     b'{"partitions": [{"topic": "a", "partition": "first"}], "totals": {}}'],
)  # fmt: skip
def test_an_answer_that_makes_no_sense(shell: Shell, body: bytes) -> None:
    """It answers, and is told as that; an endless number was the end of the command, others of it were not told."""
    with always_answering(body) as target:
        answer = shell("cluster", "status", target, "--json")
    assert answer.code == 4
    assert answer.json["rows"][0]["remarks"] == "responded, but is not a supported cleanerd version"


@contextmanager
def always_answering(body: bytes) -> Iterator[str]:
    """A server that answers ``body``, whatever it is asked; gives its host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_what: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_targets_of_prometheus(tmp_path: Path, shell: Shell) -> None:
    path = tmp_path / "targets.json"
    path.write_text(json.dumps([{"targets": ["a:1", "b:2"], "labels": {"job": "cleanerd"}}, {"targets": ["a:1"]}]))
    assert read_targets(path) == ["a:1", "b:2", "a:1"]
    for text in ("", "- targets: [a:1]", '{"targets": []}', "[1]"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="is not a file_sd file"):
            read_targets(path)
    assert shell("cluster", "status", "--targets", tmp_path / "none.json").code == 3
    assert shell("cluster", "status").code == 2


@pytest.mark.parametrize(
    ("target", "url"),
    [
        ("kafka-1", f"http://kafka-1:{DEFAULT_PORT}/status"),
        ("kafka-1:99", "http://kafka-1:99/status"),
        ("[::1]:99", "http://[::1]:99/status"),
        ("https://proxy/kafka-1/", "https://proxy/kafka-1/status"),
    ],
)
def test_where_a_daemon_is_asked(target: str, url: str) -> None:
    assert status_url(target) == url


@pytest.mark.parametrize("target", ["a b", "a:b", "a:99999", "file:///etc/passwd", "", "a/b"])
def test_an_argument_that_is_no_address_is_refused(target: str) -> None:
    """No file is read by way of an address."""
    with pytest.raises(ConfigError, match="neither HOST"):
        status_url(target)
