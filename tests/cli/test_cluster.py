"""``cleanerd cluster status``: all daemons, their differences, and the exit codes for scripts."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.admin.cluster_compare import (
    SIZES_DIFFER_BYTES,
    DaemonAnswer,
    compare,
    comparison_lines,
    of_one_cluster,
    reclaimable,
    saving_lines,
)
from cleanerd.admin.peers import NoStatus, read_statuses
from cleanerd.cli.cluster import DEFAULT_PORT, read_targets, status_url
from cleanerd.daemon.view import CanaryView, DaemonTotals, QuarantineView
from cleanerd.errors import ConfigError
from cleanerd.policy.state_digest import StateDigest
from cleanerd_lab.demo.ports import free_port
from tests.daemon.serving import serving
from tests.daemon.views import GIB, HEADER_FINGERPRINT, NOW_MS, log_dir, partition, view
from tests.support.answering import answering

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
    """The same settings, the same checkpoints: nothing to report, exit code 0, savings of all together."""
    found = compare(answers(a=daemon(partition("orders", 0)), b=daemon(partition("orders", 0))))
    assert found.exit_code == 0
    assert (found.bytes_before, found.bytes_after) == (8 * GIB, 2 * GIB)
    assert (found.drift, found.undelegated, found.quarantined, found.first_dirty_offsets, found.sizes) == (
        (),
        (),
        (),
        (),
        (),
    )
    assert [(row.node_ids, row.kafka, row.cleanerd) for row in found.rows] == [((3,), ("4.3.1",), "0.1.0")] * 2


def test_topics_with_different_compaction_settings() -> None:
    """U-6: also if the replicas are of different partitions; partitions that no scan has read are ignored."""
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
    """U-8: an error on one host alone too; where no delegation is needed there is nothing to report."""
    found = compare(answers(a=daemon(partition("x", 0, delegated=True)), b=daemon(partition("x", 0, delegated=False))))
    assert [(each.what, list(each.by_target)) for each in found.undelegated] == [("x", ["b"])]
    assert found.exit_code == 1
    assert compare(answers(a=daemon(partition("x", 0, delegated=None)))).exit_code == 0


def test_replicas_of_different_size_are_reported_without_an_error() -> None:
    """Each host cleans at its own time. A size counts from half as much again, and not below 16 MiB."""
    small = partition("orders", 0, first_dirty_offset=10, size_bytes=2 * SIZES_DIFFER_BYTES)
    large = replace(small, first_dirty_offset=900, size_bytes=3 * SIZES_DIFFER_BYTES)
    found = compare(answers(a=daemon(small), b=daemon(large), c=daemon(replace(large, first_dirty_offset=None))))
    assert [(each.what, dict(each.by_target)) for each in found.first_dirty_offsets] == [
        ("orders-0", {"a": "10", "b": "900"})
    ]
    assert [each.what for each in found.sizes] == ["orders-0"]
    assert found.exit_code == 0
    for size in (3 * SIZES_DIFFER_BYTES - 1, 2 * SIZES_DIFFER_BYTES):
        assert compare(answers(a=daemon(small), b=daemon(replace(large, size_bytes=size)))).sizes == ()
    tiny = compare(answers(a=daemon(replace(small, size_bytes=1)), b=daemon(replace(small, size_bytes=1000))))
    assert tiny.sizes == ()


def test_replicas_with_different_latest_states() -> None:
    """U-90: compared at the highest offset that both have; an error, also if a third daemon has no digest yet."""
    of = {text: (StateDigest(0, 64, text * 16, 7), StateDigest(0, 96, text * 16, 9)) for text in ("0a", "0b")}
    one, other = (partition("orders", 0, first_dirty_offset=10, digests=of[text]) for text in of)
    third = partition("orders", 0, first_dirty_offset=10)
    found = compare(answers(a=daemon(one), b=daemon(other), c=daemon(third)))
    assert [(each.what, dict(each.by_target)) for each in found.states] == [
        ("orders-0 below offset 96", {"a": "0a0a0a0a (9 keys)", "b": "0b0b0b0b (9 keys)"})
    ]
    assert found.exit_code == 1
    cleaned = replace(third, first_dirty_offset=100)
    for same in (answers(a=daemon(one), b=daemon(one)), answers(a=daemon(one), b=daemon(other), c=daemon(cleaned))):
        assert compare(same).states == ()


def test_exit_codes_of_quarantine_failure_and_silence() -> None:
    """4 for a daemon that does not answer, whatever else there is; 1 for one with a failure."""
    held = partition("orders", 0, quarantine=QuarantineView("damaged", NOW_MS, 1, None))
    assert compare(answers(a=daemon(held))).exit_code == 1
    assert compare(answers(a=daemon(healthy=False, unhealthy_reason="no disk"))).exit_code == 1
    silent = DaemonAnswer("b", None, "does not answer")
    assert compare([*answers(a=daemon(held)), silent]).exit_code == 4


@pytest.mark.parametrize(
    ("partition_name", "remark"),
    [("orders-1", "the canary holds: orders-1"), ("", "the canary holds: its state cannot be read")],
)
def test_a_daemon_that_holds_is_a_fault(partition_name: str, remark: str) -> None:
    """D-20: it is healthy, and cleans nothing until an operator decides."""
    canary = CanaryView("2 partitions", unverified=1, unverified_bytes=1, verified=3, verifying="")
    assert compare(answers(a=daemon(canary=canary))).exit_code == 0
    found = compare(answers(a=daemon(canary=replace(canary, held_partition=partition_name, finding="key-twice"))))
    assert [(row.canary_holds, row.remarks) for row in found.rows] == [(True, remark)]
    assert found.exit_code == 1


def test_releases_that_differ() -> None:
    assert compare(answers(a=daemon(), b=daemon(version="0.2.0"))).versions == ("0.1.0", "0.2.0")


def test_real_servers_in_a_table(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line per daemon, lists below, 80 columns; a proxy of the environment is not used."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    unused = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        one = stack.enter_context(serving(daemon(partition("orders", 0, first_dirty_offset=5))))
        other = stack.enter_context(serving(daemon(partition("orders", 0, first_dirty_offset=7, delegated=False))))
        hosts = [f"127.0.0.1:{one.port}", f"localhost:{other.port}"]
        answer = shell("cluster", "status", *hosts)
        assert answer.code == 1, answer.err
        lines = answer.out.splitlines()
        assert lines[1].split()[:5] == [hosts[0], "3", "4.3.1", "0.1.0", "auto"]
        assert "not delegated (1):" in lines
        assert any(f"orders-0  5: {hosts[0]}; 7: {hosts[1]}" in line for line in lines)
        assert lines[-1] == "2 daemons of 2 answered; reclaimed since their starts: 8.0 -> 2.0 GiB (-75 %)"
        assert max(map(len, lines)) <= 80
        answer = shell("cluster", "status", *hosts, unused, "--json")
    assert answer.code == 4
    assert answer.json["ok"] is False
    assert answer.json["rows"][2]["remarks"] == f"does not answer: {os.strerror(errno.ECONNREFUSED)}"
    assert [each["what"] for each in answer.json["undelegated"]] == ["orders"]


def test_a_server_that_is_not_a_daemon(shell: Shell) -> None:
    """Another server, or an older release of ours: reported without a traceback."""
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
def test_an_invalid_answer(shell: Shell, body: bytes) -> None:
    """It is reported as invalid. An infinite number ended the command; other invalid values were not reported."""
    with always_answering(body) as target:
        answer = shell("cluster", "status", target, "--json")
    assert answer.code == 4
    assert answer.json["rows"][0]["remarks"] == "responded, but is not a supported cleanerd version"


@contextmanager
def always_answering(body: bytes) -> Iterator[str]:
    """A server that always answers with ``body``; yields its host and port."""

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
def test_the_address_of_a_daemon(target: str, url: str) -> None:
    assert status_url(target) == url


@pytest.mark.parametrize("target", ["a b", "a:b", "a:99999", "file:///etc/passwd", "", "a/b"])
def test_an_invalid_address_is_refused(target: str) -> None:
    """An address never makes cleanerd read a file."""
    with pytest.raises(ConfigError, match="neither HOST"):
        status_url(target)


def test_tombstones_erasures_and_brokers_that_are_down() -> None:
    """OP-25: work that waits for another host; a stopped broker has the code of a daemon that does not answer."""
    held = partition("orders", 0, waits_for=(2,), next_purge_ms=NOW_MS)
    later = partition("orders", 1, waits_for=(2,), next_purge_ms=NOW_MS + 1)
    shown = answers(a=daemon(held, later, made_ms=NOW_MS))
    request = {"id": "e1", "topic": "orders", "requested_ms": 1, "deadline_ms": NOW_MS}
    status = {**(shown[0].status or {}), "erasures": [{**request, "stages": [{"stage": "dirty"}, {"stage": "dirty"}]}]}
    found = compare([DaemonAnswer("a", status)], down=[2])
    assert [(each.what, dict(each.by_target)) for each in found.held] == [("orders-0", {"a": "wait for broker 2"})]
    assert [(e.what, dict(e.by_target)) for e in found.erasures] == [("orders (e1)", {"a": "overdue, 2 dirty"})]
    assert found.exit_code == 4
    text = comparison_lines(found)
    assert "brokers that are down: 2" in text
    assert "  orders (e1)  overdue, 2 dirty: a" in text
    assert compare(shown).exit_code == 0


@pytest.mark.parametrize("expected", [None, "ours"])
def test_a_daemon_of_another_cluster(expected: str | None) -> None:
    """OP-25: it is named, and its data are not compared with the others."""
    ours = daemon(partition("orders", 0))
    ours = replace(ours, log_dirs=(replace(ours.log_dirs[0], cluster_id="ours"),))
    theirs = daemon(partition("orders", 0, strategy="header", fingerprint=HEADER_FINGERPRINT))
    theirs = replace(theirs, log_dirs=(replace(theirs.log_dirs[0], cluster_id="theirs"),))
    more = {"d": theirs, "e": theirs} if expected else {}
    shown = answers(b=theirs, a=ours, c=ours, **more)
    found = compare(of_one_cluster(shown, expected))
    assert [row.remarks for row in found.rows[:3]] == ["is of another cluster: theirs, not ours", "", ""]
    assert found.drift == ()
    assert found.exit_code == 4


def test_reclaimable_bytes_of_the_whole_cluster() -> None:
    """OP-26: all replicas, the largest saving first; excluded topics do not count, unknown ones are listed."""
    sure = {"reclaimable_bytes": 100, "reclaimable_low_bytes": 90, "reclaimable_high_bytes": 120, "size_bytes": 1000}
    none = {"reclaimable_bytes": None, "reclaimable_low_bytes": None, "reclaimable_high_bytes": None}
    small = replace(partition("a-small", 0, **sure), reclaimable_bytes=1, reclaimable_low_bytes=1)
    there = answers(
        x=daemon(small, partition("orders", 0, **sure), partition("left", 0, phase="excluded", **sure)),
        y=daemon(partition("orders", 0, **sure), partition("orders", 1, **none)),
    )
    silent = DaemonAnswer("z", None, "does not answer")
    first, second = reclaimable([*there, silent])
    assert (first.topic, first.daemons, first.replicas, first.unknown) == ("orders", 2, 3, 1)
    assert (first.reclaimable_bytes, first.low_bytes, first.high_bytes) == (200, 180, 240)
    assert second.topic == "a-small"
    lines = saving_lines([first, second], [*there, silent], 1)
    assert lines[1].split()[:2] == ["orders", "3"]
    assert "and 1 more topic; --top sets how many are shown" in lines
    assert any("cleaning would save 201 B (between 181 B and 360 B)" in line for line in lines)
    assert lines[-2:] == ["not estimated yet: 1 replica", "z: does not answer"]


@pytest.mark.parametrize("field", ["bytes_before", "size_bytes", "reclaimable_bytes"])
def test_a_number_that_cannot_be_shown(field: str) -> None:
    """OP-25: such a response is not a status; the lines of the others are shown."""
    document = json.loads(json.dumps(daemon(partition("orders", 0)).to_json()))
    (document["totals"] if field == "bytes_before" else document["partitions"][0])[field] = 10**400
    assert DaemonAnswer.of("a", document).error == "responded, but is not a supported cleanerd version"


@pytest.mark.parametrize("text", ["x" * 5000, "a\x1b[2J\nb", "w " * 3000])
def test_no_line_is_wider_than_80_columns(text: str) -> None:
    """OP-25: whatever another host writes into its status; and no control sequence of it reaches the terminal."""
    found = answers(**{text[:300]: daemon(partition(text, 0, delegated=False), version=text, mode=text, healthy=False,
                                          unhealthy_reason=text)})  # fmt: skip
    silent = DaemonAnswer(text, None, text)
    lines = [*comparison_lines(compare([*found, silent], range(1000))), *saving_lines(reclaimable(found), [silent], 5)]
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert len(lines) < 1000


def test_the_others_are_shown() -> None:
    """OP-25: late, oversized, hostile and redirected answers are reported, and do not delay the others."""

    def late(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for number in range(100):  # each line is in time, all of them together are not
            handler.send_header(f"X-{number}", "")
            handler.flush_headers()
            time.sleep(0.3)

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b" " * 2_000_000)

    def moved(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "http://127.0.0.1:1/status")
        handler.end_headers()

    with ExitStack() as stack:
        good = stack.enter_context(serving(daemon(partition("orders", 0))))
        urls = {name: stack.enter_context(answering(each)) for name, each in
                {"late": late, "endless": endless, "moved": moved}.items()}  # fmt: skip
        urls = {name: f"http://{target}/status" for name, target in urls.items()} | {"good": f"{good.url}/status"}
        began = time.monotonic()
        read = read_statuses(urls, answer_seconds=1.5, most_bytes=1_000_000)
        assert time.monotonic() - began < 15
    assert read["late"] == NoStatus("does not answer within 1.5 s")
    assert read["endless"] == NoStatus("answers more than 1,000,000 bytes, or too slowly")
    assert read["moved"] == NoStatus("answers 302 (Found): see cleanerd.http.hosts")
    assert DaemonAnswer.of("good", read["good"]).status is not None


@pytest.mark.slow
def test_the_daemons_of_the_settings(shell: Shell) -> None:
    """OP-25: without HOST and --targets those of cleanerd.cluster.peers; without these an error lists the options."""
    with serving(daemon(partition("orders", 0))) as served:
        peers = f"cleanerd.cluster.peers=3=127.0.0.1:{served.port}"
        assert shell("cluster", "status", "--set", peers).code == 0
        plan = shell("cluster", "plan", "--set", peers, "--json")
        assert plan.code == 0
        assert [each["topic"] for each in plan.json["topics"]] == ["orders"]
    nowhere = shell("cluster", "status")
    assert nowhere.code == 2
    assert "cleanerd.cluster.peers or bootstrap.servers" in nowhere.err
    silent = shell(
        "cluster", "plan", "--set", f"cleanerd.cluster.peers={free_port()}", "--set", "bootstrap.servers=x:0"
    )
    assert silent.code != 0


def test_the_page_of_the_cluster() -> None:
    """OP-25: from memory, read only; text of another host stays text; without peers it says so."""
    hostile = daemon(partition("<script>alert(1)</script>", 0, delegated=False))
    compared = compare(answers(**{"<b>": hostile}))
    with serving(daemon(), cluster=lambda: compared) as served:
        page = served.get("/cluster")
        assert page.status == 200
        assert 'href="cluster.json"' in page.text
        assert "<script>" not in page.text
        assert "&lt;script&gt;" in page.text
        assert served.get("/cluster.json").json()["undelegated"][0]["what"].startswith("<script>")
        assert served.get("/cluster", method="POST").status == 405
    with serving(daemon()) as served:
        assert "cleanerd.cluster.peers" in served.get("/cluster").text
        assert "cluster.json" not in served.get("/cluster").text, "it has no content yet"
        assert served.get("/cluster.json").status == 404
