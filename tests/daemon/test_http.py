"""cleanerd.daemon.http.server over real sockets: its answers, its access rules, and that no client can block it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.daemon import http
from cleanerd.daemon.http.hosts import Hosts, local_host_names, name_of
from cleanerd.errors import CorruptionError, LogDirBusyError
from tests.daemon.serving import serving
from tests.daemon.views import busy, clean, log_dir, partition, view
from tests.support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.daemon.serving import Served


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(busy(30)) as running:
        yield running


# ---- answers ----


def test_status_is_the_snapshot_as_json(served: Served) -> None:
    """Schema 1 with its fields, and equal to ``to_json``, although it is assembled in another way."""
    answer = served.get("/status")
    document = answer.json()
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert document == json.loads(json.dumps(served.stage.shown.to_json()))
    assert document["schema"] == 1
    assert {"ready", "mode", "swaps_total"} <= document.keys()
    assert all(
        {"topic", "partition", "state", "first_dirty_offset", "dirty_ratio", "strategy"} <= each.keys()
        for each in document["partitions"]
    )


def test_status_follows_changed_partitions_only_where_they_changed(served: Served) -> None:
    """Texts of partitions are kept between views: a changed one must not show its old text."""
    before = served.get("/status").json()["partitions"]
    changed = replace(served.stage.shown.partitions[3], dirty_ratio=0.987)
    served.stage.change(lambda v: replace(v, partitions=(*v.partitions[:3], changed, *v.partitions[4:])))
    after = served.get("/status").json()["partitions"]
    assert after[3]["dirty_ratio"] == 0.987
    assert [a for n, a in enumerate(after) if n != 3] == [b for n, b in enumerate(before) if n != 3]


def test_status_answers_304_until_the_view_changes(served: Served) -> None:
    etag = served.get("/status").headers["etag"]
    same = served.get("/status", headers={"If-None-Match": etag})
    assert (same.status, same.body) == (304, b"")
    served.stage.change(lambda v: replace(v, paused=True))
    other = served.get("/status", headers={"If-None-Match": etag})
    assert other.status == 200
    assert other.json()["paused"] is True
    assert other.headers["etag"] != etag


def test_status_is_compressed_for_clients_that_accept_it(served: Served) -> None:
    plain = served.get("/status")
    packed = served.get("/status", headers={"Accept-Encoding": "br, gzip;q=0.5"})
    refused = served.get("/status", headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(plain.body) / 2
    assert packed.json() == plain.json()
    assert "content-encoding" not in refused.headers


def test_one_partition_has_its_whole_last_clean_and_its_history() -> None:
    own, other = clean("orders", 3), clean("orders", 4)
    shown = view(partitions=(partition("orders", 3, last_cleaning=own), partition("orders", 4)), history=(own, other))
    with serving(shown) as served:
        document = served.get("/status/orders-3").json()
    assert document["schema"] == 1
    assert document["last_cleaning"]["result"]["removed"]["superseded"] == 5_400
    assert [each["partition"] for each in document["history"]] == [3]


@pytest.mark.parametrize("path", ["/status/orders-9", "/explain/orders-9", "/explain/", "/status/..%2f..%2fetc"])
def test_unknown_partitions_are_404_and_the_core_is_not_queried(path: str) -> None:
    requests: list[str] = []

    async def explain(name: str) -> dict[str, Any]:
        requests.append(name)
        return {}

    with serving(view(partitions=(partition("orders", 3),)), explain) as served:
        answer = served.get(path)
    assert answer.status == 404
    assert answer.json()["error"]["message"]
    assert requests == []


def test_explain_returns_the_answer_of_the_core(served: Served) -> None:
    name = served.stage.shown.partitions[0].name
    document = served.get(f"/explain/{name}").json()
    assert document["schema"] == 1
    assert document["rule"] == "min.cleanable.dirty.ratio"


@pytest.mark.parametrize(
    ("error", "status"),
    [(LogDirBusyError("busy", hint="wait"), 409), (CorruptionError("torn", where="/x.log", position=7), 500)],
)
def test_explain_reports_errors(error: Exception, status: int) -> None:
    async def explain(_name: str) -> dict[str, Any]:
        raise error

    with serving(view(partitions=(partition(),)), explain) as served:
        answer = served.get("/explain/orders-0")
    assert answer.status == status
    assert answer.json()["error"]["message"] in ("busy", "torn")


def test_explain_that_hangs_is_called_once_and_answered_504() -> None:
    """Ten impatient clients make one query, and no other answer waits for it."""
    requests: list[str] = []

    async def explain(name: str) -> dict[str, Any]:
        requests.append(name)
        await asyncio.sleep(PATIENCE_SECONDS)
        return {}

    with serving(view(partitions=(partition(),)), explain, explain_seconds=0.4) as served:
        statuses: list[int] = []
        clients = [
            threading.Thread(target=lambda: statuses.append(served.get("/explain/orders-0").status)) for _ in range(10)
        ]
        for each in clients:
            each.start()
        assert served.get("/healthz").status == 200
        for each in clients:
            each.join()
    assert statuses == [504] * 10
    assert requests == ["orders-0"]


def test_health_and_readiness_say_why() -> None:
    with serving(view()) as served:
        assert (served.get("/healthz").status, served.get("/readyz").status) == (200, 200)
        served.stage.shown = view(ready=False)
        assert served.get("/healthz").status == 200
        assert served.get("/readyz").status == 503
        assert "not all been scanned" in served.get("/readyz").text
        served.stage.shown = view(healthy=False, unhealthy_reason="no worker is left")
        assert served.get("/healthz").status == 503
        assert "no worker is left" in served.get("/healthz").text
        assert "no worker is left" in served.get("/readyz").text
        assert (served.get("/livez").status, served.get("/livez").text) == (200, "ok\n")


def test_a_path_that_is_not_utf8_is_not_a_500() -> None:
    """``--set`` may name such a path: metrics and both probes were "Internal error", so no alert worked any more."""
    odd = "/data/\udcff\u00e4"
    shown = view(log_dirs=(log_dir(odd),), partitions=(partition(log_dir=odd),), unhealthy_reason=odd)
    with serving(shown) as served:
        assert 'cleanerd_partition_size_bytes{log_dir="/data/?\u00e4",' in served.get("/metrics").text
        assert 'cleanerd_log_dir_online{log_dir="/data/?\u00e4"} 1.0' in served.get("/metrics").text
        assert served.get("/readyz").text.startswith("ready\n/data/?\u00e4: live")
        served.stage.change(lambda before: replace(before, healthy=False))
        assert served.get("/healthz").text == "unhealthy: /data/?\u00e4\n"
        assert served.get("/readyz").text == "not ready: /data/?\u00e4\n"
        assert served.get("/status").json()["log_dirs"][0]["path"] == odd


def test_metrics_in_both_formats(served: Served) -> None:
    text = served.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "\ncleanerd_ready 1.0\n" in text.text
    assert "kafka_log_logcleaner_deadthreadcount 0.0" in text.text
    om = served.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
    assert om.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert om.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text;version=abc", "text/plain;version=x;q=z", ";;,,", "*/*"]
)
def test_an_odd_accept_header_gets_the_plain_text(served: Served, accept: str) -> None:
    answer = served.get("/metrics", headers={"Accept": accept})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_metrics_obey_the_two_settings() -> None:
    with serving(busy(30), kafka_names=False, partitions_max=4) as served:
        text = served.get("/metrics").text
    assert "kafka_log" not in text
    assert text.count("\ncleanerd_partition_size_bytes{") == 4
    assert "\ncleanerd_partitions_not_exported 26.0" in text


# ---- the page's files ----


@pytest.mark.parametrize(
    "path", ["/", "/running", "/history?q=x&sort=-saved", "/quarantine", "/log-dirs", "/partition/orders-0"]
)
def test_every_address_of_the_page_is_the_page(served: Served, path: str) -> None:
    """A deep link works when it is opened first; its base leads to the files from any depth."""
    answer = served.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert ('<base href="../">' if path.startswith("/partition/") else '<base href="./">') in answer.text
    again = served.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert again.status == 304


def test_all_files_of_the_page_are_served_with_their_types(served: Served) -> None:
    folder = os.path.join(os.path.dirname(http.__file__), "page")
    names = sorted(set(os.listdir(folder)) - {"index.html"})
    types = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    assert len(names) > 10
    for name in names:
        answer = served.get(f"/page/{name}", headers={"Accept-Encoding": "gzip"})
        assert answer.status == 200
        assert answer.headers["content-type"] == types[name.rpartition(".")[2]]
        assert answer.headers["cache-control"] == "no-cache"
    assert served.get("/page/../http.py").status == 404
    assert served.get("/page/index.html").status == 404


# ---- access ----


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/nowhere"])
def test_it_only_reads(served: Served, method: str, path: str) -> None:
    answer = served.get(path, method=method)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/healthz", "/page/app.js"])
def test_head_is_get_without_the_body(served: Served, path: str) -> None:
    head, get = served.get(path, method="HEAD"), served.get(path)
    assert head.body == b""
    assert head.status == get.status
    assert head.headers["content-type"] == get.headers["content-type"]


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/explain/none-0", "/nowhere", "/page/style.css"])
def test_every_answer_is_closed_to_other_sites(served: Served, path: str) -> None:
    headers = served.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == ("no-cache" if path in ("/", "/page/style.css") else "no-store")
    assert "access-control-allow-origin" not in headers
    assert "aiohttp" not in headers["server"].lower()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("localhost:8080", 200), ("127.0.0.1:1", 200), ("[::1]:9", 200), ("LOCALHOST", 200),
        ("kafka-3.localhost:80", 200), ("evil.example", 421), ("127.0.0.1.evil.example", 421), ("10.0.0.1", 421),
        ("localhost.evil.example:10280", 421), ("", 421), ("[", 421),
    ],
)  # fmt: skip
def test_on_loopback_only_its_own_names_are_answered(served: Served, host: str, status: int) -> None:
    """DNS rebinding: a web page whose name now points to 127.0.0.1 sends that name."""
    assert served.get("/status", headers={"Host": host}).status == status


OWN = "broker-7"


@pytest.fixture
def own(tmp_path: Path) -> Callable[[], frozenset[str]]:
    """The names of a host whose /etc/hosts contains its full name."""
    file = tmp_path / "hosts"
    file.write_text("127.0.0.1 localhost\n10.1.2.3 Broker-7.kafka.svc broker-7 # evil.example\n10.1.2.4 other\n")
    return lambda: local_host_names(file, "Broker-7")


@pytest.mark.parametrize(
    ("hosts", "host", "status"),
    [
        # The Host headers of a prober or a Prometheus that discovered the pod, whatever its name is.
        ((), "10.42.0.7:10280", 200), ((), "203.0.113.9", 200), ((), "[2001:db8::1]:10280", 200), ((), "[::1]", 200),
        ((), "[fe80::1%25eth0]:10280", 200), ((), "localhost:10280", 200), ((), "x.localhost", 200),
        (("a.example",), "10.42.0.7:10280", 200), (("a.example",), "localhost", 200),
        # The host's own names, as long as none are configured.
        ((), "broker-7:10280", 200), ((), "BROKER-7.Kafka.svc.", 200), ((), "other", 421),
        (("a.example",), "broker-7", 421),
        # Configured names: only whole ones match.
        (("a.example",), "A.Example.:10280", 200), (("a.example",), "b.a.example", 421),
        (("a.example",), "a.example.evil.example", 421), (("a.example",), "xa.example", 421),
        # Everything else, and values that are not host names.
        ((), "evil.example", 421), ((), "broker-7.evil.example", 421), ((), "10.42.0.7.evil.example", 421),
        ((), "localhost.evil.example:10280", 421), ((), "", 421), ((), ":10280", 421), ((), "[", 421),
        ((), "[::1", 421), ((), "[evil.example]", 421), ((), "[10.0.0.1]", 421), ((), "::1", 421),
        ((), "127.0.0.1:80:evil.example", 421), ((), "10.0.0.1:http", 421), ((), "u@127.0.0.1", 421),
        ((), "0x7f000001", 421), ((), "127.1", 421), ((), "[::1]evil.example", 421), ((), "localhost..", 421),
    ],
)  # fmt: skip
def test_on_all_addresses_names_are_answered_that_are_known(
    own: Callable[[], frozenset[str]], hosts: tuple[str, ...], host: str, status: int
) -> None:
    """DNS rebinding: an attacker can only point a name at this host, so addresses and our own names are accepted."""
    with serving(view(), listen="0.0.0.0:0", hosts=hosts, own_names=own) as served:
        assert served.get("/healthz", headers={"Host": host}).status == status


def test_a_refusal_shows_what_to_do(own: Callable[[], frozenset[str]]) -> None:
    with serving(view(), listen="0.0.0.0:0", own_names=own) as served:
        reported = served.get("/metrics", headers={"Host": "evil.example", "X-Forwarded-Host": OWN})
    assert reported.status == 421, "any client can send X-Forwarded-Host"
    assert "It accepts its addresses, localhost, broker-7, broker-7.kafka.svc." in reported.text
    assert "cleanerd.http.hosts" in reported.text
    assert "evil" not in reported.text


def test_a_loopback_listener_answers_to_names_that_are_set() -> None:
    """A proxy on this host may send its own name."""
    with serving(view(), hosts=("page.example",)) as served:
        for host, status in {"page.example": 200, "localhost": 200, "10.0.0.1": 421, "other.example": 421}.items():
            assert served.get("/healthz", headers={"Host": host}).status == status


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "0.0.0.0:0"])
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["GET /healthz HTTP/1.0"], b"200"),
        (["GET /healthz HTTP/1.1", "Host: 127.0.0.1", "Host: 127.0.0.1"], b"400"),
        (["GET /healthz HTTP/1.1", "Host: evil.example", "host: 127.0.0.1"], b"400"),
        (["GET /healthz HTTP/1.1", "Host: 127.0.0.1", "X-Host: evil.example"], b"200"),
    ],
)
def test_hosts_that_are_missing_or_too_many(listen: str, lines: list[str], status: bytes) -> None:
    """HTTP/1.0 sends none, so it is not a browser; with several (RFC 9112) it is unknown which one applies."""
    with serving(view(), listen=listen) as served, socket.create_connection(("127.0.0.1", served.port)) as client:
        client.settimeout(PATIENCE_SECONDS)
        client.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        assert client.recv(100).split()[1] == status


def test_a_host_without_a_hosts_file(tmp_path: Path) -> None:
    own = local_host_names(tmp_path / "none", "a.b.example")
    assert own == {"a.b.example", "a"}
    assert Hosts((), loopback_only=False, own=lambda: own).refusal(["A:1"]) is None
    assert Hosts((), loopback_only=False, own=lambda: own).refusal([]) is None


def test_several_hosts_are_refused_whatever_the_http_library_does() -> None:
    """RFC 9112, 3.2: 400."""
    refused = Hosts((), loopback_only=True).refusal(["localhost", "localhost"])
    assert refused is not None
    assert refused[0] == 400


def test_the_name_in_a_host_header() -> None:
    assert (name_of("A.Example.:1"), name_of("[::1]:1"), name_of("a b:1:2")) == ("a.example", "::1", None)
