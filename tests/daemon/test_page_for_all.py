"""The status page for all users: keyboard, screen readers, phones, thousands of partitions, failures and attackers."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cleanerd.daemon.view import QuarantineView, RunningView
from tests.daemon.page_words import FOLDER, click, names, now_ms, text
from tests.daemon.serving import Served, serving
from tests.daemon.views import busy, clean, log_dir, partition, view

if TYPE_CHECKING:
    from tests.daemon.browser import Page

pytestmark = pytest.mark.browser

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&amp;'


# ---- accessibility ----


@pytest.mark.long
def test_the_keyboard_reaches_everything(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/?sort=name")
    page.run("document.activeElement.blur()")
    page.press("Tab")
    assert page.run("document.activeElement.id") == "skip"
    page.press("Enter")
    assert page.run("document.activeElement.id") == "main"
    page.run("document.querySelector('table.rows tbody a').focus()")
    for _ in range(30):  # far below the visible part
        page.press("ArrowDown")
    by_name = sorted(busy_daemon.stage.shown.partitions, key=lambda p: (p.topic, p.partition))
    assert page.run("document.activeElement.textContent") == by_name[30].name
    page.press("Enter")
    page.wait(f"document.querySelector('h1')?.textContent === {by_name[30].name!r}")
    assert page.run("document.activeElement.id") == "main"


@pytest.mark.long
def test_focus_and_selection_survive_an_update(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/?sort=name")
    page.run("document.querySelectorAll('table.rows tbody a')[2].focus()")
    name = page.run("document.activeElement.textContent")
    busy_daemon.stage.change(
        lambda v: replace(
            v, made_ms=v.made_ms + 1, partitions=tuple(replace(p, dirty_ratio=0.123) for p in v.partitions)
        )
    )
    page.wait("document.querySelector('td.c-dirty > span:last-child').textContent === '12 %'")
    assert page.run("document.activeElement.textContent") == name


@pytest.mark.long
def test_screen_readers_get_names_and_roles(page: Page, busy_daemon: Served) -> None:
    """The accessibility tree: every control has a name, the table its size, the tabs their current one."""
    page.open(f"{busy_daemon.url}/")
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    controls = {"button", "link", "searchbox", "combobox", "progressbar", "table", "columnheader"}
    nodes = [each for each in tree if not each.get("ignored") and each.get("role", {}).get("value") in controls]
    assert {each["role"]["value"] for each in nodes} == controls
    assert [each for each in nodes if not each.get("name", {}).get("value")] == []
    assert page.run("document.querySelector('table').getAttribute('aria-rowcount')") == "61"
    assert page.run("document.querySelector('[aria-current=page]').textContent") == "Partitions60"
    assert page.run("document.documentElement.lang") == "en"


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(page: Page, busy_daemon: Served, dark: bool) -> None:
    """WCAG AA: 4.5 to 1 for every visible text, in both themes."""
    page.set_window(dark=dark)
    for path in ("/", "/history", "/quarantine", "/log-dirs", "/partition/payments.v2-0"):
        page.open(f"{busy_daemon.url}{path}")
        page.wait("document.querySelector('main').innerText.length > 50")
        assert page.run(CONTRAST) == []


@pytest.mark.long
def test_the_theme_follows_the_system_until_one_is_chosen(page: Page, busy_daemon: Served) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page.open(f"{busy_daemon.url}/")
    light = page.run(ground)
    page.set_window(dark=True)
    dark = page.run(ground)
    assert light != dark
    page.wait("document.querySelector('#theme').getAttribute('aria-label') === 'Switch to the light theme'")
    click(page, "#theme")
    assert page.run(ground) == light
    page.open(f"{busy_daemon.url}/history")
    assert page.run(ground) == light
    click(page, "#theme")
    assert page.run(ground) == dark
    assert page.run("localStorage.length") == 0  # the system's own theme needs no memory


@pytest.mark.long
@pytest.mark.parametrize("width", [1400, 1600, 1920])
def test_reasons_are_readable_without_pointing_at_them(page: Page, width: int) -> None:
    """A reason of the usual length is not cut, and a row keeps its height."""
    reasons = (
        "nothing to clean: dirty from offset 81927952, cleanable up to 81927952 (set by the active segment)",
        "free space is at the reserve (cleanerd.disk.reserve, 25.2 GiB): nothing is cleaned here",
        "",
    )
    partitions = tuple(partition("orders", number, reason=reason) for number, reason in enumerate(reasons))
    page.set_window(width=width)
    with serving(view(partitions=partitions)) as served:
        page.open(f"{served.url}/?sort=name")
        page.wait("document.querySelectorAll('td.c-reason span').length === 3")
        found = "[...document.querySelectorAll('td.c-reason span')]"
        assert page.run(f"{found}.map(e => e.textContent)") == list(reasons)
        assert page.run(f"{found}.filter(e => e.scrollHeight > e.clientHeight + 1).length") == 0
        rows = "[...document.querySelectorAll('table.rows tbody tr:not(.spacer)')]"
        assert len(set(page.run(f"{rows}.map(e => e.getBoundingClientRect().height)"))) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "width", [360, 820, 1400, *(pytest.param(width, marks=pytest.mark.long) for width in (390, 800, 1000, 1200, 1600))]
)
def test_nothing_is_too_wide_or_squeezed(page: Page, busy_daemon: Served, width: int) -> None:
    """No window scrolls sideways.

    Numbers and states are never cut off, and the name of a partition has enough space.
    """
    busy_daemon.stage.change(
        lambda v: replace(
            v,
            partitions=(
                replace(v.partitions[0], phase="cleaning", delegated=False, dirty_ratio=1.0),
                *v.partitions[1:],
            ),
        )
    )
    page.set_window(width=width, height=740)
    tables, others = ("/", "/history"), ("/running", "/quarantine", "/log-dirs", "/partition/payments.v2-0")
    for path in (*tables, *others) if width == 360 else tables:
        page.open(f"{busy_daemon.url}{path}")
        page.wait("document.querySelector('main').innerText.length > 50")
        assert page.run("document.documentElement.scrollWidth") <= width
        cut = (
            "[...document.querySelectorAll('td.num, td.c-state, td .name span:last-child')]"
            ".filter(e => e.scrollWidth > e.clientWidth + 1).map(e => `${e.className}: ${e.innerText}`)"
        )
        assert page.run(cut) == [], path
        narrow = "[...document.querySelectorAll('td.c-name, td.h-name')].filter(e => e.clientWidth < 140).length"
        assert page.run(narrow) == 0, path


# ---- thousands of partitions, and failures ----


@pytest.mark.long
def test_5000_partitions_stay_smooth(page: Page) -> None:
    """Few rows in the document, whatever the scroll position: the cost per frame does not grow with the partitions."""
    with serving(busy(5000, now_ms=now_ms())) as served:
        page.open(f"{served.url}/")
        assert page.run("document.querySelectorAll('table.rows tbody tr').length") < 80
        assert page.run("document.documentElement.scrollHeight") > 5000 * 40
        counts = page.run(SCROLL)
        assert len(counts) == 40
        assert 5 < min(counts) <= max(counts) < 80, counts
        page.run("scrollTo(0, document.documentElement.scrollHeight)")
        last = "document.querySelector('table.rows tbody tr:nth-last-child(2)')"
        page.wait(f"{last}?.getAttribute('aria-rowindex') === '5001'")
        page.run("scrollTo(0, 0)")
        page.press("/")
        page.write("ledger")
        page.wait("document.querySelector('.found').textContent.includes('of 5')")


@pytest.mark.long
def test_a_daemon_that_stops_is_reported_and_one_that_returns_too(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/")
    before = names(page)
    busy_daemon.stop()
    page.wait("!document.querySelector('#banner').hidden")
    reported = text(page, "#banner")
    assert "cleanerd does not answer" in reported
    assert "systemctl status cleanerd" in reported
    assert names(page) == before  # the last data stay visible
    busy_daemon.start()
    page.run("document.querySelector('#banner button').click()")
    page.wait("document.querySelector('#banner').hidden")
    assert "lost" not in page.run("document.body.className")


@pytest.mark.long
def test_a_hidden_tab_polls_seldom(page: Page, busy_daemon: Served) -> None:
    """A background tab polls rarely, and at once when it becomes visible."""
    hide = "Object.defineProperty(document, 'hidden', {get: () => window.behind ?? true})"
    script = page.call("Page.addScriptToEvaluateOnNewDocument", source=hide)["identifier"]
    page.open(f"{busy_daemon.url}/")
    page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    time.sleep(2.5)
    page.run("1")
    assert [each for each in page.requests if each.endswith("/status")] == [f"{busy_daemon.url}/status"]
    busy_daemon.stage.change(lambda v: replace(v, mode="observe"))
    page.run("window.behind = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait("document.querySelector('#notices').innerText.includes('Observe mode')")  # and not after HIDDEN_MS


@pytest.mark.long
def test_a_new_version_offers_to_reload(page: Page, busy_daemon: Served) -> None:
    page.open(f"{busy_daemon.url}/")
    busy_daemon.stage.change(lambda v: replace(v, version="9.9.9"))
    page.wait("document.querySelector('#banner').innerText.includes('cleanerd is now 9.9.9')")


@pytest.mark.long
def test_no_text_becomes_markup(page: Page) -> None:
    """Users of Kafka choose names, reasons, paths and the agent's messages."""
    held = QuarantineView(EVIL, now_ms() - 1000, 1, None)
    topic = EVIL.replace("/", "")  # no server treats a slash as part of a name
    bad = partition(
        topic, 0, log_dir=EVIL, reason=EVIL, strategy=EVIL, fingerprint=EVIL, phase="quarantined", quarantine=held,
        last_cleaning=clean(EVIL, 0, result={"reason": EVIL, "outcome": EVIL}),
    )  # fmt: skip

    async def explain(_name: str) -> dict[str, Any]:
        settings = {EVIL: {"value": EVIL, "origin": EVIL}}
        return {
            "rule": EVIL,
            "reason": EVIL,
            "changes": EVIL,
            "limits": {EVIL: 1},
            "notes": [EVIL],
            "settings": settings,
        }

    shown = view(
        partitions=(bad, partition("javascript:alert(1)//", 0)), warnings=(EVIL,), unhealthy_reason=EVIL, healthy=False,
        history=(clean(EVIL, 0, result={"reason": EVIL, "removed": {EVIL: 1}}),), version=EVIL,
        log_dirs=(log_dir(EVIL, error=EVIL, mode_reason=EVIL, agent={EVIL: EVIL}),),
        running=(RunningView(EVIL, 0, EVIL, now_ms(), "manual", "index", 1, 2),),
    )  # fmt: skip
    with serving(shown, explain) as served:
        name = page.run(f"encodeURIComponent({topic!r} + '-0')")
        for path in (
            "",
            "running",
            "history",
            "quarantine",
            "log-dirs",
            f"partition/{name}",
            "?q=%3Cimg%20src=x%3E&sort=%22%3E",
        ):
            page.open(f"{served.url}/{path}")
            page.wait("document.querySelector('main').innerText.length > 20")
            assert page.run("document.querySelectorAll('main img, body script, main script').length") == 0
            assert page.run("window.hacked") is None
            assert page.run("[...document.links].every(a => a.protocol === 'http:')")


