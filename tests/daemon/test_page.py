"""The status page in a real browser: its contents for an operator, and its addresses."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.daemon.view import DaemonTotals, ErasureView, QuarantineView
from cleanerd.errors import CorruptionError
from tests.daemon.page_words import click, names, now_ms, text
from tests.daemon.serving import Served, serving
from tests.daemon.views import HOUR_MS, clean, log_dir, partition, view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.daemon.browser import Page

pytestmark = pytest.mark.browser


# ---- contents ----


def test_the_list_shows_what_needs_attention_first(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/")
    shown = names(page)
    quarantined = {each.name for each in busy_daemon.stage.shown.partitions if each.quarantine}
    undelegated = {each.name for each in busy_daemon.stage.shown.partitions if each.delegated is False}
    assert set(shown[: len(quarantined)]) == quarantined
    assert undelegated <= set(shown[: len(quarantined) + len(undelegated)])
    tile = text(page, "#summary")
    assert "2 in quarantine" in tile
    assert "1 below the disk reserve" in tile
    assert page.run("document.title") == "(9) Partitions · cleanerd"
    assert "1 warning" in text(page, "#notices")


@pytest.mark.long
def test_running_cleans_move_without_a_reload(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/running")
    first = page.run("document.querySelector('[role=progressbar]').getAttribute('aria-valuenow')")
    page.run("window.card = document.querySelector('article')")
    busy_daemon.stage.change(
        lambda v: replace(v, running=tuple(replace(r, done_bytes=r.total_bytes * 9 // 10) for r in v.running))
    )
    page.wait("document.querySelector('[role=progressbar]').getAttribute('aria-valuenow') === '90'")
    assert first == "60"
    assert page.run("window.card === document.querySelector('article')")  # a card is moved, not replaced
    busy_daemon.stage.change(lambda v: replace(v, running=()))
    page.wait("!document.querySelector('article')")


@pytest.mark.long
def test_a_daemon_that_scans_seldom_does_not_look_stuck(page: Page) -> None:
    """log.cleaner.backoff.ms sets the interval; the page also had to work before the first reload and disk report."""
    seldom = view(last_scan_ms=now_ms() - 20 * 60_000, scan_interval_ms=10 * 60_000)
    gone = log_dir("/d", online=False, total_bytes=0, free_bytes=0, error="does not exist")
    with serving(replace(seldom, log_dirs=(gone,))) as served:
        page.open(f"{served.url}/log-dirs")
        assert "has not scanned" not in text(page, "#notices")
        assert ", 0 reloads." in text(page, "#footer")
        assert "not known" in text(page, "main")
        served.stage.change(lambda before: replace(before, scan_interval_ms=15_000, settings_generation=2))
        page.wait("document.querySelector('#notices').textContent.includes('has not scanned')")
        page.wait("document.querySelector('#footer').textContent.includes(', 1 reload.')")


def test_history_has_before_and_after(page: Page) -> None:
    cleanings = (
        clean("a", 0, ended_ms=now_ms() - 9_000, result={"bytes_before": 4 << 30, "bytes_after": 1 << 30}),
        clean("b", 0, ended_ms=now_ms() - 5_000, result={"outcome": "failed", "reason": "No space left on device"}),
    )
    with serving(view(history=cleanings)) as served:
        page.open(f"{served.url}/history")
        assert names(page) == ["b-0", "a-0"]
        reported = text(page, "main")
        assert "4.00 GiB → 1.00 GiB" in reported
        assert "\N{MINUS SIGN}75 %" in reported
        assert "No space left on device" in reported
        assert "5 600" in reported.replace("\u202f", " ")


def test_quarantine_shows_why_and_what_to_type(page: Page) -> None:
    held = QuarantineView("x.log at byte 7: the checksum is wrong", now_ms() - 3 * HOUR_MS, 4, now_ms() + 60 * 60_000)
    with serving(view(partitions=(partition("orders", 3, phase="quarantined", quarantine=held),))) as served:
        page.open(f"{served.url}/quarantine")
        reported = text(page, "main")
    assert "x.log at byte 7: the checksum is wrong" in reported
    assert "3 h ago" in reported
    assert "cleanerd retry orders-3" in reported


@pytest.mark.long
def test_empty_states_explain_what_to_expect(page: Page) -> None:
    with serving(view()) as served:
        for path, message in (
            ("", "No compacted partition in these log directories"), ("running", "Nothing to clean"),
            ("history", "No cleaning has ended"), ("quarantine", "Nothing in quarantine"),
            ("log-dirs", "No log directory"), ("partition/nope-0", "knows no compacted partition"),
        ):  # fmt: skip
            page.open(f"{served.url}/{path}")
            page.wait(f"document.querySelector('main').innerText.includes({message!r})")
        assert "All well" in page.run("document.querySelector('#summary').textContent")
        served.stage.shown = view(paused=True)
        page.open(f"{served.url}/running")
        assert "cleanerd resume" in text(page, "main")


def test_observe_mode_and_illness_are_reported(page: Page) -> None:
    with serving(view(mode="observe", healthy=False, unhealthy_reason="no worker is left")) as served:
        page.open(f"{served.url}/")
        reported = text(page, "#notices")
    assert "writes nothing" in reported
    assert "no worker is left" in reported


def test_the_tile_of_cleanings_excludes_skipped_ones(page: Page) -> None:
    """OP-11: they are shown next to the number."""
    totals = DaemonTotals(cleanings={"cleaned": 2, "skipped": 83, "failed": 1})
    with serving(view(totals=totals)) as served:
        page.open(f"{served.url}/")
        tiles = (
            "[...document.querySelectorAll('.tile')].map((each) => [...each.children].map((part) => part.textContent))"
        )
        page.wait("document.querySelector('.tile')")
        (tile,) = (each for each in page.run(tiles) if each[0] == "Cleanings")
    assert tile[1:] == ["2", "0 running, 0 queued, 83 skipped, 1 failed"]


def test_open_erasures_have_a_tile(page: Page) -> None:
    """U-88: their number, the next deadline, and those that need an operator."""
    ready = ErasureView("aa", "orders", 0, now_ms() + HOUR_MS, {"orders-0": ("certify", "run it")})
    late = ErasureView("bb", "carts", 0, 1, {"carts-0": ("blocked", "not yet")})
    with serving(view(erasures=(ready, late))) as served:
        page.open(f"{served.url}/")
        reported = text(page, "#summary")
    assert "1 erasures past their deadline" in reported
    assert "Open erasures" in reported
    assert "the next in carts by" in reported
    assert "1 to certify" in reported
    with serving(view()) as served:
        page.open(f"{served.url}/")
        assert "Open erasures" not in text(page, "#summary")


@pytest.mark.long
def test_the_cluster_page_is_linked_if_peers_are_configured(page: Page) -> None:
    link = "[...document.querySelectorAll('#tabs a')].filter(each => !each.hidden && each.innerText === 'Cluster')"
    with serving(view(has_peers=True)) as served:
        page.open(f"{served.url}/")
        assert page.run(f"{link}.map(each => each.pathname)") == ["/cluster"]
        served.stage.change(lambda v: replace(v, has_peers=False, made_ms=v.made_ms + 1))
        page.wait(f"{link}.length === 0")


# ---- one partition ----


def test_a_partition_shows_the_answer_of_explain(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/partition/payments.v2-0")
    page.wait("document.querySelector('.settings')")
    reported = text(page, "main")
    for each in (
        "payments.v2-0", "undelegated", "cleanerd delegate payments.v2", "It is not cleaned now",
        "the active segment (decides)", "min.cleanable.dirty.ratio", "delete.retention.ms", "a note", "strategy=header",
        "9223372036854775807 (no limit)",
    ):  # fmt: skip
        assert each in reported


@pytest.mark.long
def test_explain_is_called_again_when_the_partition_changed_and_only_then(page: Page) -> None:
    requests: list[str] = []

    async def explain(name: str) -> dict[str, Any]:
        requests.append(name)
        return {"cleaned_now": False, "rule": f"rule {len(requests)}", "settings": {}}

    with serving(view(partitions=(partition("orders", 0),)), explain) as served:
        page.open(f"{served.url}/partition/orders-0")
        page.wait("document.querySelector('main').innerText.includes('rule 1')")
        served.stage.change(lambda v: replace(v, made_ms=v.made_ms + 1))
        time.sleep(2.5)
        assert requests == ["orders-0"]
        served.stage.change(lambda v: replace(v, partitions=(partition("orders", 0, first_dirty_offset=9_000),)))
        page.wait("document.querySelector('main').innerText.includes('rule 2')")


@pytest.mark.long
def test_an_error_of_explain_is_shown(page: Page) -> None:
    async def explain(_name: str) -> dict[str, Any]:
        raise CorruptionError("the batch is torn", where="/d/orders-0/0.log", position=7)

    with serving(view(partitions=(partition("orders", 0),)), explain) as served:
        page.open(f"{served.url}/partition/orders-0")
        page.wait("document.querySelector('main').innerText.includes('the batch is torn')")
        page.wait("document.querySelector('main').innerText.includes('is not above min.cleanable')")
    page.complaints[:] = [each for each in page.complaints if "500" not in each]  # the browser logs the HTTP status


# ---- filter, sort, addresses ----


@pytest.mark.long
def test_filter_and_sort_are_in_the_address_and_come_back_from_it(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/")
    page.press("/")
    page.write("orders")
    page.wait("location.search === '?q=orders'")
    assert {name.split("-")[0] for name in names(page)} == {"orders"}
    page.run("[...document.querySelectorAll('th button')].find(b => b.textContent.startsWith('Dirty')).click()")
    assert page.run("location.search") == "?q=orders&sort=-dirty"
    in_order = names(page)
    assert page.run("document.querySelector('[aria-sort]').getAttribute('aria-sort')") == "descending"
    ratios = {each.name: each.dirty_ratio for each in busy_daemon.stage.shown.partitions}
    assert in_order == sorted(in_order, key=lambda name: -ratios[name])

    click(page, "table.rows tbody a")
    page.wait("location.pathname.startsWith('/partition/')")
    page.run("history.back()")
    page.wait("location.search === '?q=orders&sort=-dirty'")
    page.wait("document.querySelector('#filter')?.value === 'orders'")
    assert names(page) == in_order

    page.open(f"{busy_daemon.url}/?q=orders&sort=-dirty")
    assert names(page) == in_order
    page.press("/")
    page.press("Escape")
    page.wait("location.search === '?sort=-dirty'")
    assert len(names(page)) > len(in_order)


@pytest.mark.long
@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("name", lambda p: (p.topic, p.partition)), ("-name", None), ("-size", lambda p: -p.size_bytes),
        ("size", lambda p: p.size_bytes), ("-reclaim", lambda p: -(p.reclaimable_bytes or 0)),
    ],
)  # fmt: skip
def test_orders(page: Page, busy_daemon: Served, sort: str, key: Any) -> None:
    page.open(f"{busy_daemon.url}/?sort={sort}")
    shown = names(page)
    everything = busy_daemon.stage.shown.partitions
    wanted = sorted(everything, key=key or (lambda p: (p.topic, p.partition)))
    if sort == "-name":
        wanted = sorted(sorted(everything, key=lambda p: -p.partition), key=lambda p: p.topic, reverse=True)
    assert shown == [each.name for each in wanted][: len(shown)]


@pytest.mark.long
def test_states_narrow_the_list(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/?state=quarantined")
    assert len(names(page)) == 2
    click(page, "button[data-state=undelegated]")
    page.wait("location.search === '?state=undelegated'")
    assert {name.rpartition("-")[0] for name in names(page)} == {"payments.v2"}
    page.open(f"{busy_daemon.url}/?state=quarantined&q=nothing-like-this")
    assert "No partition matches" in text(page, "main")
    page.run("document.querySelector('.empty button').click()")
    assert page.run("location.search") == ""
    assert len(names(page)) > 10


@pytest.mark.long
def test_it_works_below_the_path_of_a_proxy(page: Page, busy_daemon: Served) -> None:
    """Every address is relative to the page's own script, however deep the page itself was opened."""
    with behind_proxy(busy_daemon) as url:
        page.open(f"{url}/kafka/cleanerd/partition/orders-0")
        page.wait("document.querySelector('.settings')")
        click(page, ".back a")
        page.wait("location.pathname === '/kafka/cleanerd/' && document.querySelector('table.rows tbody a')")
        click(page, "[data-view=history]")
        page.wait("location.pathname === '/kafka/cleanerd/history'")
        assert [each for each in page.requests if not each.startswith(f"{url}/kafka/cleanerd/")] == []


@contextlib.contextmanager
def behind_proxy(busy_daemon: Served) -> Iterator[str]:
    """A proxy that shows the server below /kafka/cleanerd/ and nothing else."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith("/kafka/cleanerd/"):
                self.send_error(404)
                return
            answer = busy_daemon.get(self.path.removeprefix("/kafka/cleanerd"))
            self.send_response(answer.status)
            for name in ("content-type", "content-security-policy"):
                self.send_header(name, answer.headers[name])
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Silent."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