@pytest.mark.long
def test_the_page_loads_nothing_from_other_hosts(page: Page, busy_daemon: Served) -> None:
    for path in ("/", "/history", "/partition/orders-0"):
        page.open(f"{busy_daemon.url}{path}")
    page.run("1")
    assert page.requests
    assert [each for each in page.requests if not each.startswith(busy_daemon.url)] == []


def test_the_page_is_made_without_markup_from_text() -> None:
    """No script turns a string into markup or code, the page has nothing inline, and all addresses are its own."""
    for script in FOLDER.glob("*.js"):
        source = script.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\(\s*['\"]", source
        )
        assert "://" not in source
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"\son[a-z]+=|\sstyle=|<style|<script(?![^>]*\ssrc=)|://", index)


# ---- pictures, for eyes ----


@pytest.mark.skipif(
    "CLEANERD_SCREENSHOTS" not in os.environ, reason="makes pictures to look at: set CLEANERD_SCREENSHOTS to a folder"
)
def test_pictures(page: Page, busy_daemon: Served) -> None:
    """CLEANERD_SCREENSHOTS=/tmp/shots pytest -k pictures: every view on desktop and phone, light and dark."""
    folder = Path(os.environ["CLEANERD_SCREENSHOTS"])
    folder.mkdir(exist_ok=True)
    views = {name: f"/{name}" for name in ("running", "history", "quarantine", "log-dirs")}
    views |= {"list": "/", "partition": "/partition/payments.v2-0"}
    for size, width, height in (("desktop", 1440, 900), ("phone", 390, 844)):
        for dark in (False, True):
            page.set_window(width=width, height=height, dark=dark)
            for name, path in views.items():
                page.open(f"{busy_daemon.url}{path}")
                time.sleep(0.4)
                page.shoot(folder / f"{name}-{size}-{'dark' if dark else 'light'}.png")


SCROLL = """
new Promise(async (done) => {
  const counts = [];
  for (let step = 0; step < 40; step += 1) {
    scrollTo(0, step * 5000);
    await new Promise(requestAnimationFrame);
    await new Promise((later) => setTimeout(later));
    counts.push(document.querySelectorAll('table.rows tbody tr').length);
  }
  done(counts);
})
"""

CONTRAST = """
(() => {
  const parse = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
  const channel = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, noscript, .skip")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${walk.currentNode.data.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return bad;
})()
"""
